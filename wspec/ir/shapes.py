"""Shapes of tiles, and the operations that multiply them."""

from __future__ import annotations

from wspec.ir.types import MemDescType, TensorDescType, TensorType, Type

DOTS = frozenset({"ttng.warp_group_dot", "tt.dot"})


def shape_of(type: Type) -> tuple[int, ...]:
    """The shape of a tensor, buffer or descriptor block; () for scalars."""
    if isinstance(type, TensorType | MemDescType):
        return type.shape
    if isinstance(type, TensorDescType):
        return type.block.shape
    return ()


def element_of(type: Type) -> Type:
    """The type of a tensor's elements; any other type as it is."""
    return type.element if isinstance(type, TensorType) else type


def unit_dim_pairs(a: tuple[int, ...], b: tuple[int, ...]) -> list[tuple[int, int]] | None:
    """How the dimensions of two shapes that differ only in 1s correspond; None when they differ otherwise."""
    left = [dim for dim, size in enumerate(a) if size != 1]
    right = [dim for dim, size in enumerate(b) if size != 1]
    if [a[d] for d in left] != [b[d] for d in right]:
        return None
    return list(zip(left, right, strict=True))
