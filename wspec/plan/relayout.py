"""The layout in which a task without dots computes the tiles that it sends: one that suits shared memory.

A kernel converts the operand of a dot in the dot's own layout, whose threads hold pairs of elements. A task that only
reads a tile, computes on it and writes it again is free to choose: each thread takes as many neighbours as make one
16-byte store, so that loads and stores of a warp are rows of whole 128 bytes.
"""

from __future__ import annotations

from wspec.ir.core import Block, Operation, replace_uses
from wspec.ir.ops import is_elementwise
from wspec.ir.types import Attribute, Layout, ScalarType, TensorType, Type
from wspec.plan.layouts import retype

STORE_BITS = 128
_PLAIN = frozenset(
    {"tt.splat", "tt.expand_dims", "tt.broadcast", "ttg.convert_layout", "tt.descriptor_load", "tt.load",
     "tt.fp_to_fp", "ttg.local_store", "ttg.local_load", "arith.constant", "tt.addptr"}
)  # fmt: skip


def relayout(block: Block, warps: int) -> None:
    """Give every tile of a task that only computes elementwise the layout of whole rows, in place."""
    ops = list(block.walk())
    sent = [op.operands[0].type for op in ops if op.name == "ttg.local_store"]
    tiles = [type for type in sent if isinstance(type, TensorType) and len(type.shape) == 2]
    if not tiles or not all(_is_free(op) for op in ops):
        return
    target = _rows(tiles[0], warps)
    retype(block, lambda value: _retyped(value.type, target))
    for op in ops:
        if op.name == "ttg.convert_layout" and op.operands[0].type == op.result.type:
            replace_uses(block, {op.result: op.operands[0]})
            op.erase()


def _is_free(op: Operation) -> bool:
    """Does the operation work in any layout, or on no tile at all?"""
    if op.name in _PLAIN or is_elementwise(op):
        return not op.regions
    shaped = [value for value in (*op.operands, *op.results) if isinstance(value.type, TensorType)]
    return not any(len(value.type.shape) >= 2 for value in shaped if isinstance(value.type, TensorType))


def _rows(tile: TensorType, warps: int) -> Layout:
    assert isinstance(tile.element, ScalarType)
    each = min(STORE_BITS // tile.element.bits, tile.shape[1])
    lanes = min(32, tile.shape[1] // each)
    fields = (("sizePerThread", (1, each)), ("threadsPerWarp", (32 // lanes, lanes)), ("warpsPerCTA", (warps, 1)))
    return Layout("ttg.blocked", (*fields, ("order", (1, 0))))


def _retyped(type: Type, target: Layout) -> Type:
    if not isinstance(type, TensorType):
        return type
    return TensorType(type.shape, type.element, _layout(type.encoding, len(type.shape), target))


def _layout(layout: Attribute | None, rank: int, target: Layout) -> Attribute | None:
    if rank == 2:
        return target
    if rank == 1 and isinstance(layout, Layout) and layout.name == "ttg.slice":
        return layout.with_fields({"parent": target})
    if rank == 1 and isinstance(layout, Layout) and layout.name == "ttg.blocked":
        return layout.with_fields({"warpsPerCTA": target.ints("warpsPerCTA")[:1]})
    return layout
