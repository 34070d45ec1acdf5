"""No warp goes on for its task while another warp of it may still wait, but where the proof of the TTGIR says it may.

A task of several warps waits with all of them, and one thread arrives for all. If it may do so before its siblings have
seen the phase that they wait for, whoever it wakes can bring the mbarrier two phases on, and the siblings wait forever
(triton-lang/triton 10035). So between a wait and the task's next arrival its warps must meet: at a barrier, or in a
product of the warp group that is done, which each of its warps issues behind its own wait. Where Triton puts barriers
differs from version to version; this looks at those that are there.

The thread that says how many bytes will come, or starts a copy, may be ahead of its siblings: the proof of the TTGIR
takes that into account, up to the second time that mbarriers of one allocation are used behind the wait
(wspec/check/barriers.py). By then the warps must have met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wspec.ptx import flow
from wspec.ptx.errors import PtxError
from wspec.ptx.roles import WARP, Role
from wspec.ptx.syntax import Instruction
from wspec.ptx.validation.group_barriers import AHEAD, MET, State, after, speaking

Uses = Callable[[Instruction], frozenset[int] | None]
"""The allocations whose mbarriers an instruction of one thread uses; None where that is not known."""


def show_arrivals(blocks: Sequence[flow.Block], roles: Sequence[Role], uses: Uses) -> None:
    """Raises PtxError where an arrival, or the like, may come too early."""
    for role in roles:
        if role.threads > WARP:
            _show(blocks, role, uses)


def _show(blocks: Sequence[flow.Block], role: Role, uses: Uses) -> None:
    """All ways of a role, from the barrier of all threads at which it begins."""
    first, place = role.start
    entry: dict[int, tuple[State, frozenset[int]]] = {}
    work = [(first, place, MET, frozenset[int]())]
    steps: dict[int, list[Instruction]] = {}
    while work:
        number, begin, state, used = work.pop()
        if number not in steps:
            steps[number] = speaking(blocks[number].instructions)
        for one in speaking(blocks[number].instructions[begin:]) if begin else steps[number]:
            if state.done & AHEAD:
                used = _checked(one, used, uses)
            state = after(state, one, False, role.threads)
            if not state.done & AHEAD:
                used = frozenset()
        for way in blocks[number].follow:
            if way not in role.blocks:
                continue
            before = entry.get(way)
            joined = (state, used) if before is None else (before[0].joined(state), before[1] | used)
            if joined != before:
                entry[way] = joined
                work.append((way, 0, *joined))


def _checked(one: Instruction, used: frozenset[int], uses: Uses) -> frozenset[int]:
    """The allocations used with siblings behind, and those of an instruction. Raises PtxError."""
    if is_arrival(one):
        raise PtxError(f"'{one}' may come while other warps of its task still wait")
    if not (one.opcode.startswith("mbarrier.arrive") or is_copy(one)):
        return used
    own = uses(one)
    if own is None or own & used:
        raise PtxError(f"'{one}' may come a second time while other warps of its task still wait")
    return used | own


def is_arrival(one: Instruction) -> bool:
    """One thread's, of its own: not that of copies when they are done, nor one that says how many bytes will come."""
    return one.opcode.startswith("mbarrier.arrive") and not one.opcode.startswith("mbarrier.arrive.expect_tx")


def is_copy(one: Instruction) -> bool:
    """A bulk copy that tells an mbarrier when it is done."""
    return one.opcode.startswith("cp.async.bulk.tensor.") and ".mbarrier::complete_tx" in one.opcode
