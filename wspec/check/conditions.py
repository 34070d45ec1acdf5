"""Conditions as the checker decides them: thresholds on trip counts, and choices that are free but always the same.

A loop over `lower, lower + step, ... < upper` has an *extent* M, the number of its iterations as far as it is
positive. Whether iteration k exists, whether the loop runs at all, whether the tile three iterations on will be needed:
all ask if `M - k` is above some constant. Loops of different tasks, and loops cut short by some iterations, share an
extent when their bounds differ by constants only. Everything else is a free choice, made once for each iteration of the
loops that its terms change with, and the same for all tasks that compute the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wspec.check.clock import Once, timed
from wspec.check.linear import Key, Linear, Space, Terms, constant
from wspec.ir.core import Block, Operation, Value
from wspec.ir.types import ScalarType


@dataclass(frozen=True, slots=True)
class Always:
    value: bool


@dataclass(frozen=True, slots=True)
class Threshold:
    """Is the extent, less the iteration of `space` when there is one, above `above`?"""

    extent: int
    above: int
    space: int | None = None


@dataclass(frozen=True, slots=True)
class Reached:
    """Is the iteration of `space`, counted from 0, above `above`?"""

    space: int
    above: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Unknown; the same wherever `number` is asked at the same iterations of the spaces of `chain`."""

    number: int
    chain: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Not:
    inner: Condition


@dataclass(frozen=True, slots=True)
class Both:
    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Either:
    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Divergent:
    """Differs from thread to thread."""


Condition = Always | Threshold | Reached | Choice | Not | Both | Either | Divergent


@dataclass(frozen=True, slots=True)
class Extent:
    """How many iterations loops of one kind have: ceil((terms + rest) / step), which may be negative.

    Loops of one kind that come after each other in a task have extents of their own, which start with what is known of
    the others up to their `cap`: whether they run at all, but not how often, since a count that is remembered from
    loop to loop would make every trip count a case of its own. `kind` is the same for them.
    """

    number: int
    kind: int
    chain: tuple[int, ...]
    terms: tuple[tuple[int, int], ...]
    rest: int
    step: int | None


MAX_EXACT = 512  # constant loops with more iterations are taken for loops of any length, from SOME on
SOME = 64
MAX_NEST = 4096  # the same, of loops inside each other with more iterations together, of those with more than SOME
MAX_PARTS = 64  # of one condition
FAR = 1 << 30


