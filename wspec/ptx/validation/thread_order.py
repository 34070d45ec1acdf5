"""The threads of a task are ordered by a barrier where one needs what another has done.

Triton puts these barriers where threads touch the same shared memory, and before one thread speaks for all. Here they
are asked for again, on every way through a task, from what each thread may have done since all last met:

- WROTE shared memory. Then nobody may read there, multiply what is there, hand it on, or copy it away.
- READ shared memory. Then nobody may write there, or hand it back.
- DRAINED: waited for bulk copies out of shared memory, which the thread that began them alone can do. Then nobody may
  write there.
- LOADED: waited for its own copies of elements. Then nobody may read or multiply what others copied, or hand it on.
- MADE mbarriers, one thread for all. Then nobody else may use them.
- BARE: issued a group of products since its last `wgmma.fence`, or had none. Then no product may be issued.

What was written and has been read again since, by whatever loads, is scratch, in which a layout was changed: nobody
else asks for it. Nor does anybody for what lies in no buffer of the TTGIR, where those are known.

Bytes are told apart, warp by warp, where an address hangs on constants and the threads' numbers alone. Of an access
that is elsewhere (in a ring's slot) all bytes count that it may touch in any iteration (reach.py), as if any warp did;
where those are not known either, all of shared memory.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from wspec.ptx import flow
from wspec.ptx.effects import ACCESSES, BULK_COPIES, space
from wspec.ptx.errors import PtxError
from wspec.ptx.evaluation import Evaluation, evaluation_of
from wspec.ptx.operands import Operand, Several
from wspec.ptx.reach import reached
from wspec.ptx.registers import Writers
from wspec.ptx.roles import WARP, Role
from wspec.ptx.syntax import Instruction
from wspec.ptx.validation.group_barriers import meets
from wspec.ptx.validation.guards import NOTHING, Known, guards_of, ways_of

WROTE, READ, DRAINED, LOADED, MADE, BARE = 1, 2, 4, 8, 16, 32
_WORDS = {
    WROTE: "wrote",
    READ: "read",
    DRAINED: "waited for copies",
    LOADED: "copied",
    MADE: "initialized",
    BARE: "issued",
}
_WIDTH = re.compile(r"(?:\.v(\d))?\.[bufs](\d+)$")
_ROW = 16  # bytes of a row of a matrix
_PLACE_BITS, _PLACE_BYTES = 14, 16  # of a matrix descriptor: its lowest bits are where the matrix begins, in such steps
_ANYWHERE = range(1 << 32)

Places = tuple[tuple[int, ...], int]
"""Where each thread of the task begins, and how many bytes it touches."""

Kept = tuple[Places, frozenset[Places]]
"""What was written, and what of it has been read since."""


@dataclass(frozen=True, slots=True)
class State:
    """What may have been done since all threads met; of accesses to bytes that are known, which; and in `somewhere` the
    accesses to others.

    `kept`: what was written to buffers and has not all been read again since; `made`: who may have made mbarriers, as
    numbers of threads in the task.
    """

    done: int = 0
    made: frozenset[int] = frozenset()
    wrote: frozenset[Places] = frozenset()
    read: frozenset[Places] = frozenset()
    kept: frozenset[Kept] = frozenset()
    somewhere: frozenset[Instruction] = frozenset()

    def joined(self, other: State) -> State:
        return State(
            self.done | other.done,
            self.made | other.made,
            self.wrote | other.wrote,
            self.read | other.read,
            self.kept | other.kept,
            self.somewhere | other.somewhere,
        )


def show_thread_order(
    blocks: Sequence[flow.Block],
    roles: Sequence[Role],
    writers: Writers,
    buffers: Collection[range] | None = None,
    evaluations: Callable[[Role], Evaluation] | None = None,
) -> None:
    """Raises PtxError where a barrier is missing. `writers`: of the function; `buffers`: the bytes of shared memory
    that tasks may hand to others, or that products and copies may read; None where they are not known: any."""
    for role in roles:
        if role.threads > WARP:
            evaluation = evaluations(role) if evaluations is not None else evaluation_of(role, writers)
            _Task(blocks, role, writers, evaluation, buffers).show()


class _Task:
    def __init__(
        self,
        blocks: Sequence[flow.Block],
        role: Role,
        writers: Writers,
        evaluation: Evaluation,
        buffers: Collection[range] | None,
    ) -> None:
        self._blocks, self._role, self._buffers = blocks, role, buffers
        self._writers, self._evaluation = writers, evaluation
        self._known: dict[Instruction, Places | None] = {}
        self._every = frozenset(range(role.threads))

    def show(self) -> None:
        """Where a barrier seems to be missing, once more with what is known of predicates."""
        try:
            self._show({})
        except PtxError:
            guards = guards_of(self._blocks, self._role)
            if not guards:
                raise
            self._show(guards)

    def _show(self, guards: dict[str, int]) -> None:
        first, place = self._role.start
        entry: dict[tuple[int, Known], State] = {}
        work = [(first, place, NOTHING, State(BARE))]
        while work:
            number, begin, known, state = work.pop()
            for one in self._blocks[number].instructions[begin:]:
                if meets(one, self._role.threads):
                    state = State(state.done & BARE)
                elif _matters(one):
                    if (found := self._missed(one, state)) is not None:
                        raise PtxError(_missing(one, found))
                    state = self._after(one, state)
            for way, held in ways_of(self._blocks[number], known, guards):
                if way not in self._role.blocks:
                    continue
                at = way, held
                joined = state if at not in entry else entry[at].joined(state)
                if at not in entry or joined != entry[at]:
                    entry[at] = joined
                    work.append((way, 0, held, joined))

    def _missed(self, one: Instruction, state: State) -> int | None:
        """What other threads may have done that this needs to be over; None where there is nothing."""
        needs = _needs(one)
        found = state.done & (needs & ~(WROTE | READ) if _reads(one) or _writes(one) else needs)
        if needs & MADE and state.made and len(state.made | self._threads(one)) > 1:
            found |= MADE
        if _reads(one) or _writes(one):
            if self._is_disturbed(one, state):
                found |= WROTE if _reads(one) else READ
        else:
            kept = [wrote for wrote, _ in state.kept]
            if kept and one.opcode.startswith("wgmma.mma_async") and (factors := self._factors(one)) is not None:
                kept = [wrote for wrote in kept if any(_meet(_span(wrote), factor) for factor in factors)]
            found |= needs & (WROTE if kept else 0) | needs & (READ if state.read else 0)
        return next((bit for bit in _WORDS if found & bit), None)

    def _is_disturbed(self, one: Instruction, state: State) -> bool:
        """Does it read a byte that another warp may have written, or write one that another may have read?"""
        places, others = self._places(one), state.wrote if _reads(one) else state.read
        if places is not None and any(_of_another(places, other) for other in others):
            return True
        elsewhere = [other for other in state.somewhere if _reads(other) != _reads(one)]
        if places is None:
            own = self._region(one)
            return any(_meet(own, _span(other)) for other in others) or any(
                _meet(own, self._region(other)) for other in elsewhere
            )
        return any(_meet(_span(places), self._region(other)) for other in elsewhere)

    @functools.cached_property
    def _reached(self) -> dict[Instruction, range]:
        """Of all accesses whose places are no constants. It is seldom asked for: most tasks have none that matter."""
        inside = (one for number in self._role.blocks for one in self._blocks[number].instructions)
        accesses = {one: (_address(one), _bytes(one)) for one in inside
                    if (_reads(one) or _writes(one)) and self._places(one) is None}  # fmt: skip
        return reached(self._blocks, self._role, self._writers, self._evaluation, accesses)

    def _region(self, one: Instruction) -> range:
        """The bytes that an access whose place is no constant may touch."""
        return self._reached.get(one, _ANYWHERE)

    def _factors(self, product: Instruction) -> list[range] | None:
        """The buffers that a product reads, by where its descriptors say that it begins; None where not known."""
        found = []
        for at in (1, 2):
            if isinstance(product.operands[at], Several):
                continue
            held = self._evaluation.value(product.operands[at], {})
            places = range(held, held + 1) if isinstance(held, int) else self._described[at].get(product)
            if places is None or places.start >> _PLACE_BITS != (places.stop - 1) >> _PLACE_BITS:
                return None
            mask = (1 << _PLACE_BITS) - 1
            span = range((places.start & mask) * _PLACE_BYTES, (places.stop - 1 & mask) * _PLACE_BYTES + 1)
            inside = [buffer for buffer in self._buffers or () if _meet(buffer, span)]
            if not inside:
                return None
            found += inside
        return found

    @functools.cached_property
    def _described(self) -> dict[int, dict[Instruction, range]]:
        """What the descriptors of products may be, by which operand they are."""
        inside = [one for number in self._role.blocks for one in self._blocks[number].instructions]
        products = [one for one in inside if one.opcode.startswith("wgmma.mma_async")]
        return {
            at: reached(
                self._blocks, self._role, self._writers, self._evaluation,
                {one: (one.operands[at], 1) for one in products if not isinstance(one.operands[at], Several)},
            )
            for at in (1, 2)
        }  # fmt: skip

    def _after(self, one: Instruction, state: State) -> State:
        places = self._places(one) if _reads(one) or _writes(one) else None
        if places is not None and _reads(one):
            return replace(state, read=state.read | {places}, kept=_behind_read(state.kept, places))
        if places is not None:
            kept = {(places, frozenset[Places]())} if self._is_in_buffer(places) else set[Kept]()
            return replace(state, wrote=state.wrote | {places}, kept=state.kept | kept)
        if one.opcode.startswith("wgmma.fence") and not one.guard:
            return replace(state, done=state.done & ~BARE)
        if one.opcode.startswith("mbarrier.init."):
            return replace(state, made=state.made | self._threads(one))
        somewhere = state.somewhere | {one} if _reads(one) or _writes(one) else state.somewhere
        return replace(state, done=state.done | _does(one), somewhere=somewhere)

    def _threads(self, one: Instruction) -> frozenset[int]:
        """Those that may execute it."""
        held = self._evaluation.constant(one.guard) if one.guard else None
        if not isinstance(held, tuple):
            return self._every
        return frozenset(thread for thread, value in enumerate(held) if bool(value) != one.unless)

    def _is_in_buffer(self, places: Places) -> bool:
        """May a byte of these be a buffer's?"""
        if self._buffers is None:
            return True
        first, last = min(places[0]), max(places[0]) + places[1] - 1
        return any(first < buffer.stop and buffer.start <= last for buffer in self._buffers)

    def _places(self, one: Instruction) -> Places | None:
        """None where they are not known."""
        if one not in self._known:
            found = self._evaluation.value(_address(one), {})
            each = (found,) * self._role.threads if isinstance(found, int) else found
            self._known[one] = None if each is None else (each, _bytes(one))
        return self._known[one]


