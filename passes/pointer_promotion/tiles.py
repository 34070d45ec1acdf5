"""Which tile of which descriptor a load or a store through pointers names.

The offset of element (i, j) is split into strides times coordinates. What varies between programs or iterations makes
the coordinates, what does not makes the descriptor: its extents come from the mask (`i + row < rows`) or from rows that
begin again (`(i + row) % rows`), its strides from the factors of i and j. Terms without i or j that vary, such as a
head's number times its stride, become further dimensions, of which a tile has one element.

What the analysis takes for granted, since it depends on the launch, is listed as bounds: that coordinates are not
negative, that nothing was computed in too few bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wspec.host_descriptors import MOST, Bound, LaunchSlice, Sum, Term, Unknown
from wspec.ir.core import Operation, Value
from wspec.ir.types import PointerType, ScalarType, TensorType
from wspec.passes.pointer_promotion.addresses import (
    ONE,
    Addresses,
    Expression,
    Fits,
    Monomial,
    NotAffine,
    Polynomial,
    add,
    bits_of,
    constant,
    dims_of,
    index,
    multiply,
    shape_of,
)
from wspec.plan.pointer_loads import is_volatile, is_zero_filled, mask_of

MOST_DIMS = 5
MOST_SIDE = 256  # elements of a box
LEAST_INNER = 16  # bytes of a box's last dimension
COLUMN_BYTES = 16  # the copy engine faults where a box begins between multiples of them in its rows
_SLT, _SLE, _SGT, _SGE = 2, 3, 4, 5  # arith's predicates


class NotATile(Exception):
    """Why an access stays as it is."""


@dataclass(frozen=True, slots=True)
class Dead:
    """Elements along a dimension of the tile whose `inner` is not below `end`: nobody may see what they load."""

    dim: int
    inner: Polynomial
    end: Polynomial


@dataclass(frozen=True, slots=True)
class Dimension:
    """Of a descriptor, and where in it the tile begins."""

    size: int  # of the box
    stride: Polynomial
    place: Polynomial
    end: Polynomial | None  # None: the kernel knows none
    tile: int | None  # the dimension of the tile that it is; None: a tile has one element of it


@dataclass(frozen=True, slots=True)
class Tile:
    """What a load or store moves, as a descriptor's box."""

    op: Operation
    base: Value
    offset: Polynomial
    dimensions: tuple[Dimension, ...]  # outermost first
    dead: tuple[Dead, ...]
    bounds: tuple[Bound, ...]

    @property
    def is_transposed(self) -> bool:
        """Are the elements that lie side by side those of the tile's first dimension?"""
        return self.dimensions[-1].tile == 0


