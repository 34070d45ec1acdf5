"""Tables of tiles in the host's memory, for launches that a driver only writes down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from wspec.bridge import persistent, slots
from wspec.tile_scheduler import launch_table


def get(tables: Any, stream: int, grid: tuple[int, int, int], args: Sequence[Any]) -> Any:
    """In place of `persistent.Tables.get`: what it would give on a card of 132 SMs."""
    values = {index: slots.reader([slot])(args)[0] for index, slot in tables.slots}
    blocks, table = launch_table(tables.tiles, grid, values, 132 * tables.blocks_per_sm)
    memory = torch.from_numpy(table)
    return persistent._Entry(blocks, memory, memory.data_ptr())
