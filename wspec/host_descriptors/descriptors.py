"""What a launch passes to a kernel whose loads and stores through pointers became accesses of tensor descriptors.

The compiler turns a tile of addresses into coordinates of a descriptor (passes/pointer_promotion). The descriptor is
made on the host, from an argument of the kernel and from integers that are known before the launch. Whether both name
the same elements depends on the launch: `Promotion.of` says what to pass, or why the kernel must run as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from wspec.host_descriptors.ranges import (
    Interval,
    Sum,
    Term,
    divisor_of,
    divisors,
    interval_of,
    intervals,
)
from wspec.host_descriptors.relations import Relations, narrow_intervals
from wspec.ir.disjoint import Disjoint, Pair
from wspec.tile_scheduler.scalars import Scalar, parameters_of

ALIGNMENT = 16  # bytes: of a descriptor's address and of all strides but the last one
STRIDE_END = 1 << 40  # bytes
MOST = (1 << 31) - 1  # of an extent: coordinates are 32 bits
REACH_END = 1 << 46  # bytes: an H200 faults where a descriptor reaches further than there are addresses
SPAN = 3 << 36  # bytes: more than a card of this generation has, so no tensor reaches that far from any address in it
MOST_BEFORE = (1 << 30) - 1  # places before and behind an argument's address that 32 bits can name


@dataclass(frozen=True, slots=True)
class HostDescriptor:
    """A descriptor of the memory behind an argument. Lengths are in elements."""

    name: str
    argument: int  # the pointer's position among the arguments of the compiled function
    element: str  # as a signature has it: "bf16"
    item: int  # bytes of an element
    block: tuple[int, ...]
    offset: Sum  # from the pointer to the first element
    shape: tuple[Sum | None, ...]  # None: the kernel knows no end
    strides: tuple[Sum, ...]
    places: tuple[tuple[Sum, ...] | None, ...]
    """Along a dimension without an end: where boxes begin, of each access. It ends behind the last."""
    is_stored: bool = False
    is_grounded: bool = False
    """Must its first address be memory? An H200 looks it up where a load's box lies wholly outside, and else faults
    (docs/passes.md)."""
    is_operand: bool = False  # do its tiles go to products?

    def is_free(self, dim: int) -> bool:
        """Does the kernel alone know where boxes begin: has the dimension neither an end nor places?

        It then reaches `SPAN` before the argument's address and as far behind it, and the kernel adds half of its
        extent to where its boxes begin.
        """
        return self.shape[dim] is None and self.places[dim] is None

    def with_boxes_of(self, other: HostDescriptor) -> HostDescriptor | None:
        """The same for boxes of either; None where they are boxes of different tensors."""
        same = replace(other, name=self.name, places=self.places, is_operand=self.is_operand)
        if same != self or [one is None for one in self.places] != [one is None for one in other.places]:
            return None
        both = [(one or (), more or ()) for one, more in zip(self.places, other.places, strict=True)]
        places = [tuple(dict.fromkeys((*one, *more))) or None for one, more in both]
        return replace(self, places=tuple(places), is_operand=self.is_operand or other.is_operand)

    @property
    def type(self) -> str:
        """As a signature has it."""
        return f"tensordesc<{self.element}[{','.join(map(str, self.block))}]>"

    @property
    def values(self) -> int:
        """How many arguments of the compiled function it stands for."""
        return 1 + 2 * len(self.block)


@dataclass(frozen=True, slots=True)
class Bound:
    """Between which numbers a sum must lie in all programs of a launch, else `what`; what it must be a multiple of."""

    sum: Sum
    low: int
    high: int
    what: str
    multiple: int = 1


@dataclass(frozen=True, slots=True)
class Ground:
    """How a descriptor may be made to begin in memory: along a dimension, at most so many steps further before."""

    dim: int
    step: int  # bytes
    most: int


@dataclass(frozen=True, slots=True)
class Made:
    """A descriptor for one launch: offset in bytes from its argument, extents, strides in elements.

    The offset may be below zero; the descriptor's address may not.
    """

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    ground: Ground | None = None  # it must begin in memory


@dataclass(frozen=True)
class Promotion:
    """The descriptors of a kernel, in the order of its arguments, and what must hold for them to name its elements."""

    scalars: tuple[Scalar, ...]
    descriptors: tuple[HostDescriptor, ...]
    bounds: tuple[Bound, ...]

    @property
    def parameters(self) -> tuple[int, ...]:
        """The positions of the integer arguments that decide, in the compiled function."""
        return parameters_of(self.scalars)

    def in_words(self) -> list[str]:
        """What a launch does for it, a sentence for each descriptor, and one on what it looks at."""
        said = []
        for one in self.descriptors:
            box = " x ".join(str(size) for size in one.block)
            pointer = one.name.rpartition("_tiles")[0]
            said.append(f"{one.name}: tiles that the kernel finds through {pointer} are boxes of {box} of a descriptor")
        whys = ", ".join(dict.fromkeys(bound.what for bound in self.bounds))
        said.append(
            f"a launch makes these descriptors, and runs the plain kernel where they would not be the same: an address "
            f"or a row's length that is no multiple of {ALIGNMENT} bytes, an extent below 1"
            + (f", {whys}" if whys else "")
        )
        return said

    def of(self, grid: tuple[int, int, int], values: Mapping[int, int]) -> tuple[Made, ...] | str:
        """What to pass in a launch with these arguments (by position), or why the kernel must run as it was."""
        known = self._known(grid, values)
        if isinstance(known, str):
            return known
        made = [_made(descriptor, known) for descriptor in self.descriptors]
        wrong = next((one for one in made if isinstance(one, str)), None)
        return wrong if wrong is not None else tuple(one for one in made if isinstance(one, Made))

    def has_operands(self, grid: tuple[int, int, int], values: Mapping[int, int]) -> bool:
        """Can such a launch have descriptors of the tiles that go to products, and are there others?"""
        known, operands = self._known(grid, values), [one for one in self.descriptors if one.is_operand]
        if isinstance(known, str) or not 0 < len(operands) < len(self.descriptors):
            return False
        return not any(isinstance(_made(one, known), str) for one in operands)

    def _known(self, grid: tuple[int, int, int], values: Mapping[int, int]) -> list[Interval] | str:
        """Of each scalar in such a launch between which numbers it is; or what does not hold that must."""
        known = intervals(self.scalars, grid, values)
        multiples = divisors(self.scalars, known)
        relations: Relations | None = None
        for bound in self.bounds:
            low, high = interval_of(bound.sum, known)
            if low < bound.low or high > bound.high:
                if relations is None:
                    known = narrow_intervals(self.scalars, grid, values)
                    relations = Relations(self.scalars, known)
                low, high = relations.interval_of(bound.sum)
            if low < bound.low or high > bound.high:
                return bound.what
            if bound.multiple > 1 and divisor_of(bound.sum, multiples) % bound.multiple:
                return bound.what
        return known

    def to_data(self) -> dict[str, Any]:
        """As numbers, texts and lists, for a file."""
        return {
            "scalars": [[one.name, one.bits, list(one.operands), one.value] for one in self.scalars],
            "descriptors": [
                [
                    one.name, one.argument, one.element, one.item, list(one.block), _data(one.offset),
                    [None if size is None else _data(size) for size in one.shape], [_data(s) for s in one.strides],
                    [None if places is None else [_data(place) for place in places] for places in one.places],
                    one.is_stored, one.is_grounded, one.is_operand,
                ]
                for one in self.descriptors
            ],
            "bounds": [[_data(one.sum), one.low, one.high, one.what, one.multiple] for one in self.bounds],
        }  # fmt: skip

    @staticmethod
    def from_data(data: Any) -> Promotion:
        """Read `to_data`'s form. Raises TypeError or ValueError."""
        scalars = tuple(Scalar(name, bits, tuple(of), value) for name, bits, of, value in data["scalars"])
        descriptors = tuple(
            HostDescriptor(
                name, argument, element, item, tuple(block), _sum(offset),
                tuple(None if size is None else _sum(size) for size in shape), tuple(map(_sum, strides)),
                tuple(None if some is None else tuple(map(_sum, some)) for some in places), *others,
            )
            for name, argument, element, item, block, offset, shape, strides, places, *others in data["descriptors"]
        )  # fmt: skip
        bounds = tuple(Bound(_sum(one), *others) for one, *others in data["bounds"])
        return Promotion(scalars, descriptors, bounds)


