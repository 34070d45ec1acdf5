"""No warp arrives at an mbarrier for its task while another warp of it may still wait.

A task of several warps waits with all of them, and one thread arrives for all. If it may do so before its siblings have
seen the phase that they wait for, whoever it wakes can bring the mbarrier two phases on, and the siblings wait forever
(triton-lang/triton 10035). So between a wait and the task's next arrival its warps must meet: at a barrier, or in a
product of the warp group that is done, which each of its warps issues behind its own wait. Where Triton puts barriers
differs from version to version; this looks at those that are there.
"""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ptx import flow
from wspec.ptx.errors import PtxError
from wspec.ptx.roles import WARP, Role
from wspec.ptx.syntax import Instruction
from wspec.ptx.validation.group_barriers import AHEAD, MET, State, after


def show_arrivals(blocks: Sequence[flow.Block], roles: Sequence[Role]) -> None:
    """Raises PtxError where an arrival may come too early."""
    for role in roles:
        if role.threads > WARP:
            _show(blocks, role)


def _show(blocks: Sequence[flow.Block], role: Role) -> None:
    """All ways of a role, from the barrier of all threads at which it begins."""
    first, place = role.start
    entry: dict[int, State] = {}
    work = [(first, place, MET)]
    while work:
        number, begin, state = work.pop()
        for one in blocks[number].instructions[begin:]:
            if is_arrival(one) and state.done & AHEAD:
                raise PtxError(f"'{one}' may come while other warps of its task still wait")
            state = after(state, one, False, role.threads)
        for way in blocks[number].follow:
            if way not in role.blocks:
                continue
            joined = state if way not in entry else entry[way].joined(state)
            if way not in entry or joined != entry[way]:
                entry[way] = joined
                work.append((way, 0, joined))


def is_arrival(one: Instruction) -> bool:
    """One thread's, of its own: not that of copies when they are done."""
    return one.opcode.startswith("mbarrier.arrive")
