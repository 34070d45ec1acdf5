"""Whether rows lie apart in a launch that a proof takes to: its numbers, or intervals of them."""

from __future__ import annotations

from collections.abc import Mapping

from wspec.host_descriptors.ranges import FOUND, PLACE, intervals
from wspec.ir.rows import COUNT, UNKNOWN, Apart
from wspec.tile_scheduler.scalars import Scalar

assert COUNT == PLACE and UNKNOWN == FOUND


def lie_apart(apart: Apart, grid: tuple[int, int, int], values: Mapping[int, int]) -> bool:
    """`values`: of the arguments that decide, by their position in the compiled function."""
    scalars = [Scalar(one.name, one.bits, one.operands, one.value) for one in apart.numbers]
    return apart.holds(intervals(scalars, grid, values))
