"""What one buffer of a channel holds, and what may read it in place."""

from __future__ import annotations

from dataclasses import replace

from wspec.ir.core import Operation
from wspec.ir.types import SMEM, Layout, MemDescType, TensorDescType, TensorType

VIEWS = frozenset({"ttg.memdesc_trans", "ttg.memdesc_subslice", "ttg.memdesc_reshape", "ttg.memdesc_reinterpret"})
"""Operations that give a buffer another name."""


def buffer_type(load: Operation) -> MemDescType:
    """What one buffer of a channel holds: the tile of `load`, in the layout TMA gives it, which is its descriptor's."""
    tile, desc = load.result.type, load.operands[0].type
    assert isinstance(tile, TensorType) and isinstance(desc, TensorDescType)
    encoding = desc.block.encoding
    assert isinstance(encoding, Layout)
    if len(tile.shape) != len(desc.block.shape):
        kept = tuple((name, value) for name, value in encoding.fields if name != "rank")
        rank = () if len(tile.shape) == 2 else (("rank", len(tile.shape)),)
        encoding = replace(encoding, fields=kept + rank)
    return MemDescType(tile.shape, tile.element, encoding, SMEM, True)


def is_the_buffer(alloc: Operation, type: MemDescType) -> bool:
    """Can the ring's buffer stand for this allocation? Another layout is a conversion through registers."""
    made = alloc.result.type
    return alloc.name == "ttg.local_alloc" and isinstance(made, MemDescType) and made.encoding == type.encoding
