"""Whether rows lie apart in a launch that a proof takes to: its numbers, or intervals of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wspec.host_descriptors.ranges import FOUND, PLACE, Interval, intervals
from wspec.ir.rows import COUNT, UNKNOWN, Apart
from wspec.tile_scheduler.scalars import Scalar

assert COUNT == PLACE and UNKNOWN == FOUND


class RowsOfLaunch:
    """What must hold, made ready to be looked at for many launches."""

    def __init__(self, needed: Sequence[Apart]) -> None:
        lists = list(dict.fromkeys(one.numbers for one in needed))  # often all hang on the same numbers
        self._scalars = [[Scalar(one.name, one.bits, one.operands, one.value) for one in numbers] for numbers in lists]
        self._needed = [(one, lists.index(one.numbers)) for one in needed]

    def first_broken(self, grid: tuple[int, int, int], values: Mapping[int, int]) -> int:
        """Which of them does not hold, below zero where all do; `values`: of the arguments that decide, by their
        position in the compiled function."""
        known: dict[int, list[Interval]] = {}
        for at, (one, numbers) in enumerate(self._needed):
            found = known.get(numbers)
            if found is None:
                found = known[numbers] = intervals(self._scalars[numbers], grid, values)
            if not one.holds(found):
                return at
        return -1


def lie_apart(apart: Apart, grid: tuple[int, int, int], values: Mapping[int, int]) -> bool:
    """Do they, of one launch?"""
    return RowsOfLaunch([apart]).first_broken(grid, values) < 0
