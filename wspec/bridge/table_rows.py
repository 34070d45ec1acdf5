"""Rows of grids that are a step apart, whose tables are written at once: which one a grid is of, and how long they are.

A row lies in an octave, which begins behind a number of steps and ends with twice as many; all its rows are of one
length. How long they are is decided when the first table of an octave is written, by what the writing takes of the
card: no longer than a fraction of what a table by itself takes of the host, which is saved for each other grid of the
row, or than a small part of the launch at hand. Who needs a table is told which there are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from wspec.bridge.fill_table import ENTRY, ENTRY_CYCLES
from wspec.bridge.launcher import keep

Step = tuple[int, int]  # an axis of the grid, and by how much grids differ on it
Grid = tuple[int, int, int]
Ref = Callable[[], Any]  # a weak reference to an entry

ROW_BYTES = 2 << 20
"""Of tables that are written at once whatever the launch: 65,536 entries, which take all SMs of an H200 some 4 us
(`ENTRY_CYCLES`). A table by itself takes the host some 50 (docs/results/launches.md)."""
WRITING = 0.05
"""Of the time of the launch at hand, that writing a row may take: as much as different lengths one after the other may
be slower than equal ones (docs/results/launches.md), and others of the row write nothing."""
_MOST = 4096  # octaves that are remembered


@dataclass(slots=True, eq=False)
class Octave:
    """The rows behind a number of steps, up to twice as many."""

    key: Hashable  # among `Rows.octaves`
    grids: int
    least: int  # steps of its first grid
    count: int  # grids of a row
    rows: dict[int, Ref]  # by their numbers what gives their tables, and None once these are no longer kept


def _nothing() -> None:
    return None


def back(grid: Grid, step: Step, count: int) -> Grid:
    """The grid so many steps before another one."""
    (x, y, z), (axis, size) = grid, step
    less = count * size
    return (x - less, y, z) if axis == 0 else (x, y - less, z) if axis == 1 else (x, y, z - less)


def _key(place: tuple[int, int], grid: Grid, step: Step, what: Any, number: int) -> Hashable:
    """Of the octave that a grid lies in, so many steps behind the first."""
    return place, back(grid, step, number), (number - 1).bit_length(), step, what


class Rows:
    """Of one kernel's tables, by device, stream, what tables depend on beside the grid, and steps."""

    def __init__(self) -> None:
        self.octaves: dict[Hashable, Octave] = {}

    def find(self, place: tuple[int, int], grid: Grid, step: Step, what: Any) -> tuple[Any, int] | None:
        """The tables among which that of a grid is, if they are there, and how many are before it."""
        number = grid[step[0]] // step[1]
        octave = self.octaves.get(_key(place, grid, step, what, number)) if number > 1 else None
        if octave is None:
            return None
        nth, at = divmod(number - octave.least, octave.count)
        entry = octave.rows.get(nth, _nothing)()
        return None if entry is None else (entry, at)

    def find_any(self, place: tuple[int, int], grid: Grid, steps: Iterable[Step], what: Any) -> tuple[Any, int] | None:
        """The same among rows of several steps."""
        for step in steps:
            found = self.find(place, grid, step, what)
            if found is not None:
                return found
        return None

    def row(
        self, place: tuple[int, int], grid: Grid, step: Step, what: Any, length: Callable[[int], int]
    ) -> tuple[Octave, int, int, int] | None:
        """Of a grid's octave, the number of its row, how many grids this has, and how many are before the grid; None
        of a grid that is in none.

        length: of an octave with so many steps at its end, how many grids a row may have.
        """
        number = grid[step[0]] // step[1]
        if number < 2:
            return None
        key = _key(place, grid, step, what, number)
        octave = self.octaves.get(key)
        if octave is None:
            there = 1 << (number - 1).bit_length() - 1  # grids
            most = max(1, length(2 * there))
            rows = -(-there // most)
            count = -(-there // rows)
            octave = Octave(key, there, there + 1, count, {})
            keep(self.octaves, key, octave, _MOST)
        nth, at = divmod(number - octave.least, octave.count)
        return octave, nth, min(octave.count, octave.grids - nth * octave.count), at

    def one_by_one(self, octave: Octave) -> None:
        """There is no memory for its rows: from now on each of its grids is a row."""
        self.octaves[octave.key] = Octave(octave.key, octave.grids, octave.least, 1, {})


def longest(entries: int, cycles: float, most_bytes: int) -> int:
    """Tables of at most so many entries that are written at once for a launch that takes so many cycles of all SMs
    together."""
    paid = int(WRITING * cycles / ENTRY_CYCLES)
    return max(ROW_BYTES // (4 * ENTRY), min(paid, most_bytes // (4 * ENTRY))) // entries
