"""What one buffer of a channel holds, and what may read it in place."""

from __future__ import annotations

from dataclasses import replace

from wspec.ir.core import Block, Operation
from wspec.ir.numbering import id_of
from wspec.ir.types import SMEM, Layout, MemDescType, StringAttr, TensorDescType, TensorType
from wspec.plan.fill import Fill, fill_of

ROW_LAYOUT = Layout("ttg.swizzled_shared", (("vec", 1), ("perPhase", 1), ("maxPhase", 1), ("order", (0,))))
"""Of buffers of one dimension: as it comes."""

VIEWS = frozenset({"ttg.memdesc_trans", "ttg.memdesc_subslice", "ttg.memdesc_reshape", "ttg.memdesc_reinterpret"})
"""Operations that give a buffer another name."""


def buffer_type(load: Operation) -> MemDescType:
    """What one buffer of a channel holds: the tile of `load`, in the layout of its descriptor where TMA brings it, and
    in that which the kernel gives it for the tensor core where threads do."""
    if fill_of(load) is Fill.CP_ASYNC:
        return _as_allocated(load)
    tile, desc = load.result.type, load.operands[0].type
    assert isinstance(tile, TensorType) and isinstance(desc, TensorDescType)
    return MemDescType(tile.shape, tile.element, flat_layout(desc, len(tile.shape)), SMEM, True)


def _as_allocated(load: Operation) -> MemDescType:
    ops = load.parent.ops if load.parent is not None else []
    made = next(op.result.type for op in ops if op.name == "ttg.local_alloc" and load.result in op.operands)
    assert isinstance(made, MemDescType)
    return replace(made, mutable=True)


def flat_layout(desc: TensorDescType, rank: int = 2) -> Layout:
    """The descriptor's layout for a tile of fewer dimensions."""
    encoding = desc.block.encoding
    assert isinstance(encoding, Layout)
    if rank == len(desc.block.shape):
        return encoding
    kept = tuple((name, value) for name, value in encoding.fields if name != "rank")
    return replace(encoding, fields=kept if rank == 2 else (*kept, ("rank", rank)))


def is_the_buffer(alloc: Operation, type: MemDescType) -> bool:
    """Can the ring's buffer stand for this allocation? Another layout is a conversion through registers."""
    if alloc.name != "ttg.local_alloc":
        return False
    made = alloc.result.type
    return isinstance(made, MemDescType) and made.encoding == type.encoding


def ring_of(op: Operation) -> str:
    """The ring that an operation on a channel names."""
    name = op.attributes["channel"]
    assert isinstance(name, StringAttr)
    return name.text


def readers_of(block: Block, load: Operation) -> set[int]:
    """Who reads a tile, directly or through a buffer or view made of it: numbers of operations of the block."""
    values, found = {load.result}, set[int]()
    for op in block.ops:
        if any(value in values for inner in op.walk() for value in inner.operands):
            if op.name in VIEWS or op.name == "ttg.local_alloc":
                values.update(op.results)
            else:
                found.add(id_of(op))
    return found
