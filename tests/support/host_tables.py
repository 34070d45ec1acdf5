"""Tables of tiles in the host's memory, for launches that a driver only writes down."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from wspec.bridge import persistent, slots
from wspec.tile_scheduler import launch_table


def get(tables: Any, stream: int, grid: tuple[int, int, int], args: Sequence[Any]) -> Any:
    """In place of `persistent.Tables.get`: what it would give on a card of 132 SMs."""
    values = {index: slots.reader([slot])(args)[0] for index, slot in tables.slots}
    blocks, table = launch_table(
        tables.tiles, grid, values, 132 * tables.blocks_per_sm, shared=tables.blocks_per_sm > 1
    )
    memory = torch.from_numpy(table)
    entry = persistent._Entry(memory, memory.data_ptr())
    return entry, persistent.Table(weakref.ref(entry), blocks, entry.address)


def busy_times(costs: npt.NDArray[np.float32], table: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """How long each block is busy with its tiles, in the costs' unit."""
    row, block = np.nonzero(np.arange(table.shape[0])[:, None] < table[0, :, 3])
    x, y, z = (table[row, block, axis] for axis in range(3))
    return np.bincount(block, costs[z, y, x].astype(np.float64), minlength=table.shape[1])