class Extents:
    """The extents of all loops of a kernel. Every loop must be added before conditions are read."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.extents: list[Extent] = []
        self.siblings: list[list[int]] = []  # kind -> its extents, in program order
        self._kinds: dict[Key, int] = {}
        self._of_task: dict[tuple[int, int], list[tuple[int, Extent]]] = {}  # task, kind -> places of its loops
        self._loops: dict[Operation, tuple[Extent, int]] = {}
        self.places: dict[int, list[Operation]] = {}  # extent -> its loops
        self.choices: dict[Linear, int] = {}
        self.asked: list[Value] = []  # choice -> a value that stands for it
        self._steps: dict[Key, set[int]] = {}  # steps that are not constant -> kinds of loops
        self._families: dict[Key, list[int]] = {}
        self.computed: set[int] = set()  # choices that follow from the iteration, in a way that is not understood
        self.changing: dict[Operation, None] = {}  # loads that decide something, and may be overwritten between tasks
        self._unsure: set[int] = set()  # kinds of loops whose bounds come from them
        self.chain_of_choice: list[tuple[int, ...]] = []
        self.form_of_choice: list[Linear] = []
        self.thresholds: dict[int, set[int]] = {}  # extent -> what is asked of it outside its loops
        self.counted: dict[int, int] = {}  # space -> the highest iteration that is asked for
        self.inside: dict[tuple[int, Operation], int] = {}  # extent, loop -> the lowest that is asked inside it
        self.counts_nests = False  # are iterations of loops inside each other counted one by one, however many?
        self._initial: dict[int, tuple[int, int] | None] = {}  # what `initially` found

    def add(self, loop: Operation, task: int, place: int) -> None:
        """Learn of an `scf.for` of a task; places are numbers in program order."""
        space = self.terms.space(loop)
        length = self.terms.of(loop.operands[1]) - space.lower
        step = space.step if space.step is not None and space.step > 0 else None
        shared = step is not None and length.terms
        whole, rest = divmod(length.const, step or 1) if shared else (0, length.const)
        key: Key = (length.terms, step, space.chain)
        if step is None:
            key = (*key, self.terms.of(loop.operands[2]))
        kind = self._kinds.setdefault((*key, rest), len(self._kinds))
        if step is None:
            self._steps.setdefault((space.chain, self.terms.of(loop.operands[2])), set()).add(kind)
        if kind == len(self.siblings):
            self.siblings.append([])
        for bound in loop.operands[:3]:
            if self._is_unsure(bound):
                self._unsure.add(kind)
        before = self._of_task.setdefault((task, kind), [])
        if len(before) == len(self.siblings[kind]):
            self.siblings[kind].append(len(self.extents))
            self.extents.append(Extent(len(self.extents), kind, space.chain, length.terms, rest, step))
        extent = self.extents[self.siblings[kind][len(before)]]
        before.append((place, extent))
        self._loops[loop] = (extent, whole)
        self.places.setdefault(extent.number, []).append(loop)

    def initially(self, number: int) -> tuple[int, int] | None:
        """(least, most) iterations of loops whose bounds differ by a constant; None: anything."""
        if number not in self._initial:
            count = self._count(self.extents[number])
            if count is None:
                self._initial[number] = None
            elif count > MAX_EXACT or (not self.counts_nests and self._is_long(number)):
                self._initial[number] = SOME, FAR
            else:
                self._initial[number] = count, count
        return self._initial[number]

    @staticmethod
    def _count(extent: Extent) -> int | None:
        return None if extent.terms or extent.step is None else max(0, -(-extent.rest // extent.step))

    def has_long_nests(self) -> bool:
        """Are there loops inside each other that are not counted one by one, but could be?"""
        return not self.counts_nests and any(self._is_long(one.number) for one in self.extents)

    def count_nests(self) -> None:
        """From now on count them all."""
        self.counts_nests = True
        self._initial.clear()

    def _is_long(self, number: int) -> bool:
        count = self._count(self.extents[number])
        if count is None or not SOME < count <= MAX_EXACT:
            return False
        return any(self._around(loop) * self._within_it(loop) > MAX_NEST for loop in self.places[number])

    def _times(self, op: Operation) -> int:
        """How often an operation does what is in it."""
        found = self._loops.get(op)
        return max((None if found is None else self._count(found[0])) or 1, 1)

    def _around(self, loop: Operation) -> int:
        return math.prod(self._times(op) for op in loop.ancestors())

    def _within_it(self, op: Operation) -> int:
        """Of the deepest nest."""
        inside = (one for block in op.blocks for one in block.ops if one.regions)
        return self._times(op) * max(map(self._within_it, inside), default=1)

    def _is_unsure(self, value: Value) -> bool:
        """Does it come from a load that another task may see changed?

        Or from shared memory, where others may read the same: numbers in it are not followed.
        """
        load = self.terms.doubt(value)
        if load is not None:
            self.changing[load] = None
        return load is not None or self.terms.is_of_shared(value)

    def is_vague(self, number: int) -> bool:
        """Are there loops with the same step, which is not constant, whose extents hang together in an unknown way?

        Those whose bounds are loads that may be overwritten count for such.
        """
        kind = self.extents[number].kind
        if kind in self._unsure:
            return True
        return any(kind in kinds and len(kinds) > 1 for kinds in self._steps.values())

    def runs(self, loop: Operation) -> Threshold:
        """Does the iteration at which the loop stands exist?"""
        extent, whole = self._loops[loop]
        return Threshold(extent.number, -whole, self.terms.space(loop).number)

    def whole(self, loop: Operation) -> int:
        """By how many iterations the loop is longer than its extent."""
        return self._loops[loop][1]

    def cap(self, number: int) -> int:
        """From here on, what is known of an extent is not handed to the loops of its kind that come later."""
        siblings = self.siblings[self.extents[number].kind]
        asked = [above for one in siblings for above in self.thresholds.get(one, ())]
        return max(asked, default=0 if len(siblings) > 1 else -FAR) + 1

    # ---- reading conditions

    def condition(self, value: Value, user: Operation, task: int, places: Mapping[Operation, int]) -> Condition:
        """What an i1 that a task computes asks where `user` uses it."""
        self._task, self._places, self._user = task, places, user
        self._parts = 0
        if self.terms.diverges(self.terms.of(value)):
            return Divergent()
        return self._condition(value)

    def _condition(self, value: Value) -> Condition:
        op = value.op
        self._parts += 1
        if self._parts > MAX_PARTS:  # and, or, and so on, many times over: one thing that is not understood
            choice = self._choice(value)
            if isinstance(choice, Choice):
                self.computed.add(choice.number)
            return choice
        if op is not None and value.type == ScalarType("i1"):
            if op.name == "arith.constant":
                return Always(bool(constant(op)))
            if op.name == "arith.cmpi":
                found = self._comparison(op)
                if found is not None:
                    return found
            if op.name == "arith.andi":
                return _both(self._condition(op.operands[0]), self._condition(op.operands[1]))
            if op.name == "arith.ori":
                return _either(self._condition(op.operands[0]), self._condition(op.operands[1]))
            if op.name == "arith.xori":
                left, right = self._condition(op.operands[0]), self._condition(op.operands[1])
                if isinstance(right, Always):
                    return _negated(left) if right.value else left
        return self._choice(value)

    def _choice(self, value: Value) -> Condition:
        form = self.terms.of(value)
        if form.constant is not None:
            return Always(bool(form.constant))
        number = self.choices.get(form)
        if number is None:
            number = self.choices[form] = len(self.asked)
            self.asked.append(value)
            self.chain_of_choice.append(self.terms.chain_of(form))
            self.form_of_choice.append(form)
            unsure = self._is_unsure(value)
            if unsure or (self.chain_of_choice[number] and not _is_free(value)):
                self.computed.add(number)
            self._compare(value, number)
        return Choice(number, self.chain_of_choice[number])

    def _compare(self, value: Value, number: int) -> None:
        """Comparisons that differ only in the iteration they are about are one thing, taken for several: doubtful."""
        op = value.op
        if op is None or op.name != "arith.cmpi":
            return
        positions = {space.atom for space in self.terms.spaces}
        difference = self.terms.of(op.operands[0]) - self.terms.of(op.operands[1])
        rest = tuple((atom, factor) for atom, factor in difference.terms if atom not in positions)
        family = self._families.setdefault((op.int_attr("predicate"), rest), [])
        family.append(number)
        if len(family) > 1:
            self.computed.update(family)

    def _comparison(self, op: Operation) -> Condition | None:
        left, right = self.terms.of(op.operands[0]), self.terms.of(op.operands[1])
        match op.int_attr("predicate") or 0:
            case 2:
                return self._positive(right - left, op)
            case 3:
                return self._positive((right - left).shifted(1), op)
            case 4:
                return self._positive(left - right, op)
            case 5:
                return self._positive((left - right).shifted(1), op)
            case 0 | 1 as code:
                above, below = self._positive(left - right, op), self._positive(right - left, op)
                if above is None or below is None:
                    return None
                return _both(_negated(above), _negated(below)) if code == 0 else _either(above, below)
        return None  # unsigned: another order for negative numbers

    def _positive(self, form: Linear, op: Operation) -> Condition | None:
        """Is the form above zero?"""
        if form.constant is not None:
            return Always(form.constant > 0)
        found = self._threshold(form, op)
        if found is not None:
            return found
        found = self._threshold(form.scaled(-1).shifted(1), op)
        return None if found is None else _negated(found)

    def _threshold(self, form: Linear, op: Operation) -> Condition | None:
        """A comparison that was moved out of loops is about the loops around its user all the same."""
        chain, there = self.terms.chain(op), self.terms.chain(self._user)
        if len(there) > len(chain) and there[: len(chain)] == chain:
            op, chain = self._user, there
        for number in reversed(chain):
            space = self.terms.spaces[number]
            if space.step is not None and space.step > 0 and form.coefficient(space.atom) == -space.step:
                found = self._match(form.without(space.atom), space.step, space.chain, space, op)
                if found is not None:
                    return found
        reached = self._reached(form)
        if reached is not None:
            return reached
        return self._match(form, None, chain, None, op)

    def _reached(self, form: Linear) -> Condition | None:
        """Forms that only change with the iteration of one loop."""
        if len(form.terms) != 1:
            return None
        atom, factor = form.terms[0]
        space = next((one for one in self.terms.spaces if one.atom == atom), None)
        if space is None:
            return None
        # factor * k + const > 0: above -const / factor when that rises, else not above the last k for which it holds
        above = -form.const // factor if factor > 0 else -(-form.const // -factor) - 1
        if above > MAX_EXACT:
            return None
        if above < 0:
            return Always(factor > 0)
        self.counted[space.number] = max(self.counted.get(space.number, 0), above)
        return Reached(space.number, above) if factor > 0 else Not(Reached(space.number, above))

    def _match(
        self, form: Linear, step: int | None, chain: tuple[int, ...], space: Space | None, op: Operation
    ) -> Threshold | None:
        for group in timed(self.siblings):
            first = self.extents[group[0]]
            if first.terms != form.terms or first.chain != chain[: len(first.chain)]:
                continue
            extent = self._meant(first.kind, space, op)
            if extent.step is None:
                if space is None and form.const == extent.rest:
                    return self._outside(extent, 0)
            elif (step is None or step == extent.step) and (form.const - extent.rest) % extent.step == 0:
                above = -((form.const - extent.rest) // extent.step)
                return self._within(extent, above, space, op) if space is not None else self._outside(extent, above)
        return None

    def _meant(self, kind: int, space: Space | None, op: Operation) -> Extent:
        """Which of the loops of a kind a condition is about: the one around it, else the next, else the last."""
        if space is not None:
            for around in op.ancestors():
                if around in self._loops and self.terms.space(around) is space and self._loops[around][0].kind == kind:
                    return self._loops[around][0]
        loops = self._of_task.get((self._task, kind), [])
        later = [extent for place, extent in loops if place > self._places[op]]
        if later or loops:
            return later[0] if later else loops[-1][1]
        return self.extents[self.siblings[kind][0]]

    def _within(self, extent: Extent, above: int, space: Space, op: Operation) -> Threshold:
        loop = next(one for one in op.ancestors() if one.name == "scf.for" and self.terms.space(one) is space)
        key = (extent.number, loop)
        self.inside[key] = min(self.inside.get(key, above), above)
        return Threshold(extent.number, above, space.number)

    def _outside(self, extent: Extent, above: int) -> Threshold:
        self.thresholds.setdefault(extent.number, set()).add(above)
        return Threshold(extent.number, above)


def _is_free(value: Value) -> bool:
    """Does the value come from an argument, from global memory, or from elsewhere that a launch decides?"""
    pending = Once([value])
    for one in pending:
        op = one.op
        if op is None:
            block = one.owner
            parent = block.parent_op if isinstance(block, Block) else None
            if parent is None or parent.name != "scf.for":
                return True
        elif op.name in ("tt.load", "tt.get_program_id", "tt.get_num_programs"):
            return True
        else:
            pending.add(op.operands)
    return False


def _negated(one: Condition) -> Condition:
    if isinstance(one, Always):
        return Always(not one.value)
    return one.inner if isinstance(one, Not) else Not(one)


def _both(left: Condition, right: Condition) -> Condition:
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Always):
            return other if one.value else one
    return Both(left, right)


def _either(left: Condition, right: Condition) -> Condition:
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Always):
            return one if one.value else other
    return Either(left, right)
