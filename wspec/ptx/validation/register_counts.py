"""How many registers the threads of each task have: `setmaxnreg` gives what there is, and the tasks get what they must.

All warps of a group of four change together; a count is raised by `.inc` and lowered by `.dec`; between two meetings of
all threads the groups together have at most what a multiprocessor has, in whatever order they change, or those that ask
for more would wait for what nobody gives; and while a task runs it has the registers that it was compiled for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from wspec.ptx import flow
from wspec.ptx.errors import PtxError
from wspec.ptx.operands import number_of
from wspec.ptx.roles import WARP, Role, is_meeting
from wspec.ptx.syntax import Function, Instruction

GROUP = 4  # warps
REGISTERS = 1 << 16  # of a multiprocessor
FEWEST, MOST, STEP = 24, 256, 8
MOST_MEETINGS = 16  # of all threads; in Triton's kernels they are four
_LIMIT = re.compile(r"\.maxnreg\s+(\d+)")


def show_registers(
    function: Function, blocks: Sequence[flow.Block], roles: Sequence[Role], expected: Sequence[int]
) -> None:
    """Raises PtxError where a count is not as it must be. `expected`: of the code around and of each partition; empty
    where nothing is known of it."""
    changes = [one for block in blocks for one in block.instructions if one.name == "setmaxnreg"]
    limit = _LIMIT.search(function.header)
    if not changes:
        return
    if limit is None:
        raise PtxError("how many registers a thread has at first is not said")
    held: dict[int, dict[int, set[int]]] = {}  # meeting -> warp -> counts before it
    for role in roles:
        index = 0 if role.partition is None else role.partition + 1
        needed = min(expected[index], MOST) if index < len(expected) else None
        for meeting, count in _Counts(blocks, role, int(limit[1]), needed).at_meetings():
            for warp in role.warps:
                held.setdefault(meeting, {}).setdefault(warp, set()).add(count)
    for found in held.values():
        total = 0
        for first in range(0, max(found) + 1, GROUP):
            counts = set[int]().union(*(found.get(warp, set()) for warp in range(first, first + GROUP)))
            if len(counts) > 1:
                raise PtxError(f"warps {first} to {first + GROUP - 1} have different numbers of registers")
            total += GROUP * WARP * max(counts, default=0)
        if total > REGISTERS:
            raise PtxError(f"the tasks ask for {total} registers, of {REGISTERS}")


class _Counts:
    """Of one role, along its ways. `needed`: while its task runs; None where that is not known."""

    def __init__(self, blocks: Sequence[flow.Block], role: Role, limit: int, needed: int | None) -> None:
        self._blocks, self._role, self._limit, self._needed = blocks, role, limit, needed

    def at_meetings(self) -> Iterator[tuple[int, int]]:
        """(which meeting, registers of a thread before it). Raises PtxError."""
        count, meeting = self._limit, 0
        role, (start, place) = self._role, self._role.start
        for number in role.way:
            instructions = self._blocks[number].instructions
            for one in instructions[:place] if number == start else instructions:
                if is_meeting(one):
                    yield meeting, count
                    meeting += 1
                count = _changed(one, count)
        yield from self._in_task(start, place, count, meeting)

    def _in_task(self, number: int, place: int, count: int, meeting: int) -> Iterator[tuple[int, int]]:
        seen = set[tuple[int, int, int]]()
        work = [(number, place, count, meeting)]
        while work:
            number, place, count, meeting = work.pop()
            for one in self._blocks[number].instructions[place:]:
                if is_meeting(one):
                    yield meeting, count
                    meeting += 1
                    if meeting > MOST_MEETINGS:
                        raise PtxError("how often all threads meet is not known")
                if _works(one) and self._needed is not None and count != self._needed:
                    raise PtxError(f"a task has {count} registers a thread, and was made for {self._needed}")
                count = _changed(one, count)
            for way in self._blocks[number].follow:
                if way not in self._role.blocks:
                    if self._role.partition is not None:  # others leave at the beginning of who begins
                        yield from self._back(way, count, meeting)
                elif (way, count, meeting) not in seen:
                    seen.add((way, count, meeting))
                    work.append((way, 0, count, meeting))

    def _back(self, number: int, count: int, meeting: int) -> Iterator[tuple[int, int]]:
        """Where warps wait for what to do next, up to where all meet."""
        for one in self._blocks[number].instructions:
            if is_meeting(one):
                yield meeting, count
                return
            count = _changed(one, count)


def _works(one: Instruction) -> bool:
    """Is it something that only a task does?"""
    return one.opcode.startswith(("wgmma.mma_async", "mbarrier.try_wait", "mbarrier.arrive", "cp.async"))


def _changed(one: Instruction, count: int) -> int:
    if one.name != "setmaxnreg":
        return count
    wanted = number_of(one.operands[0])
    if wanted is None or one.guard or wanted % STEP or not FEWEST <= wanted <= MOST:
        raise PtxError(f"'{one}' asks for registers that there are not")
    if wanted < count if one.opcode.startswith("setmaxnreg.inc") else wanted > count:
        raise PtxError(f"'{one}' does not do what it says: there are {count}")
    return wanted
