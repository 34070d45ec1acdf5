"""Raster order: tiles that blocks beside each other work on read the larger operand together, and few of the smaller.

    a product of 128 x 64 tiles, whose rows of A take twice the bytes of its columns of B; tiles as they are numbered

    the kernel's order: 8 down, then to the right            raster order: 8 to the right, then down

    0  8 16 24 ..                                            0  1  2 ..  7
    1  9 17 ..                                               8  9 10 .. 15
    :                                                        :
    7 15 ..                                                 56 57 ..

L2 sends once what blocks of neighbouring numbers ask for at the same time, and to each what those further apart want.
So neighbours share the tile that is larger, and of the smaller ones `KEPT` stay in L2 while blocks go along the other
axis. Where neither is larger, or the loop does not wait for what it loads, a grid that has groups of tiles is left
alone, and one without any goes in such groups. Where neighbours share the larger one already, and L2 has room for
everything, longer runs of them are better still, and are left alone. Any order is right, as tiles do not know of each
other; which one a grid's numbers stand for is read off the coordinates of a few tiles, and where that is not understood
they go as they are numbered. docs/results/products.md has what it brings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from wspec.tile_scheduler.costs import Grid, fields, scalar_rows, scalars_from, truth, whole
from wspec.tile_scheduler.integers import Array
from wspec.tile_scheduler.scalars import Scalar, parameters_of

KEPT = 8
"""Tiles of the smaller operand, of 64 columns, that blocks keep to while they go along the larger one; measured."""
_FEWEST, _MOST = 4, 32  # tiles that a kernel may keep to by itself, for its own order to be left alone


@dataclass(frozen=True, slots=True)
class Raster:
    """Two coordinates of a tile, as positions in `scalars`: of the larger operand, which neighbours are to share, and
    of the smaller one; and how much of either the loop `loop` loads in a step."""

    shared: int
    kept: int
    scalars: tuple[Scalar, ...]
    loop: int
    shared_bytes: int
    kept_bytes: int
    l2_bytes: int
    larger: bool = True  # is one so much larger, and waited for, that neighbours had better not share the other one?

    @property
    def parameters(self) -> tuple[int, ...]:
        """The positions of the function's arguments whose values are needed, ascending."""
        return parameters_of(self.scalars)

    def to_data(self) -> dict[str, Any]:
        """As numbers, texts and lists, for a file."""
        numbers = {name: getattr(self, name) for name in _WHOLE}
        return {**numbers, "larger": self.larger, "scalars": scalar_rows(self.scalars)}

    @staticmethod
    def from_data(data: Any) -> Raster:
        """Read `to_data`'s form. Raises ValueError saying what is wrong with it."""
        row = fields(data, (*_WHOLE, "larger", "scalars"), "raster")
        scalars, numbers = scalars_from(row["scalars"]), {name: whole(row[name], f"raster.{name}") for name in _WHOLE}
        found = Raster(scalars=scalars, larger=truth(row["larger"], "raster.larger"), **numbers)
        for at in (found.shared, found.kept):
            if not 0 <= at < len(scalars):
                raise ValueError("a tile's cost: raster: a scalar that does not exist")
        return found

    def is_good(self, numbering: Numbering) -> bool:
        """Are neighbours well off by the order of the grid, whatever L2 holds?"""
        length = numbering.shared if numbering.down else numbering.kept
        grouped = min(_FEWEST, length) <= numbering.group <= _MOST
        return grouped and not (numbering.down and self.larger)

    def stays(self, numbering: Numbering, trips: int) -> bool:
        """Has L2 room for all that a plane of tiles reads, and do neighbours share what they are to share?"""
        step = numbering.shared * self.shared_bytes + numbering.kept * self.kept_bytes
        return not (numbering.down and self.larger) and trips * step <= self.l2_bytes


_WHOLE = ("shared", "kept", "loop", "shared_bytes", "kept_bytes", "l2_bytes")