@dataclass(frozen=True)
class Tiles:
    """The tiles of a function. `of` raises NotATile."""

    addresses: Addresses
    slice: LaunchSlice

    def of(self, op: Operation) -> Tile:
        """What the operation moves. Raises NotATile."""
        tile = op.result.type if op.results else op.operands[1].type
        if not isinstance(tile, TensorType) or len(tile.shape) != 2:
            raise NotATile("it moves no tile of two dimensions")
        self._check_operation(op, tile)
        try:
            address = self.addresses.of(op.operands[0])
            ends, starts, fits = self.masks(mask_of(op))
        except NotAffine as why:
            raise NotATile(str(why)) from None
        base = address.base
        if base is None or not isinstance(base.type, PointerType):
            raise NotATile("its address does not begin at an argument")
        return _Splitting(self, op, tile, base, address, ends, starts, (*address.fits, *fits)).tile()

    def _check_operation(self, op: Operation, tile: TensorType) -> None:
        if not isinstance(tile.element, ScalarType) or tile.element.bits not in (8, 16, 32):
            raise NotATile("its elements have neither 8, 16 nor 32 bits")
        if max(tile.shape) > MOST_SIDE:
            raise NotATile(f"a side of it is longer than {MOST_SIDE}")
        if is_volatile(op):
            raise NotATile("it is volatile")
        if op.name == "tt.load" and not is_zero_filled(op):
            raise NotATile("what it puts in place of elements that its mask leaves out is not zero")

    # ------------------------------------------------------------------------------------------------ masks

    def masks(self, mask: Value | None) -> tuple[dict[int, Polynomial], dict[int, list[Polynomial]], tuple[Fits, ...]]:
        """By dimension, what i is below; what i plus it must not be below zero; what must fit."""
        ends: dict[int, Polynomial] = {}
        starts: dict[int, list[Polynomial]] = {}
        fits: list[Fits] = []
        shape = () if mask is None else shape_of(mask.type)
        for test, axis in _conjuncts(mask):
            self._add_test(test, axis, shape, ends, starts, fits)
        return ends, starts, tuple(fits)

    def _add_test(
        self,
        test: Operation,
        axis: tuple[int, ...],
        shape: tuple[int, ...],
        ends: dict[int, Polynomial],
        starts: dict[int, list[Polynomial]],
        fits: list[Fits],
    ) -> None:
        kind = test.int_attr("predicate")
        left, right = (self._seen(value, axis) for value in test.operands)
        low, high = (right, left) if kind in (_SGT, _SGE) else (left, right)
        if kind not in (_SLT, _SLE, _SGT, _SGE) or low.base is not None or high.base is not None:
            raise NotATile("its mask is more than rows and columns below an end")
        if low.wrapped or high.wrapped:
            raise NotATile("its mask looks at rows that begin again")
        room = add(high.sum, low.sum, -1)  # above zero, or not below
        if kind in (_SLE, _SGE):
            room = add(room, constant(1))
        bits = bits_of(test.operands[0].type)
        fits += [*left.fits, *right.fits, Fits(left.sum, shape, bits), Fits(right.sum, shape, bits)]
        dims = dims_of(room)
        if len(dims) != 1:
            raise NotATile("its mask is more than rows and columns below an end")
        dim = next(iter(dims))
        factor = room.get((index(dim),), 0)
        rest = add(room, {(index(dim),): factor}, -1)
        if dims_of(rest) or factor not in (1, -1):
            raise NotATile("its mask is more than rows and columns below an end")
        if factor == -1:
            if dim in ends and ends[dim] != rest:
                raise NotATile("its mask has two ends for one dimension")
            ends[dim] = rest
        else:
            starts.setdefault(dim, []).append(add(rest, constant(-1)))  # i + this >= 0

    def _seen(self, value: Value, axis: tuple[int, ...]) -> Expression:
        """A tensor of fewer dimensions as part of the tile, whose dimensions `axis` it has."""
        found = self.addresses.of(value)
        if axis == tuple(range(len(axis))):
            return found
        moved = {
            tuple(sorted(index(axis[-1 - one]) if one < 0 else one for one in monomial)): factor
            for monomial, factor in found.sum.items()
        }
        return Expression(moved, found.base, found.wrapped, found.fits)

    # --------------------------------------------------------------------------------------------- numbers

    def sum(self, polynomial: Polynomial, shape: Sequence[int] = ()) -> Sum:
        """In scalars of the launch, over a tile of that shape. Raises NotATile where it depends on others."""
        terms = []
        for monomial, factor in sorted(polynomial.items()):
            try:
                terms.append(Term(factor, tuple(self.position(one, shape) for one in monomial)))
            except Unknown as why:
                raise NotATile(f"what it depends on is not known at the launch: {why}") from None
        return tuple(terms)

    def position(self, number: int, shape: Sequence[int] = ()) -> int:
        """An atom's, or that of an element's place in a tile, among the scalars of the launch. Raises Unknown."""
        if number < 0:
            return self.slice.place(shape[-1 - number])
        atom = self.addresses.atoms[number]
        return self.slice.counter(atom) if isinstance(atom, Operation) else self.slice.position(atom)

    def is_fixed(self, monomial: Monomial) -> bool:
        """Is it the same in all programs and iterations? Raises NotATile."""
        try:
            return all(self.slice.is_uniform(self.position(one)) for one in monomial)
        except Unknown as why:
            raise NotATile(f"what it depends on is not known at the launch: {why}") from None


