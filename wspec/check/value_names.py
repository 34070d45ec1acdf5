"""What values are made from, in iterations that are given: equal names are equal values, wherever they are computed.

A form (linear.py) says of a value how it hangs on the iterations of the loops around it. With numbers for these, what
is loaded in the first iteration of one loop is what another task loads in front of a loop that begins one later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from wspec.check import scalars
from wspec.check.linear import Key, Linear, Terms

Name = Hashable
Sum = tuple[int, frozenset[tuple[Name, int]]]
"""A number, and how often what is named."""


@dataclass(frozen=True, slots=True)
class In:
    """An iteration of the loops over a space: that number, or so many behind the one that a form is about."""

    space: int
    iteration: int
    is_further: bool = False


Where = tuple[In, ...]
_UNDEFINED_OF_0 = frozenset(f"arith.{name}" for name in ("divsi", "divui", "remsi", "remui"))
_EXACT = _UNDEFINED_OF_0 | {f"arith.{name}" for name in ("andi", "ori", "xori", "minsi", "maxsi", "minui", "maxui")}
_SMALL = 1 << 15
"""Of operands from 0 up to it these have one result, in any width that holds them and signed or not."""


class ValueNames:
    """Names of the atoms of one kernel; short ones, whatever they are made from."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.keys: dict[int, Key] = {number: key for key, number in terms.numbers.items()}
        self._spaces = {space.atom: space.number for space in terms.spaces}
        self._sums: dict[tuple[int, Where], Sum] = {}
        self._numbers: dict[Hashable, int] = {}

    def sum(self, form: Linear, where: Where = ()) -> Sum:
        """What a form comes to."""
        const, named = form.const, Counter[Name]()
        for atom, factor in form.terms:
            number, parts = self.of(atom, where)
            const += factor * number
            for name, times in parts:
                named[name] += factor * times
        return const, frozenset((name, times) for name, times in named.items() if times)

    def of(self, atom: int, where: Where) -> Sum:
        """What an atom comes to."""
        where = tuple(one for one in where if one.space in self.terms.depends[atom])
        found = self._sums.get((atom, where))
        if found is None:
            found = self._sums[atom, where] = self._made(atom, where)
        return found

    def name(self, atom: int, where: Where) -> Name:
        """Of an atom that is nothing but itself there."""
        _, parts = self.of(atom, where)
        return next((name for name, _ in parts), None)

    def _made(self, atom: int, where: Where) -> Sum:
        itself: Sum = 0, frozenset({((atom, where), 1)})
        if atom in self._spaces:
            given = next((one for one in where if one.space == self._spaces[atom]), None)
            if given is None:
                return itself
            return given.iteration, frozenset({((atom, ()), 1)} if given.is_further else ())
        match self.keys[atom]:
            case ("op", str(kind), result, attributes, types, operands):
                sums = [self.sum(one, where) for one in operands]
                if kind == "tt.addptr" and sums[1] == (0, frozenset()):
                    return sums[0]
                numbers = [const for const, named in sums if not named]
                if len(numbers) == len(sums) and _is_exact(kind, numbers):
                    return scalars.computed(kind, dict(attributes), numbers), frozenset()
                made = kind, result, attributes, types, tuple(sums)
                return 0, frozenset({(self._numbers.setdefault(made, len(self._numbers)), 1)})
        return itself


def _is_exact(kind: str, numbers: Sequence[int]) -> bool:
    """Has the operation that result, which may make a proof?"""
    small = kind in _EXACT and all(0 <= one < _SMALL for one in numbers)
    return small and not (kind in _UNDEFINED_OF_0 and numbers[1] == 0)
