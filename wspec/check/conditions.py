"""Conditions as the checker decides them: thresholds on trip counts, and choices that are free but always the same.

A loop over `lower, lower + step, ... < upper` has an *extent* M, the number of its iterations as far as it is
positive. Whether iteration k exists, whether the loop runs at all, whether the tile three iterations on will be needed:
all ask if `M - k` is above some constant. Loops of different tasks, and loops cut short by some iterations, share an
extent when their bounds differ by constants only. Everything else is a free choice, made once for each iteration of the
loops that its terms change with, and the same for all tasks that compute the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from wspec.check.linear import Key, Linear, Space, Terms, constant
from wspec.ir.core import Operation, Value
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


Condition = Always | Threshold | Reached | Choice | Not | Both | Either


@dataclass(frozen=True, slots=True)
class Extent:
    """How many iterations loops of one kind have: ceil((terms + rest) / step), which may be negative."""

    number: int
    chain: tuple[int, ...]
    terms: tuple[tuple[int, int], ...]
    rest: int
    step: int | None


MAX_EXACT = 512  # constant loops with more iterations are taken for loops of any length, from SOME on
SOME = 64


class Extents:
    """The extents of all loops of a kernel. Every loop must be added before conditions are read."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.extents: list[Extent] = []
        self._by_terms: dict[Key, list[Extent]] = {}
        self._loops: dict[Operation, tuple[Extent, int]] = {}
        self.places: dict[int, list[Operation]] = {}  # extent -> its loops
        self.choices: dict[Linear, int] = {}
        self.asked: list[Value] = []  # choice -> a value that stands for it
        self.chain_of_choice: list[tuple[int, ...]] = []
        self.thresholds: dict[int, set[int]] = {}  # extent -> what is asked of it outside its loops
        self.counted: dict[int, int] = {}  # space -> the highest iteration that is asked for
        self.inside: dict[tuple[int, int], int] = {}  # extent, space -> the lowest that is asked inside loops

    def add(self, loop: Operation) -> None:
        """Learn of an `scf.for`."""
        space = self.terms.space(loop)
        length = self.terms.of(loop.operands[1]) - space.lower
        step = space.step if space.step is not None and space.step > 0 else None
        shared = step is not None and length.terms
        whole, rest = divmod(length.const, step or 1) if shared else (0, length.const)
        key: Key = (length.terms, step, space.chain)
        if step is None:
            key = (*key, self.terms.of(loop.operands[2]))
        known = self._by_terms.setdefault(key, [])
        extent = next((one for one in known if one.rest == rest), None)
        if extent is None:
            extent = Extent(len(self.extents), space.chain, length.terms, rest, step)
            known.append(extent)
            self.extents.append(extent)
        self._loops[loop] = (extent, whole)
        self.places.setdefault(extent.number, []).append(loop)

    def initially(self, number: int) -> tuple[int, int] | None:
        """(least, most) iterations of loops whose bounds differ by a constant; None: anything."""
        extent = self.extents[number]
        if extent.terms or extent.step is None:
            return None
        count = max(0, -(-extent.rest // extent.step))
        return (count, count) if count <= MAX_EXACT else (SOME, 1 << 30)

    def runs(self, loop: Operation) -> Threshold:
        """Does the iteration at which the loop stands exist?"""
        extent, whole = self._loops[loop]
        return Threshold(extent.number, -whole, self.terms.space(loop).number)

    def whole(self, loop: Operation) -> int:
        """By how many iterations the loop is longer than its extent."""
        return self._loops[loop][1]

    # ---- reading conditions

    def condition(self, value: Value) -> Condition:
        """What an i1 asks."""
        op = value.op
        if op is not None and value.type == ScalarType("i1"):
            if op.name == "arith.constant":
                return Always(bool(constant(op)))
            if op.name == "arith.cmpi":
                found = self._comparison(op)
                if found is not None:
                    return found
            if op.name == "arith.andi":
                return _both(self.condition(op.operands[0]), self.condition(op.operands[1]))
            if op.name == "arith.ori":
                return _either(self.condition(op.operands[0]), self.condition(op.operands[1]))
            if op.name == "arith.xori":
                left, right = self.condition(op.operands[0]), self.condition(op.operands[1])
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
        return Choice(number, self.chain_of_choice[number])

    def _comparison(self, op: Operation) -> Condition | None:
        left, right = self.terms.of(op.operands[0]), self.terms.of(op.operands[1])
        chain = self.terms.chain(op)
        match (op.int_attr("predicate") or 0) % 10:
            case 2 | 6:
                return self._positive(right - left, chain)
            case 3 | 7:
                return self._positive((right - left).shifted(1), chain)
            case 4 | 8:
                return self._positive(left - right, chain)
            case 5 | 9:
                return self._positive((left - right).shifted(1), chain)
            case code:
                difference = (left - right).constant
                return None if difference is None else Always((difference == 0) == (code == 0))

    def _positive(self, form: Linear, chain: tuple[int, ...]) -> Condition | None:
        """Is the form above zero?"""
        if form.constant is not None:
            return Always(form.constant > 0)
        found = self._threshold(form, chain)
        if found is not None:
            return found
        found = self._threshold(form.scaled(-1).shifted(1), chain)
        return None if found is None else _negated(found)

    def _threshold(self, form: Linear, chain: tuple[int, ...]) -> Condition | None:
        for number in reversed(chain):
            space = self.terms.spaces[number]
            if space.step is not None and space.step > 0 and form.coefficient(space.atom) == -space.step:
                found = self._match(form.without(space.atom), space.step, space.chain, space)
                if found is not None:
                    return found
        reached = self._reached(form)
        if reached is not None:
            return reached
        return self._match(form, None, chain, None)

    def _reached(self, form: Linear) -> Condition | None:
        """Forms that only change with the iteration of one loop."""
        if len(form.terms) != 1:
            return None
        atom, factor = form.terms[0]
        space = next((one for one in self.terms.spaces if one.atom == atom), None)
        if space is None:
            return None
        # factor * k + const > 0
        above = -form.const // factor if factor > 0 else -(-form.const // factor) - 1
        if not -1 <= above <= MAX_EXACT:
            return None
        self.counted[space.number] = max(self.counted.get(space.number, 0), above)
        return Reached(space.number, above) if factor > 0 else Not(Reached(space.number, above))

    def _match(self, form: Linear, step: int | None, chain: tuple[int, ...], space: Space | None) -> Threshold | None:
        for extent in self.extents:
            if extent.terms != form.terms or extent.chain != chain[: len(extent.chain)]:
                continue
            if extent.step is None:
                if space is None and form.const == extent.rest:
                    return self._outside(extent, 0)
            elif (step is None or step == extent.step) and (form.const - extent.rest) % extent.step == 0:
                above = -((form.const - extent.rest) // extent.step)
                return self._within(extent, above, space) if space is not None else self._outside(extent, above)
        return None

    def _within(self, extent: Extent, above: int, space: Space) -> Threshold:
        key = (extent.number, space.number)
        self.inside[key] = min(self.inside.get(key, above), above)
        return Threshold(extent.number, above, space.number)

    def _outside(self, extent: Extent, above: int) -> Threshold:
        self.thresholds.setdefault(extent.number, set()).add(above)
        return Threshold(extent.number, above)


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
