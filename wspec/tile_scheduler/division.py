"""Tables in which the last tiles are divided between blocks, so that all have the same work.

    11 tiles, 4 blocks: one whole tile for each, and shares of 7/4 of the other seven, cut where a share ends

    block 0    tile 0   first 3/4 of c   all of a
    block 1    tile 1   first 1/2 of e   all of d        rest of c
    block 2    tile 2   first 1/4 of g   all of f        rest of e
    block 3    tile 3   all of h                         rest of g

A share is between one and two tiles long, so a tile is cut once at most. A block begins its share with the first part
of the tile at its end, and hands the sums on; it ends with the rest of the tile at its beginning. The block before has
handed these on by then: that part and this rest are one tile, and a share is at least as long. So a block waits for one
of a lower number only, which needs nobody's sums for what it hands on. The card starts blocks in their order: whoever
waits, waits for a block that is at work.

Whole tiles come first, in step, as where nothing is divided. In the shares blocks get out of step. Which tile a letter
stands for is chosen such that those begun at the same time are neighbours and read the same data; without that products
of 2048 x 16384 x 8192 read two thirds more from memory, and were slower than undivided (docs/results).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wspec.tile_scheduler.integers import Array
from wspec.tile_scheduler.raster import Numbering
from wspec.tile_scheduler.table import Table

FIELDS = 8  # x, y, z, n, first, end, from, to
WHOLE = (0, 0, -1, -1)
"""The last four fields of a tile that is done from its first iteration to its last."""
SHORTEST = 4  # iterations of a part, normally; a cut that is nearer to an end of its tile goes there


@dataclass(frozen=True, slots=True)
class Division:
    """Of so many tiles of so many iterations each, over blocks; a part has `shortest` iterations or more."""

    tiles: int
    trips: int
    blocks: int
    shortest: int = SHORTEST

    @property
    def is_one(self) -> bool:
        """Is anything to be divided?"""
        return self.tiles > self.blocks and bool(self.tiles % self.blocks) and self.trips >= 2 * self.shortest

    @property
    def waves(self) -> int:
        """Full ones; the last of them and what is left are shared."""
        return self.tiles // self.blocks

    @property
    def start(self) -> int:
        """Tiles that are not shared: the first ones."""
        return (self.waves - 1) * self.blocks

    @property
    def shared(self) -> int:
        """Tiles of which each block has a share."""
        return self.tiles - self.start

    @property
    def rows(self) -> int:
        """Entries of a block: a first part, two whole tiles and a rest at most, and one behind the last."""
        return self.waves + 4

    @property
    def words(self) -> int:
        """int32 of the flat table."""
        return FIELDS * (1 + self.rows * self.blocks)


def divided_table(
    shape: tuple[int, ...], trips: int, blocks: int, shortest: int = SHORTEST, numbering: Numbering | None = None
) -> Table | None:
    """[rows + 1, blocks, FIELDS] for tiles [gz, gy, gx] of so many iterations each; None if nothing is to be divided.

    As `wspec.tile_scheduler.make_table` gives it, with the parts. With a `numbering` tiles go in raster order.
    """
    how = Division(int(np.prod(shape)), trips, blocks, shortest)
    if not how.is_one:
        return None
    waves, shared, start = how.waves, how.shared, how.start
    cuts = _cuts(shared, trips, blocks, shortest)
    block = np.arange(blocks)
    first, skipped = np.divmod(cuts[:-1], trips)
    last, part = np.divmod(cuts[1:], trips)
    begins, ends = part > 0, skipped > 0  # has it the first part of a tile, and the rest of one?
    count = last - first - ends  # of tiles that are the block's alone
    owner = np.repeat(block, count)
    nth = np.arange(owner.size) - np.repeat(np.cumsum(count) - count, count)
    whole = (first + ends)[owner] + nth
    number = _numbers(shared, whole, part[owner])
    table = np.zeros((how.rows, blocks, FIELDS), np.int32)

    def put(row: Array, column: Array, tile: Array, *parts: Array | int) -> None:
        z, y, x = np.unravel_index(tile if numbering is None else numbering.numbers(tile), shape)
        for field, value in zip((0, 1, 2, 4, 5, 6, 7), (x, y, z, *parts), strict=True):
            table[row, column, field] = value

    row, column = np.divmod(np.arange(start), blocks)
    put(row, column, np.arange(start), *WHOLE)
    mine = block[begins]
    put(np.full(mine.size, waves - 1), mine, start + number[last[begins]], 0, part[begins], -1, mine)
    put(waves - 1 + begins[owner] + nth, owner, start + number[whole], *WHOLE)
    mine = block[ends]
    behind = (waves - 1 + begins + count)[ends]
    put(behind, mine, start + number[first[ends]], skipped[ends], trips, mine - 1, -1)
    table[0, :, 3] = waves - 1 + begins + count + ends
    return table


def _numbers(shared: int, whole: Array, begun: Array) -> Array:
    """Which of the shared tiles each of them, as they stand in a row, is: those begun at the same time are neighbours.

    `whole` are those that one block does, `begun` when. Neighbours read the same data, and L2 keeps it for a while.
    First parts all begin at once, and rests end at once: divided tiles come last.
    """
    order = whole[np.lexsort((whole, begun))]
    divided = np.ones(shared, bool)
    divided[whole] = False
    found = np.empty(shared, np.int64)
    found[np.concatenate((order, np.flatnonzero(divided)))] = np.arange(shared)
    return found


def _cuts(tiles: int, trips: int, blocks: int, shortest: int) -> Array:
    """The iterations, of all those of the shared tiles in a row, at which shares begin, and where the last one ends."""
    at = (2 * np.arange(blocks + 1) * tiles * trips + blocks) // (2 * blocks)
    inside = at % trips
    return np.where(inside < shortest, at - inside, np.where(trips - inside < shortest, at - inside + trips, at))
