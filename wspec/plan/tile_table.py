"""The loop over tiles of a persistent kernel, and the table that it reads (passes/persistent/persist.py)."""

from __future__ import annotations

from wspec.ir.builder import Builder
from wspec.ir.core import Operation, Value
from wspec.ir.types import I32, DictAttr, PointerType, i32
from wspec.plan.arguments import add_arguments

POINTER = PointerType(I32)
"""Of the table, and of its entries."""


def tile_loop(function: Operation) -> Operation:
    """The loop over tiles of a kernel that `persist` has wrapped; its body's arguments: count, entry, x, y, z."""
    for op in function.regions[0].block.ops:
        if op.name == "scf.for" and len(op.operands) > 3 and op.operands[3].type == POINTER:
            return op
    raise AssertionError("the kernel has no loop over tiles")


def add_pointer(function: Operation, name: str, type: PointerType = POINTER) -> Value:
    """A new last argument of a function, aligned to 16 bytes, which a launcher adds to those that the user gives."""
    return add_arguments(function, name, [type], DictAttr((("tt.divisibility", i32(16)),)))[0]


def grid_size(build: Builder, function: Operation, axis: int) -> Value:
    """The size of the user's grid along an axis, out of the table's header."""
    return load_number(build, function.regions[0].block.args[-1], 1 + axis)


def load_number(build: Builder, pointer: Value, offset: int) -> Value:
    """The int32 that stands `offset` of them behind a pointer."""
    if offset:
        pointer = build.offset(pointer, build.constant(offset))
    return build.load(pointer, I32)