class Numbering(NamedTuple):
    """How a grid numbers tiles that differ in two coordinates: `group` of them along one, then on along the other."""

    shared: int  # tiles along the coordinate that neighbours are to share
    kept: int  # along the other
    group: int  # that differ in one coordinate before the other one moves on
    down: bool  # that one is `shared`: neighbours have different ones

    def number(self, shared: int, kept: int) -> int:
        """Of a tile, by the grid."""
        along, across = (shared, kept) if self.down else (kept, shared)
        length, others = (self.shared, self.kept) if self.down else (self.kept, self.shared)
        first = along - along % self.group
        return first * others + across * min(length - first, self.group) + along - first

    def numbers(self, turn: Array) -> Array:
        """Of the tiles in turn, for as many planes of tiles as there are. `bridge.fill_table` has the same."""
        plane, inside = np.divmod(turn, self.shared * self.kept)
        chunk, inside = np.divmod(inside, KEPT * self.shared)
        shared, kept = np.divmod(inside, np.minimum(self.kept - chunk * KEPT, KEPT))
        kept = kept + chunk * KEPT
        along, across = (shared, kept) if self.down else (kept, shared)
        length, others = (self.shared, self.kept) if self.down else (self.kept, self.shared)
        first = along - along % self.group
        found: Array = plane * (self.shared * self.kept) + first * others + along - first
        found += across * np.minimum(length - first, self.group)
        return found


Coordinates = tuple[int, int]
Sample = Callable[[int, int, int, int, int, int, Sequence[int]], Coordinates]
At = Callable[[int], Coordinates]


class Reader:
    """Reads off single tiles how a grid numbers them."""

    def __init__(self, sample: Sample) -> None:
        """`sample`(x, y, z, gx, gy, gz, values): the two coordinates of a tile, `values` the parameters in turn."""
        self._sample = sample
        self._group = KEPT  # that was found last: a kernel's seldom differ

    def numbering(self, grid: Grid, values: Sequence[int]) -> Numbering | None:
        """How a grid numbers its tiles; None where that is not understood."""
        x, y, z = grid
        if x < 1 or y < 1 or z < 1:
            return None

        def at(number: int) -> Coordinates:
            return self._sample(number % x, number // x % y, number // (x * y), x, y, z, values)

        try:
            for plane in dict.fromkeys((x * y * z, x * y, x)):
                found = self._of_plane(at, plane)
                if found is not None:
                    return found
        except (ArithmeticError, ValueError):
            pass
        return None

    def _of_plane(self, at: At, plane: int) -> Numbering | None:
        """Of so many tiles; None where they are not numbered like that."""
        if plane < 4:
            return None
        origin, second, last = at(0), at(1), at(plane - 1)
        moves = [one != other for one, other in zip(origin, second, strict=True)]
        if moves.count(True) != 1:
            return None
        along = moves.index(True)
        across = 1 - along
        group = self._run(at, plane, across, origin[across])
        if group >= plane:
            return None
        step = [0, 0]
        step[along], step[across] = second[along] - origin[along], at(group)[across] - origin[across]
        counts = [1 + (last[axis] - origin[axis]) // step[axis] for axis in (0, 1)]
        found = Numbering(counts[0], counts[1], group, along == 0)
        if counts[0] * counts[1] != plane or min(counts) < 2:
            return None
        for shared, kept in ((counts[0] // 3, counts[1] // 2), (counts[0] // 2, counts[1] // 3), (counts[0] - 1, 0)):
            expected = origin[0] + shared * step[0], origin[1] + kept * step[1]
            if at(found.number(shared, kept)) != expected:
                return None
        self._group = group
        return found

    def _run(self, at: At, plane: int, across: int, first: int) -> int:
        """How many tiles, from the first on, have the same coordinate; as many as there are where all do."""
        group = self._group
        if 1 < group < plane and at(group)[across] != first == at(group - 1)[across] == at(group // 2)[across]:
            return group
        low, high = 1, 2
        while high < plane and at(high)[across] == first:
            low, high = high, 2 * high
        high = min(high, plane)
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if at(middle)[across] == first else (low, middle)
        return high
