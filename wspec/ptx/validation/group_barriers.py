"""Barriers of a warp group that are gone: nothing needed the order that they made.

A barrier orders what each thread of the group did before it with what the others do behind it. Followed is, on every
way through the function, what a thread may have done since the group last met at a barrier that is still there, and
how much of that was done before a barrier that is gone:

- TOUCHED: written to shared memory as threads do, or done what must be handed to others by a barrier, as waiting for
  copies. Behind a missing barrier nothing may then come that others' part of it matters to.
- READ: shared memory, as threads do. Then nothing may be handed on or stored there; reading it again is free.
- STORED: to global memory, as threads do. Then nothing may be handed on or read from there.
- FENCED: proxies. Then nothing may be handed on; what a thread itself does needs no other's fence.
- AHEAD: passed a wait at an mbarrier that others of the group may not have passed. A wait for products ends that: a
  wgmma belongs to the four warps of a group and is done when each has issued it, behind its waits (those for the
  operands of products still under way guard buffers that nobody fills before those are done). Before, nothing may be
  handed on: a barrier could go round while a sibling still looks for its phase, or a buffer be filled that a sibling's
  product is going to read.
- making: one thread, always the same, has made or ended mbarriers. It may go on to do so; nobody may use them.

Threads of a group go the same way: that control flow of a task does not differ within it is shown on the TTGIR
(wspec.check).
Stores of threads to global memory are in no order among themselves, as TTGIR has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from wspec.ptx.addresses import Addresses
from wspec.ptx.barrier_numbers import BarrierNumbers
from wspec.ptx.effects import ACCESSES, ARITHMETIC, EXCHANGES, space
from wspec.ptx.errors import PtxError
from wspec.ptx.fixed_points import states_before
from wspec.ptx.flow import BRANCHES, ENDS, Block, blocks_of
from wspec.ptx.operands import number_of
from wspec.ptx.registers import Writers
from wspec.ptx.roles import Role, roles_of
from wspec.ptx.syntax import Function, Instruction

GROUP = 128  # threads of a warp group
_OF_ONE_THREAD = ("wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", "cp.async.bulk.commit_group",
                  "cp.async.bulk.wait_group", "cp.async.commit_group", "cp.async.wait_group")  # fmt: skip
_RELEASES = frozenset(("relaxed", "release", "acq_rel", "acquire", "volatile", "mmio"))
MBARRIER = 8  # bytes
_STORED = {"st.shared.b8": 1, "st.shared.b16": 2, "st.shared.b32": 4, "st.shared.v2.b32": 8, "st.shared.v4.b32": 16}
_SEVERAL = "several"
_SILENT = ARITHMETIC | EXCHANGES | BRANCHES | ENDS
_NOTHING = frozenset(("setmaxnreg", "griddepcontrol", "prefetch", "prefetchu", "createpolicy", "nanosleep"))


TOUCHED, READ, STORED, FENCED, AHEAD = 1, 2, 4, 8, 16
EVERYTHING = 31


@dataclass(frozen=True, slots=True)
class State:
    """What may have happened since the group last met. Sets of the numbers above."""

    done: int = 0
    exposed: int = 0  # and a barrier is gone behind it
    waited: bool = False  # at an mbarrier, and no product has been issued since
    making: str = ""  # the predicate of the thread that has made or ended mbarriers; or several
    making_exposed: str = ""

    def joined(self, other: State) -> State:
        """What may have happened where two ways meet."""
        return State(
            self.done | other.done,
            self.exposed | other.exposed,
            self.waited or other.waited,
            _either(self.making, other.making),
            _either(self.making_exposed, other.making_exposed),
        )


def _either(one: str, other: str) -> str:
    return one if not other or one == other else _SEVERAL if one else other


MET = State()
BEGIN = State(EVERYTHING, waited=True, making=_SEVERAL)


def show_barriers(merged: Function, gone: Iterable[Instruction]) -> None:
    """Raises PtxError where one that is gone may be missed. `merged` has those that are gone as well."""
    missing = {id(one) for one in gone}
    blocks = blocks_of(merged)
    barriers = [one for one in gone if one.name in ("bar", "barrier")]
    if not barriers:
        return
    roles = roles_of(merged, blocks)
    groups = show_own(blocks, roles, barriers, BarrierNumbers(blocks, Writers(merged)))
    widest = max(role.threads for role in roles)
    making = [one for block in blocks for one in block.instructions if _is_making(one)]
    guards, makers = tuple({f"{one.guard}," for one in making}), Makers(merged, making)
    steps = [_interesting(block, guards) for block in blocks]

    def behind(number: int, state: State) -> Iterator[tuple[int, State]]:
        threads = GROUP if number in groups else widest
        for one in steps[number]:
            state = after(state, one, id(one) in missing, threads)
        yield from ((way, state) for way in blocks[number].follow)

    for number, state in states_before({0: BEGIN}, behind, State.joined).items():
        threads = GROUP if number in groups else widest
        for one in steps[number]:
            if (state.exposed or state.making_exposed) and id(one) not in missing:
                _check(state, one, makers, threads)
            state = after(state, one, id(one) in missing, threads)


def show_own(
    blocks: Sequence[Block], roles: Sequence[Role], gone: Iterable[Instruction], barriers: BarrierNumbers
) -> frozenset[int]:
    """The blocks that a single warp group executes. Raises PtxError where others come to a barrier that is gone."""
    users: dict[int, set[Role | None]] = {}  # None: warps of no role, as before the tasks
    for block in blocks:
        inside = [role for role in roles if block.number in role.blocks]
        for one in block.instructions:
            if one.name in ("bar", "barrier") and not one.opcode.startswith("bar.warp"):
                for role in inside or (None,):
                    users.setdefault(_number(one, role, barriers), set()).add(role)
    for one in gone:
        first, *rest = one.operands
        count, number = number_of(rest[0]) if rest else None, number_of(first)
        whose = users[number] if number is not None else set()
        if len(whose) != 1 or any(role is None or count != role.threads for role in whose):
            raise PtxError(f"'{one}' is gone, and it is not shown that it is of one task alone")
    alone = [role for role in roles if role.threads == GROUP and role.warps[0] % 4 == 0]
    shared = frozenset(
        number for role in alone for number in role.blocks for other in roles if other is not role
        and number in other.blocks
    )  # fmt: skip
    return frozenset(number for role in alone for number in role.blocks) - shared


def _number(one: Instruction, role: Role | None, barriers: BarrierNumbers) -> int:
    """Of the barrier at which those of a role meet there. Raises PtxError."""
    number = number_of(one.operands[0]) if role is None else barriers.of(one, role)
    if number is None:
        raise PtxError(f"at which barrier threads meet at '{one}' is not known")
    return number


def _interesting(block: Block, guards: tuple[str, ...]) -> list[Instruction]:
    """All but what only computes and goes its way; what sets the predicate of one who makes mbarriers stays."""
    return [one for one in block.instructions if one.name not in _SILENT or (guards and one.text.startswith(guards))]


def speaking(instructions: Iterable[Instruction]) -> list[Instruction]:
    """Those that do more than compute and go their way."""
    return [one for one in instructions if one.name not in _SILENT]


def _is_making(one: Instruction) -> bool:
    return one.opcode.startswith(("mbarrier.init.", "mbarrier.inval."))


def _is_wait(one: Instruction) -> bool:
    return one.opcode.startswith(("mbarrier.try_wait", "mbarrier.test_wait"))


def meets(one: Instruction, threads: int) -> bool:
    """Do so many threads that go the same way meet here?"""
    opcode = one.opcode.removesuffix(".aligned")
    if opcode not in ("bar.sync", "barrier.sync") or one.guard:
        return False
    return len(one.operands) < 2 or (number_of(one.operands[1]) or 0) >= threads


def after(state: State, one: Instruction, is_gone: bool, threads: int) -> State:
    """What may have happened behind an instruction. `threads`: how many there may be that go the same way."""
    if is_gone:
        if one.name not in ("bar", "barrier"):
            return state
        making = _either(state.making_exposed, state.making)
        return replace(state, exposed=state.exposed | state.done, making_exposed=making)
    if meets(one, threads):
        return MET
    if one.name in ARITHMETIC or one.name in EXCHANGES:  # it sets the predicate of one who makes mbarriers
        if not state.making and not state.making_exposed:
            return state
        making, exposed = (_SEVERAL if made else "" for made in (state.making, state.making_exposed))
        return replace(state, making=making, making_exposed=exposed)
    if _is_making(one):
        return replace(state, making=_either(state.making, one.guard or _SEVERAL))
    if _is_wait(one):
        return replace(state, done=state.done | AHEAD, waited=True)
    if one.opcode.startswith("wgmma.mma_async"):
        return replace(state, done=state.done | AHEAD, waited=False) if state.waited else _with(state, AHEAD)
    if one.opcode.startswith("wgmma.wait_group") and threads == GROUP and not state.waited:
        return replace(state, done=state.done & ~AHEAD, exposed=state.exposed & ~AHEAD)
    return _with(state, _does(one))


def _with(state: State, done: int) -> State:
    """That has been done as well."""
    return state if state.done | done == state.done else replace(state, done=state.done | done)


def _does(one: Instruction) -> int:
    """Which of the numbers above any other instruction adds."""
    where = space(one) if one.name in ACCESSES else ""
    if one.name == "fence":
        return FENCED
    if one.name == "ldmatrix" or (one.name == "ld" and where == "shared"):
        return READ
    if where in ("param", "const", "local") or (one.name == "ld" and where == "global"):
        return 0
    if where == "global":
        return STORED
    harmless = one.name in ("wgmma", "bar") or one.name in _NOTHING or one.opcode.startswith("mbarrier.arrive")
    return 0 if harmless else TOUCHED | READ | STORED


def _check(state: State, one: Instruction, makers: Makers, threads: int) -> None:
    """Raises PtxError where the order is needed that a barrier made which is gone."""
    if meets(one, threads) or one.name in ("fence", "membar") or _is_own(one):
        return
    behind = state.exposed
    if _is_making(one):
        needed = bool(behind) or state.making_exposed not in ("", one.guard)
    elif state.making_exposed and not makers.leaves_alone(one):
        needed = True
    elif _is_wait(one):
        needed = False
    elif one.name in ACCESSES and space(one) == "global" and not _RELEASES & set(one.modifiers):
        needed = bool(behind & STORED) if one.name == "ld" else one.name != "st"
    elif one.name in ("wgmma", "ldmatrix") or (one.name == "ld" and space(one) == "shared"):
        needed = bool(behind & TOUCHED)  # what others have stored, but not which waits they have passed
    elif one.name == "stmatrix" or (one.name == "st" and space(one) == "shared"):
        needed = bool(behind & (TOUCHED | READ))
    else:
        needed = bool(behind)
    if needed:
        raise PtxError(f"a barrier is gone that '{one}' needs, or it cannot be shown that it does not")


def _is_own(one: Instruction) -> bool:
    """Is it alike whatever the others have done?"""
    if one.name in ARITHMETIC or one.name in EXCHANGES or one.name in _NOTHING or one.opcode == "bar.warp.sync":
        return True
    if one.name in ACCESSES and space(one) in ("param", "const", "local"):
        return True
    return one.opcode.startswith(_OF_ONE_THREAD)


class Makers:
    """Where mbarriers are made and ended."""

    def __init__(self, merged: Function, places: Sequence[Instruction]) -> None:
        addresses = Addresses(merged)
        self.addresses = addresses
        self.places = [addresses.of(one.operands[0]) for one in places]

    def leaves_alone(self, one: Instruction) -> bool:
        """Is it a store at a place that is known, and is no mbarrier's?"""
        size = _STORED.get(one.opcode)
        if size is None:
            return False
        place = self.addresses.of(one.operands[0])
        if place is None or None in self.places:
            return False
        known = [other for other in self.places if other is not None]
        return all(place[0] == other[0] and not -size < place[1] - other[1] < MBARRIER for other in known)
