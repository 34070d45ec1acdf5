"""What a role copies of global memory, and what all its threads do in between, in a launch whose numbers are known.

The role's code is executed as far as branches and copies hang on it, in one thread of each warp: integers, predicates,
parameters, and what is loaded from global memory. Loops run as often as they do in that launch, but not much further
than to the third round of each loop around copies: by then all that a round changes has been seen to change again. A
branch that hangs on something else goes either way.

Where threads copy elements, some lanes of each warp are looked at. The places of a warp's lanes are sums of what each
bit of the lane's number adds: those of the first, of the last and of those with a single bit, one or more of which each
warp has, say what all others are.

Where that hangs on what threads hand to each other (sums over a warp, conversions of layouts through shared memory),
all threads are executed, and each of them is looked at in some round, as what it copies may be like no other's. That
they wait for each other there is shown elsewhere.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wspec.ptx import flow
from wspec.ptx.arithmetic import computing
from wspec.ptx.drawn_launch import Launch
from wspec.ptx.effects import BULK_COPIES, COPIES_OF_ELEMENTS, reads, space
from wspec.ptx.evaluation import SHARED
from wspec.ptx.events import shape_of
from wspec.ptx.launched import IDS, Copy, Lanes, Run, Step, is_executed
from wspec.ptx.operands import Number, Register, Several, Symbol, number_of
from wspec.ptx.registers import Writers
from wspec.ptx.roles import WARP, Role
from wspec.ptx.stored import WORD
from wspec.ptx.syntax import Instruction

MOST_BLOCKS = 400  # that are passed in one launch
COPIES = 32  # that are looked at in one launch, or so many times those that there are:
_TIMES = 5
_TURNS = WARP // 2  # until each lane has been looked at, if the first and the last change places with all others
ROUNDS = 3  # of a loop around copies, that are asked for besides
MOST_IDLE = 100  # blocks that are passed behind the last copy or round that is new, if the end is not asked for
_MARKS = ("mbarrier.try_wait.parity.", "wgmma.commit_group", "wgmma.wait_group", "cp.async.bulk.commit_group",
          "cp.async.bulk.wait_group", "cp.async.commit_group", "cp.async.wait_group")  # fmt: skip
_WRITES = frozenset(("st", "stmatrix", "atom", "red"))


class Mark(NamedTuple):
    """What all threads of a task do at once."""

    kind: str  # of an event (events.py)
    numbers: tuple[int, ...]


MARKS = frozenset(("wait", "product", "product wait", "commit", "store wait", "element commit", "element wait"))
"""The kinds of these."""


class Taken(NamedTuple):
    """What a role copies in a launch, and its marks."""

    copies: Sequence[Copy]  # in their order
    ends: bool  # does the role come to its end with them?
    rounds: Sequence[tuple[int, int, int]]
    """(a number of copies, a loop, its round) where one of these is in that round for the first time."""
    chosen: bool  # did it go anywhere because that was chosen?
    blocks: int  # that were passed
    enough: int  # copies: what comes behind them is looked at for the sake of the end

    def without_marks(self) -> Taken:
        copies = [copy for copy in self.copies if copy.by]
        before = [0, *itertools.accumulate(1 if copy.by else 0 for copy in self.copies)]
        rounds = [(before[at], loop, number) for at, loop, number in self.rounds]
        return self._replace(copies=copies, rounds=rounds, enough=before[self.enough])


@dataclass(frozen=True, slots=True)
class _Turn:
    """Where a block goes on: `ways` without the loop of a wait, at an mbarrier or for other blocks."""

    ways: tuple[int, ...]
    hangs_on: Instruction | None  # which of them


class Copies:
    """Of one role. `buffers`: bytes of shared memory that are not followed, as others than the role's threads may
    write them."""

    def __init__(
        self, blocks: Sequence[flow.Block], role: Role, writers: Writers, buffers: Sequence[range] = ()
    ) -> None:
        self._blocks, self._role, self._writers = blocks, role, writers
        numbers = {*role.blocks, *role.way, role.start[0]}
        inside = {number: blocks[number].instructions for number in sorted(numbers)}
        self.all = [one for number in inside if number in role.blocks or number == role.start[0]
                    for one in inside[number] if is_copy(one)]  # fmt: skip
        marks = (_mark(one) for number in inside if number in role.blocks or number == role.start[0]
                 for one in inside[number] if one.opcode.startswith(_MARKS))  # fmt: skip
        self.marks = dict(pair for pair in marks if pair is not None)
        """What all threads of the role do at once, between copies: they wait at an mbarrier, make a group of products
        or copies, wait for groups."""
        self._through_memory = self._exchange = False
        needed = self._needed(inside) if self.all or self.marks else frozenset[str]()
        has_elements = any(one.opcode.startswith(COPIES_OF_ELEMENTS) for one in self.all)
        each = [_lanes(number, len(role.warps)) if has_elements else (0,) for number in range(len(role.warps))]
        seen = {WARP * warp + lane for warp, lanes in zip(role.warps, each, strict=True) for lane in lanes}
        everyone = {WARP * warp + lane for warp in role.warps for lane in range(WARP)}
        self._buffers = _words_of(buffers) if self._through_memory else frozenset[int]()
        self.together = self._exchange or self._through_memory
        """Are all threads executed?"""
        self._threads = sorted(everyone if self.together else seen)
        self._seen = [at for at, thread in enumerate(self._threads) if thread in seen]
        self._turns_of = _TURNS if self.together and has_elements else 1
        self._enough = max(COPIES, max(_TIMES, self._turns_of) * len(self.all))
        self._evaluation = Lanes(self._threads, writers)
        self._steps = {number: list(self._steps_of(found, needed)) for number, found in inside.items()}
        self._turns = {number: _turn_of(blocks[number]) for number in inside}
        told = {number for number, steps in self._steps.items() if any(step.is_event for step in steps)}
        loops = flow.loops_of(blocks, role.start[0], role.blocks) if told else {}
        self.loops = {
            first: loop for first, loop in loops.items() if not blocks[first].spins and not loop.isdisjoint(told)
        }
        """Around copies and marks: the block that each is entered at, and its blocks."""

    def _steps_of(self, instructions: Sequence[Instruction], needed: frozenset[str]) -> Iterator[Step]:
        for at, one in enumerate(instructions):
            targets = self._writers.targets(one)
            if is_copy(one) or one in self.marks:
                yield Step(at, one, True, ())
            elif self._through_memory and _writes_shared(one):
                yield Step(at, one, False, targets, stores=True)
            elif not needed.isdisjoint(targets):
                constants = [self._evaluation.constant(name) for name in targets]
                is_same = None not in constants
                if is_same:
                    yield Step(at, one, False, targets, constants)
                    continue
                what = computing(one.opcode) if len(targets) == 1 else None
                sources = None if what is None else _sources(one)
                if what is None or sources is None or what.operands != len(sources):
                    yield Step(at, one, False, targets)
                else:
                    yield Step(at, one, False, targets, None, sources, what.of)

    def _needed(self, inside: Mapping[int, Sequence[Instruction]]) -> frozenset[str]:
        """The registers that copies and branches hang on."""
        work: list[str] = []
        for number in inside:
            block = self._blocks[number]
            if block.turn is not None and not block.spins:
                work += reads(block.turn)
        for one in self.all:
            work += reads(one)
        work += [one.guard for one in self.marks if one.guard]
        own = {id(one) for number in self._role.blocks for one in self._blocks[number].instructions}
        found: set[str] = set()
        while work:
            name = work.pop()
            if name not in found and name not in IDS:
                found.add(name)
                for one in self._writers.of(name):
                    if is_executed(one) or one.name == "ld":
                        work += reads(one)
                    elif one.guard:
                        work.append(one.guard)
                    if id(one) in own and not _is_of_first_lane(one):
                        self._exchange = True
                    if id(one) in own and one.name == "ld" and space(one) == "shared" and not self._through_memory:
                        stores = [one for number in inside for one in inside[number] if _writes_shared(one)]
                        self._through_memory = any(id(one) in own for one in stores)
                        work += [name for one in stores for name in reads(one) if self._through_memory]
        return frozenset(found)

    def in_launch(
        self, launch: Launch, choose: Callable[[], bool], known: Mapping[int, int], to_end: bool = False
    ) -> Taken:
        """What is copied. `known`: of loops, the rounds that need not be gone again; `to_end`: go on to the
        role's end, if that is not too far."""
        run = Run(self._evaluation, launch, len(self._threads), self._seen, self._buffers, self._turns_of)
        number, place = self._role.start
        for passed in self._role.way:
            for step in self._steps[passed]:
                if passed != number or step.at < place:
                    run.execute(step)
        found: list[Copy] = []
        copies = 0
        rounds: list[tuple[int, int, int]] = []
        now, most = dict.fromkeys(self.loops, 1), dict.fromkeys(self.loops, 0)
        chosen = Counter[bool]()
        new, last = set[Instruction](), 0  # copies that were seen, and the block at which something was new
        enough: int | None = None

        def either() -> bool:
            chosen[True] += 1
            return choose()

        for passed in range(1, MOST_BLOCKS + 1):
            before = len(found)
            for step in self._steps[number]:
                if step.at < place:
                    continue
                if step.is_event:
                    is_mark = step.one in self.marks
                    copy = Copy(step.one, ()) if is_mark else run.copy(step.one)
                    if copy.by or (is_mark and run.guard(step.one) != 0):
                        found.append(copy)
                    copies += bool(copy.by) or (not self.all and _is_wait(step.one))
                    if step.one not in new:
                        new.add(step.one)
                        last = passed
                else:
                    run.execute(step)
            place = 0
            if len(found) > before:
                for first, loop in self.loops.items():
                    if number in loop and now[first] > most[first]:
                        most[first] = now[first]
                        rounds.append((len(found), first, now[first]))
                        last = passed if now[first] <= ROUNDS else last
                far = all(max(most[first], known.get(first, 0)) >= ROUNDS for first in self.loops)
                is_idle = passed > last + MOST_IDLE and not self.together and not to_end
                if enough is None and (is_idle or (far and copies >= self._enough)):
                    enough = len(found)
                if enough is not None and not to_end:
                    break
            way = self._way(self._turns[number], run, either)
            if way is None:
                return Taken(found, True, rounds, bool(chosen), passed, len(found) if enough is None else enough)
            if way in self.loops:
                now[way] = now[way] + 1 if number in self.loops[way] else 1
            number = way
        return Taken(found, False, rounds, bool(chosen), passed, len(found) if enough is None else enough)

    def _way(self, turn: _Turn, run: Run, choose: Callable[[], bool]) -> int | None:
        """Where it goes on; None where it leaves the role."""
        ways = turn.ways
        if turn.hangs_on is not None and turn.hangs_on.name == "bra":
            taken = run.guard(turn.hangs_on)
            if not isinstance(taken, int):
                taken = choose()
            ways = ways[:1] if taken else ways[1:]
        elif turn.hangs_on is not None:
            index = run.value(turn.hangs_on.operands[0])
            ways = (ways[index],) if isinstance(index, int) and index < len(ways) else ()
        return next((way for way in ways if way in self._role.blocks), None)


