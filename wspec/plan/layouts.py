"""Layouts of a tile that fewer warps hold.

A consumer replica of 4 warps works on a slice of what 4 or 8 warps held before. Every layout must change the same way
wherever it occurs, so the change is a function of the layout, the slice and the warp counts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wspec.ir.core import Block, Value
from wspec.ir.types import (
    Attribute,
    DenseAttr,
    Layout,
    LayoutField,
    MemDescType,
    ScalarType,
    TensorDescType,
    TensorType,
    Type,
)


class LayoutError(ValueError):
    """A layout that cannot be given to fewer warps; the message says which."""


def _shrink_warps(warps: tuple[int, ...], factor: int, rows: int = 1, slowest: Sequence[int] = ()) -> tuple[int, ...]:
    """Take warps out of the first dimension, but leave it `rows` of them, then out of the others.

    `slowest`: the dimensions in another order, that in which a layout that is turned round turns too.
    """
    out = list(warps)
    for dim in slowest or range(len(out)):
        least = rows if dim == 0 else 1
        while factor > 1 and out[dim] > least:
            out[dim] //= 2
            factor //= 2
    if factor > 1:
        raise LayoutError(f"cannot take warps out of {warps}")
    return tuple(out)


def _linear(layout: Layout, dim: int | None, size: int, replicas: int, factor: int) -> Layout:
    """Drop the basis vectors that reach beyond the slice; warps left over become registers."""
    fields = dict(layout.fields)
    for name in ("register", "lane", "warp"):
        kept = tuple(b for b in _bases(fields[name]) if dim is None or b[dim] < size // replicas)
        fields[name] = kept
    old_warps = len(_bases(layout.get("warp")))
    want = old_warps - (factor.bit_length() - 1)
    warp, register = list(_bases(fields["warp"])), list(_bases(fields["register"]))
    if len(_bases(fields["lane"])) != len(_bases(layout.get("lane"))) or len(warp) < want:
        raise LayoutError(f"cannot slice {layout}")
    register += warp[want:]
    fields["warp"], fields["register"] = tuple(warp[:want]), tuple(register)
    return layout.with_fields({name: fields[name] for name in ("register", "warp")})


def _bases(value: LayoutField | None) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, tuple):
        return ()
    return tuple(tuple(int(v) for v in b if isinstance(v, int)) for b in value if isinstance(b, tuple))


def shrink_layout(layout: Attribute | None, dim: int | None, size: int, replicas: int, factor: int) -> Attribute | None:
    """The layout of a register tensor held by `1/factor` of the warps, sliced `replicas` ways along `dim` (or not).

    `size` is the extent of `dim` before slicing. Raises LayoutError for layouts it does not know.
    """
    if layout is None or (factor == 1 and dim is None):
        return layout
    if not isinstance(layout, Layout):
        raise LayoutError(f"unknown layout {layout}")
    if layout.name in ("ttg.blocked", "ttg.nvidia_mma"):
        if factor == 1:
            return layout
        warps = layout.ints("warpsPerCTA")
        # The four warps of a warp group hold consecutive rows of a wgmma's tile.
        rows = 4 if layout.name == "ttg.nvidia_mma" and layout.get("versionMajor") == 3 else 1
        slowest = layout.ints("order")[::-1] if layout.name == "ttg.blocked" else ()
        return layout.with_fields({"warpsPerCTA": _shrink_warps(warps, factor, rows, slowest)})
    if layout.name == "ttg.slice" and isinstance(layout.parent, Layout):
        hidden = layout.get("dim")
        up = dim if dim is None or not isinstance(hidden, int) else dim + (dim >= hidden)
        parent = shrink_layout(layout.parent, up, size, replicas, factor)
        return layout.with_fields({"parent": _as_field(parent)})
    if layout.name == "ttg.dot_op" and isinstance(layout.parent, Layout):
        return layout.with_fields({"parent": _as_field(shrink_layout(layout.parent, dim, size, replicas, factor))})
    if layout.name == "ttg.linear":
        return _linear(layout, dim, size, replicas, factor)
    raise LayoutError(f"unknown layout {layout.name}")


def _as_field(value: Attribute | None) -> LayoutField:
    if not isinstance(value, Layout):
        raise LayoutError("a parent layout is missing")
    return value


def shrink_type(type: Type, dim: int | None, replicas: int, factor: int) -> Type:
    """The type of one replica's slice; `dim` is None for values every replica holds whole."""
    if isinstance(type, TensorType):
        size = type.shape[dim] if dim is not None else 0
        encoding = shrink_layout(type.encoding, dim, size, replicas, factor)
        return TensorType(_cut(type.shape, dim, replicas), type.element, encoding)
    if isinstance(type, MemDescType) and dim is not None:
        _check_swizzle(type.encoding, type.shape, dim, replicas, type.element)
        return MemDescType(
            _cut(type.shape, dim, replicas), type.element, type.encoding, type.memory_space, type.mutable, None
        )
    if isinstance(type, TensorDescType) and dim is not None:
        block = type.block
        _check_swizzle(block.encoding, block.shape, dim, replicas, block.element)
        return TensorDescType(TensorType(_cut(block.shape, dim, replicas), block.element, block.encoding))
    return type


def retype(block: Block, type_of: Callable[[Value], Type]) -> None:
    """Give every value that is made in a block, or deeper, the type that `type_of` says, in place."""
    for op in block.walk():
        for value in op.defined:
            value.type = type_of(value)
        if op.name == "arith.constant" and isinstance(constant := op.properties.get("value"), DenseAttr):
            op.properties["value"] = DenseAttr(constant.text, op.result.type)


def _check_swizzle(layout: Attribute | None, shape: tuple[int, ...], dim: int, replicas: int, element: Type) -> None:
    """A slice must keep whole swizzle atoms: 8 rows, and as many bytes of the contiguous dimension as are swizzled."""
    if not isinstance(layout, Layout) or layout.name != "ttg.nvmma_shared" or not isinstance(element, ScalarType):
        return
    contiguous = len(shape) - 1 if layout.get("transposed") is not True else len(shape) - 2
    size = shape[dim] // replicas
    if dim == contiguous and size * element.bits // 8 < int(str(layout.get("swizzlingByteWidth"))):
        raise LayoutError(f"slices of {size} columns are narrower than the swizzle of {layout}")
    if dim != contiguous and size % 8:
        raise LayoutError(f"slices of {size} rows cut the swizzle of {layout}")


def _cut(shape: tuple[int, ...], dim: int | None, replicas: int) -> tuple[int, ...]:
    return tuple(size // replicas if d == dim else size for d, size in enumerate(shape))
