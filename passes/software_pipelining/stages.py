"""Which operations of a consumer loop may run one iteration late, so that dots overlap with what feeds them.

In a chain dot A -> elementwise -> dot B, B and what depends on it (the late part, stage 1) can run an iteration behind:
then A of the next iteration and B of this one are in flight together while the warp group computes in between.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from wspec.ir.core import Block, Operation, Value
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS, element_of
from wspec.ir.types import MemDescType, ScalarType
from wspec.model.machine import Machine
from wspec.model.operations import byte_size, loop_work
from wspec.plan.buffers import VIEWS, buffer_type, is_the_buffer
from wspec.plan.fill import fill_of
from wspec.plan.plan import LoopSchedule


def choose_late(loop: Operation, is_channel_load: Callable[[Operation], bool], machine: Machine) -> LoopSchedule:
    """The last dot that can and all that depends on it; nothing where loads take as long as all the rest together.

    Overlap shortens an iteration by what dots and arithmetic would take one after the other. Where its loads take that
    long in any case, nothing is gained for the registers that it costs. Modulo schedules (Rau's heuristic, and CP-SAT,
    which is exact) decided this before: the same in all loops of the shipped kernels under eight sets of options. In
    loops of the fuzzer's kernels they left more alone, and once chose more than the last dot; of 15 such kernels the
    simulator expects 2 % less time of this rule in the mean, 12 % less at best, 2 % more at worst (docs/notebook.md).
    """
    late = _last_part(loop, is_channel_load)
    work = loop_work(loop, machine)
    if work.tma >= work.mma + work.compute:
        return LoopSchedule(id_of(loop))
    return LoopSchedule(id_of(loop), tuple(id_of(op) for op in loop.regions[0].block.ops if op in late))


def _last_part(loop: Operation, is_channel_load: Callable[[Operation], bool]) -> set[Operation]:
    """The last dot that may run late, with all that depends on it; empty where the loop cannot be pipelined."""
    body = loop.regions[0].block
    dots = [op for op in body.ops if op.name in DOTS]
    if len(dots) < 2 or loop.attr("unsignedCmp") is not None:
        return set()
    for seed in reversed(dots):
        late = _late_part(body, seed, is_channel_load)
        early_dots = [dot for dot in dots if dot not in late]
        if early_dots and _feeds(early_dots, seed, body) and _can_carry(body, late, is_channel_load):
            return late
    return set()


def legal_late(loop: Operation, late_ids: frozenset[int], is_channel_load: Callable[[Operation], bool]) -> bool:
    """May exactly these operations of the loop run one iteration late?

    All that depends on a late operation must be late, and only numbers may be carried from the early part to them.
    """
    body = loop.regions[0].block
    late = {op for op in body.ops[:-1] if id_of(op) in late_ids}
    if len(late) != len(late_ids) or loop.attr("unsignedCmp") is not None:
        return False
    tainted = {r for op in late for r in op.results}
    tainted |= _late_state(body, late)
    closed = all(op in late or not _operands(op) & tainted for op in body.ops[:-1])
    return closed and _can_carry(body, late, is_channel_load)


def goes_ahead(late: Sequence[Operation]) -> list[Operation]:
    """Of late operations, in order, the arithmetic in front of the first dot, such as the scaling of an accumulator.

    It runs at the end of the iteration before: it must not stand between the early dots and the late ones, as ptxas
    serializes tensor core operations when a register that one of them reads is written while another is under way
    (C7513), and in front of the early ones it would keep them from being issued.
    """
    found: list[Operation] = []
    waiting: set[Value] = set()
    for op in itertools.takewhile(lambda op: op.name not in DOTS, late):
        if op.name.startswith(_BROUGHT) or _operands(op) & waiting:
            waiting.update(op.results)
        else:
            found.append(op)
    return found


_BROUGHT = ("wspec.", "ttg.memdesc_", "ttg.local_", "tt.descriptor_load", "tt.load")  # buffers, and what fills them


def accumulators(body: Block, is_stream: Callable[[Operation], bool]) -> list[Operation]:
    """The loop's dots if they may run on into the next iteration; else none.

    Each must do nothing but add to a value carried round the loop, and its operands must stay where they are while it
    runs: in a ring (`is_stream` tells what fills or names one) or in a buffer from outside the loop. A dot in a branch
    or an inner loop is waited for there, and with it all that were issued before: then none runs on.
    """
    dots = [op for op in body.ops if op.name in DOTS]
    if any(inner.name in DOTS for op in body.ops if op not in dots for inner in op.walk()):
        return []
    stay = all(_stays(value, body, is_stream) for dot in dots for value in dot.operands[:2])
    return dots if dots and stay and all(_only_accumulates(body, dot) for dot in dots) else []


def _stays(value: Value, body: Block, is_stream: Callable[[Operation], bool]) -> bool:
    if not isinstance(value.type, MemDescType):
        return False
    while (op := value.op) is not None and op.parent is body:
        if is_stream(op):
            return True
        source = op.operands[0] if op.name in VIEWS or op.name == "ttg.local_alloc" else None
        if source is None or (source.op is not None and not _in_place(op, source.op, is_stream)):
            return False
        value = source
    return value.owner is not body


def _in_place(op: Operation, source: Operation, is_stream: Callable[[Operation], bool]) -> bool:
    """Is an allocation no more than a name for the tile a stream brings?"""
    if op.name != "ttg.local_alloc":
        return True
    return is_stream(source) and fill_of(source) is not None and is_the_buffer(op, buffer_type(source))


def _only_accumulates(body: Block, dot: Operation) -> bool:
    carried = dot.operands[2]
    if carried.owner is not body or carried.index == 0:
        return False
    if body.terminator.operands[carried.index - 1] is not dot.result:
        return False
    readers = [(op, v) for op in body.walk() for v in op.operands if v in (carried, dot.result)]
    return len(readers) == 2


def _late_state(body: Block, late: set[Operation]) -> set[Value]:
    """The carried values whose next value a late operation computes."""
    return {body.args[1 + i] for i, value in enumerate(body.terminator.operands) if value.op in late}


def _operands(op: Operation) -> set[Value]:
    return {value for inner in op.walk() for value in inner.operands}


def _late_part(body: Block, seed: Operation, is_channel_load: Callable[[Operation], bool]) -> set[Operation]:
    """The seed, all that depends on it in this or the next iteration, and what only that needs."""
    late = {seed}
    grew = True
    while grew:
        grew = False
        tainted = {r for op in late for r in op.results}
        tainted |= _late_state(body, late)
        for op in body.ops[:-1]:
            if op not in late and _operands(op) & tainted:
                late.add(op)
                grew = True
    _sink(body, late, is_channel_load)
    return late


def _sink(body: Block, late: set[Operation], is_channel_load: Callable[[Operation], bool]) -> None:
    """Move to the late part what only it uses, where that carries fewer bytes round the loop."""
    for op in reversed(body.ops[:-1]):
        users = [user for user in body.ops if user is not op and set(op.results) & _operands(user)]
        if op in late or not users or not all(user in late for user in users):
            continue
        if (
            not op.operands
            or is_channel_load(op)
            or op.name in ("ttg.local_alloc", "ttg.memdesc_trans")
            or (not op.regions and _bytes(op.operands, body, late) < sum(byte_size(r.type) for r in op.results))
        ):
            late.add(op)


def _bytes(values: list[Value], body: Block, late: set[Operation]) -> int:
    """Bytes that would have to be carried to have these values late."""
    outside = [v for v in values if v.op is not None and v.op.parent is body and v.op not in late]
    outside += [v for v in values if v.owner is body]
    return sum(byte_size(v.type) for v in outside)


def _feeds(early_dots: list[Operation], seed: Operation, body: Block) -> bool:
    """Does an early dot's result reach the seed within one iteration?"""
    reached = {r for dot in early_dots for r in dot.results}
    for op in body.ops:
        if _operands(op) & reached:
            if op is seed:
                return True
            reached |= set(op.results)
    return False


def _can_carry(body: Block, late: set[Operation], is_channel_load: Callable[[Operation], bool]) -> bool:
    """Only numbers can be carried round the loop, not the buffers of channels, and effects must keep their order.

    Nothing moves where a loop inside takes tiles. Rings are filled in program order, and it may take more than its ring
    has buffers: what waits for a tile from behind it must not stand before it, nor may groups take turns around it. And
    where a launch says how often it runs, that iterations before and in the loop together take what the producer brings
    is not proved.
    """
    if any(not op.results and op.name != "scf.yield" for op in body.ops):
        return False
    loops = (inner for op in body.ops for inner in op.walk() if inner.name in ("scf.for", "scf.while"))
    if any(is_channel_load(inner) for loop in loops for inner in loop.walk()):
        return False
    for op in late:
        for value in _operands(op):
            crosses = value.op is not None and value.op.parent is body and value.op not in late
            if (crosses or value.owner is body) and not _is_number(value):
                return False
            if crosses and value.op is not None and is_channel_load(value.op):
                return False
    return True


def _is_number(value: Value) -> bool:
    return isinstance(element_of(value.type), ScalarType)
