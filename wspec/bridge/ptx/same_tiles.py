"""Do the PTX's copies take the tiles and elements of global memory that the TTGIR says?

Where a copy begins is computed from sizes, strides, the number of the block and what is loaded, by loops that LLVM
rewrites as it likes. So both texts are executed, as far as copies hang on it, in launches whose numbers are drawn
(copies.py, tiles.py): the copies must come in the same order, as often, and take the same, and waits at mbarriers must
come between them as often, which says how often loops run that copy nothing. That is no proof for all numbers; two sums
of them that differ, differ for nearly all.

What cannot be followed in the PTX is not shown. Where the TTGIR cannot be followed there is nothing to compare with (a
tile begins where a sum over a tensor says), and the proof says so. Where its execution has no meaning from some place
on (it divides by nothing), or takes too long, the launch has compared what came before, and no more.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence

from wspec.bridge.ptx.actions import ELEMENTS
from wspec.bridge.ptx.draws import FEWEST, Draws
from wspec.bridge.ptx.elements import element_at
from wspec.bridge.ptx.tiles import NotFollowed, Over, Scope, Tiles, Told
from wspec.ir.core import Operation
from wspec.ir.shared_memory import Area, size_bytes
from wspec.ir.types import MemDescType, ScalarType
from wspec.ptx import flow
from wspec.ptx.copies import MOST_BLOCKS, Copies, Mark, Taken
from wspec.ptx.drawn_launch import Launch
from wspec.ptx.effects import COPIES_OF_ELEMENTS
from wspec.ptx.errors import PtxError
from wspec.ptx.launched import Copy
from wspec.ptx.operands import number_of
from wspec.ptx.registers import Writers
from wspec.ptx.roles import Role
from wspec.ptx.syntax import Instruction

MOST_LAUNCHES = 48
FOR_ROUNDS = 8 * MOST_BLOCKS
"""Blocks of a role that are passed in all launches, until each loop around copies and waits has gone round."""
FOR_AN_END = 4 * MOST_BLOCKS
"""The same, until the role has come to its end behind copies or waits: there it shows when its loops are left. Not
asked for where all threads are executed, which takes long."""
MOST_TRIES = 200  # of ways through branches that are not known

_AGAIN = 2
"""The round of a loop that shows what the first one has changed."""


def show_tiles(
    function: Operation,
    blocks: Sequence[flow.Block],
    roles: Sequence[Role],
    writers: Writers,
    places: Mapping[Operation, Area],
    fewest: int = 0,
) -> str:
    """Why not all copies were compared: the TTGIR itself cannot be followed, or no launch was found that comes to one.
    "" if all were. Raises PtxError where a copy takes something else, or where the PTX cannot be followed.

    `fewest`: launches, where more are asked for than do.
    """
    draws = Draws(function)
    fewest = max(fewest, draws.fewest)
    buffers = [range(area.start, area.stop) for op, area in places.items() if op.name == "ttg.local_alloc"]
    tasks = [_Task(role, Copies(blocks, role, writers, buffers)) for role in roles]
    tasks = [task for task in tasks if task.copies.all or task.copies.marks]
    left = {one for task in tasks for one in task.copies.all}
    for number in range(max(fewest, MOST_LAUNCHES)):
        asked = [
            task
            for task in tasks
            if task.patience and (number < fewest or task.asks_again or not left.isdisjoint(task.copies.all))
        ]
        launch = draws.launch(number) if asked else None
        for task in asked:
            assert launch is not None
            try:
                left -= _compared(function, task, launch, places, left if number >= fewest else None)
            except NotFollowed as error:  # maybe not in this launch
                task.patience -= 1
                task.lost = str(error)
    lost = (task.lost for task in tasks if task.copies.all and not (task.patience and left.isdisjoint(task.copies.all)))
    if why_not := next(filter(None, lost), ""):
        return why_not
    if not left:
        return ""
    one = min(left, key=lambda one: one.start)
    return f"where '{one}' begins in global memory is not known: no launch was found that comes to it"


_PATIENCE = 3  # launches in which the TTGIR of a task may not be followed, before all of it counts as not compared


class _Task:
    """A role, and what launches have come to."""

    def __init__(self, role: Role, copies: Copies) -> None:
        self.role, self.copies = role, copies
        self.rounds = dict.fromkeys(copies.loops, 0)  # the most of a loop that were compared
        self.passed = 0  # blocks
        self.shown = 0  # launches in which something was compared
        self.patience = _PATIENCE
        self.lost = ""  # why it could not be followed, in the last of those
        self.ended = False

    @property
    def asks_again(self) -> bool:
        """Is there a loop that has not gone round, was no end seen, or nothing in one of the first launches, and time
        left to look for such a launch?"""
        goes_on = self.shown < FEWEST or any(number < _AGAIN for number in self.rounds.values())
        return (goes_on and self.passed < FOR_ROUNDS) or (self.wants_end and self.passed < FOR_AN_END)

    @property
    def wants_end(self) -> bool:
        return not self.ended and not self.copies.together

    def is_new(self, taken: Taken, left: Container[Instruction]) -> bool:
        """Does a launch come to a copy that has not been compared, to a further round, or to the first end? Or to
        anything, where that has been in one launch alone: what one shows may hang on one number, such as block 0's."""
        further = any(self.rounds[loop] < min(number, _AGAIN) for _, loop, number in taken.rounds)
        further |= self.shown < FEWEST and bool(taken.copies)
        return further or (taken.ends and self.wants_end) or any(copy.one in left for copy in taken.copies)


