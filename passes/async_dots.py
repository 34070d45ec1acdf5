"""async_dots: issue every tensor core operation without waiting, and wait right before its result is needed.

    %s = warp_group_dot %q, %k        %s0 = warp_group_dot %q, %k {isAsync}
    %o = warp_group_dot %p, %v    =>  %o0 = warp_group_dot %p, %v {isAsync}
    %m = reduce %s                    %s = warp_group_dot_wait %s0 {pendings = 1}
    yield %o                          %m = reduce %s
                                      %o = warp_group_dot_wait %o0 {pendings = 0}
                                      yield %o

Dots of one warp group complete in the order they were issued, so a wait names how many later ones may still run, and
every result that is complete then passes through it. Nothing is left running at the end of a block, except where the
plan says that a loop keeps its dots in flight: such a loop does nothing but accumulate, its dots wait for those of the
iteration before, and the last ones are waited for behind the loop. Such a loop in one over tiles begins at once:

    for tile:                                  for tile iter_args(%last = zeros):
      %row = first row of the tile               %sum = for k iter_args(%acc = %last):
      %sum = for k iter_args(%acc = zeros):        %acc' = warp_group_dot %a, %b, %acc, k != first {isAsync}
        %acc' = warp_group_dot %a, %b, %acc        warp_group_dot_wait {pendings = 1}
      store %sum at %row                  =>     %row = first row of the tile       // while products still run
                                                 %done = warp_group_dot_wait %sum {pendings = 0}
                                                 store %done at %row
                                                 yield %done

Accumulators are not cleared for each tile: the first product overwrites them. Scalars that only the end of a tile needs
are computed beside the last products. Before the loop the tensor core would idle meanwhile.

Runs after pipeline_loops, whose order makes the waits late.
"""

from __future__ import annotations

import re

from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Value, replace_uses
from wspec.ir.loc import Location
from wspec.ir.ops import is_pure
from wspec.ir.types import I1, DenseAttr, IntegerAttr, ScalarType, i32
from wspec.ir.wgmma import DOT, WAIT
from wspec.plan.plan import Plan, id_of
from wspec.plan.schedule import accumulators

_ZERO = re.compile(r"0(\.0+(e[+-]?\d+)?)?", re.IGNORECASE)


def async_dots(module: Operation, plan: Plan) -> Operation:
    """Make the consumers' dots asynchronous."""
    op = ws.find(module)
    assert op is not None
    running = {schedule.loop for schedule in plan.loops if schedule.in_flight}
    for block in ws.task_blocks(op)[:-1]:
        for inner in _blocks_with_dots(block):
            loop = inner.parent_op
            if loop is not None and id_of(loop) in running and (dots := accumulators(inner, _is_ring)):
                _keep_in_flight(loop, dots)
            else:
                _schedule_waits(inner)
    return module


def _is_ring(op: Operation) -> bool:
    return op.name == "wspec.buffer"


def _keep_in_flight(loop: Operation, dots: list[Operation]) -> None:
    """Wait for the dots of the iteration before; behind the loop, for those of the last one."""
    block, outer = loop.regions[0].block, loop.parent
    assert outer is not None
    for dot in dots:
        dot.properties["isAsync"] = IntegerAttr(1, I1)
    carried = [loop.results[dot.operands[2].index - 1] for dot in dots]
    _wait(block, block.ops[block.ops.index(dots[-1]) + 1], [dot.result for dot in dots], len(dots), dots[-1].location)
    _wait(outer, outer.ops[outer.ops.index(loop) + 1], carried, 0, loop.location)
    _delay_arithmetic(outer, loop)
    _begin_without_zeros(outer, loop, dots)


def _delay_arithmetic(block: Block, loop: Operation) -> None:
    """Move scalar arithmetic that neither the loop nor anything before it needs behind the loop, in its order."""
    at = block.ops.index(loop)
    needed = {value for inner in loop.walk() for value in inner.operands}
    late: list[Operation] = []
    for op in reversed(block.ops[:at]):
        if _is_scalar_arithmetic(op) and needed.isdisjoint(op.results):
            late.append(op)
        else:
            needed.update(value for inner in op.walk() for value in inner.operands)
    stay = [op for op in block.ops[:at] if op not in late]
    block.ops[: at + 1] = [*stay, loop, *reversed(late)]