def compared(disjoint: Disjoint, promotion: Promotion | None) -> tuple[Pair, ...]:
    """The arguments whose memory a launch compares, as its user gives them: descriptors are made of pointers."""
    if promotion is None or disjoint.own is None:
        return tuple(sorted(disjoint.pairs))
    added = [one.argument for one in promotion.descriptors for _ in range(one.values)]
    origins = [*range(disjoint.own - len(added)), *added]
    pairs = {(origins[one], origins[other]) for one, other in disjoint.pairs}
    return tuple(sorted((min(pair), max(pair)) for pair in pairs))


def _made(descriptor: HostDescriptor, known: list[Interval]) -> Made | str:
    item = descriptor.item
    sums = (descriptor.offset, *descriptor.strides, *(size for size in descriptor.shape if size is not None))
    found = [interval_of(sum, known) for sum in sums]
    if any(low != high for low, high in found):
        return f"a number that {descriptor.name} is made of may have left the range of its type"
    rank = len(descriptor.block)
    offset, strides = found[0][0] * item, tuple(low for low, _ in found[1 : 1 + rank])
    ends = iter(found[1 + rank :])
    shape: list[int] = []
    ground: Ground | None = None
    for dim, (size, places, box) in enumerate(zip(descriptor.shape, descriptor.places, descriptor.block, strict=True)):
        if descriptor.is_free(dim):
            before = -(-SPAN // (strides[dim] * item)) if strides[dim] > 0 else 0
            if not 0 < before <= MOST_BEFORE:
                return f"rows of {descriptor.name} are {strides[dim] * item} bytes apart, too few to reach all memory"
            shape.append(2 * before)
            step = strides[dim] * item
            offset -= before * step
            if descriptor.is_grounded and (ground is None or step < ground.step):
                ground = Ground(dim, step, MOST_BEFORE - before)
        else:
            last = 0 if places is None else max(interval_of(place, known)[1] for place in places)
            shape.append(next(ends)[0] if size is not None else last + box)
    if offset < 0 and not descriptor.is_stored and not any(map(descriptor.is_free, range(rank))):
        # a load of a box that lies wholly outside looks that address up
        return f"{descriptor.name} would begin before its tensor, where there may be no memory"
    if offset % ALIGNMENT:
        return f"{descriptor.name} does not begin at a multiple of {ALIGNMENT} bytes"
    if not all(1 <= size <= MOST for size in shape):
        return f"{descriptor.name} has an extent of {next(size for size in shape if not 1 <= size <= MOST)}"
    if descriptor.is_stored and shape[-1] * item % ALIGNMENT:  # the copy engine writes whole pieces of 16 bytes
        return (
            f"rows that are stored to {descriptor.name} end after {shape[-1] * item} bytes, no multiple of {ALIGNMENT}"
        )
    for stride in strides[:-1]:
        if stride * item % ALIGNMENT or not 0 < stride * item < STRIDE_END:
            return f"rows of {descriptor.name} are {stride * item} bytes apart, no multiple of {ALIGNMENT}"
    left = REACH_END - sum((size - 1) * stride * item for size, stride in zip(shape, strides, strict=True))
    if left <= 0:
        return f"{descriptor.name} reaches further than memory"
    if ground is not None:  # each step before is another one behind
        ground = replace(ground, most=min(ground.most, (left - 1) // (2 * ground.step)))
    return Made(offset, tuple(shape), strides, ground)


def _data(sum: Sum) -> list[list[Any]]:
    return [[term.factor, list(term.scalars)] for term in sum]


def _sum(data: Any) -> Sum:
    return tuple(Term(factor, tuple(scalars)) for factor, scalars in data)
