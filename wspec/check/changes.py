"""By what a number differs from one iteration to another: the places of tasks that are in different ones.

Of a form a number is found that divides every difference between two of its values, in whatever iterations of whatever
loops they are computed; 0 where there is but one value. What is multiplied by a size changes by multiples of what the
size is known to be divisible by.

Tiles that a block takes from the launcher's table are different blocks of the plain kernel, between which there is no
order either. So what is computed from the table's entries alone, or loaded where they lead from memory that nothing
writes, is not asked for: of two tiles anything may be the same, of one tile it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from wspec.check.clock import look
from wspec.check.linear import Linear, Space, Terms
from wspec.ir.core import Operation
from wspec.ir.types import ArrayAttr, DictAttr, IntegerAttr

_EITHER = frozenset(("arith.minsi", "arith.maxsi"))
_NO_WAY = 1  # divides everything
_WIDE = frozenset(("i32", "i64", "index"))  # the others wrap
_LOAD = "tt.load"

Leap = Callable[[Linear], int]  # what divides every value of a form, or each difference of two of them; 0 of 0


class Changes:
    """Of one function. `own`: from this argument on they are the launcher's memory, its table of tiles among it."""

    def __init__(self, function: Operation, terms: Terms, own: int | None) -> None:
        self._terms, self._own = terms, own
        self._multiples = _multiples(function)
        self._keys: dict[int, Any] = {}
        self._steps: dict[int, tuple[Space, Any]] = {}
        self._differences: dict[tuple[int, frozenset[int]], int] = {}
        self._divisors: dict[int, int] = {}
        self._tiles: dict[tuple[int, frozenset[int]], bool] = {}
        self._entries: dict[int, bool] = {}

    def of(self, form: Linear, begun: frozenset[int]) -> int:
        """What divides each difference of two values. `begun`: spaces of loops that have come round once."""
        return math.gcd(*(factor * self._difference(atom, begun) for atom, factor in form.terms))

    def keys(self) -> dict[int, Any]:
        """What stands behind each atom."""
        if len(self._keys) != len(self._terms.numbers):  # they only become more
            self._keys = {number: key for key, number in self._terms.numbers.items()}
        return self._keys

    # ---- differences

    def _difference(self, atom: int, begun: frozenset[int]) -> int:
        look()
        known = (atom, begun)
        if known not in self._differences:
            key = self.keys()[atom]
            self._differences[known] = 0 if self._is_of_tile(atom, begun) else self._of_key(key, begun)
        return self._differences[known]

    def _of_key(self, key: Any, begun: frozenset[int]) -> int:
        match key:
            case ("op", "arith.muli", _, _, (type,), (left, right)) if type in _WIDE:
                parts = self.divisor(left) * self.of(right, begun), self.divisor(right) * self.of(left, begun)
                return math.gcd(*parts)
            case ("op", name, _, _, _, (left, right)) if name in _EITHER:
                return self._one_of((left, right), begun)
            case ("op", "arith.select", _, _, _, (_, *arms)) | ("if", _, *arms):
                return self._one_of(arms, begun)
            case ("position", space):
                made, step = self._space(space)
                return math.gcd(self.of(made.lower, begun), self.divisor(step))
            case ("carried", _, ("carry", start, inside)):
                added = self.added(inside)
                if added is None:
                    return math.gcd(self.divisor(start), self._divisor_of_tree(inside, 0))
                return math.gcd(self.of(start, begun), added)
        return _NO_WAY

    def _one_of(self, forms: Any, begun: frozenset[int]) -> int:
        first = forms[0]
        return math.gcd(*(math.gcd(self.of(one, begun), self.divisor(one - first)) for one in forms))

    def added(self, tree: Any) -> int | None:
        """What divides that which a carried number gets more each time; None where it is not only added to."""
        match tree:
            case ("up", 1):
                return 0
            case ("if", _, left, right):
                one, other = self.added(left), self.added(right)
                return None if one is None or other is None else math.gcd(one, other)
            case (("arith.addi" | "tt.addptr", _, _, type), left, right) if type in _WIDE or type.startswith("!tt.ptr"):
                for one, other in ((left, right), (right, left)):
                    if (found := self.added(one)) is not None:
                        return math.gcd(found, self._divisor_of_tree(other, _NO_WAY))
        return None

    def _space(self, number: int) -> tuple[Space, Any]:
        if number not in self._steps:
            self._steps = {space.number: (space, step) for space, step in self._terms.steps()}
        return self._steps[number]

    # ---- divisors

    def divisor(self, form: Linear) -> int:
        """What divides the value, whatever it is; 0 of 0."""
        return math.gcd(form.const, *(factor * self._divisor(atom) for atom, factor in form.terms))

    def _divisor(self, atom: int) -> int:
        look()
        if atom not in self._divisors:
            self._divisors[atom] = self._of_atom(self.keys()[atom])
        return self._divisors[atom]

    def _of_atom(self, key: Any) -> int:
        match key:
            case ("argument", number):
                return self._multiples.get(number, _NO_WAY)
            case ("op", "arith.muli", _, _, (type,), (left, right)) if type in _WIDE:
                return self.divisor(left) * self.divisor(right)
            case ("op", name, _, _, _, (left, right)) if name in _EITHER:
                return math.gcd(self.divisor(left), self.divisor(right))
            case ("op", "arith.select", _, _, _, (_, *arms)) | ("if", _, *arms):
                return math.gcd(*map(self.divisor, arms))
            case ("position", space):
                made, step = self._space(space)
                return math.gcd(self.divisor(made.lower), self.divisor(step))
            case ("carried" | "result", *_, ("carry", start, inside)):
                return math.gcd(self.divisor(start), self._divisor_of_tree(inside, 0))
        return _NO_WAY

    def _divisor_of_tree(self, tree: Any, up: int) -> int:
        """`up`: what divides the numbers that loops around carry. Of 0 it is found what divides them with the rest."""
        match tree:
            case Linear():
                return self.divisor(tree)
            case ("form", form):
                return self.divisor(form)
            case ("up", _):
                return up
            case ("carry", left, right):
                return math.gcd(self._divisor_of_tree(left, up), self._divisor_of_tree(right, up))
            case (("arith.addi" | "arith.subi" | "arith.minsi" | "arith.maxsi", _, _, type), left, right) if (
                type in _WIDE
            ):
                return math.gcd(self._divisor_of_tree(left, up), self._divisor_of_tree(right, up))
            case ("if", _, left, right) | (("arith.select", *_), _, left, right):
                return math.gcd(self._divisor_of_tree(left, up), self._divisor_of_tree(right, up))
            case (("arith.muli", _, _, type), left, right) if type in _WIDE:
                return self._divisor_of_tree(left, up) * self._divisor_of_tree(right, up)
            case (("arith.extsi", _, _, type), one) if type in _WIDE:
                return self._divisor_of_tree(one, up)
        return _NO_WAY

    # ---- tiles

    def _of_tile(self, part: Any, begun: frozenset[int]) -> bool:
        """Is all that changes in an atom, or a form, what the table of tiles says?"""
        match part:
            case Linear():
                return all(self._is_of_tile(atom, begun) for atom, _ in part.terms)
            case ("op", name, _, _, _, operands):
                own = name == _LOAD and self.is_own(operands[0], ())
                return own or all(self._of_tile(one, begun) for one in operands)
            case ("if", *parts):
                return all(self._of_tile(one, begun) for one in parts)
            case ("carried" | "result", space, *_, ("carry", start, inside)):
                first = space in begun or (self._is_entry(start) and self._of_tile(start, begun))
                return first and self._tree_of_tile(inside)
        return False

    def _is_of_tile(self, atom: int, begun: frozenset[int]) -> bool:
        if not self._terms.depends[atom]:
            return True
        known = (atom, begun)
        if known not in self._tiles:
            self._tiles[known] = self._of_tile(self.keys()[atom], begun)
        return self._tiles[known]

    def _tree_of_tile(self, tree: Any) -> bool:
        match tree:
            case Linear():
                return self._of_tile(tree, frozenset())
            case ("form", form):
                return self._of_tile(form, frozenset())
            case ("carry", start, inside):
                return self._is_entry(start) and self._tree_of_tile(start) and self._tree_of_tile(inside)
            case ("if", *parts):
                return all(map(self._tree_of_tile, parts))
            case ((str(name), *_), *parts) if "." in name:  # else the position of a loop
                return (name == _LOAD and self.is_own(parts[0], ())) or all(map(self._tree_of_tile, parts))
        return False

    def _is_entry(self, part: Any) -> bool:
        """Is it computed from what the table says, and not a number that stands for no tile?"""
        match part:
            case Linear():
                return any(self._is_of_entry(atom) for atom, _ in part.terms)
            case ("form", form):
                return self._is_entry(form)
            case ("op", name, _, _, _, parts) | ((str(name), *_), *parts):
                if name == _LOAD:
                    return self.is_own(parts[0], ()) or self._is_entry(parts[0])
                return any(map(self._is_entry, parts))
            case ("if", _, *parts):
                return all(map(self._is_entry, parts))
        return False

    def _is_of_entry(self, atom: int) -> bool:
        if atom not in self._entries:
            self._entries[atom] = self._is_entry(self.keys()[atom])
        return self._entries[atom]

    def is_own(self, pointer: Any, above: tuple[bool, ...]) -> bool:
        """Does it point into the launcher's memory? `above`: of loops around, whether what they carry does."""
        match pointer:
            case Linear(terms=((atom, 1),), const=0):
                return self.is_own(self.keys()[atom], above)
            case ("argument", int(number)):
                return self._own is not None and number >= self._own
            case ("form", form):
                return self.is_own(form, above)
            case ("up", int(level)):
                return level <= len(above) and above[-level]
            case ("op", "tt.addptr", _, _, _, (base, _)) | (("tt.addptr", *_), base, _):
                return self.is_own(base, above)
            case ("carried" | "result", *_, ("carry", start, inside)) | ("carry", start, inside):
                return self.is_own(start, above) and self.is_own(inside, (*above, True))
            case ("if", _, left, right):
                return self.is_own(left, above) and self.is_own(right, above)
        return False


def _multiples(function: Operation) -> dict[int, int]:
    """What arguments are divisible by: the kernel is compiled for such ones, and the launch looks."""
    found = {}
    told = function.attr("arg_attrs")
    for at, one in enumerate(told.items if isinstance(told, ArrayAttr) else ()):
        known = {name.strip('"'): what for name, what in one.items} if isinstance(one, DictAttr) else {}
        number = known.get("tt.divisibility")
        if isinstance(number, IntegerAttr) and number.value > 0:
            found[at] = number.value
    return found
