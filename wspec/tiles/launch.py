"""What a persistent kernel is launched with: how many blocks, and the table of tiles in the form the kernel reads."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from wspec.tiles.costs import TileCost
from wspec.tiles.table import make_table

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
    blocks = max(1, min(slots, math.prod(grid)))
    return blocks, _flat(grid, make_table(cost.evaluate(grid, values), blocks))


def even_table(grid: tuple[int, ...], blocks: int = 2) -> tuple[Grid, npt.NDArray[np.int32]]:
    """(grid to launch, flat table) for tiles of equal cost: what an executor needs to run a persistent kernel."""
    x, y, z = (*grid, 1, 1, 1)[:3]
    whole: Grid = (x, y, z)
    blocks = max(1, min(blocks, math.prod(whole)))
    return (blocks, 1, 1), _flat(whole, make_table(np.ones(whole[::-1], np.float32), blocks))


def _flat(grid: Grid, table: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    return np.concatenate([np.array([table.shape[0], *grid], np.int32), table.transpose(1, 0, 2).reshape(-1)])
