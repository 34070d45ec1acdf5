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

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.int32]
_Part = tuple[int, int, int, int]  # first, end, from, to
_Work = tuple[int, _Part]  # a tile and the part of it
FIELDS = 8  # x, y, z, n, first, end, from, to
WHOLE = (0, 0, -1, -1)
"""The last four fields of a tile that is done from its first iteration to its last."""
SHORTEST = 4  # iterations of a part, normally; a cut that is nearer to an end of its tile goes there


def divided_table(shape: tuple[int, ...], trips: int, blocks: int, shortest: int = SHORTEST) -> Table | None:
    """[rows + 1, blocks, FIELDS] for tiles [gz, gy, gx] of so many iterations each; None if nothing is to be divided.

    As `wspec.tile_scheduler.make_table` gives it, with the parts.
    """
    tiles = int(np.prod(shape))
    waves, left = divmod(tiles, blocks)
    if not left or not waves or trips < 2 * shortest:
        return None
    start = (waves - 1) * blocks
    cuts = [_cut(block, tiles - start, trips, blocks, shortest) for block in range(blocks + 1)]
    shares = [_share(block, cuts, trips) for block in range(blocks)]
    numbers = _numbers(shares)
    table = np.zeros((waves + 4, blocks, FIELDS), np.int32)
    for block in range(blocks):
        rows = [(wave * blocks + block, WHOLE) for wave in range(waves - 1)]
        rows += [(start + numbers[tile], part) for tile, part in shares[block]]
        z, y, x = np.unravel_index([tile for tile, _ in rows], shape)
        table[: len(rows), block, :3] = np.stack((x, y, z), axis=-1)
        table[: len(rows), block, 4:] = [part for _, part in rows]
        table[0, block, 3] = len(rows)
    return table[: int(table[0, :, 3].max()) + 1]


def _numbers(shares: list[list[_Work]]) -> dict[int, int]:
    """Which of the shared tiles each of them, as they stand in a row, is: those begun at the same time are neighbours.

    Neighbours read the same data, and L2 keeps it for a while. First parts all begin at once, and rests end at once.
    """
    begun = {}
    for work in shares:
        time = 0
        for tile, part in work:
            if part == WHOLE:
                begun[tile] = time
            else:
                time += part[1] - part[0]
    divided = sorted({tile for work in shares for tile, _ in work} - set(begun))
    order = [*sorted(begun, key=lambda tile: (begun[tile], tile)), *divided]
    return {tile: number for number, tile in enumerate(order)}


def _cut(block: int, tiles: int, trips: int, blocks: int, shortest: int) -> int:
    """The iteration, of all those of the shared tiles in a row, at which the block's share begins."""
    at = (2 * block * tiles * trips + blocks) // (2 * blocks)
    inside = at % trips
    if inside < shortest:
        return at - inside
    return at - inside + trips if trips - inside < shortest else at


def _share(block: int, cuts: list[int], trips: int) -> list[_Work]:
    """(tile, part) in the order in which the block does them."""
    (first, skipped), (last, part) = divmod(cuts[block], trips), divmod(cuts[block + 1], trips)
    found = [(last, (0, part, -1, block))] if part else []
    found += [(tile, WHOLE) for tile in range(first + bool(skipped), last)]
    return [*found, (first, (skipped, trips, block - 1, -1))] if skipped else found
