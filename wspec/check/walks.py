"""Tiles that blocks of the plain kernel walk through: `for t in range(program's number, tiles, programs)`.

Coordinates are computed from the tile's number by quotients and rests of sizes. Then other blocks come to the same
columns as this one does in another iteration, and no order is between blocks. So the plain kernel too needs elements
of different rows to be different ones, which is all that is taken for granted here.

It is not where an iteration leads to columns that no other block comes to: by the loop's count, by the number of the
tile itself, by what is divided by the number of programs, and by a place of the program's own beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from wspec.check.changes import Changes, Leap
from wspec.check.clock import look
from wspec.check.linear import Linear, Terms

_DIVISIONS = frozenset(("arith.divsi", "arith.divui", "arith.remsi", "arith.remui"))
_COMPUTED = frozenset(("arith.muli", "arith.minsi", "arith.maxsi", "arith.select"))
_WIDE = frozenset(("i32", "i64", "index"))
_PROGRAM = ("op", "tt.get_program_id")


class Walks:
    """Of one function, in iterations of which `leap` knows."""

    def __init__(self, terms: Terms, changes: Changes, leap: Leap) -> None:
        self._terms, self._changes, self._leap = terms, changes, leap
        self._known: dict[int, _Programs | None] = {}

    def walked(self, forms: Iterable[Linear]) -> bool:
        """Does all that changes in numbers do so with quotients and rests of the numbers of tiles?"""
        found = self._of_all(forms)
        return found is not None and not found.walking & found.own

    def multiplied(self, form: Linear, by: Linear) -> bool:
        """Is something in a sum a product with what is in another one?"""
        factors, work, seen = {atom for atom, _ in by.terms}, [form], set[int]()
        while work:
            for atom, _ in work.pop().terms:
                look()
                if atom in factors:
                    return True
                key = self._changes.keys()[atom]
                if atom not in seen and not (key[0] == "op" and key[1] in _DIVISIONS):
                    seen.add(atom)
                    work += _forms(key)
        return False

    # ---- what changes

    def _of_all(self, forms: Iterable[Linear]) -> _Programs | None:
        whole = _Programs()
        for form in forms:
            for atom, _ in form.terms:
                if atom not in self._known:
                    self._known[atom] = self._of_atom(atom)
                found = self._known[atom]
                if found is None:
                    return None
                whole = whole.with_(found)
        return whole

    def _of_atom(self, atom: int) -> _Programs | None:
        look()
        if self._stays(atom):
            return _Programs(own=self._programs(Linear(((atom, 1),))))
        match self._changes.keys()[atom]:
            case ("op", name, _, _, (type,), (left, right)) if name in _DIVISIONS and type in _WIDE:
                divisor, number = self._of_all((right,)), self._of_number(left, right) or self._of_all((left,))
                return None if divisor is None or number is None else number.with_(divisor)
            case ("op", name, _, _, (type,), parts) if name in _COMPUTED and type in _WIDE:
                return self._of_all(parts)
        return None

    def _of_number(self, number: Linear, divisor: Linear) -> _Programs | None:
        """Of the number of a tile, if it is one and its quotient does not count iterations."""
        found = self._walk(number)
        if found is None:
            return None
        first, step = found
        programs = {atom: factor for atom, factor in first.terms if self._changes.keys()[atom][:2] == _PROGRAM}
        others = Linear(tuple((atom, factor) for atom, factor in first.terms if atom not in programs))
        by, size = step.constant, divisor.constant
        if by is None:
            counts = bool({atom for atom, _ in step.terms} & {atom for atom, _ in divisor.terms})
        else:
            counts = any(by % factor or abs(by) <= abs(factor) for factor in programs.values())
            counts = counts or (size is not None and (abs(size) <= 1 or size % by == 0))
        return None if counts or not programs else _Programs(frozenset(programs), self._programs(others))

    def _walk(self, number: Linear) -> tuple[Linear, Linear] | None:
        """Where what a loop counts begins, and by what it rises."""
        moving = [(atom, factor) for atom, factor in number.terms if not self._stays(atom)]
        if len(moving) != 1:
            return None
        (atom, factor) = moving[0]
        start, step = self._counted(self._changes.keys()[atom])
        if step is None or self._leap(start) or self._leap(step):
            return None
        return number.without(atom) + start.scaled(factor), step.scaled(factor)

    def _counted(self, key: Any) -> tuple[Linear, Linear | None]:
        match key:
            case ("iteration", ("for", *_)):
                return Linear(), Linear((), 1)
            case ("position", number):
                return next((space.lower, step) for space, step in self._terms.steps() if space.number == number)
            case ("carried", _, ("carry", start, inside)):
                added = self._changes.added(inside)
                return start, Linear((), added) if added else None
        return Linear(), None

    def _stays(self, atom: int) -> bool:
        return self._leap(Linear(((atom, 1),))) == 0

    def _programs(self, form: Linear) -> frozenset[int]:
        """All programs' numbers that something is computed from."""
        found, work, seen = set[int](), [form], set[int]()
        while work:
            for atom, _ in work.pop().terms:
                look()
                if atom not in seen:
                    seen.add(atom)
                    key = self._changes.keys()[atom]
                    work += _forms(key)
                    if key[:2] == _PROGRAM:
                        found.add(atom)
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Programs:
    """Numbers of programs: those that are a part of tiles' numbers, and those that stand beside them."""

    walking: frozenset[int] = frozenset()
    own: frozenset[int] = frozenset()

    def with_(self, other: _Programs) -> _Programs:
        return _Programs(self.walking | other.walking, self.own | other.own)


def _forms(part: Any) -> Iterator[Linear]:
    """The forms in what stands behind an atom."""
    work, seen = [part], set[int]()  # parts are often the same
    while work:
        one = work.pop()
        if isinstance(one, Linear):
            yield one
        elif isinstance(one, tuple) and id(one) not in seen:
            seen.add(id(one))
            work += one
