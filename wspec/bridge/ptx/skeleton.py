"""Does the PTX, as LLVM wrote it, synchronize in the order that the TTGIR says?

Of each task both have a skeleton: which operations on mbarriers, copies, products and named barriers may follow each
other. That of the TTGIR is an automaton made of its loops and branches, which may be taken any number of times and
either way. The PTX that the task's warps execute is walked along its graph of control flow beside it: every sequence of
synchronizing instructions must be one that the automaton accepts, with the same counts, bytes, pendings and numbers. So
an instruction that is lost, doubled, changed or moved past another is found however loops were rotated, peeled or
merged. What LLVM and Triton add is let pass: barriers of a task's own threads, fences, `setmaxnreg`.

Not compared: at which mbarrier and in which phase, by which threads, how often a loop runs, and into how many copies a
tile is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation
from wspec.ir.types import DenseArrayAttr, StringAttr
from wspec.ptx import flow
from wspec.ptx.errors import PtxError
from wspec.ptx.inline import read_inline
from wspec.ptx.operands import Number, Operand
from wspec.ptx.roles import Role, roles_of
from wspec.ptx.syntax import Function, Instruction
from wspec.ptx.validation.arrivals import show_arrivals

Event = tuple[str | int, ...]
"""What happens, and its numbers."""

FENCE: Event = ("fence",)
_TRUE = ("true", "1 : i1", "-1 : i1")
_COPIES: dict[str, tuple[str, ...]] = {
    "ttng.async_tma_copy_global_to_local": ("load",),
    "ttng.async_tma_gather": ("load",),
    "ttng.async_tma_copy_local_to_global": ("store", "commit"),
    "ttng.async_tma_reduce": ("store", "commit"),
    "ttng.async_tma_scatter": ("store", "commit"),
}


class Skeleton:
    """An automaton: from a state, which events lead to which states; some steps take no event."""

    def __init__(self) -> None:
        self.steps: list[list[tuple[Event, int]]] = []
        self.free: list[list[int]] = []
        self.start = self.end = self.state()

    def state(self) -> int:
        self.steps.append([])
        self.free.append([])
        return len(self.steps) - 1

    def after(self, event: Event) -> None:
        """Behind what is there, the event."""
        following = self.state()
        self.steps[self.end].append((event, following))
        self.end = following

    def several(self, event: Event) -> None:
        """The event, once or more often."""
        self.after(event)
        self.steps[self.end].append((event, self.end))

    def closure(self, states: frozenset[int]) -> frozenset[int]:
        """With the states that are reached without an event."""
        found, work = set(states), list(states)
        while work:
            for way in self.free[work.pop()]:
                if way not in found:
                    found.add(way)
                    work.append(way)
        return frozenset(found)

    def next(self, states: frozenset[int], event: Event) -> frozenset[int]:
        """Where the event leads."""
        return self.closure(frozenset(way for state in states for one, way in self.steps[state] if one == event))


def skeletons(function: Operation) -> list[Skeleton]:
    """Of the code around with the default region, and of each partition. Raises PtxError."""
    regions = _regions(function)
    if len(regions) != 1:
        raise PtxError(f"the kernel has {len(regions)} places where tasks begin")
    found = []
    for block in (function.regions[0].block, *ws.partition_blocks(regions[0])):
        made = Skeleton()
        _add_block(made, block)
        found.append(made)
    return found


def _regions(function: Operation) -> list[Operation]:
    return [op for op in function.walk() if op.name == ws.NAME]


def _add_block(made: Skeleton, block: Block) -> None:
    for op in block.ops:
        if op.name == ws.NAME:
            _add_block(made, ws.default_block(op))
        elif op.name in ("scf.for", "scf.while"):
            _add_loop(made, op)
        elif op.name == "scf.if":
            _add_branch(made, op)
        elif op.regions and op.name.startswith(("scf.", "cf.")):
            raise PtxError(f"{op.name} is not compared")
        else:
            _add(made, op)


def _add_loop(made: Skeleton, op: Operation) -> None:
    """Any number of times; of a while loop the test once more."""
    top = made.state()
    made.free[made.end].append(top)
    made.end = top
    leave = top
    for region in op.regions:
        _add_block(made, region.block)
        leave = made.end if op.name == "scf.while" and region is op.regions[0] else leave
    made.free[made.end].append(top)
    made.end = made.state()
    made.free[leave].append(made.end)


def _add_branch(made: Skeleton, op: Operation) -> None:
    begin, ends = made.end, []
    for region in op.regions:
        made.end = made.state()
        made.free[begin].append(made.end)
        if region.blocks:
            _add_block(made, region.block)
        ends.append(made.end)
    made.end = made.state()
    for end in (*ends, *([begin] if len(op.regions) < 2 else [])):
        made.free[end].append(made.end)


def _add(made: Skeleton, op: Operation) -> None:
    match op.name:
        case "ttng.init_barrier":
            made.after(("init", op.int_attr("count") or 0))
        case "ttng.inval_barrier":
            made.after(("inval",))
        case "ttng.barrier_expect":
            made.after(("expect", op.int_attr("size") or 0))
        case "ttng.arrive_barrier":
            made.after(("arrive", op.int_attr("count") or 1))
        case "ttng.wait_barrier":
            begin = made.end
            made.after(("wait",))
            if _may_be_skipped(op):
                made.free[begin].append(made.end)
        case "ttng.async_tma_store_wait":
            made.after(("store wait", op.int_attr("pendings") or 0))
        case "ttng.fence_async_shared" | "ttng.fence":
            made.after(FENCE)
        case "ttng.warp_group_dot":
            made.after(("product",))
            if str(op.attr("isAsync")) != "true":
                made.after(("product wait", 0))
        case "ttng.warp_group_dot_wait":
            made.after(("product wait", op.int_attr("pendings") or 0))
        case "ttg.async_copy_global_to_local":
            made.several(("element",))
        case "ttg.async_commit_group":
            made.after(("element commit",))
        case "ttg.async_wait":
            made.after(("element wait", op.int_attr("num") or 0))
        case "ttng.async_copy_mbarrier_arrive":
            made.after(("element arrive",))
        case "tt.elementwise_inline_asm":
            for event in _of_assembly(op):
                made.after(event)
        case name if name in _COPIES:
            first, *more = _COPIES[name]
            made.several((first,))
            for word in more:
                made.after((word,))


def _may_be_skipped(op: Operation) -> bool:
    """Has a wait a predicate that is not always true?"""
    sizes = op.attr("operandSegmentSizes")
    if not isinstance(sizes, DenseArrayAttr) or sizes.values[2] == 0:
        return False
    maker = op.operands[2].op
    return (
        maker is None or maker.name != "arith.constant" or str(maker.attr("value")) not in ("true", "1 : i1", "-1 : i1")
    )


def _of_assembly(op: Operation) -> Iterator[Event]:
    text = op.attr("asm_string")
    for one in read_inline(text.plain if isinstance(text, StringAttr) else "").instructions:
        event = event_of(one, frozenset())
        if event is not None:
            yield event


# --------------------------------------------------------------------------------------------------- PTX


def event_of(one: Instruction, own: frozenset[int]) -> Event | None:
    """What an instruction does to others; None for what is let pass. `own`: barriers of a task's own threads.

    Raises PtxError for what is not known.
    """
    opcode, operands = one.opcode, one.operands
    if one.name in ("bar", "barrier"):
        numbers = [_number(operand) for operand in operands]
        if opcode in ("bar.warp.sync",) or (opcode in ("bar.sync", "barrier.sync") and numbers[0] in own):
            return None
        return (opcode, *(-1 if number is None else number for number in numbers))
    if one.name == "mbarrier":
        return _of_mbarrier(one)
    if opcode.startswith("fence.proxy.async"):
        return FENCE
    if opcode.startswith("wgmma.commit_group"):
        return ("product",)
    if opcode.startswith("wgmma.wait_group"):
        return ("product wait", _number(operands[0]) or 0)
    if one.name == "cp":
        return _of_copy(one)
    return None


def _of_mbarrier(one: Instruction) -> Event:
    operands = one.operands
    if one.opcode.startswith("mbarrier.init."):
        return ("init", _number(operands[1]) or 0)
    if one.opcode.startswith("mbarrier.inval."):
        return ("inval",)
    if one.opcode.startswith("mbarrier.arrive.expect_tx."):
        return ("expect", _number(operands[2]) or 0)
    if one.opcode.startswith("mbarrier.arrive.shared"):
        return ("arrive", (_number(operands[2]) or 0) if len(operands) > 2 else 1)
    if one.opcode.startswith("mbarrier.try_wait."):
        return ("wait",)
    raise PtxError(f"'{one}' is not compared")


def _of_copy(one: Instruction) -> Event | None:
    opcode, operands = one.opcode, one.operands
    if one.guard and opcode.startswith(("cp.async.bulk.commit_group", "cp.async.bulk.wait_group")):
        return None  # of a thread that makes a descriptor (ttng.tensormap_create)
    if opcode.startswith("cp.async.bulk.commit_group"):
        return ("commit",)
    if opcode.startswith("cp.async.bulk.wait_group"):  # with `.read` or, which is more, without
        return ("store wait", _number(operands[0]) or 0)
    if opcode.startswith(("cp.async.bulk.tensor.", "cp.reduce.async.bulk.tensor.")):
        return ("load",) if ".mbarrier::complete_tx" in opcode else ("store",)
    if opcode.startswith("cp.async.mbarrier.arrive."):
        return ("element arrive",)
    if opcode.startswith(("cp.async.ca.", "cp.async.cg.")):
        return ("element",)
    if opcode.startswith("cp.async.commit_group"):
        return ("element commit",)
    if opcode.startswith("cp.async.wait_group"):
        return ("element wait", _number(operands[0]) or 0)
    raise PtxError(f"'{one}' is not compared")


def _number(operand: Operand) -> int | None:
    return operand.value if isinstance(operand, Number) else None


# ------------------------------------------------------------------------------------------ side by side


def show_order(function: Operation, entry: Function) -> None:
    """Raises PtxError where the PTX does not follow the TTGIR. A kernel without tasks is not looked at: its threads are
    ordered by Triton alone."""
    if not _regions(function):
        return
    made = skeletons(function)
    blocks = flow.blocks_of(entry)
    asked = {
        event[1]
        for one in made
        for steps in one.steps
        for event, _ in steps
        if event[0] in ("bar.sync", "barrier.sync")
    }
    own = frozenset(number for number in range(16) if number not in asked)
    roles = roles_of(entry, blocks)
    _show_warps(function, roles)
    show_arrivals(blocks, roles)
    for role in roles:
        empty = role.partition is not None and role.partition + 1 >= len(made)
        index = 0 if role.partition is None else role.partition + 1
        _walk(Skeleton() if empty else made[index], blocks, role, own)


def _show_warps(function: Operation, roles: Sequence[Role]) -> None:
    """Raises PtxError where a partition is not executed by as many warps as the TTGIR says."""
    region = next(op for op in function.walk() if op.name == ws.NAME)
    counts = region.attr("partitionNumWarps")
    expected = dict(enumerate(counts.values)) if isinstance(counts, DenseArrayAttr) else {}
    found = {role.partition: len(role.warps) for role in roles}
    if len(found) != len(roles) or None not in found or any(found.get(at) != warps for at, warps in expected.items()):
        raise PtxError("the warps of the tasks are not those of the TTGIR")


def _walk(skeleton: Skeleton, blocks: Sequence[flow.Block], role: Role, own: frozenset[int]) -> None:
    """All ways of a role through its blocks, beside the ways through the automaton."""
    events = {number: _events(blocks[number], own) for number in role.blocks | {role.start[0]}}
    begin = skeleton.closure(frozenset((skeleton.start,)))
    work = [(role.start[0], role.start[1], begin)]
    seen = {(role.start[0], begin)}
    while work:
        number, place, states = work.pop()
        for at, one, event in events[number]:
            if at < place:
                continue
            following = skeleton.next(states, event)
            states = following | states if event == FENCE else following
            if not states:
                raise PtxError(f"'{one}' stands where the TTGIR has nothing like it")
        block = blocks[number]
        inside = [way for way in block.follow if way in role.blocks]
        leaves = len(inside) < len(block.follow) and number != role.start[0]
        if (leaves or not block.follow) and skeleton.end not in states:
            raise PtxError(f"the task of warps {_list(role.warps)} ends before it has done all that the TTGIR says")
        for way in inside:
            if (way, states) not in seen and not (way == number and block.spins):
                seen.add((way, states))
                work.append((way, 0, states))


def _events(block: flow.Block, own: frozenset[int]) -> list[tuple[int, Instruction, Event]]:
    found = ((at, one, event_of(one, own)) for at, one in enumerate(block.instructions) if _may_speak(one))
    return [(at, one, event) for at, one, event in found if event is not None]


def _may_speak(one: Instruction) -> bool:
    return one.name in ("bar", "barrier", "mbarrier", "fence", "wgmma", "cp")


def _list(warps: Sequence[int]) -> str:
    return ", ".join(map(str, warps))
