"""What must hold of a launch's numbers so that tiles with no row in common have no element in common.

Two tiles of pointers, or boxes of a descriptor, differ in one coordinate: their rows. They are apart if the other
coordinates of an element never make up for that, `p + row * stride + column` being the same for two of them. How far
these may differ is known from a tile's size where the tasks are at the same tile; where they may be at different ones,
from a mask (`column < n`), a descriptor's extent, or from between which numbers the coordinate lies in a launch.

Where all that is constant it is decided here. Else a launch decides (`wspec.ir.rows`), if its numbers say: what is
loaded, or counted by a `while`, is not known there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wspec.check.changes import Changes, Leap
from wspec.check.clock import look
from wspec.check.linear import Linear, Space, Terms
from wspec.ir.core import Operation
from wspec.ir.rows import COUNT, UNKNOWN, Apart, Dimension, Number

_WIDE = frozenset(("i32", "i64", "index"))
_INTEGER = {"index": 64, **{f"i{bits}": bits for bits in (1, 8, 16, 32, 64)}}
_LEAVES = {"tt.get_program_id": "program_id", "tt.get_num_programs": "num_programs"}
_KNOWN = frozenset(
    ("muli", "divsi", "divui", "remsi", "remui", "ceildivsi", "ceildivui", "floordivsi", "minsi", "maxsi", "minui",
     "maxui", "andi")
)  # fmt: skip
_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class End:
    """A mask leaves out what does not come before `limit`: of elements from `first` to `last` behind `base`."""

    base: Linear
    first: int
    last: int
    axes: frozenset[int]
    limit: Linear


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Coordinates of a tile along a dimension: from `first` to `last` behind `base`, `step` from one to the next.

    `axes`: of the tile, along which they change. `extent`: a descriptor's, in which they lie.
    """

    step: Linear
    base: Linear
    first: int
    last: int
    axes: frozenset[int] = frozenset()
    extent: Linear | None = None


Pairs = Sequence[tuple[Coordinates, Coordinates]]  # the same dimension of two tiles


class Rows:
    """Of one function, some of whose loops are `loops`."""

    def __init__(self, terms: Terms, changes: Changes, loops: Sequence[Operation], *, has_table: bool) -> None:
        self._terms, self._changes, self._loops = terms, changes, loops
        self.has_table = has_table  # blocks are not those of a launch's grid then

    def apart(
        self, pairs: Pairs, rows: int, ends: tuple[Sequence[End], Sequence[End]], leap: Leap
    ) -> Iterator[Apart | None]:
        """What makes tiles lie apart that have no coordinate in common in dimension `rows`: that numbers of a launch
        are so, or, where it is None, nothing more. Nothing comes where they need not lie apart.

        `ends`: of the tiles' masks. `leap`: by multiples of what a coordinate changes while the tasks go on.
        """
        yield from _Condition(self, ends, leap).of(pairs[rows], [*pairs[:rows], *pairs[rows + 1 :]])

    # ---- numbers of a launch

    def atom(self, number: int) -> Any:
        return self._changes.keys()[number]

    def is_of_table(self, key: Any) -> bool:
        """Is it an entry of the launcher's table, which are counts and numbers of tiles?"""
        match key:
            case ("op", "tt.load", _, _, _, (pointer, *_)):
                return self._changes.is_own(pointer, ())
            case (
                "carried" | "result",
                *_,
                ("carry", Linear(terms=((start, 1),), const=0), (("tt.load", *_), place, *_)),
            ):
                return self.is_of_table(self.atom(start)) and self._changes.is_own(place, (True,))
        return False

    def counted(self, key: Any) -> Iterator[_Counter]:
        """What a `for` counts, and whose iterations; of a loop that is gone round as often as another one would be,
        that one first."""
        found: list[tuple[Space, Linear]] = []
        match key:
            case ("iteration", ("for", *_)):
                found = [(space, step) for space, step in self._terms.steps() if self.atom(space.atom) == key]
            case ("position", number):
                found = [(space, step) for space, step in self._terms.steps() if space.number == number]
        for space, step in found:
            loops = [loop for loop in self._loops if self._terms.space(loop) is space]
            ends = tuple(dict.fromkeys(self._terms.of(loop.operands[1]) for loop in loops))
            if ends:
                yield from self._by_steps(space.lower, step, ends)
                yield _Counter(space.lower, step, ends)

    def _by_steps(self, lower: Linear, step: Linear, ends: tuple[Linear, ...]) -> Iterator[_Counter]:
        """From p to n by c, of a loop from 0 to (n - p + c - 1) // c."""
        match ends:
            case (Linear(terms=((atom, 1),), const=0),) if lower.constant == 0 and step.constant == 1:
                match self.atom(atom):
                    case ("op", "arith.ceildivsi", _, _, _, (far, Linear(terms=(), const=by))) if by > 0:
                        begin = Linear(tuple((one, -factor) for one, factor in far.terms if factor < 0))
                        yield _Counter(begin, Linear((), by), (begin + far,))


