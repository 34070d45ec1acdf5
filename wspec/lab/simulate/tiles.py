"""How many elements of a tensor a thread holds, from its layout."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from wspec.ir.types import Attribute, Layout, MemDescType, ScalarType, TensorDescType, TensorType, Type

WARP = 32


def bits(type: Type) -> int:
    """Of an element; 64 for an address."""
    element = type.element if isinstance(type, TensorType | MemDescType) else type
    return element.bits if isinstance(element, ScalarType) else 64


def byte_size(type: Type) -> int:
    """Of a tensor, a buffer, or the box of a descriptor."""
    if isinstance(type, TensorDescType):
        return byte_size(type.block)
    shape = type.shape if isinstance(type, TensorType | MemDescType) else ()
    return prod(shape) * bits(type) // 8


@lru_cache(maxsize=4096)
def per_thread(type: Type, warps: int) -> float:
    """Elements a thread holds, copies of the same element included; 1 for a scalar.

    Exact for the tensor core's layout and slices of it; elsewhere the elements divided by the threads, at least 1.
    """
    if not isinstance(type, TensorType):
        return 1
    if len(type.shape) <= 2:
        held = _of_tensor_core(type.shape, type.encoding)
        if held is not None:
            return held
    return max(1.0, prod(type.shape) / (WARP * warps))


def _of_tensor_core(shape: tuple[int, ...], layout: Attribute | None) -> float | None:
    if not isinstance(layout, Layout):
        return None
    if layout.name == "ttg.slice" and layout.parent is not None and len(shape) == 1:
        dim = layout.get("dim")
        full = (1, shape[0]) if dim == 0 else (shape[0], 1)
        return _of_tensor_core(full, layout.parent)
    if layout.name == "ttg.dot_op" and layout.parent is not None:
        layout = layout.parent
    if layout.name != "ttg.nvidia_mma" or len(shape) != 2:
        return None
    across = layout.ints("warpsPerCTA") or (4, 1)
    rows = 1.0 if shape[0] == 1 else 2.0 * max(1.0, shape[0] / (16 * across[0]))
    columns = 1.0 if shape[1] == 1 else max(1.0, shape[1] / (4 * across[1]))
    return rows * columns


def is_register_move(source: Type, result: Type) -> bool:
    """Does a change of layout leave every element with its thread? Of the tensor core's layouts, as far as is known."""
    if not isinstance(source, TensorType) or not isinstance(result, TensorType):
        return False
    before, after = _core(source.encoding), _core(result.encoding)
    if before is None or after is None or source.element != result.element:
        return source.encoding == result.encoding
    same_warps = before.ints("warpsPerCTA") == after.ints("warpsPerCTA")
    narrow = isinstance(result.encoding, Layout) and result.encoding.name == "ttg.dot_op"
    return same_warps and (not narrow or bits(result) == 16)


def _core(layout: Attribute | None) -> Layout | None:
    """The tensor core's layout that this is, or an operand or a slice of."""
    while isinstance(layout, Layout) and layout.name in ("ttg.dot_op", "ttg.slice"):
        layout = layout.parent
    return layout if isinstance(layout, Layout) and layout.name == "ttg.nvidia_mma" else None
