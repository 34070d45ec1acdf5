"""Where a back end puts what a module keeps in shared memory, and the proxy fences that it adds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wspec.ir.builder import Builder
from wspec.ir.core import Operation, Value
from wspec.ir.types import MemDescType, ScalarType, i32


@dataclass(frozen=True, slots=True)
class Area:
    """Bytes from `start` to before `stop`, from the beginning of the block's shared memory."""

    start: int
    stop: int

    def overlaps(self, other: Area) -> bool:
        return self.start < other.stop and other.start < self.stop


@dataclass(frozen=True, slots=True)
class Placement:
    """Of one module, as one version of the back end does it."""

    areas: Mapping[Operation, Area]  # allocations, and operations with memory of their own (scratch)
    fences: frozenset[Operation]  # operations before which a proxy fence is put
    total_bytes: int = 0  # of the block
    registers: tuple[int, ...] = ()  # a thread of the code around and of each partition is given, where warps exchange


def size_bytes(type: MemDescType) -> int:
    """Bytes of a buffer, without padding."""
    bits = type.element.bits if isinstance(type.element, ScalarType) else 64
    return math.prod(type.shape) * bits // 8


OFFSET, TOTAL = "allocation.offset", "ttg.shared"
"""Where an operation's memory begins, and how much the module needs, in bytes: as the back end writes it."""


def placed(module: Operation, placement: Placement) -> Operation:
    """A copy of the module that says where everything lies, with the back end's fences. The module is not changed."""
    values: dict[Value, Value] = {}
    copy = module.clone(values)
    ops = dict(zip(module.walk(), copy.walk(), strict=True))
    for op, area in placement.areas.items():
        ops[op].attributes[OFFSET] = i32(area.start)
    for op in placement.fences:
        block = ops[op].parent
        assert block is not None
        build = Builder(block, block.ops.index(ops[op]), op.location)
        build.fence()
    copy.attributes[f'"{TOTAL}"'] = i32(placement.total_bytes)
    return copy