@dataclass(frozen=True, slots=True)
class _Counter:
    """Of loops that begin at one number, and rise by one, where they end."""

    lower: Linear
    step: Linear
    ends: tuple[Linear, ...]


class _Condition:
    """One of them, being made."""

    def __init__(self, rows: Rows, ends: tuple[Sequence[End], Sequence[End]], leap: Leap) -> None:
        self._rows, self._ends, self._leap = rows, ends, leap
        self._numbers = _Numbers(rows)

    def of(self, rows: tuple[Coordinates, Coordinates], others: Pairs) -> Iterator[Apart | None]:
        """None at all where it does not hold, or nothing says that it may."""
        found = list(self._dimensions(rows))
        for pair in others:
            found += self._dimensions(pair)
        (row, first), *rest = found
        if any(_is_multiple(step, row) for step, _ in rest):
            return  # rows, counted otherwise
        dims = [dim for _, dim in rest if dim is not None]
        if first is None or len(dims) < len(rest):
            return
        made = Apart(tuple(self._numbers.made), first, tuple(dims))
        known = self._numbers.constants()
        if known is not None:
            if made.holds(known):
                yield None
        elif self._may_hold(made):
            yield made

    def _may_hold(self, made: Apart) -> bool:
        """Is no more than one dimension without bounds, and that no shorter one?"""
        endless = [dim for dim in (made.rows, *made.others) if dim.spread is None and dim.low is None]
        fixed = [dim for dim in endless if dim is not made.rows and self._numbers.made[dim.step].name == "constant"]
        return not fixed and len(endless) < 2

    def _dimensions(self, pair: tuple[Coordinates, Coordinates]) -> Iterator[tuple[Linear, Dimension | None]]:
        """A dimension, and those of products in what it is counted from: with the steps, of those that may differ."""
        a, b = pair
        base, products = self._split(a.base) if a.step.constant == 1 and a.extent is None else (a.base, [])
        yield a.step, self._dimension(a.step, replace(a, base=base), replace(b, base=base))
        for step, number in products:
            if self._leap(number):
                one = Coordinates(step, number, 0, 0)
                yield step, self._dimension(step, one, one)

    def _split(self, base: Linear) -> tuple[Linear, list[tuple[Linear, Linear]]]:
        """A sum without its products by what does not change, and these: by what, and of what."""
        kept, found = Linear((), base.const), list[tuple[Linear, Linear]]()
        for atom, factor in base.terms:
            match self._rows.atom(atom):
                case ("op", "arith.muli", _, _, (type,), (left, right)) if type in _WIDE and not self._leap(right):
                    found.append((right.scaled(factor), left))
                case ("op", "arith.muli", _, _, (type,), (left, right)) if type in _WIDE and not self._leap(left):
                    found.append((left.scaled(factor), right))
                case _:
                    kept = kept + Linear(((atom, factor),))
        return kept, found

    def _dimension(self, step: Linear, a: Coordinates, b: Coordinates) -> Dimension | None:
        """How far two coordinates may differ. None where nothing is known of the step."""
        by = self._numbers.of(step)
        if by is None or not self._numbers.is_bounded(by, by):
            return None
        stays = a.base == b.base and not self._leap(a.base)
        spread = max(abs(a.last - b.first), abs(b.last - a.first)) if stays else None
        if spread == 0:
            return Dimension(by, 0)
        if a.extent is not None:
            end = self._numbers.of(a.extent.shifted(-1))
            return Dimension(by, spread) if end is None else Dimension(by, spread, self._numbers.of(Linear()), end)
        part = self._part(a, b)
        (low, high), (other_low, other_high) = (self._between(one, at, part) for at, one in enumerate((a, b)))
        lows = self._numbers.either("minsi", low, other_low)
        highs = self._numbers.either("maxsi", high, other_high)
        if lows is None or highs is None or not self._numbers.is_bounded(lows, highs):
            return Dimension(by, spread)
        return Dimension(by, spread, lows, highs)

    def _part(self, a: Coordinates, b: Coordinates) -> Linear:
        """Of what both are counted from, that from which differences are: what a mask looks at, or what changes."""
        for at, side in enumerate((a, b)):
            for end in self._ends[at]:
                if self._is_of(end, side):
                    return end.base
        return self._moving(a.base)

    def _is_of(self, end: End, side: Coordinates) -> bool:
        """Does a mask end these coordinates, but for what never changes?"""
        same = end.axes == side.axes and len(end.axes) < 2 and min(end.axes, default=0) >= 0
        return same and end.last - end.first == side.last - side.first and not self._leap(side.base - end.base)

    def _between(self, side: Coordinates, at: int, part: Linear) -> tuple[int | None, int | None]:
        """The first and the last coordinate, as numbers, counted from a part of the base."""
        numbers = self._numbers
        high = numbers.of(part.shifted(side.last))
        for end in self._ends[at]:
            if end.base == part and self._is_of(end, side):
                last = end.limit.shifted(side.first - end.first - 1)
                high = numbers.either("minsi", high, numbers.of(last))
        return numbers.of(part.shifted(side.first)), high

    def _moving(self, base: Linear) -> Linear:
        """Without what is the same for both tiles, but where it is a part of what a loop counts."""
        atoms = [self._rows.atom(atom)[0] for atom, _ in base.terms]
        if "iteration" in atoms:
            return base
        return Linear(tuple(term for term in base.terms if self._leap(Linear((term,)))), base.const)


