"""What a persistent kernel is launched with: how many blocks, and the table of tiles in the form the kernel reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from wspec.tile_scheduler.costs import Costs, Grid
from wspec.tile_scheduler.division import FIELDS, SHORTEST, WHOLE, Division, divided_table
from wspec.tile_scheduler.names import SLOTS, WORDS
from wspec.tile_scheduler.order import Order
from wspec.tile_scheduler.sampled import Sampler, coarse, even_tiles
from wspec.tile_scheduler.table import make_table
from wspec.tile_scheduler.tile_loop import StreamK, TileLoop


def launch_table(
    tiles: TileLoop, grid: Grid, values: Mapping[int, int], slots: int, *, shared: bool = False
) -> tuple[int, npt.NDArray[np.int32]]:
    """(blocks to launch, the table as flat int32): `slots` blocks run at a time, several on an SM if `shared`, `values`
    as `TileCost.evaluate` takes.

    The table is the header (entries of a block, gx, gy, gz, zeros) and the tiles of each block, block by block, with
    the parts of tiles behind the places: in the order that `Sampler.order` gives, or else as `make_table` does. Nothing
    is divided. Raises ValueError as that does.
    """
    blocks = blocks_of(tiles, grid, slots)
    sampler = Sampler(tiles.cost, tiles.raster.value)
    order = sampler.order(grid, values, blocks, tiles.coarsening, tiles.axis) if min(grid) > 0 else None
    if order is not None:
        order = order._replace(shared=shared)
        return blocks, ordered_table(order, grid, tiles.coarsening, tiles.axis)
    costs = coarse_costs(tiles.cost.evaluate(grid, values), tiles.coarsening, tiles.axis)
    return blocks, flat(grid, make_table(costs, blocks), tiles.coarsening, tiles.axis)


def blocks_of(tiles: TileLoop, grid: Grid, slots: int) -> int:
    """How many blocks are launched."""
    x, y, z = grid if tiles.coarsening == 1 else coarse(grid, tiles.coarsening, tiles.axis)
    count = x * y * z
    return (count if count < slots else slots) or 1


def ordered_table(order: Order, grid: Grid, coarsening: int, axis: int) -> npt.NDArray[np.int32]:
    """The flat table of an order. `bridge.fill_table` writes the same on the card."""
    row, block, coordinates = order.places()
    table = np.zeros((order.rows + 1, order.blocks, 4), np.int32)
    table[row, block, :3] = coordinates.T
    table[0, :, 3] = order.counts()
    return flat(grid, table, coarsening, axis)


def divided_launch(
    tiles: TileLoop, grid: Grid, values: Mapping[int, int], slots: int, *, must: bool = False
) -> tuple[int, npt.NDArray[np.int32]] | None:
    """The same by `how_divided`. `bridge.fill_table` writes the same on the card."""
    found = how_divided(tiles, grid, [values[at] for at in tiles.cost.parameters], slots, must=must)
    if found is None:
        return None
    sampler = Sampler(tiles.cost, tiles.raster.value)
    direction = sampler.direction(grid, [values[at] for at in sampler.parameters])
    numbering = None if direction is None else direction[2]
    table = divided_table(grid[::-1], found.trips, found.blocks, found.shortest, numbering)
    return None if table is None else (found.blocks, flat(grid, table, 1, 0))


def how_divided(
    tiles: TileLoop, grid: Grid, values: Sequence[int], slots: int, *, must: bool = False, more: float = 0.0
) -> Division | None:
    """How the last tiles are divided among the blocks; None where that cannot be, or, unless it `must`, pays not.

    values: the arguments that decide, in turn. What must be divided may have parts of one iteration.

    It pays where a tile's time, for the part of a wave that would be empty, is more than `more` cycles, those that the
    sums take on their way, and what blocks lose that are out of step, and load tiles that no other wants at that time.
    """
    if (divided := tiles.stream_k.value) is None or min(grid) < 1:
        return None
    count = grid[0] * grid[1] * grid[2]
    blocks = min(slots, count)
    if not count % blocks:
        return None
    found = even_tiles(tiles.cost, divided.loop, grid, values)
    if blocks > SLOTS or found is None:
        return None
    cost, trips = found
    left = count % blocks / blocks  # of a wave; it and a whole one are shared
    lost = divided.fix_up_cycles + more + trips * (1 + left) * divided.apart_cycles
    if not (must or not divided.fix_up_cycles or cost * (1 - left) > lost):  # 0: divided wherever it can be
        return None
    made = Division(count, trips, blocks, 1 if must else SHORTEST)
    return made if made.is_one else None


def partials_words(divided: StreamK, blocks: int) -> int:
    """int32 words of memory that so many blocks need to hand sums on."""
    return SLOTS * WORDS + blocks * divided.sums


def coarse_costs(costs: Costs, coarsening: int, axis: int) -> Costs:
    """What a block's neighbouring tiles cost, [gz, gy, gx] with that many fewer along the axis: the dearest of them."""
    if coarsening == 1:
        return costs
    at = 2 - axis
    missing = -costs.shape[at] % coarsening
    padded = np.pad(costs, [(0, missing if dim == at else 0) for dim in range(3)])
    shape = [*padded.shape[:at], padded.shape[at] // coarsening, coarsening, *padded.shape[at + 1 :]]
    return np.ascontiguousarray(padded.reshape(shape).max(axis=at + 1))


def flat(grid: Grid, table: npt.NDArray[np.int32], coarsening: int, axis: int) -> npt.NDArray[np.int32]:
    """As the kernel reads it."""
    table[:, :, axis] *= coarsening  # neighbours are named by the first of them
    if table.shape[2] < FIELDS:
        parts = np.broadcast_to(np.array(WHOLE, np.int32), (*table.shape[:2], len(WHOLE)))
        table = np.concatenate([table, parts], axis=2)
    header = np.array([table.shape[0], *grid, 0, 0, 0, 0], np.int32)
    return np.concatenate([header, table.transpose(1, 0, 2).reshape(-1)])
