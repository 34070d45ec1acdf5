"""What a persistent kernel is launched with: how many blocks, and the table of tiles in the form the kernel reads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from wspec.tiles.costs import TileCost
from wspec.tiles.table import Costs, make_table

Grid = tuple[int, int, int]
TABLE = "wspec_tiles"
"""The argument of a persistent kernel that takes the table, as wspec/passes/persist.py names it."""


def launch_table(
    cost: TileCost, grid: Grid, values: Mapping[int, int], slots: int
) -> tuple[int, npt.NDArray[np.int32]]:
    """(blocks to launch, the table as flat int32): `slots` blocks run at a time, `values` as `TileCost.evaluate` takes.

    The table is the header (entries of a block, gx, gy, gz) and what `make_table` gives, block by block. Raises
    ValueError as that does.
    """
    costs = team_costs(cost.evaluate(grid, values), cost.team, cost.axis)
    blocks = max(1, min(slots, costs.size))
    return blocks, _flat(grid, make_table(costs, blocks), cost.team, cost.axis)


def even_table(
    grid: tuple[int, ...], blocks: int = 2, team: int = 1, axis: int = 0
) -> tuple[Grid, npt.NDArray[np.int32]]:
    """(grid to launch, flat table) for tiles of equal cost: what an executor needs to run a persistent kernel."""
    x, y, z = (*grid, 1, 1, 1)[:3]
    whole: Grid = (x, y, z)
    costs = team_costs(np.ones(whole[::-1], np.float32), team, axis)
    blocks = max(1, min(blocks, costs.size))
    return (blocks, 1, 1), _flat(whole, make_table(costs, blocks), team, axis)


def team_costs(costs: Costs, team: int, axis: int) -> Costs:
    """What each team's tiles cost, [gz, gy, gx] with as many along the axis as there are teams: the dearest of them."""
    if team == 1:
        return costs
    at = 2 - axis
    missing = -costs.shape[at] % team
    padded = np.pad(costs, [(0, missing if dim == at else 0) for dim in range(3)])
    shape = [*padded.shape[:at], padded.shape[at] // team, team, *padded.shape[at + 1 :]]
    return np.ascontiguousarray(padded.reshape(shape).max(axis=at + 1))


def _flat(grid: Grid, table: npt.NDArray[np.int32], team: int, axis: int) -> npt.NDArray[np.int32]:
    table[:, :, axis] *= team  # a team is named by the tile of its first member
    return np.concatenate([np.array([table.shape[0], *grid], np.int32), table.transpose(1, 0, 2).reshape(-1)])
