"""Addresses as sums of products: which element of a tile lies where, in symbols.

The offset of a tile's element (i, j) behind its base, and the integers that its mask compares, are polynomials in i, j
and in *atoms*: arguments, program ids, what a kernel computes of them by division and the like, and how often a loop
has gone round. Pointers that a loop carries become a sum with that counter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from wspec.ir.core import Block, Operation, Value
from wspec.ir.shapes import shape_of
from wspec.ir.types import PointerType, ScalarType
from wspec.model.operations import bits

Monomial = tuple[int, ...]  # sorted numbers of factors: atoms from 0 on, indices of the tile's dimensions below 0
Polynomial = Mapping[Monomial, int]

ONE: Monomial = ()


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """How many elements of a tile there are along a side of `size`, from the first one on, where an access stands.

    An element is there if its place in the tile is below all of `ends`, and none is unless all of `when` are true.
    """

    size: int
    ends: tuple[Polynomial, ...]
    when: tuple[Value, ...] = ()


Atom = Value | Operation | Room  # an operation: the counter of that loop


def index(dim: int) -> int:
    """The number that stands for an element's place along a dimension."""
    return -1 - dim


def dims_of(polynomial: Polynomial) -> set[int]:
    """The dimensions of the tile that occur in it."""
    return {-1 - factor for monomial in polynomial for factor in monomial if factor < 0}


def add(one: Polynomial, other: Polynomial, times: int = 1) -> Polynomial:
    """one + times * other."""
    found = dict(one)
    for monomial, factor in other.items():
        total = found.get(monomial, 0) + times * factor
        if total:
            found[monomial] = total
        else:
            found.pop(monomial, None)
    return found


def multiply(one: Polynomial, other: Polynomial) -> Polynomial:
    """one * other."""
    found: Polynomial = {}
    for a, x in one.items():
        for b, y in other.items():
            found = add(found, {tuple(sorted((*a, *b))): x * y})
    return found


def substituted(polynomial: Polynomial, factor: int, by: Polynomial) -> Polynomial:
    """With another polynomial in the place of one factor."""
    found: Polynomial = {}
    for monomial, times in polynomial.items():
        rest: Polynomial = {tuple(other for other in monomial if other != factor): times}
        for _ in range(monomial.count(factor)):
            rest = multiply(rest, by)
        found = add(found, rest)
    return found


def constant(number: int) -> Polynomial:
    """A number."""
    return {ONE: number} if number else {}


@dataclass(frozen=True, slots=True)
class Wrapped:
    """Elements whose `inner` is not below `end` stand for others: what they load is no part of the tile as it looks."""

    inner: Polynomial
    end: Polynomial


@dataclass(frozen=True, slots=True)
class Fits:
    """A polynomial that was computed in `bits` bits, over a tile of that shape, and must fit into them."""

    sum: Polynomial
    shape: tuple[int, ...]
    bits: int


@dataclass(frozen=True, slots=True)
class Expression:
    """An integer, or the offset in elements behind a base."""

    sum: Polynomial
    base: Value | None = None
    wrapped: tuple[Wrapped, ...] = ()
    fits: tuple[Fits, ...] = ()


class NotAffine(Exception):
    """A value that is no such sum; the text says why."""


