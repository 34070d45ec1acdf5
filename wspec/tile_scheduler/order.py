"""The order of a launch's tiles in closed form: which tile is the k-th of a block, without a table to look into.

Tiles are numbered along the axis on which their cost depends first, then along the others: a *line* is the tiles that
differ on that axis alone. A row is a tile for each block. Numbers are cut into windows of two rows, or of as many pairs
of rows as hold a line; the last window has what is left too, unless that is nearly a window (`SPARED`). All but the
last are cut once more, into rows, where a row holds some lines (`LINES`) and so is like the next one. Tiles of a window
go dearest first, which is by their place on the axis. Rows are dealt out to and fro: the block that gets the dearest of
one gets the cheapest of the next, so that two rows are the same work for all where costs grow evenly.

Windows are as short as that allows, since the tiles of a line read the same data, the dearest all of it: dearest first
begins with all lines of a window at once, and its second row reads them again. In attention (D=128, causal, tiles of
128 rows) what two rows read and write are 34 MB, of which an H200 keeps 31 and an H100 25: there a quarter more is
expected to come from memory.

Tiles that all cost the same go around in the order of the launch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]
_DIMENSIONS = ((0, 1, 2), (1, 0, 2), (2, 0, 1))
# What is left is a window of its own where the block that gets the dearest tile of it has at most so many steps along
# the line more to do than the others: what the rows of a longer window would read once more costs as much. On an H200
# (docs/results/launches.md) 1 step of imbalance made attention 3 % faster so, 4 steps up to 2 %, and 31
# steps 2 % slower.
SPARED = 4
# In a row there are so many lines at least where a window is a row: with 8 lines attention was 1 % faster so on an
# H200, with 4 lines 1 % slower, which L2 does not explain (docs/results/launches.md).
LINES = 8


class Order(NamedTuple):
    """Of tiles [x, y, z] over so many blocks."""

    sizes: tuple[int, int, int]
    blocks: int
    axis: int | None = None  # on which the cost depends; None: all tiles cost the same
    rising: bool = False  # the dearest tile is the last one of the axis

    @property
    def tiles(self) -> int:
        x, y, z = self.sizes
        return x * y * z

    @property
    def rows(self) -> int:
        """Tiles of the block that has most."""
        return -(-self.tiles // self.blocks)

    @property
    def window(self) -> tuple[int, int]:
        """Tiles of a window, and how many windows there are; the last one may have more tiles, or fewer."""
        (x, y, z), length, pair = self.sizes, self.sizes[self.axis or 0], 2 * self.blocks
        size = pair * -(-length // pair)
        count, left = divmod(x * y * z, size)
        if left and length * (size - left) <= SPARED * size:
            count += 1
        if LINES * length <= self.blocks:
            return self.blocks, 2 * count - 1 if count else 1
        return size, count or 1

    @property
    def dimensions(self) -> tuple[int, int, int]:
        """The axes, in the order in which tiles are numbered."""
        return _DIMENSIONS[self.axis or 0]

    def counts(self) -> Array:
        """Tiles of each block."""
        full, rest = divmod(self.tiles, self.blocks)
        at = np.arange(self.blocks)
        return full + (self._column(np.full(self.blocks, full), at) < rest)

    def places(self) -> tuple[Array, Array, Array]:
        """(row, block, coordinates [3, n]) of every tile in turn."""
        turn = np.arange(self.tiles)
        row, column = turn // self.blocks, turn % self.blocks
        return row, self._column(row, column), self.coordinates(turn)

    def _column(self, row: Array, column: Array) -> Array:
        """To and fro: its own inverse."""
        return np.where(row % 2 == 1, self.blocks - 1 - column, column) if self.axis is not None else column

    def coordinates(self, turn: Array) -> Array:
        """[3, n]: x, y and z of the tiles with these turns, by the closed form that `bridge.fill_table` has too."""
        along, second, third = self.dimensions
        length, width = self.sizes[along], self.sizes[second]
        if self.axis is None:
            at, line = turn % length, turn // length
        else:
            size, count = self.window
            window = np.minimum(turn // size, count - 1)
            start = window * size
            end = np.where(window == count - 1, self.tiles, start + size)
            inside = turn - start
            if self.rising:
                inside = end - start - 1 - inside
            first, skipped = start // length, start % length
            last, part = end // length, end % length
            lines = last - first
            low, high = np.minimum(skipped, part), np.maximum(skipped, part)
            more = lines + np.sign(part - skipped)
            before_low, before_high = low * lines, low * lines + (high - low) * more
            at = np.where(
                inside < before_low,
                inside // np.maximum(lines, 1),
                np.where(
                    inside < before_high,
                    low + (inside - before_low) // np.maximum(more, 1),
                    high + (inside - before_high) // np.maximum(lines, 1),
                ),
            )
            before = at * lines + np.minimum(at, part) - np.minimum(at, skipped)
            line = first + (at < skipped) + inside - before
        found = np.zeros((3, turn.size), np.int64)
        found[along], found[second], found[third] = at, line % width, line // width
        return found