class _Numbers:
    """The numbers that a condition hangs on."""

    def __init__(self, rows: Rows) -> None:
        self.made: list[Number] = []
        self._rows = rows
        self._at: dict[Number, int] = {}
        self._atoms: dict[int, int] = {}
        self._bounds: list[tuple[bool, bool]] = []  # is it known what it is at least; at most?

    def constants(self) -> list[tuple[int, int]] | None:
        """All of them, where they are."""
        if any(one.name != "constant" for one in self.made):
            return None
        return [(one.value, one.value) for one in self.made]

    def is_bounded(self, low: int, high: int) -> bool:
        """Is the first at least something, and the other at most?"""
        return self._bounds[low][0] and self._bounds[high][1]

    def either(self, name: str, one: int | None, other: int | None) -> int | None:
        """The smaller one of two, or the larger one."""
        if one is None or other is None:
            return None
        return one if one == other else self._put(Number(name, 64, (one, other)))

    def of(self, form: Linear) -> int | None:
        """The position of a sum; None where it is larger than any number."""
        if abs(form.const) > _MOST:
            return None
        terms = dict(form.terms)
        found: int | None = None
        const = form.const
        for atom, factor in form.terms:  # what a loop counts, as one number
            known = self._rows.counted(self._rows.atom(atom)) if self._rows.atom(atom)[0] == "iteration" else ()
            counter = next((one for one in known if one.step.constant and factor % one.step.constant == 0), None)
            if counter is None or not counter.step.constant:
                continue
            times = factor // counter.step.constant
            terms.pop(atom)
            for one, more in counter.lower.terms:
                terms[one] = terms.get(one, 0) - times * more
            const -= times * counter.lower.const
            found = self._plus(found, self._times(times, self._induction(counter)))
        for atom, factor in terms.items():
            if factor:
                found = self._plus(found, self._times(factor, self._of_atom(atom)))
        if const or found is None:
            found = self._plus(found, self._put(Number("constant", 64, (), const)))
        return found

    def _times(self, factor: int, at: int) -> int:
        return at if factor == 1 else self._put(Number("muli", 64, (self._put(Number("constant", 64, (), factor)), at)))

    def _plus(self, one: int | None, other: int) -> int:
        return other if one is None else self._put(Number("addi", 64, (one, other)))

    def _induction(self, counter: _Counter) -> int:
        end, *others = (self._sum(one) for one in counter.ends)
        for one in others:
            end = self._put(Number("maxsi", 64, (end, one)))
        return self._put(Number("induction", 64, (self._sum(counter.lower), end, self._sum(counter.step))))

    def _sum(self, form: Linear) -> int:
        found = self.of(form)
        return self._put(Number(UNKNOWN, 64)) if found is None else found

    def _of_atom(self, atom: int) -> int:
        look()
        if atom not in self._atoms:
            self._atoms[atom] = self._of_key(self._rows.atom(atom))
        return self._atoms[atom]

    def _of_key(self, key: Any) -> int:
        match key:
            case ("argument", int(number)):
                return self._put(Number("argument", 64, (), number))
            case ("op", name, _, attributes, _, ()) if name in _LEAVES:
                axis = str(dict(attributes).get("axis", "")).split(" ")[0]
                if self._rows.has_table or axis not in ("0", "1", "2"):  # blocks are none of its user's grid
                    return self._put(Number(COUNT, 32, (), 1 << 31))
                return self._put(Number(_LEAVES[name], 32, (), int(axis)))
            case ("op", name, _, _, (type,), operands) if type in _INTEGER:
                bits, short = _INTEGER[type], name.removeprefix("arith.")
                if short in _KNOWN and len(operands) == 2:
                    return self._put(Number(short, bits, tuple(map(self._sum, operands))))
                if short == "trunci" and len(operands) == 1:
                    return self._put(Number("cast", bits, (self._sum(operands[0]),)))
                if short == "select" and len(operands) == 3:
                    return self._one_of(operands[1:])
            case ("if", _, *arms):
                return self._one_of(arms)
            case ("position", _):
                for counter in self._rows.counted(key):
                    return self._induction(counter)
        if self._rows.is_of_table(key):
            return self._put(Number(COUNT, 32, (), 1 << 31))
        return self._put(Number(UNKNOWN, 64))

    def _one_of(self, forms: Sequence[Linear]) -> int:
        either = self._put(Number(UNKNOWN, 1))
        first, second = (self._sum(one) for one in forms)
        return self._put(Number("select", 64, (either, first, second)))

    def _put(self, number: Number) -> int:
        found = self._at.get(number)
        if found is None:
            found = self._at[number] = len(self.made)
            self.made.append(number)
            self._bounds.append(self._bounds_of(number))
        return found

    def _bounds_of(self, number: Number) -> tuple[bool, bool]:
        of = [self._bounds[at] for at in number.operands]
        match number.name:
            case "found":
                return False, False
            case "place":
                return True, number.value < 1 << 31
            case "addi":
                return of[0][0] and of[1][0], of[0][1] and of[1][1]
            case "muli" if (by := self.made[number.operands[0]]).name == "constant":
                return of[1] if by.value >= 0 else (of[1][1], of[1][0])
            case "minsi":
                return of[0][0] and of[1][0], of[0][1] or of[1][1]
            case "maxsi":
                return of[0][0] or of[1][0], of[0][1] and of[1][1]
            case "select":
                return of[1][0] and of[2][0], of[1][1] and of[2][1]
            case "induction":
                return of[0][0], of[0][1] and of[1][1]
            case "remsi":
                return all(of[1]), all(of[1])
            case "divsi":
                return of[0][0] and all(of[1]), of[0][1] and all(of[1])
        bounded = all(all(one) for one in of)
        return bounded, bounded


def _is_multiple(step: Linear, other: Linear) -> bool:
    """May a step, which is no number, be a multiple of another one?"""
    return bool(step.terms) and [atom for atom, _ in step.terms] == [atom for atom, _ in other.terms]


def never_meet(one: tuple[int, int], other: tuple[int, int], leap: int) -> bool:
    """Are two ranges apart, and stay so when one of them is moved by any multiple of `leap`?"""
    if leap == 0:
        return one[1] <= other[0] or other[1] <= one[0]
    ahead = (other[0] - one[0]) % leap
    return ahead >= one[1] - one[0] and ahead + other[1] - other[0] <= leap