def _compared(
    function: Operation,
    task: _Task,
    launch: Launch,
    places: Mapping[Operation, Area],
    left: Container[Instruction] | None,
) -> set[Instruction]:
    """The copies that were compared in this launch. Raises PtxError, and NotFollowed where the TTGIR is not.

    `left`: the copies that have not been compared; where it is given, a launch that shows nothing new is let be.
    """
    draw, copies, rounds = random.Random(launch.seed), task.copies, task.rounds
    taken = copies.in_launch(launch, lambda: bool(draw.getrandbits(1)), rounds, task.wants_end)
    task.passed += taken.blocks
    if left is not None and not task.is_new(taken, left):
        return set()
    if taken.chosen:  # how often loops run is then not known
        taken = taken.without_marks()
        if not copies.all:
            return set()
    choices, wrong = _Choices(), ""
    for _ in range(MOST_TRIES):
        choices.begin()
        found = Tiles(places, launch, choices, not taken.chosen)
        match = _Match(found, found.copies(function, task.role.partition), copies.marks, taken.enough)
        wrong = match.wrong(taken.copies, taken.ends)
        if not wrong:
            is_whole = taken.ends and 0 < match.compared == len(taken.copies)
            for number, loop, reached in taken.rounds:
                if number < match.compared or is_whole:  # nothing shows a round but what comes in it, or behind it
                    rounds[loop] = max(rounds[loop], reached)
            task.ended |= is_whole
            task.shown += match.compared > 0
            return {copy.one for copy in taken.copies[: match.compared]}
        if not choices.turn():
            break
    raise PtxError(wrong)


class _Choices:
    """Which ways branches go that hang on what is not known: one after the other, all."""

    def __init__(self) -> None:
        self._made: list[bool] = []
        self._at = 0

    def begin(self) -> None:
        self._at = 0

    def __call__(self) -> bool:
        if self._at == len(self._made):
            self._made.append(False)
        self._at += 1
        return self._made[self._at - 1]

    def turn(self) -> bool:
        """The next ways; False where there are no others."""
        del self._made[self._at :]
        while self._made and self._made[-1]:
            self._made.pop()
        if self._made:
            self._made[-1] = True
        return bool(self._made)


