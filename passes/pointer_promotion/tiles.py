"""Which tile of which descriptor a load or a store through pointers names.

The offset of element (i, j) is split into strides times coordinates. What varies between programs or iterations makes
the coordinates, what does not makes the descriptor: its extents come from the mask (`i + row < rows`) or from rows that
begin again (`(i + row) % rows`), its strides from the factors of i and j. Terms without i or j that vary, such as a
head's number times its stride, become further dimensions, of which a tile has one element.

A number that only the kernel knows (it loads where a sequence begins, which expert or page it takes) is part of a
coordinate like any other. Where rows end at such a number, a tile says itself how many of its rows there are:

    i < end - row, at base + (first + row + i) * stride     room = clamp(end - row, 0, size)
                                                            box [1, size] at [first + row + room, size - room]
                                                            of [all memory, size], both `stride` apart, from -size on

Element i lies at the same address, and within the second extent exactly if i < room.

What the analysis takes for granted, since it depends on the launch, is listed as bounds: that coordinates are not
negative, that nothing was computed in too few bits. Offsets that are computed of numbers that only the kernel knows
have no such bounds: that the bits they have are enough is taken for granted, as by Triton's `sanitize_overflow`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from wspec.host_descriptors import ALIGNMENT, MOST, MOST_BEFORE, SPAN, Bound, LaunchSlice, Sum, Term, Unknown
from wspec.ir.core import Operation, Value
from wspec.ir.types import PointerType, ScalarType, TensorType
from wspec.passes.pointer_promotion.addresses import (
    ONE,
    Addresses,
    Expression,
    Monomial,
    NotAffine,
    Polynomial,
    Room,
    add,
    atoms_in,
    constant,
    dims_of,
    index,
    multiply,
)
from wspec.passes.pointer_promotion.masks import Mask, Masks, NotATile
from wspec.passes.pointer_promotion.terms import Terms, fewer, gathered, without
from wspec.plan.pointer_loads import is_volatile, is_zero_filled, mask_of

MOST_DIMS = 5
MOST_SIDE = 256  # elements of a box
LEAST_INNER = 16  # bytes of a box's last dimension
COLUMN_BYTES = 16  # the copy engine faults where a box begins between multiples of them in its rows
ANY = 1 << 80  # beyond all integers of a launch


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
    is_free: bool = False  # only the kernel knows where tiles begin: the descriptor reaches as far as memory, both ways


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
    def may_be_outside(self) -> bool:
        """May a box lie wholly outside of a descriptor whose first address is far from the argument's?"""
        ends = [one.end for one in self.dimensions if not one.is_free and one.end is not None]
        return any(one.is_free for one in self.dimensions) and any(end != constant(MOST) for end in ends)

    @property
    def is_transposed(self) -> bool:
        """Are the elements that lie side by side those of the tile's first dimension?"""
        return self.dimensions[-1].tile == 0


