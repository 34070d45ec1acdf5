"""Where a back end puts what a module keeps in shared memory, and the proxy fences that it adds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wspec.ir.core import Operation
from wspec.ir.types import MemDescType, ScalarType


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


def size_bytes(type: MemDescType) -> int:
    """Bytes of a buffer, without padding."""
    bits = type.element.bits if isinstance(type.element, ScalarType) else 64
    return math.prod(type.shape) * bits // 8
