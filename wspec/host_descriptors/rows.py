"""Whether rows lie apart in a launch that a proof takes to: its numbers, or intervals of them."""

from __future__ import annotations

from collections.abc import Mapping

from wspec.host_descriptors.ranges import FOUND, PLACE, intervals
from wspec.ir.rows import COUNT, UNKNOWN, Apart
from wspec.tile_scheduler.scalars import Scalar

assert COUNT == PLACE and UNKNOWN == FOUND


class RowsOfLaunch:
    """What must hold, made ready to be looked at for many launches."""

    def __init__(self, apart: Apart) -> None:
        self._apart = apart
        self._scalars = [Scalar(one.name, one.bits, one.operands, one.value) for one in apart.numbers]

    def lie_apart(self, grid: tuple[int, int, int], values: Mapping[int, int]) -> bool:
        """`values`: of the arguments that decide, by their position in the compiled function."""
        return self._apart.holds(intervals(self._scalars, grid, values))


def lie_apart(apart: Apart, grid: tuple[int, int, int], values: Mapping[int, int]) -> bool:
    """The same of one launch."""
    return RowsOfLaunch(apart).lie_apart(grid, values)