@dataclass
class Addresses:
    """The expressions of a function's values. Scalars that are `whole` are atoms, whatever they are computed of."""

    function: Operation
    whole: Callable[[Value], bool] = lambda _: False
    atoms: list[Atom] = field(default_factory=list)
    _numbers: dict[Atom, int] = field(default_factory=dict)
    _known: dict[Value, Expression | NotAffine] = field(default_factory=dict)

    def number(self, atom: Atom) -> int:
        """Of an atom."""
        if atom not in self._numbers:
            self._numbers[atom] = len(self.atoms)
            self.atoms.append(atom)
        return self._numbers[atom]

    def of(self, value: Value) -> Expression:
        """The value's expression. Raises NotAffine."""
        found = self._known.get(value)
        if found is None:
            try:
                found = self._made(value)
            except NotAffine as why:
                found = why
            self._known[value] = found
        if isinstance(found, NotAffine):
            raise found
        return found

    def keeping(self, whole: Callable[[Value], bool]) -> Addresses:
        """Others, in terms of the same atoms."""
        return Addresses(self.function, whole, self.atoms, self._numbers)

    def _made(self, value: Value) -> Expression:
        op = value.op
        if isinstance(value.type, ScalarType) and self.whole(value):
            return self.atom(value)
        if op is None:
            return self._argument(value)
        made = _RULES.get(op.name)
        if made is not None:
            return made(self, op)
        if isinstance(value.type, ScalarType):
            return self.atom(value)
        raise NotAffine(f"it depends on {op.name}")

    def atom(self, value: Value) -> Expression:
        """A scalar as it is."""
        return Expression({(self.number(value),): 1})

    def _argument(self, value: Value) -> Expression:
        owner = value.owner
        assert isinstance(owner, Block)
        around = owner.parent_op
        if around is self.function:
            return Expression({}, value) if isinstance(value.type, PointerType) else self.atom(value)
        if around is None or around.name != "scf.for":
            if isinstance(value.type, ScalarType):
                return self.atom(value)
            raise NotAffine("it comes out of a branch or a loop of another kind")
        if value.index == 0:
            first, step = self.of(around.operands[0]), self.of(around.operands[2])
            turns = multiply({(self.number(around),): 1}, step.sum)
            return Expression(add(first.sum, turns), fits=first.fits + step.fits)
        try:
            return self._carried(value, around)
        except NotAffine:
            if isinstance(value.type, ScalarType):
                return self.atom(value)
            raise

    def _carried(self, value: Value, loop: Operation) -> Expression:
        """What each iteration adds the same to."""
        first = self.of(loop.operands[2 + value.index])
        unknown = self.number(value)
        self._known[value] = Expression({(unknown,): 1}, first.base)
        before = set(self._known)
        try:
            after = self.of(loop.regions[0].block.terminator.operands[value.index - 1])
        finally:
            for seen in set(self._known) - before | {value}:
                del self._known[seen]  # in terms of the unknown
        step = add(after.sum, {(unknown,): 1}, -1)
        if after.base is not first.base or after.wrapped or dims_of(step):
            raise NotAffine("a loop carries it, and does not add the same to all of it each time")
        for factor in {factor for monomial in step for factor in monomial}:
            if factor == unknown or not is_before(self.atoms[factor], loop):
                raise NotAffine("a loop carries it, and adds something else each time")
        now = add(first.sum, multiply({(self.number(loop),): 1}, step))
        fits = tuple(replace(one, sum=substituted(one.sum, unknown, now)) for one in after.fits)
        return replace(first, sum=now, fits=first.fits + fits)

    def constant_of(self, value: Value) -> int | None:
        """The number that a value always is, in every element."""
        try:
            found = self.of(value)
        except NotAffine:
            return None
        plain = found.base is None and not found.wrapped and set(found.sum) <= {ONE}
        return found.sum.get(ONE, 0) if plain else None


def is_before(atom: Atom, loop: Operation) -> bool:
    """Is the atom there before the loop begins?"""
    if isinstance(atom, Room):
        return False
    if isinstance(atom, Operation):
        return loop.is_inside(atom)
    owner = atom.op if atom.op is not None else atom.owner.parent_op if isinstance(atom.owner, Block) else None
    return owner is not None and owner is not loop and not owner.is_inside(loop)


# ---------------------------------------------------------------------------------------------- operations


def _merged(*parts: Expression) -> tuple[tuple[Wrapped, ...], tuple[Fits, ...]]:
    return tuple(w for part in parts for w in part.wrapped), tuple(f for part in parts for f in part.fits)


def _sum(times: int, addresses: Addresses, op: Operation) -> Expression:
    one, other = (addresses.of(value) for value in op.operands)
    return Expression(add(one.sum, other.sum, times), None, *_merged(one, other))


def _product(addresses: Addresses, op: Operation) -> Expression:
    one, other = (addresses.of(value) for value in op.operands)
    return Expression(multiply(one.sum, other.sum), None, *_merged(one, other))


def _shifted(addresses: Addresses, op: Operation) -> Expression:
    places = addresses.constant_of(op.operands[1])
    if places is None or not 0 <= places < 31:
        return _opaque(addresses, op)
    one = addresses.of(op.operands[0])
    return replace(one, sum=multiply(one.sum, constant(1 << places)))