@dataclass(frozen=True)
class Tiles:
    """The tiles of a function. `of` raises NotATile."""

    addresses: Addresses
    slice: LaunchSlice

    @cached_property
    def masks(self) -> Masks:
        """What masks ask of elements."""
        return Masks(self.addresses.keeping(lambda value: is_found(self.slice, value) and not self._is_counted(value)))

    def _is_counted(self, value: Value) -> bool:
        """Does a loop carry the scalar, or what it is computed of, and add the same each time that the launch knows?"""
        try:
            return not self.is_found(self.addresses.of(value).sum, through_counters=False)
        except (NotAffine, NotATile):
            return False

    def of(self, op: Operation) -> Tile:
        """What the operation moves. Raises NotATile."""
        tile = op.result.type if op.results else op.operands[1].type
        if not isinstance(tile, TensorType) or len(tile.shape) != 2:
            raise NotATile("it moves no tile of two dimensions")
        self._check_operation(op, tile)
        try:
            address = self.addresses.of(op.operands[0])
            mask = self.masks.of(mask_of(op))
        except NotAffine as why:
            raise NotATile(str(why)) from None
        base = address.base
        if base is None or not isinstance(base.type, PointerType):
            raise NotATile("its address does not begin at an argument")
        return _Splitting(self, op, tile, base, address, mask).tile()

    def _check_operation(self, op: Operation, tile: TensorType) -> None:
        if not isinstance(tile.element, ScalarType) or tile.element.bits not in (8, 16, 32):
            raise NotATile("its elements have neither 8, 16 nor 32 bits")
        if max(tile.shape) > MOST_SIDE:
            raise NotATile(f"a side of it is longer than {MOST_SIDE}")
        if is_volatile(op):
            raise NotATile("it is volatile")
        if op.name == "tt.load" and not is_zero_filled(op):
            raise NotATile("what it puts in place of elements that its mask leaves out is not zero")

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
        if isinstance(atom, Room):
            return self.slice.place(atom.size + 1)
        return self.slice.counter(atom) if isinstance(atom, Operation) else self.slice.position(atom)

    def is_fixed(self, monomial: Monomial) -> bool:
        """Is it the same in all programs and iterations? Raises NotATile."""
        try:
            return all(self.slice.is_uniform(self.position(one)) for one in monomial)
        except Unknown as why:
            raise NotATile(f"what it depends on is not known at the launch: {why}") from None

    def is_found(self, polynomial: Polynomial, through_counters: bool = True) -> bool:
        """Does it depend on what only the kernel knows; also on how often a loop goes round? Raises NotATile."""
        try:
            positions = [self.position(one) for one in atoms_in([polynomial])]
        except Unknown as why:
            raise NotATile(f"what it depends on is not known at the launch: {why}") from None
        return any(self.slice.is_found(one, through_counters) for one in positions)


def is_found(slice: LaunchSlice, value: Value) -> bool:
    """Is a scalar known to the kernel alone?"""
    try:
        return slice.is_found(slice.position(value), through_counters=False)
    except Unknown:
        return False


# ------------------------------------------------------------------------------------------------ splitting


