"""Which element of a buffer lies where in shared memory (Triton's TritonGPUAttrDefs.td, shared encodings)."""

from __future__ import annotations

import math

from wspec.ir.types import Layout, MemDescType, ScalarType

_CHUNK = 16  # bytes that stay together where rows are swizzled


def element_at(type: MemDescType, offset: int) -> tuple[int, ...] | None:
    """The indices of the element that begins so many bytes behind the buffer's first; None where that is not known."""
    layout = type.encoding
    size = type.element.bits // 8 if isinstance(type.element, ScalarType) else 0
    if not isinstance(layout, Layout) or not size or offset % size:
        return None
    if layout.name == "ttg.nvmma_shared":
        return _in_boxes(type, layout, offset, size)
    if layout.name == "ttg.swizzled_shared":
        return _in_rows(type, layout, offset // size)
    return None


def _in_boxes(type: MemDescType, layout: Layout, offset: int, size: int) -> tuple[int, ...] | None:
    """Boxes as wide as what is swizzled together, one behind the other."""
    wide = layout.get("swizzlingByteWidth")
    if wide not in (32, 64, 128) or layout.get("fp4Padded") or len(type.shape) < 2:
        return None
    assert isinstance(wide, int)
    shape = (*type.shape[:-2], *type.shape[:-3:-1]) if layout.get("transposed") else type.shape
    rows = math.prod(shape[:-1])
    box, inside = divmod(offset, rows * wide)
    row, byte = divmod(inside, wide)
    byte ^= row * wide // 128 % (wide // _CHUNK) * _CHUNK
    column = (box * wide + byte) // size
    found = [column]
    for count in reversed(shape[:-1]):
        row, at = divmod(row, count)
        found.append(at)
    if layout.get("transposed"):
        found[:2] = found[1::-1]
    return tuple(reversed(found))


def _in_rows(type: MemDescType, layout: Layout, number: int) -> tuple[int, ...] | None:
    """Rows of which some elements together are exchanged with others, by the number of the row."""
    order = layout.ints("order")
    vec, per, most = (layout.get(name) for name in ("vec", "perPhase", "maxPhase"))
    if not isinstance(vec, int) or not isinstance(per, int) or not isinstance(most, int):
        return None
    if len(order) != len(type.shape):
        return None
    index = [0] * len(order)
    for axis in order:
        number, index[axis] = divmod(number, type.shape[axis])
    if len(order) > 1:
        phase = index[order[1]] // per % most
        index[order[0]] = (index[order[0]] // vec ^ phase) * vec + index[order[0]] % vec
    return tuple(index)