def _quotient(addresses: Addresses, op: Operation) -> Expression:
    """By a number that divides all terms: nothing is left over."""
    by = addresses.constant_of(op.operands[1])
    try:
        one = addresses.of(op.operands[0])
    except NotAffine:
        return _opaque(addresses, op)
    if by is None or by < 1 or one.base is not None or one.wrapped or any(times % by for times in one.sum.values()):
        return _opaque(addresses, op)
    fits = Fits(one.sum, shape_of(op.operands[0].type), bits(op.operands[0].type))
    return replace(one, sum={terms: times // by for terms, times in one.sum.items()}, fits=(*one.fits, fits))


def _opaque(addresses: Addresses, op: Operation) -> Expression:
    if isinstance(op.result.type, ScalarType):
        return addresses.atom(op.result)
    raise NotAffine(f"it depends on {op.name}")


def _moved(addresses: Addresses, op: Operation) -> Expression:
    """A pointer and an offset."""
    base, offset = (addresses.of(value) for value in op.operands)
    fits = Fits(offset.sum, shape_of(op.operands[1].type), bits(op.operands[1].type))
    wrapped, known = _merged(base, offset)
    return Expression(add(base.sum, offset.sum), base.base, wrapped, (*known, fits))


def _widened(addresses: Addresses, op: Operation) -> Expression:
    found = addresses.of(op.operands[0])
    fits = Fits(found.sum, shape_of(op.operands[0].type), bits(op.operands[0].type))
    return replace(found, fits=(*found.fits, fits))


def _same(addresses: Addresses, op: Operation) -> Expression:
    return addresses.of(op.operands[0])


def _range(addresses: Addresses, op: Operation) -> Expression:
    start, end = op.int_attr("start") or 0, op.int_attr("end") or 0
    found = constant(start)
    return Expression(found if end - start == 1 else add(found, {(index(0),): 1}))


def _expanded(addresses: Addresses, op: Operation) -> Expression:
    """Dimensions from the new one on move up by one."""
    axis, found = op.int_attr("axis") or 0, addresses.of(op.operands[0])

    def moved(polynomial: Polynomial) -> Polynomial:
        return {
            tuple(sorted(factor - 1 if factor < 0 and -1 - factor >= axis else factor for factor in monomial)): times
            for monomial, times in polynomial.items()
        }

    wrapped = tuple(Wrapped(moved(one.inner), one.end) for one in found.wrapped)
    return replace(found, sum=moved(found.sum), wrapped=wrapped)


def _number(addresses: Addresses, op: Operation) -> Expression:
    number = op.result.splat
    if number is None:
        raise NotAffine("it depends on a table of numbers")
    return Expression(constant(number))


def _modulo(addresses: Addresses, op: Operation) -> Expression:
    """Rows that begin again at the first one: they are what they look like as long as they are below the end."""
    if isinstance(op.result.type, ScalarType):
        return addresses.atom(op.result)
    inner, end = (addresses.of(value) for value in op.operands)
    return _ended(inner, end, op)


def _ended(inner: Expression, end: Expression, op: Operation) -> Expression:
    dims = dims_of(inner.sum)
    place = {monomial: factor for monomial, factor in inner.sum.items() if not dims_of({monomial: factor})}
    rows = len(dims) == 1 and add(inner.sum, place, -1) == {(index(min(dims)),): 1}
    if not rows or dims_of(end.sum) or inner.base is not None or end.base is not None:
        raise NotAffine(f"it depends on {op.name} of what is no row of places side by side")
    width = bits(op.result.type)
    fits = (Fits(inner.sum, shape_of(op.result.type), width), Fits(end.sum, (), width))
    wrapped, known = _merged(inner, end)
    return Expression(inner.sum, None, (*wrapped, Wrapped(inner.sum, end.sum)), (*known, *fits))


def _selected(addresses: Addresses, op: Operation) -> Expression:
    """`where(x < end, x, anything)`."""
    if isinstance(op.result.type, ScalarType):
        return addresses.atom(op.result)
    test, chosen = op.operands[0].op, op.operands[1]
    compares = test is not None and test.name == "arith.cmpi" and test.int_attr("predicate") == _LESS
    if test is None or not compares or test.operands[0] is not chosen:
        raise NotAffine("it depends on a choice between tiles")
    inner, end = (addresses.of(value) for value in test.operands)
    return _ended(inner, end, op)


def _least(addresses: Addresses, op: Operation) -> Expression:
    """`minimum(x, last)`: rows behind the last one are the last one."""
    if isinstance(op.result.type, ScalarType):
        return addresses.atom(op.result)
    one, other = (addresses.of(value) for value in op.operands)
    inner, last = (one, other) if dims_of(one.sum) else (other, one)
    return _ended(inner, replace(last, sum=add(last.sum, constant(1))), op)


_LESS = 2  # arith's slt
_RULES = {
    "arith.addi": lambda a, op: _sum(1, a, op),
    "arith.subi": lambda a, op: _sum(-1, a, op),
    "arith.muli": _product,
    "arith.shli": _shifted,
    "arith.divsi": _quotient,
    "arith.constant": _number,
    "arith.extsi": _widened,
    "arith.index_cast": _widened,
    "arith.remsi": _modulo,
    "arith.minsi": _least,
    "arith.select": _selected,
    "tt.addptr": _moved,
    "tt.splat": _same,
    "tt.broadcast": _same,
    "tt.expand_dims": _expanded,
    "tt.make_range": _range,
    "ttg.convert_layout": _same,
}


def atoms_in(polynomials: Iterable[Polynomial]) -> set[int]:
    """The numbers of all atoms."""
    return {factor for one in polynomials for monomial in one for factor in monomial if factor >= 0}
