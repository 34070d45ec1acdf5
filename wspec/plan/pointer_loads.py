"""Which tiles that a kernel loads through pointers the threads of a producer can copy with cp.async, piece by piece.

A piece is 4, 8 or 16 bytes that lie side by side in global memory, aligned, all of them wanted or none, and side by
side in the buffer too; a piece that is not wanted becomes zeros. Everything else about such a tile (that the producer
can compute its addresses, that no store writes what it reads) is asked as of any tile that is streamed: partition.py.
"""

from __future__ import annotations

from wspec.ir.core import Operation, Value
from wspec.ir.types import DenseArrayAttr, DenseAttr, Layout, MemDescType, ScalarType, TensorType
from wspec.model.operations import byte_size
from wspec.plan.contiguity import neighbours
from wspec.plan.fill import LEAST_BYTES, PIECE_BYTES, Fill, fill_of

_ZERO = frozenset({"0", "0.000000e+00", "-0", '"0x00"', '"0x0000"'})
_WIDTHS = (8, 16)  # bits of an element that the tensor core reads from shared memory as it is loaded


def mask_of(op: Operation) -> Value | None:
    """The mask of a tt.load, tt.store or tt.atomic_rmw, if it has one."""
    if op.name in ("tt.store", "tt.atomic_rmw"):
        return op.operands[2] if len(op.operands) > 2 else None
    return op.operands[1] if _given(op)[1] else None


def is_zero_filled(load: Operation) -> bool:
    """Are zeros, or whatever, in place of the elements that the mask of a tt.load leaves out?"""
    return not _given(load)[2] or _is_zero(load.operands[-1])


def is_volatile(op: Operation) -> bool:
    """Must the access be made as it stands?"""
    return bool(op.int_attr("isVolatile"))


def hindrance(load: Operation) -> str:
    """Why threads cannot copy the tile of a tt.load into a buffer that the tensor core reads; empty where they can."""
    tile = load.result.type
    if not isinstance(tile, TensorType) or len(tile.shape) != 2:
        return "it is no tile of two dimensions"
    if not isinstance(tile.element, ScalarType) or tile.element.bits not in _WIDTHS:
        return "its elements have neither 8 nor 16 bits"
    if is_volatile(load):
        return "it is volatile"
    if not is_zero_filled(load):
        return "what it puts in place of elements that its mask leaves out is not zero"
    buffer = _buffer(load)
    if buffer is None:
        return "the tensor core does not read it as it is loaded"
    if (size := piece_bytes(load)) < LEAST_BYTES:
        return f"its threads find {size} bytes side by side at most, of which cp.async takes {LEAST_BYTES} or more"
    return ""


def is_copied(op: Operation) -> bool:
    """Is it a load of a tile that threads can copy into a buffer?"""
    return fill_of(op) is Fill.CP_ASYNC and not hindrance(op)


def piece_bytes(load: Operation) -> int:
    """Bytes a thread can copy at once: side by side in memory, in the thread's part of the tile and in the buffer."""
    tile, buffer = load.result.type, _buffer(load)
    assert isinstance(tile, TensorType)
    layout, inner = tile.encoding, _inner(buffer) if buffer is not None else -1
    if not isinstance(layout, Layout) or layout.name != "ttg.blocked" or layout.ints("order")[:1] != (inner,):
        return 0
    elements = min(neighbours(load.operands[0], mask_of(load), inner), layout.ints("sizePerThread")[inner])
    return min(PIECE_BYTES, elements * byte_size(tile) // (tile.shape[0] * tile.shape[1]))


def piece_elements(load: Operation) -> int:
    """The same in elements."""
    tile = load.result.type
    assert isinstance(tile, TensorType) and isinstance(tile.element, ScalarType)
    return piece_bytes(load) * 8 // tile.element.bits


def _given(load: Operation) -> tuple[int, int, int]:
    """Whether pointers, mask and other are there."""
    sizes = load.attr("operandSegmentSizes")
    values = sizes.values if isinstance(sizes, DenseArrayAttr) else (1,) * len(load.operands)
    padded = (*values, 0, 0)
    return padded[0], padded[1], padded[2]


def _is_zero(value: Value) -> bool:
    constant = value.op.attr("value") if value.op is not None and value.op.name == "arith.constant" else None
    return isinstance(constant, DenseAttr) and constant.text in _ZERO


def _buffer(load: Operation) -> MemDescType | None:
    """The buffer all readers of the tile read it from; None where some read it from registers, or in another layout."""
    block = load.parent
    assert block is not None
    tile = load.result
    users = block.readers(tile)
    types = {op.result.type for op in users if op.name == "ttg.local_alloc" and op.parent is block}
    if len(types) != 1 or any(op.name != "ttg.local_alloc" for op in users):
        return None
    (type,) = types
    layout = type.encoding if isinstance(type, MemDescType) else None
    swizzled = isinstance(layout, Layout) and layout.name == "ttg.nvmma_shared" and not layout.get("fp4Padded")
    return type if isinstance(type, MemDescType) and swizzled else None


def _inner(buffer: MemDescType) -> int:
    """The dimension whose neighbours lie side by side in the buffer."""
    layout = buffer.encoding
    return 0 if isinstance(layout, Layout) and layout.get("transposed") is True else 1