class _Splitting:
    """Of one access."""

    def __init__(
        self, tiles: Tiles, op: Operation, type: TensorType, base: Value, address: Expression, mask: Mask
    ) -> None:
        self.tiles, self.op, self.shape, self.base = tiles, op, type.shape, base
        assert isinstance(type.element, ScalarType)
        self.bytes = type.element.bits // 8
        self.address, self.mask, self.fits = address, mask, (*address.fits, *mask.fits)
        self.strides = [self._stride(dim) for dim in range(len(self.shape))]
        self.rest = {monomial: factor for monomial, factor in address.sum.items() if not dims_of({monomial: factor})}
        self.dead: list[Dead] = []
        self.bounds: list[Bound] = []

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
        by_itself = self._by_itself(order[:-1])
        found: dict[int, tuple[Polynomial, Polynomial | None]] = {}
        for dim in order:  # what masks and wrapping rows say
            if dim not in by_itself and (place_and_end := self._ended(dim)) is not None:
                if dim == inner:
                    self._check_columns(place_and_end[0])
                found[dim] = place_and_end
                self._take(dim, place_and_end[0])
        for dim in order:  # the others have what is left of their stride
            if dim not in found:
                place = self._divisible(dim) if dim != inner else self._of_last()
                found[dim] = place, None
                self._take(dim, place)
        sides: list[Dimension] = []
        for dim in order:
            if dim in by_itself:
                sides += self._counted(dim, found[dim][0], by_itself[dim])
            else:
                sides.append(self._side(dim, *found[dim], is_last=dim == inner))
        outer = self._outer(MOST_DIMS - len(sides))
        offset = {monomial: factor for monomial, factor in self.rest.items() if factor}
        dimensions = _reaching((*outer, *sides)) if self.op.results and by_itself else (*outer, *sides)
        if len(dimensions) > MOST_DIMS:
            raise NotATile(f"it has more than {MOST_DIMS} dimensions")
        return Tile(self.op, self.base, offset, dimensions, tuple(self.dead), self._bounds(dimensions, offset))

    def _take(self, dim: int, place: Polynomial) -> None:
        self.rest = dict(add(self.rest, multiply(place, self.strides[dim]), -1))

    # ------------------------------------------------------------------------------- tiles that count their rows

    def _by_itself(self, dims: Sequence[int]) -> dict[int, Room]:
        """The dimensions along which a tile must say itself how many of its elements there are."""
        found = {dim: Room(self.shape[dim], self.mask.ends[dim]) for dim in dims if self._is_ragged(dim)}
        if self.mask.when:
            dim = next(iter(found), dims[0])
            found[dim] = Room(self.shape[dim], self.mask.ends.get(dim, ()), self.mask.when)
        for dim in found:
            if any(dims_of(one.inner) == {dim} for one in self.address.wrapped):
                raise NotATile("rows of it begin again, and end where a program says")
        return found

    def _is_ragged(self, dim: int) -> bool:
        """Is where its rows end another number for each tile, and not an end of the tensor's?"""
        ends = self.mask.ends.get(dim, ())
        if len(ends) > 1 or any(self.tiles.is_found(end, through_counters=False) for end in ends):
            return True
        mine = self._divisible(dim)
        place = {m: -f for end in ends for m, f in end.items() if not self.tiles.is_fixed(m)}
        return any(mine.get(monomial) != factor for monomial, factor in place.items())

    def _counted(self, dim: int, place: Polynomial, room: Room) -> list[Dimension]:
        """Two dimensions for one whose tiles say how many of their elements there are."""
        for start in self.mask.starts.get(dim, ()):
            self._bound_start(start)
        self.rest = dict(add(self.rest, multiply(constant(room.size), self.strides[dim]), -1))
        there: Polynomial = {(self.tiles.addresses.number(room),): 1}
        first, apart = add(place, there), add(constant(room.size), there, -1)
        stride = self.strides[dim]
        return [
            Dimension(1, stride, first, None, None, self.tiles.is_found(first)),
            Dimension(room.size, stride, apart, constant(room.size), dim),
        ]

    # --------------------------------------------------------------------------------------- ends of a tensor

    def _side(self, dim: int, place: Polynomial, end: Polynomial | None, is_last: bool) -> Dimension:
        """A dimension of the tile; the last one is that of columns."""
        if is_last and any(self.tiles.is_found(one, through_counters=False) for one in self.mask.ends.get(dim, ())):
            raise NotATile("where its columns end is known to the kernel alone")
        if is_last and self.tiles.is_found(place, through_counters=False):
            raise NotATile("the column at which it begins is known to the kernel alone")
        is_free = end is None and self.tiles.is_found(place)
        if is_last and is_free:  # as many columns as 32 bits can count
            end, is_free = constant(MOST), False
        for start in self.mask.starts.get(dim, ()):
            if is_free or dict(start) != dict(place):
                self._bound_start(start)
        return Dimension(self.shape[dim], self.strides[dim], place, end, dim, is_free)

    def _check_columns(self, place: Polynomial) -> None:
        """Columns cannot be counted: what the mask says of where they begin must be in the address. Raises NotATile."""
        varies = {one: n for one, n in self._varying(place).items() if self.rest.get(one) != n}
        if varies and not self.tiles.is_found(varies):
            raise NotATile("where its columns end varies between programs")

    def _bound_start(self, start: Polynomial) -> None:
        """A mask must not leave out first rows or columns in the launch. Raises NotATile."""
        if self.tiles.is_found(start, through_counters=False):
            start = self._without_turns(start)
        least = max((n for one, n in start.items() if one and self.tiles.is_fixed(one)), default=0)  # of the first tile
        if (start.get(ONE, 0) < 0 and least <= 0) or self.tiles.is_found(start, through_counters=False):
            raise NotATile("its mask begins elsewhere than a tensor does")
        if start:
            self.bounds.append(Bound(self.tiles.sum(start), 0, ANY, "a mask may leave out the first rows or columns"))

    def _without_turns(self, start: Polynomial) -> Polynomial:
        """What the least of it is, whatever a loop adds each time, where 64 bits are enough for that."""
        found: Polynomial = {}
        for monomial, factor in start.items():
            product: Polynomial = {ONE: factor}
            for number in monomial:
                atom = self.tiles.addresses.atoms[number]
                sum: Polynomial = {(number,): 1}
                if isinstance(atom, Value) and isinstance(atom.type, ScalarType) and atom.type.bits >= 64:
                    inside = self.tiles.addresses.of(atom)
                    sum, self.fits = inside.sum, (*self.fits, *inside.fits)
                product = multiply(product, sum)
            found = add(found, product)
        atoms = self.tiles.addresses.atoms
        return {
            monomial: factor
            for monomial, factor in found.items()
            if factor < 0 or not monomial or not all(isinstance(atoms[one], Operation) for one in monomial)
        }

    def _ended(self, dim: int) -> tuple[Polynomial, Polynomial] | None:
        """(place, end) along a dimension that has an end."""
        wrapped = [one for one in self.address.wrapped if dims_of(one.inner) == {dim}]
        rooms = self.mask.ends.get(dim, ())
        if len(rooms) > 1:
            raise NotATile("its mask has two ends for one dimension")
        if wrapped:
            inner, end = wrapped[0].inner, wrapped[0].end
            if any(other != wrapped[0] for other in wrapped[1:]):
                raise NotATile("rows of it begin again at two ends")
            place = add(inner, {(index(dim),): 1}, -1)
            if not rooms:
                self.dead.append(Dead(dim, inner, end))
            elif add(rooms[0], place) != end:
                raise NotATile("rows of it begin again at another end than its mask has")
        elif rooms:
            place = {monomial: -factor for monomial, factor in rooms[0].items() if not self.tiles.is_fixed(monomial)}
            mine = self._divisible(dim)
            if min(place.values(), default=0) < 0 and self._varying(mine) == place:
                place = mine  # tiles come backwards: what they begin at is part of where they are
            else:
                place = add(place, self._begin(dim, rooms[0], place))
            end = add(rooms[0], place)
        else:
            return None
        if any(not self.tiles.is_fixed(monomial) for monomial in end):
            raise NotATile("where its rows end varies between programs")
        return place, end

    def _begin(self, dim: int, room: Polynomial, place: Polynomial) -> Polynomial:
        """Where tiles begin that come backwards, or begin before others: what address and mask both say of it.

        As a part of the descriptor's address it would leave them places before the first one, or begin in no memory.
        """
        mine = dict(self._divisible(dim))
        ((stride, times),) = self.strides[dim].items()
        if stride == ONE and times > 0:
            mine[ONE] = self.rest.get(ONE, 0) // times  # what is left of it are columns
        fixed = {one: n for one, n in mine.items() if n and self.tiles.is_fixed(one) and room.get(one) == -n}
        return fixed if min((*place.values(), *fixed.values()), default=0) < 0 else {}

    def _varying(self, polynomial: Polynomial) -> Polynomial:
        return {monomial: factor for monomial, factor in polynomial.items() if not self.tiles.is_fixed(monomial)}

    def _divisible(self, dim: int) -> Polynomial:
        """The terms that are a multiple of a dimension's stride, without it."""
        ((stride, times),) = self.strides[dim].items()
        found = {}
        for monomial, factor in self.rest.items():
            left = without(monomial, stride)
            if left is not None and factor % times == 0:
                found[left] = factor // times
        return found

    def _of_last(self) -> Polynomial:
        """Terms that vary and have no factor that could be a stride: they are columns.

        Those that only the kernel knows are rows of a further dimension where they lie so many elements apart.
        """
        return {
            monomial: factor
            for monomial, factor in self.rest.items()
            if monomial
            and not any(self.tiles.is_fixed((one,)) for one in monomial)
            and not (_may_be_stride(factor * self.bytes) and self.tiles.is_found({monomial: factor}, False))
        }

    def _outer(self, most: int) -> tuple[Dimension, ...]:
        """Further dimensions, for terms that vary; no more than there is room for, where their strides allow it."""
        found: Terms = {}
        is_found = self.tiles.is_found
        for monomial, factor in list(self.rest.items()):
            varying = tuple(one for one in monomial if not self.tiles.is_fixed((one,)))
            if not varying:
                continue
            stride = tuple(one for one in monomial if one not in varying)
            found.setdefault((stride, 0 if stride else abs(factor)), {})[varying] = factor
            del self.rest[monomial]
        dimensions = []
        for (stride, times), terms in fewer(gathered(found, is_found), most, is_found).items():
            if min(terms.values()) < 0:
                terms |= self._fixed_places(stride, times or 1)
            apart = math.gcd(*terms.values())
            place = {varying: factor // apart for varying, factor in terms.items()}
            dimensions.append(Dimension(1, {stride: apart}, place, None, None, self.tiles.is_found(place)))
        return tuple(dimensions)

    def _fixed_places(self, stride: Monomial, times: int) -> dict[Monomial, int]:
        """What of the offset is so many strides: where tiles come backwards, it is where the first of them is."""
        found = {}
        for monomial, factor in list(self.rest.items()):
            place = without(monomial, stride)
            if place is not None and factor % times == 0 and self.tiles.is_fixed(monomial):
                found[place] = factor
                del self.rest[monomial]
        return found

    def _bounds(self, dimensions: Sequence[Dimension], offset: Polynomial) -> tuple[Bound, ...]:
        found = list(self.bounds)
        for one in dimensions:
            if one.is_free:
                self._check_reach(one)
                if not self.tiles.is_found(one.place):
                    why = "a tile may begin at a row that 32 bits cannot name"
                    found.append(Bound(self.tiles.sum(one.place), -MOST_BEFORE, MOST_BEFORE, why))
                continue
            begins = one.tile is not None and any(
                dict(start) == dict(one.place) for start in self.mask.starts.get(one.tile, ())
            )
            low = -MOST if begins and self.op.results else 0  # the copy engine faults on such stores
            why = "a tile may begin before the first row or column"
            high = ANY if self.tiles.is_found(one.place) else MOST - one.size  # as 32 bits have it
            found.append(Bound(self.tiles.sum(one.place), low, high, why))
        columns, apart = self.tiles.sum(dimensions[-1].place), COLUMN_BYTES // self.bytes
        if apart > 1:
            why = f"a tile may begin at a column that is no multiple of {COLUMN_BYTES} bytes"
            found.append(Bound(columns, -ANY, ANY, why, apart))
        for fits in self.fits:
            if fits.bits >= 64 or not fits.sum or self.tiles.is_found(fits.sum):
                continue
            limit = (1 << (fits.bits - 1)) - 1
            if set(fits.sum) == {ONE}:
                continue
            within = self.tiles.sum(fits.sum, fits.shape)
            found.append(Bound(within, -limit - 1, limit, "an address may leave 32 bits"))
        self.tiles.sum(offset)
        return tuple(dict.fromkeys(found))

    def _check_reach(self, free: Dimension) -> None:
        """Raises NotATile where a descriptor cannot reach all memory, whatever the launch."""
        ((stride, times),) = free.stride.items()
        if stride == ONE and (times <= 0 or -(-SPAN // (times * self.bytes)) > MOST_BEFORE):
            raise NotATile(f"the kernel alone knows its row, and rows lie only {times * self.bytes} bytes apart")


def _may_be_stride(size: int) -> bool:
    """May a descriptor have dimensions so many bytes apart, of which only the kernel knows where a tile begins?"""
    return size > 0 and size % ALIGNMENT == 0 and -(-SPAN // size) <= MOST_BEFORE


def _reaching(dimensions: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """Those of a load that counts its rows: its descriptor begins before its tensor, so one must reach to memory."""
    if any(one.is_free for one in dimensions):
        return tuple(dimensions)
    last = max(at for at, one in enumerate(dimensions) if one.end is None and one.tile is None)
    return tuple(replace(one, is_free=at == last) for at, one in enumerate(dimensions))