def is_copy(one: Instruction) -> bool:
    """Of a tile, or of elements?"""
    return one.name == "cp" and one.opcode.startswith((*BULK_COPIES, *COPIES_OF_ELEMENTS))


def _is_wait(one: Instruction) -> bool:
    """At an mbarrier?"""
    return one.opcode.startswith("mbarrier.try_wait")


def _mark(one: Instruction) -> tuple[Instruction, Mark] | None:
    """None of one that a single thread does."""
    shape = shape_of(one, frozenset())
    if shape is None:
        return None
    numbers = (number.value for number in shape.numbers if isinstance(number, Number))
    return one, Mark(shape.kind, tuple(number or 0 for number in numbers))


def _words_of(buffers: Iterable[range]) -> frozenset[int]:
    """The first bytes of the words that are touched."""
    return frozenset(at for one in buffers for at in range(one.start - one.start % WORD, one.stop, WORD))


def _lanes(warp: int, warps: int) -> set[int]:
    """Those of a warp, by its number among some, that are looked at: the warps have each bit of a lane's number."""
    return {0, WARP - 1, *(1 << bit for bit in range(WARP.bit_length() - 2) if bit % warps == warp)}


def _sources(one: Instruction) -> tuple[str | int | None, ...] | None:
    """None where an operand is neither a register nor a number."""
    found: list[str | int | None] = []
    for operand in one.operands[1:]:
        match operand:
            case Register(name, False):
                found.append(name)
            case Number():
                found.append(operand.value)
            case Symbol(name):
                found.append(0 if name == SHARED else None)
            case _:
                return None
    return None if isinstance(one.operands[0], Several) else tuple(found)


def _turn_of(block: flow.Block) -> _Turn:
    turn, ways = block.turn, tuple(block.follow)
    if block.spins or _polls(block):
        return _Turn(tuple(way for way in ways if way != block.number), None)
    hangs = turn is not None and (turn.name == "brx" or (turn.name == "bra" and bool(turn.guard) and len(ways) == 2))
    return _Turn(ways, turn if hangs else None)


def _polls(block: flow.Block) -> bool:
    """Is it the loop of a wait for what other blocks store?"""
    acquires = any(one.opcode.startswith("ld.acquire.") for one in block.instructions)
    return acquires and block.number in block.follow and not any(is_copy(one) for one in block.instructions)


def _is_of_first_lane(one: Instruction) -> bool:
    """Or of the thread itself, where it computes something?"""
    if one.name == "shfl":
        lane = number_of(one.operands[2]) if len(one.operands) > 2 else None
        return one.opcode.startswith("shfl.sync.idx") and lane == 0
    return one.name != "redux"


def _writes_shared(one: Instruction) -> bool:
    return one.name in _WRITES and space(one) in ("shared", "")