class _Match:
    """Of one role's copies with those of the task, on one way through it. `thorough`: so many copies are
    looked at in all threads that are told, if they are of elements, and later ones in the first of them."""

    def __init__(
        self,
        task: Tiles,
        expected: Iterator[Told],
        marks: Mapping[Instruction, Mark],
        thorough: int,
    ) -> None:
        self._task, self._expected, self._marks, self._thorough = task, expected, marks, thorough
        self._boxes = Counter[tuple[int, ...]]()  # that have yet to come, of one operation
        self._elements: tuple[Operation, Scope] | None = None
        self._by = set[Instruction]()  # what has copied elements for it
        self.compared = 0
        """Of the role's copies."""

    def wrong(self, seen: Sequence[Copy], ends: bool) -> str:
        """What is said of the first copy that differs; "" where none does. Raises NotFollowed and PtxError."""
        try:
            for copy in seen:
                if not copy.by:
                    if not self._is_marked(self._marks[copy.one]):
                        return f"'{copy.one}' comes where the TTGIR does something else"
                elif not self._takes(copy):
                    return f"'{copy.one}' takes something else of global memory than the TTGIR says"
                self.compared += 1
            if ends and (self._boxes.total() or next(self._expected, None) is not None):
                return "the TTGIR copies more tiles than the PTX, or does something else more often"
        except Over:
            pass  # the copies from here on are not compared
        except RecursionError:
            raise NotFollowed("where a tile begins hangs on too many rounds of a loop") from None
        return ""

    def _is_marked(self, mark: Mark) -> bool:
        if self._boxes.total():
            return False
        self._elements = None
        following = next(self._expected, None)
        return following is not None and following[2] == mark

    def _following_copy(self) -> tuple[Operation, Scope] | None:
        """None where nothing follows, or something else."""
        found = next(self._expected, None)
        return (found[0], found[1]) if found is not None and found[2] is None else None

    def _takes(self, copy: Copy) -> bool:
        """Is it what comes next of the TTGIR's copies?"""
        is_of_elements = copy.one.opcode.startswith(COPIES_OF_ELEMENTS)
        return self._takes_elements(copy) if is_of_elements else self._takes_boxes(copy)

    def _takes_boxes(self, copy: Copy) -> bool:
        for place, coordinates, _ in copy.by:
            if not self._boxes.total():
                following = self._following_copy()
                if following is None or following[0].name == ELEMENTS:
                    return False
                self._boxes = self._task.boxes(*following)
                self._elements = None
            known = tuple(one for one in coordinates if one is not None)
            if place is None or len(known) < len(coordinates):
                raise PtxError(f"the places and coordinates of '{copy.one}' cannot be followed")
            if self._boxes[known] <= 0:
                return False
            self._boxes[known] -= 1
        return True

    def _takes_elements(self, copy: Copy) -> bool:
        if self._boxes.total():
            return False
        is_next = self._elements is None or copy.one in self._by  # an instruction copies for an operation once
        if not is_next and self._elements is not None and self._are_elements(copy, *self._elements):
            self._by.add(copy.one)
            return True
        self._elements, self._by = self._following_copy(), {copy.one}
        if self._elements is None or self._elements[0].name != ELEMENTS:
            return False
        return self._are_elements(copy, *self._elements)

    def _are_elements(self, copy: Copy, op: Operation, scope: Scope) -> bool:
        buffer = next(one for one in op.operands if isinstance(one.type, MemDescType))
        kind, start = buffer.type, self._task.of(buffer, scope)
        assert isinstance(kind, MemDescType)
        each = kind.element.bits // 8 if isinstance(kind.element, ScalarType) else 0
        size = number_of(copy.one.operands[2])
        if start is None or not size or not each:
            raise PtxError(f"which elements '{copy.one}' copies is not known")
        for place, (source,), copied in copy.by if self.compared < self._thorough else copy.by[:1]:
            if place is None or copied is None or (copied and source is None):
                if place is not None and (index := element_at(kind, place - start)) is not None:
                    self._task.element(op, scope, index)  # raises where the TTGIR divides by zero, as the PTX does
                raise PtxError(f"which elements '{copy.one}' copies cannot be followed")
            if not 0 <= place - start <= size_bytes(kind) - size or copied not in (0, size):
                return False
            for at in (0, size - each):
                index = element_at(kind, place - start + at)
                if index is None:
                    raise PtxError(f"where '{copy.one}' puts its elements is not known")
                address, is_copied = self._task.element(op, scope, index)
                if is_copied != bool(copied) or (is_copied and address != (source or 0) + at):
                    return False
        return True
