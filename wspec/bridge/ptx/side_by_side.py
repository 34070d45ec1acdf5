"""Does the PTX, as LLVM wrote it, synchronize as the TTGIR says?

The PTX that a task's warps execute is walked along its graph of control flow beside the task's automaton: every
sequence of events that its threads can do must be one that the TTGIR's loops and branches allow, at the same mbarriers,
in the same phases, with the same counts, bytes, pendings and numbers, into the same buffers, by one thread or all as
each asks for. So an instruction that is lost, doubled, changed or moved past another is found however loops were
rotated, peeled or merged. What LLVM and Triton add is
let pass: fences, and barriers of a task's own threads, which are asked for where they are needed.

Not shown for all launches: how often a loop runs, which way a branch goes, and where in global memory a copy begins.
That is compared in launches whose numbers are drawn (same_tiles.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from wspec.bridge.ptx.draws import divides
from wspec.bridge.ptx.protocol import Protocol
from wspec.bridge.ptx.same_tiles import show_tiles
from wspec.bridge.ptx.ways import MOST_VALUES, State, Together, Ways
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation, Value
from wspec.ir.shared_memory import Area, Placement
from wspec.ir.types import DenseArrayAttr
from wspec.ptx import flow
from wspec.ptx.barrier_numbers import BarrierNumbers
from wspec.ptx.behaviour import Behaviour, Environment
from wspec.ptx.errors import PtxError
from wspec.ptx.evaluation import evaluation_of
from wspec.ptx.events import ELSEWHERE, FENCE, Event, is_group_barrier
from wspec.ptx.followed import Followed
from wspec.ptx.operands import number_of
from wspec.ptx.quotients import show_quotients
from wspec.ptx.registers import Writers
from wspec.ptx.roles import MEETING_BARRIER, Role, roles_of
from wspec.ptx.syntax import Function, Instruction
from wspec.ptx.validation.arrivals import show_arrivals
from wspec.ptx.validation.register_counts import show_registers
from wspec.ptx.validation.thread_order import show_thread_order

NAMED_BARRIERS = 16  # of a block
MOST_STATES = 50_000  # of one task
MOST_TRIPS = 1024  # of a loop that is counted


def protocols(function: Operation, places: Mapping[Operation, Area]) -> list[Protocol]:
    """Of the code around with the default region, and of each partition. Raises PtxError."""
    regions = _regions(function)
    if len(regions) != 1:
        raise PtxError(f"the kernel has {len(regions)} places where tasks begin")
    blocks = ws.partition_blocks(regions[0])
    captured = {arg: value for block in blocks for arg, value in zip(block.args, regions[0].operands, strict=True)}
    return [Protocol(block, places, captured) for block in (function.regions[0].block, *blocks)]


def _regions(function: Operation) -> list[Operation]:
    return [op for op in function.walk() if op.name == ws.NAME]


def show_order(function: Operation, entry: Function, placement: Placement) -> str:
    """Why the places of copies were not compared; "" where they were. Raises PtxError where the PTX does not follow the
    TTGIR. A kernel without tasks is not looked at: its threads are ordered by Triton alone.

    `placement`: where the function's allocations lie, and how many registers its tasks get.
    """
    if not _regions(function):
        return ""
    places = placement.areas
    made = protocols(function, places)
    blocks = flow.blocks_of(entry)
    asked = {number for one in made for number in one.named_barriers()}
    own = frozenset(range(NAMED_BARRIERS)) - asked - {MEETING_BARRIER}
    roles = roles_of(entry, blocks)
    _show_warps(function, roles)
    writers, used = Writers(entry), _Used(places.values())
    _show_group_barriers(blocks, roles, own, BarrierNumbers(blocks, writers))
    buffers = [range(area.start, area.stop) for op, area in places.items() if op.name == "ttg.local_alloc"]
    evaluations = functools.cache(lambda role: evaluation_of(role, writers))
    show_thread_order(blocks, roles, writers, buffers=buffers, evaluations=evaluations)
    show_registers(entry, blocks, roles, placement.registers)
    if divides(function):
        show_quotients([one for block in blocks for one in block.instructions])
    for role in roles:
        index = 0 if role.partition is None else role.partition + 1
        task = made[index] if index < len(made) else Protocol(None, places, {})
        _show_task(task, functools.partial(Followed, blocks, role, writers, own, evaluations(role)), used)
    show_arrivals(blocks, roles, used.by)
    return show_tiles(function, blocks, roles, writers, places)


class _Used:
    """Of which allocations the mbarriers are that an instruction uses: what was seen of it while it was followed."""

    def __init__(self, areas: Iterable[Area]) -> None:
        self._areas = list(areas)
        self._seen: dict[int, set[int]] = {}  # instruction, by identity

    def note(self, one: Instruction, event: Event) -> None:
        if event.at not in (None, ELSEWHERE):
            found = (number for number, area in enumerate(self._areas) if area.start <= (event.at or 0) < area.stop)
            self._seen.setdefault(id(one), set()).update(found)

    def by(self, one: Instruction) -> frozenset[int] | None:
        return frozenset(self._seen[id(one)]) if id(one) in self._seen else None


def _show_warps(function: Operation, roles: Sequence[Role]) -> None:
    """Raises PtxError where a partition is not executed by as many warps as the TTGIR says."""
    region = next(op for op in function.walk() if op.name == ws.NAME)
    counts = region.attr("partitionNumWarps")
    expected = dict(enumerate(counts.values)) if isinstance(counts, DenseArrayAttr) else {}
    found = {role.partition: len(role.warps) for role in roles}
    if len(found) != len(roles) or None not in found or any(found.get(at) != warps for at, warps in expected.items()):
        raise PtxError("the warps of the tasks are not those of the TTGIR")


def _show_group_barriers(
    blocks: Sequence[flow.Block], roles: Sequence[Role], own: frozenset[int], barriers: BarrierNumbers
) -> None:
    """Raises PtxError where threads of a task wait for others than those of the task."""
    users: dict[int, Role] = {}
    for role in roles:
        for one in (one for number in role.blocks for one in blocks[number].instructions):
            number = barriers.of(one, role) if one.name in ("bar", "barrier") else None
            if number is not None and is_group_barrier(one, own, number):
                threads = number_of(one.operands[1])
                if threads != role.threads or users.setdefault(number, role) is not role or one.guard:
                    raise PtxError(f"'{one}' is not a barrier of the {role.threads} threads of its task")


def _show_task(task: Protocol, follow: Callable[[bool], Followed], used: _Used) -> None:
    """Raises PtxError where a task does not follow the TTGIR.

    One part of its registers after the other, each with the values of the TTGIR that it stands for. Where that does not
    do, because a value has several parts, all at once; and where it hangs on how often a loop runs, loops that end at a
    number are counted. `follow`: the registers, with counters or without.
    """
    code = follow(False)
    ways = functools.cache(functools.partial(Ways, task))
    try:
        for part in code.parts or [frozenset[str]()]:
            _show_part(ways, code, part, used)
    except PtxError as error:
        if not (_is_shown(task, code, frozenset(), used) or _is_shown(task, follow(True), task.positions(), used)):
            raise error from None


def _is_shown(task: Protocol, code: Followed, positions: frozenset[Value], used: _Used) -> bool:
    """With all registers at once, and these positions of loops."""
    most = MOST_TRIPS if positions else MOST_VALUES
    try:
        _walk(Ways(task, task.followed | positions, True, most), Behaviour(code, code.all, most), code.role, used)
    except PtxError:
        return False
    return True


def _show_part(ways: Callable[[frozenset[Value]], Ways], code: Followed, part: frozenset[str], used: _Used) -> None:
    values, behaviour = frozenset[Value](), Behaviour(code, part)
    while True:
        try:
            return _walk(ways(values), behaviour, code.role, used)
        except Together as more:
            values |= more.part


def _walk(task: Ways, code: Behaviour, role: Role, used: _Used) -> None:
    """All ways of a role through its blocks, beside the ways through the automaton."""
    states = task.begin()
    work = [(number, environment, states, True) for number, environment in code.starts()]
    seen = set[tuple[int, Environment, frozenset[State]]]()
    while work:
        number, environment, begin, is_first = work.pop()
        for events, ways, ends in code.outcomes(number, environment, is_first):
            states = begin
            for one, event in events:
                used.note(one, event)
                following = task.after(states, event)
                if not following and event != FENCE:
                    raise PtxError(_unexpected(one, event, event.kind in task.expected(states)))
                states = following | states if event == FENCE else following
            if ends and not task.ends(states):
                raise PtxError(f"the task of warps {_list(role.warps)} ends before it has done all that the TTGIR says")
            for way, held in ways:
                if (way, held, states) not in seen:
                    seen.add((way, held, states))
                    work.append((way, held, states, False))
        if len(seen) > MOST_STATES:
            raise PtxError(f"the task of warps {_list(role.warps)} has too many states")


def _unexpected(one: Instruction, event: Event, is_expected: bool) -> str:
    if not is_expected:
        return f"'{one}' stands where the TTGIR has nothing like it"
    phase = "" if event.phase is None else f" in phase {event.phase}"
    at = "" if event.at is None else f" at byte {event.at} of shared memory{phase}"
    buffers = f" with the buffer at byte {_list(event.buffers)}" if event.buffers else ""
    return f"'{one}' happens{at}{buffers}, which the TTGIR does not say"


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
