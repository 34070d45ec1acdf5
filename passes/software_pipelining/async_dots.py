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
iteration before, and the last ones are waited for behind the loop. Runs after pipeline_loops, whose order makes the
waits late.
"""

from __future__ import annotations

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value, replace_uses
from wspec.ir.loc import Location
from wspec.ir.numbering import id_of
from wspec.ir.types import I1, IntegerAttr, MemDescType
from wspec.ir.wgmma import DOT, WAIT, wait_for
from wspec.passes.software_pipelining.stages import accumulators
from wspec.plan.plan import Plan


def async_dots(module: Operation, plan: Plan) -> Operation:
    """Make the consumers' dots asynchronous."""
    op = ws.need(module)
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
    _wait(block, block.behind(dots[-1])[0], [dot.result for dot in dots], len(dots), dots[-1].location)
    _wait(outer, outer.behind(loop)[0], carried, 0, loop.location)


def _blocks_with_dots(block: Block) -> list[Block]:
    found = [block] if any(op.name == DOT for op in block.ops) else []
    for op in block.ops:
        for inner in op.blocks:
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
    wait = wait_for(results, pendings, location)
    position = block.ops.index(before)
    pairs = zip(results, wait.results, strict=True)
    # Who reads a buffer later names the allocation: Triton's allocator does not follow it through the wait.
    renamed = {value: now for value, now in pairs if not isinstance(value.type, MemDescType)}
    for op in block.ops[position:]:
        replace_uses(op, renamed)
    block.insert(position, wait)
