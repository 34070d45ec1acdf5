"""Descriptor stores: where a tile is staged, and what it was before it was brought to the descriptor's shape."""

from __future__ import annotations

from dataclasses import dataclass

from wspec.ir.builder import Builder
from wspec.ir.core import Operation, Value
from wspec.ir.shapes import shape_of
from wspec.ir.types import TensorDescType, UnitAttr, i32

TMA_STORE = "ttng.async_tma_copy_local_to_global"
"""What a descriptor store becomes: the copy engine takes a tile from shared memory."""

BUFFER, RING, OWN, SUBTILES = "buffer", "ring", "own", "subtiles"


@dataclass(frozen=True, slots=True)
class Place:
    """A load whose channel a store can go through, by its buffer or by its whole ring; -1 for a buffer of its own."""

    load: int
    kind: str


Staging = dict[int, Place]  # descriptor store -> place


_RANK_CHANGES = frozenset({"ttg.convert_layout", "tt.reshape", "tt.expand_dims"})


def rank_changes(tile: Value) -> list[Value]:
    """The stored tile and what it was before changes of rank and layout, but for the first of them; outermost first."""
    chain = [tile]
    while (op := chain[-1].op) is not None and op.name in _RANK_CHANGES:
        chain.append(op.operands[0])
    return chain[:-1]


def flat_source(tile: Value, shape: tuple[int, ...]) -> Value | None:
    """The stored tile before it was brought to the descriptor's rank: the value of that shape, or None."""
    found = tile if shape_of(tile.type) == shape else None
    while (op := tile.op) is not None and op.name in _RANK_CHANGES:
        tile = op.operands[0]
        if found is None and shape_of(tile.type) == shape:
            found = tile
    return found


def unconverted(tile: Value) -> Value:
    """A tile before changes of its layout."""
    while (op := tile.op) is not None and op.name == "ttg.convert_layout":
        tile = op.operands[0]
    return tile


def flat_shape(desc: TensorDescType) -> tuple[int, ...]:
    """The box of a descriptor without its dimensions of size 1."""
    return tuple(size for size in desc.block.shape if size != 1)


OUTSIDE = 2**31 - 2**16
"""First coordinate of a tile that TMA is not to store: no tensor reaches so far, and an H200 writes nothing there.

Negative coordinates make it fault (illegal instruction).
"""


def store_only_if(build: Builder, store: Operation, coordinates: slice, condition: Value) -> None:
    """Let a store through a descriptor write nothing unless the condition holds: the first of its coordinates lies
    outside then, and no other is negative. `coordinates`: which of its operands they are."""
    for at, coordinate in enumerate(store.operands[coordinates]):
        elsewhere = build.constant(0 if at else OUTSIDE)
        store.operands[coordinates.start + at] = build.select(condition, coordinate, elsewhere)


def wait_for_stores(build: Builder) -> None:
    """Until the copy engine has read what it stores."""
    build.create("ttng.async_tma_store_wait", [], [], {"pendings": i32(0), "read_only": UnitAttr()})
