"""The order of a launch's tiles in closed form: which tile is the k-th of a block, without a table to look into.

Tiles are numbered along the axis on which their cost depends first, then along the others: a *line* is the tiles that
differ on that axis alone, and read the same data, the dearest of them all of it. A row is a tile for each block.
Numbers are cut into windows of two rows, or of as many pairs of rows as hold a line; the last window has what is left
too, unless that is nearly a window (`SPARED`). The order within a window is one of three.

*By cost*: dearest first, which is by a tile's place on the axis. Rows are dealt out to and fro: the block that gets the
dearest of one gets the cheapest of the next, so that two rows are the same work for all where costs grow evenly. So go
the last window, and lines longer than a row.

*By lines*: the tiles of a line lie side by side, on neighbouring blocks, since the first row goes in the order of
numbers; of the second each block gets the tile that is as cheap there as its first one is dear. In every other window
blocks are counted from the last, since the two rows do not have as many tiles of each place, and they move on by a
place now and then, where else each would get the same places again and again.

*In rows*: by cost, and all windows but the last are cut into rows, of which blocks move on after each pair by a place
of a line. So it goes where a block has an SM to itself and a row holds some lines (`LINES`), and so is like the next
one.

Which is faster has been measured, for attention (docs/results/launches.md): where blocks share an SM (`shared`) lines
side by side were up to 1.6 times as fast as rows on an H100, and where a block has an SM to itself and a row holds more
than eight lines, up to 1.15 times slower. Two things speak for lines. L2 sends what neighbours ask for at the same time
once (docs/results/drawn.md: 92 bytes a cycle and SM, 35 to 45 where blocks are apart). And a tile's time is not quite
what its place says: by cost some blocks always get a dear tile and a cheap one and others two middling ones, so that
they part, and by a model of the cache read what a line has from memory once more; by lines each gets all kinds in turn,
and so do blocks that move on in rows (up to 1.05 times as fast as blocks that do not, on an H200).

Tiles that all cost the same go around in the order of the launch, or in raster order (raster.py).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from wspec.tile_scheduler.integers import Array
from wspec.tile_scheduler.raster import Numbering

_DIMENSIONS = ((0, 1, 2), (1, 0, 2), (2, 0, 1))
# What is left is a window of its own where the block that gets the dearest tile of it has at most so many steps along
# the line more to do than the others: what the rows of a longer window would read once more costs as much. On an H200
# (docs/results/launches.md) 1 step of imbalance made attention 3 % faster so, 4 steps up to 2 %, and 31
# steps 2 % slower.
SPARED = 4
# Of so many lines at least is a window that is cut into rows. With 8 lines (D=128, causal) attention was 1 % faster in
# rows than by cost on an H200, and 5 % on an H100; with 4 lines by lines 4 % faster than by cost on an H100
# (docs/results/launches.md).
LINES = 8


class Order(NamedTuple):
    """Of tiles [x, y, z] over so many blocks."""

    sizes: tuple[int, int, int]
    blocks: int
    axis: int | None = None  # on which the cost depends; None: all tiles cost the same
    rising: bool = False  # the dearest tile is the last one of the axis
    shared: bool = False  # blocks share SMs
    numbering: Numbering | None = None  # of tiles that all cost the same, where they go in raster order

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
        if LINES * length <= self.blocks and not self.shared:
            return self.blocks, 2 * count - 1 if count else 1
        return size, count or 1

    @property
    def goes_by_lines(self) -> bool:
        """Do tiles of a line lie side by side, but for the last window?"""
        if self.axis is None or self.sizes[self.axis] > self.blocks:
            return False
        return self.shared or LINES * self.sizes[self.axis] > self.blocks

    @property
    def dimensions(self) -> tuple[int, int, int]:
        """The axes, in the order in which tiles are numbered."""
        return _DIMENSIONS[self.axis or 0]

    def _moved(self, window: Array) -> Array:
        """By how many places blocks have moved on since the first window, where tiles go by lines.

        From window to window a block's place in its line shifts by the length of two rows, so by multiples of their
        common divisor: some blocks never get the end of a line, unless they move on. With a divisor of two all do.
        """
        length, size = self.sizes[self.axis or 0], self.window[0]
        divisor = math.gcd(size, length)
        return window // math.lcm(2, length // divisor) if divisor > 2 else 0 * window

    def _rows_moved(self, row: Array) -> Array:
        """By how many places blocks have moved on since the first row, where tiles go in rows: each pair of them by a
        place of a line, and the last window not at all."""
        size, count = self.window
        if self.axis is None or size != self.blocks:
            return 0 * row
        return np.where(row < count - 1, row // 2 * -(-self.blocks // self.sizes[self.axis]), 0)

    def counts(self) -> Array:
        """Tiles of each block."""
        full, rest = divmod(self.tiles, self.blocks)
        at = np.arange(self.blocks)
        return full + (self._column(np.full(self.blocks, full), at) < rest)

    def places(self) -> tuple[Array, Array, Array]:
        """(row, block, coordinates [3, n]) of every tile in turn."""
        turn = np.arange(self.tiles)
        row, column = turn // self.blocks, turn % self.blocks
        return row, (self._column(row, column) + self._rows_moved(row)) % self.blocks, self.coordinates(turn)

    def _column(self, row: Array, column: Array) -> Array:
        """To and fro: its own inverse."""
        return np.where(row % 2 == 1, self.blocks - 1 - column, column) if self.axis is not None else column

    def coordinates(self, turn: Array) -> Array:
        """[3, n]: x, y and z of the tiles with these turns, by the closed form that `bridge.fill_table` has too."""
        along, second, third = self.dimensions
        length, width = self.sizes[along], self.sizes[second]
        if self.axis is None:
            number = turn if self.numbering is None else self.numbering.numbers(turn)
            at, line = number % length, number // length
        else:
            size, count = self.window
            window = np.minimum(turn // size, count - 1)
            start = window * size
            end = np.where(window == count - 1, self.tiles, start + size)
            inside = turn - start
            by_lines = (window < count - 1) & self.goes_by_lines
            row, column = inside // self.blocks, inside % self.blocks
            place = np.where((row + window) % 2 == 1, self.blocks - 1 - column, column)
            number = start + (place + self._moved(window)) % self.blocks
            rank = _rank(number, start, start + self.blocks, length)
            if self.rising:
                inside = end - start - 1 - inside
            inside = np.where(by_lines, self.blocks - 1 - rank, inside)
            at, line = _ranked(inside, start + self.blocks * by_lines, end, length)
            first = by_lines & (row == 0)
            at, line = np.where(first, number % length, at), np.where(first, number // length, line)
        found = np.zeros((3, turn.size), np.int64)
        found[along], found[second], found[third] = at, line % width, line // width
        return found


def _before(at: Array, start: Array, end: Array, length: int) -> Array:
    """How many of the tiles from one number to another have a lower place in their lines."""
    lines = end // length - start // length
    found: Array = at * lines + np.minimum(at, end % length) - np.minimum(at, start % length)
    return found


def _rank(number: Array, start: Array, end: Array, length: int) -> Array:
    """Of a tile among those, by their places in their lines and then by the lines."""
    at = number % length
    return _before(at, start, end, length) + number // length - start // length - (at < start % length)


def _ranked(rank: Array, start: Array, end: Array, length: int) -> tuple[Array, Array]:
    """The tile with that rank: its place in its line, and the line."""
    skipped, part, lines = start % length, end % length, end // length - start // length
    low, high = np.minimum(skipped, part), np.maximum(skipped, part)
    more = lines + np.sign(part - skipped)
    before_low, before_high = low * lines, low * lines + (high - low) * more
    at = np.where(
        rank < before_low,
        rank // np.maximum(lines, 1),
        np.where(
            rank < before_high,
            low + (rank - before_low) // np.maximum(more, 1),
            high + (rank - before_high) // np.maximum(lines, 1),
        ),
    )
    return at, start // length + (at < skipped) + rank - _before(at, start, end, length)