def _conjuncts(mask: Value | None) -> list[tuple[Operation, tuple[int, ...]]]:
    """The comparisons that a mask is made of, with the tile's dimensions that their tensors have. Raises NotATile."""
    if mask is None:
        return []
    rank = len(shape_of(mask.type))
    found: list[tuple[Operation, tuple[int, ...]]] = []
    work: list[tuple[Value, tuple[int, ...]]] = [(mask, tuple(range(rank)))]
    while work:
        value, axis = work.pop()
        op = value.op
        if op is not None and op.name == "arith.andi":
            work += [(part, axis) for part in op.operands]
        elif op is not None and op.name in ("tt.broadcast", "ttg.convert_layout"):
            work.append((op.operands[0], axis))
        elif op is not None and op.name == "tt.expand_dims":
            gone = op.int_attr("axis") or 0
            work.append((op.operands[0], axis[:gone] + axis[gone + 1 :]))
        elif op is not None and op.name == "arith.cmpi":
            found.append((op, axis))
        elif op is None or op.name != "arith.constant" or "true" not in str(op.attr("value")):
            raise NotATile("its mask is more than rows and columns below an end")
    return found


# ------------------------------------------------------------------------------------------------ splitting


class _Splitting:
    """Of one access."""

    def __init__(
        self,
        tiles: Tiles,
        op: Operation,
        type: TensorType,
        base: Value,
        address: Expression,
        ends: dict[int, Polynomial],
        starts: dict[int, list[Polynomial]],
        fits: tuple[Fits, ...],
    ) -> None:
        self.tiles, self.op, self.shape, self.base = tiles, op, type.shape, base
        assert isinstance(type.element, ScalarType)
        self.bytes = type.element.bits // 8
        self.address, self.ends, self.starts, self.fits = address, ends, starts, fits
        self.strides = [self._stride(dim) for dim in range(len(self.shape))]
        self.rest = {monomial: factor for monomial, factor in address.sum.items() if not dims_of({monomial: factor})}
        self.dead: list[Dead] = []

    def _stride(self, dim: int) -> Polynomial:
        """What an element's place along the dimension is multiplied by."""
        found = {}
        for monomial, factor in self.address.sum.items():
            if index(dim) in monomial:
                rest = list(monomial)
                rest.remove(index(dim))
                if any(one < 0 for one in rest):
                    raise NotATile("its address is no sum over rows and columns")
                found[tuple(rest)] = factor
        if len(found) != 1:
            raise NotATile("rows or columns of it do not lie at one distance")
        (monomial,) = found
        if not self.tiles.is_fixed(monomial):
            raise NotATile("rows or columns of it lie at a distance that varies")
        return found

    def tile(self) -> Tile:
        unit = [dim for dim, stride in enumerate(self.strides) if stride == {ONE: 1}]
        if len(unit) != 1:
            raise NotATile("no stride of it is known to be 1" if not unit else "two strides of it are 1")
        inner = unit[0]
        if self.shape[inner] * self.bytes < LEAST_INNER:
            raise NotATile(f"its rows have fewer than {LEAST_INNER} bytes")
        order = [dim for dim in range(len(self.shape)) if dim != inner] + [inner]
        found: dict[int, tuple[Polynomial, Polynomial | None]] = {}
        for dim in order:  # what masks and wrapping rows say
            if (place_and_end := self._ended(dim)) is not None:
                found[dim] = place_and_end
                self._take(dim, place_and_end[0])
        for dim in order:  # the others have what is left of their stride
            if dim not in found:
                place = self._divisible(dim) if dim != inner else self._of_last()
                found[dim] = place, None
                self._take(dim, place)
        for dim, asked in self.starts.items():
            if any(one != dict(found[dim][0]) for one in map(dict, asked)):
                raise NotATile("its mask begins elsewhere than a tensor does")
        outer = self._outer()
        offset = {monomial: factor for monomial, factor in self.rest.items() if factor}
        dimensions = outer + tuple(Dimension(self.shape[dim], self.strides[dim], *found[dim], dim) for dim in order)
        if len(dimensions) > MOST_DIMS:
            raise NotATile(f"it has more than {MOST_DIMS} dimensions")
        return Tile(self.op, self.base, offset, dimensions, tuple(self.dead), self._bounds(dimensions, offset))

    def _take(self, dim: int, place: Polynomial) -> None:
        self.rest = dict(add(self.rest, multiply(place, self.strides[dim]), -1))

    def _ended(self, dim: int) -> tuple[Polynomial, Polynomial] | None:
        """(place, end) along a dimension that has an end."""
        wrapped = [one for one in self.address.wrapped if dims_of(one.inner) == {dim}]
        room = self.ends.get(dim)
        if wrapped:
            inner, end = wrapped[0].inner, wrapped[0].end
            if any(other != wrapped[0] for other in wrapped[1:]):
                raise NotATile("rows of it begin again at two ends")
            place = add(inner, {(index(dim),): 1}, -1)
            if room is None:
                self.dead.append(Dead(dim, inner, end))
            elif add(room, place) != end:
                raise NotATile("rows of it begin again at another end than its mask has")
        elif room is not None:
            place = {monomial: -factor for monomial, factor in room.items() if not self.tiles.is_fixed(monomial)}
            end = add(room, place)
        else:
            return None
        if any(not self.tiles.is_fixed(monomial) for monomial in end):
            raise NotATile("where its rows end varies between programs")
        return place, end

    def _divisible(self, dim: int) -> Polynomial:
        """The terms that are a multiple of a dimension's stride, without it."""
        ((stride, times),) = self.strides[dim].items()
        found = {}
        for monomial, factor in self.rest.items():
            left = list(monomial)
            if factor % times:
                continue
            try:
                for one in stride:
                    left.remove(one)
            except ValueError:
                continue
            found[tuple(left)] = factor // times
        return found

    def _of_last(self) -> Polynomial:
        """Terms that vary and have no factor that could be a stride: they are columns."""
        return {m: f for m, f in self.rest.items() if m and not any(self.tiles.is_fixed((one,)) for one in m)}

    def _outer(self) -> tuple[Dimension, ...]:
        """Further dimensions, for terms that vary."""
        found: dict[tuple[Monomial, int], dict[Monomial, int]] = {}
        for monomial, factor in list(self.rest.items()):
            varying = tuple(one for one in monomial if not self.tiles.is_fixed((one,)))
            if not varying:
                continue
            stride = tuple(one for one in monomial if one not in varying)
            found.setdefault((stride, 1 if stride else factor), {})[varying] = factor if stride else 1
            del self.rest[monomial]
        return tuple(Dimension(1, {stride: times}, place, None, None) for (stride, times), place in found.items())

    def _bounds(self, dimensions: Sequence[Dimension], offset: Polynomial) -> tuple[Bound, ...]:
        found = []
        for one in dimensions:
            low = -MOST if one.tile in self.starts and self.op.results else 0  # the copy engine faults on such stores
            why = "a tile may begin before the first row or column"
            found.append(Bound(self.tiles.sum(one.place), low, MOST - one.size, why))
        columns, apart = self.tiles.sum(dimensions[-1].place), COLUMN_BYTES // self.bytes
        if apart > 1:
            why = f"a tile may begin at a column that is no multiple of {COLUMN_BYTES} bytes"
            found.append(Bound(columns, -MOST, MOST, why, apart))
        for fits in self.fits:
            if fits.bits >= 64 or not fits.sum:
                continue
            limit = (1 << (fits.bits - 1)) - 1
            if set(fits.sum) == {ONE}:
                continue
            within = self.tiles.sum(fits.sum, fits.shape)
            found.append(Bound(within, -limit - 1, limit, "an address may leave 32 bits"))
        self.tiles.sum(offset)
        return tuple(dict.fromkeys(found))