def _is_scalar_arithmetic(op: Operation) -> bool:
    if not op.name.startswith("arith.") or op.name == "arith.constant" or not is_pure(op):
        return False
    return all(isinstance(value.type, ScalarType) for value in (*op.operands, *op.results))


def _begin_without_zeros(block: Block, loop: Operation, dots: list[Operation]) -> None:
    """In a loop over tiles: the first products of a tile overwrite the accumulators of the one before.

    Zeros are written before the first tile alone. Where the loop makes no rounds it must make none for any tile, so
    that they are what every tile ends with.
    """
    tiles = block.parent_op
    if tiles is None or tiles.name != "scf.for" or tiles.parent is None:
        return
    if any(_differs(bound, tiles) for bound in loop.operands[:3]):
        return
    wait = next(op for op in block.ops[block.ops.index(loop) :] if op.name == WAIT)
    for dot in dots:
        at = dot.operands[2].index - 1
        zeros = loop.operands[3 + at]
        if len(dot.operands) != 3 or not _is_zeros(zeros):
            continue
        before = Builder(tiles.parent, tiles.parent.ops.index(tiles), dot.location)
        tiles.operands.append(before.zero(zeros.type))
        tiles.results.append(Value(zeros.type, tiles, len(tiles.results)))
        loop.operands[3 + at] = block.add_arg(zeros.type, dot.location)
        block.terminator.operands.append(wait.results[wait.operands.index(loop.results[at])])
        within = Builder(loop.regions[0].block, 0, dot.location)
        dot.operands.append(within.compare("ne", loop.regions[0].block.args[0], loop.operands[0]))


def _differs(value: Value, tiles: Operation) -> bool:
    """May the value be another one in each round of the loop over tiles?"""
    if value.op is None:
        holder = value.owner.parent_op if isinstance(value.owner, Block) else None
        return holder is not None and (holder is tiles or holder.is_inside(tiles))
    return value.op.name != "arith.constant" and value.op.is_inside(tiles)


def _is_zeros(value: Value) -> bool:
    """Is it a constant tile of zeros?"""
    op = value.op
    number = op.attr("value") if op is not None and op.name == "arith.constant" else None
    return isinstance(number, DenseAttr) and _ZERO.fullmatch(number.text) is not None


def _blocks_with_dots(block: Block) -> list[Block]:
    found = [block] if any(op.name == DOT for op in block.ops) else []
    for op in block.ops:
        for region in op.regions:
            for inner in region.blocks:
                found += _blocks_with_dots(inner)
    return found


def _schedule_waits(block: Block) -> None:
    pending: list[Operation] = []
    for op in list(block.ops):
        if op.name == WAIT and any(dot.result in op.operands for dot in pending):
            raise AssertionError("the block already waits for dots")
        needed = _last_needed(op, pending)
        if needed >= 0:
            done = pending[: needed + 1]
            values = [dot.result for dot in done] + _own_buffers(block, done)
            _wait(block, op, values, len(pending) - len(done), done[-1].location)
            pending = pending[needed + 1 :]
        if op.name == DOT:
            op.properties["isAsync"] = IntegerAttr(1, I1)
            pending.append(op)


def _own_buffers(block: Block, dots: list[Operation]) -> list[Value]:
    """Buffers the dots read that were written in this block: the wait keeps them from being given to others."""
    found: dict[Value, None] = {}
    for dot in dots:
        for value in dot.operands[:2]:
            while (op := value.op) is not None and op.parent is block and op.name.startswith("ttg.memdesc_"):
                value = op.operands[0]
            if value.op is not None and value.op.parent is block and value.op.name == "ttg.local_alloc":
                found[value] = None
    return list(found)


def _last_needed(op: Operation, pending: list[Operation]) -> int:
    """The index of the last pending dot `op` cannot run before; -1 when it needs none."""
    if (op.regions and op.name.startswith("scf.")) or op is op.parent.terminator if op.parent else False:
        return len(pending) - 1
    used = {value for inner in op.walk() for value in inner.operands}
    return max((i for i, dot in enumerate(pending) if dot.result in used), default=-1)


def _wait(block: Block, before: Operation, results: list[Value], pendings: int, location: Location) -> None:
    wait = Operation.create(WAIT, results, [v.type for v in results], {"pendings": i32(pendings)}, location=location)
    position = block.ops.index(before)
    renamed = dict(zip(results, wait.results, strict=True))
    for op in block.ops[position:]:
        replace_uses(op, renamed)
    block.insert(position, wait)