@functools.lru_cache(maxsize=4096)
def _of_another(one: Places, other: Places) -> bool:
    """Does a warp touch a byte that another one touched?"""
    (places, size), (before, length) = one, other
    if not _touches(one, other):
        return False
    unit = math.gcd(size, length, *places, *before)
    touched: dict[int, set[int]] = {}
    for thread, place in enumerate(before):
        for at in range(place, place + length, unit):
            touched.setdefault(at, set()).add(thread // WARP)
    return any(
        at in touched and touched[at] != {thread // WARP}
        for thread, place in enumerate(places)
        for at in range(place, place + size, unit)
    )


def _behind_read(kept: frozenset[Kept], read: Places) -> frozenset[Kept]:
    """What has not all been read again, by whatever warps, when that has been."""
    found: set[Kept] = set()
    for wrote, before in kept:
        seen = before | {read} if read not in before and _touches(read, wrote) else before
        if seen is before or not _cover(seen, wrote):
            found.add((wrote, seen))
    return frozenset(found)


def _touches(one: Places, other: Places) -> bool:
    """May they have a byte in common?"""
    (places, size), (before, length) = one, other
    return min(places) < max(before) + length and min(before) < max(places) + size


@functools.lru_cache(maxsize=4096)
def _cover(several: frozenset[Places], wrote: Places) -> bool:
    """Is every byte that was written among them?"""
    places, length = wrote
    unit = math.gcd(length, *places, *(number for begins, size in several for number in (size, *begins)))
    seen = {at for begins, size in several for begin in begins for at in range(begin, begin + size, unit)}
    return all(at in seen for place in places for at in range(place, place + length, unit))


def _span(places: Places) -> range:
    """From the first byte to the last."""
    return range(min(places[0]), max(places[0]) + places[1])


def _meet(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop


def _address(one: Instruction) -> Operand:
    return one.operands[1 if _reads(one) or one.name == "atom" else 0]


def _bytes(one: Instruction) -> int:
    found = _WIDTH.search(one.opcode)
    return _ROW if one.name in ("ldmatrix", "stmatrix") or found is None else int(found[1] or 1) * int(found[2]) // 8


def _missing(one: Instruction, what: int) -> str:
    if what == BARE:
        return f"no wgmma.fence stands before '{one}'"
    return f"no barrier stands between '{one}' and what other threads of its task {_WORDS[what]}"


def _matters(one: Instruction) -> bool:
    return one.name in ("ld", "st", "red", "atom", "ldmatrix", "stmatrix", "mbarrier", "cp", "wgmma")


def _is_shared(one: Instruction) -> bool:
    return one.name in ACCESSES and space(one) == "shared"


def _reads(one: Instruction) -> bool:
    return one.name == "ldmatrix" or (one.name == "ld" and _is_shared(one))


def _writes(one: Instruction) -> bool:
    return one.name == "stmatrix" or (one.name != "ld" and _is_shared(one))


def _needs(one: Instruction) -> int:
    """What must not have been done since all met."""
    opcode = one.opcode
    if _reads(one):
        return WROTE | LOADED
    if _writes(one):
        return DRAINED | LOADED
    if opcode.startswith("wgmma.mma_async"):
        return WROTE | LOADED | BARE
    if opcode.startswith(("mbarrier.try_wait", "mbarrier.test_wait", "mbarrier.arrive.expect_tx")):
        return MADE
    if opcode.startswith("mbarrier.arrive"):
        return WROTE | READ | LOADED | MADE
    if opcode.startswith(BULK_COPIES):
        return MADE if ".mbarrier::complete_tx" in opcode else WROTE | LOADED
    return 0


def _does(one: Instruction) -> int:
    """What it adds to what was done, of bytes that are not known."""
    opcode = one.opcode
    if _reads(one):
        return READ
    if _writes(one):
        return WROTE
    if opcode.startswith("cp.async.bulk.wait_group"):
        return DRAINED
    if opcode.startswith("cp.async.wait_group"):
        return LOADED
    return BARE if opcode.startswith("wgmma.commit_group") else 0
