"""What the mask of a load or a store asks of an element: to be below ends, not before starts, and some scalars true.

A scalar that only the kernel knows stands for itself, however it was computed: what a mask compares is then exactly
what the kernel compares, also where 32 bits were too few for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wspec.ir.core import Operation, Value
from wspec.ir.shapes import shape_of
from wspec.model.operations import bits
from wspec.passes.pointer_promotion.addresses import (
    Addresses,
    Expression,
    Fits,
    NotAffine,
    Polynomial,
    add,
    constant,
    dims_of,
    index,
)

_NE, _SLT, _SLE, _SGT, _SGE = 1, 2, 3, 4, 5  # arith's predicates


class NotATile(Exception):
    """Why an access stays as it is."""


@dataclass(frozen=True, slots=True)
class Mask:
    """What a mask asks of an element of a tile."""

    ends: Mapping[int, tuple[Polynomial, ...]]  # by dimension: its place i is below these
    starts: Mapping[int, tuple[Polynomial, ...]]  # i plus these is not below zero
    when: tuple[Value, ...]  # these are true
    fits: tuple[Fits, ...]


@dataclass(frozen=True)
class Masks:
    """The masks of a function, in terms of its addresses."""

    addresses: Addresses

    def of(self, mask: Value | None) -> Mask:
        """What it asks. Raises NotATile, NotAffine."""
        ends: dict[int, tuple[Polynomial, ...]] = {}
        starts: dict[int, tuple[Polynomial, ...]] = {}
        fits: list[Fits] = []
        shape = () if mask is None else shape_of(mask.type)
        tests, when, others = _conjuncts(mask)
        if others:
            raise NotATile("its mask is more than rows and columns below an end")
        for test, axis in tests:
            dim, found, is_end = self._tested(test, axis, shape, fits)
            kept = ends if is_end else starts
            if found not in kept.get(dim, ()):
                kept[dim] = (*kept.get(dim, ()), found)
        return Mask(ends, starts, when, tuple(fits))

    def ends(self, mask: Value | None, dim: int) -> list[Polynomial]:
        """What the places of elements along a dimension are below, whatever else a mask asks of them."""
        found = []
        for test, axis in _conjuncts(mask)[0]:
            try:
                at, end, is_end = self._tested(test, axis, (), [])
            except (NotATile, NotAffine):
                continue
            found += [end] if is_end and at == dim else []
        return found

    def _tested(
        self, test: Operation, axis: tuple[int, ...], shape: tuple[int, ...], fits: list[Fits]
    ) -> tuple[int, Polynomial, bool]:
        """(dimension, what its place is below, True), or (dimension, what plus its place is not below zero, False)."""
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
        compared = [Fits(side.sum, shape, bits(test.operands[0].type)) for side in (left, right)]
        fits += [*left.fits, *right.fits, *compared]
        dims = dims_of(room)
        if len(dims) != 1:
            raise NotATile("its mask is more than rows and columns below an end")
        dim = next(iter(dims))
        factor = room.get((index(dim),), 0)
        rest = add(room, {(index(dim),): factor}, -1)
        if dims_of(rest) or factor not in (1, -1):
            raise NotATile("its mask is more than rows and columns below an end")
        return (dim, rest, True) if factor == -1 else (dim, add(rest, constant(-1)), False)

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


def _conjuncts(mask: Value | None) -> tuple[list[tuple[Operation, tuple[int, ...]]], tuple[Value, ...], bool]:
    """What must be true of an element: comparisons, with the tile's dimensions that their tensors have; scalars; is
    there anything else?"""
    if mask is None:
        return [], (), False
    found: list[tuple[Operation, tuple[int, ...]]] = []
    when: list[Value] = []
    others = False
    work: list[tuple[Value, tuple[int, ...]]] = [(mask, tuple(range(len(shape_of(mask.type)))))]
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
        elif op is not None and (truth := _truth(op)) is not None:
            work.append((truth, axis))
        elif op is not None and op.name == "arith.cmpi":
            found.append((op, axis))
        elif op is not None and op.name == "tt.splat":
            when.append(op.operands[0])
        elif op is None or op.name != "arith.constant" or "true" not in str(op.attr("value")):
            others = True
    return found, tuple(dict.fromkeys(when)), others


def _truth(test: Operation) -> Value | None:
    """What `where(x, 1, 0) != 0` says: x."""
    if test.name != "arith.cmpi" or test.int_attr("predicate") != _NE or test.operands[1].splat != 0:
        return None
    choice = test.operands[0].op
    if choice is None or choice.name != "arith.select" or choice.operands[2].splat != 0:
        return None
    return choice.operands[0] if choice.operands[1].splat not in (None, 0) else None
