"""The table that says which tiles each block works on, and what is to be expected of it.

`table[k][b]` is (x, y, z, n): the k-th tile of block b; n, in row 0 only, is how many tiles the block has. Entries
after a block's last tile are zeros, and so is the last row: a block loads entry k + 1 while it works on entry k.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Costs = npt.NDArray[np.float32]
Table = npt.NDArray[np.int32]
_Indices = npt.NDArray[np.int64]

_TICKS = 1 << 30  # what the dearest tile lasts, so that times are whole numbers and equal ones compare equal
_SHARE = 256  # a tile lasts at least this part of the dearest, so that no block's list grows without end


@dataclass(frozen=True, slots=True)
class Makespan:
    """How long the blocks are busy, in the costs' unit: with a table, and launched one block a tile, in order."""

    busiest: float  # the block that ends last
    mean: float  # over all blocks, those without tiles included
    launched: float  # the same tiles as the hardware hands them out: each to the slot that is free first

    @property
    def efficiency(self) -> float:
        """The part of the time that a block works, 0 to 1; 1 when there is nothing to do."""
        return self.mean / self.busiest if self.busiest else 1.0

    @property
    def launched_efficiency(self) -> float:
        """The same of the launch in order."""
        return self.mean / self.launched if self.launched else 1.0


def make_table(costs: Costs, blocks: int, *, waves: float = 4.0) -> Table:
    """[rows + 1, blocks, 4] for tiles that cost `costs` [gz, gy, gx], by list scheduling.

    Tiles that all cost the same go around: tile t, x fastest, to block t % blocks. Others are cut, in that order, into
    windows of about `waves * blocks` tiles, as neighbours share data in the cache; all windows are of one size, give or
    take a tile. Each window goes dearest first, every tile to the block that is free first, of several to the one with
    the lowest number. More waves balance better and share less.

    Raises ValueError for costs that are negative or not finite, and for blocks or waves that are not positive.
    """
    costs = _checked(costs, blocks)
    if not waves > 0:
        raise ValueError(f"waves must be positive, got {waves}")
    flat = costs.reshape(-1)
    if flat.size == 0 or flat.min() == flat.max():
        order = np.arange(flat.size)
        owners = order % blocks
    else:
        ticks = _ticks(flat)
        order = np.lexsort((-ticks, _windows(flat.size, waves * blocks)))
        owners = _first_free(ticks[order], blocks)[0]
    return _filled(order, owners, costs.shape, blocks)


def predicted_waves(costs: Costs, table: Table, slots: int | None = None) -> Makespan:
    """What to expect of the table, and of a launch of one block a tile with room for `slots` blocks at a time.

    `slots` is the table's number of blocks if None. Raises ValueError as `make_table` does.
    """
    blocks = table.shape[1]
    costs = _checked(costs, blocks if slots is None else slots)
    counts = table[0, :, 3]
    row, block = np.nonzero(np.arange(table.shape[0])[:, None] < counts)
    x, y, z = (table[row, block, axis] for axis in range(3))
    busy = np.bincount(block, costs[z, y, x].astype(np.float64), minlength=blocks)
    flat = costs.reshape(-1)
    launched = 0.0
    if flat.size and flat.max() > 0:
        ticks = _ticks(flat, share=0)
        launched = _first_free(ticks, blocks if slots is None else slots)[1] / _per_cycle(flat)
    return Makespan(float(busy.max()), float(busy.mean()), launched)


def _checked(costs: Costs, blocks: int) -> Costs:
    costs = np.asarray(costs, np.float32)
    if blocks < 1:
        raise ValueError(f"blocks must be positive, got {blocks}")
    if costs.ndim != 3:
        raise ValueError(f"costs must be [gz, gy, gx], got {costs.ndim} dimensions")
    if costs.size and not (costs.min() >= 0 and np.isfinite(costs.max())):
        raise ValueError("costs must be finite and not negative")
    return costs


def _per_cycle(flat: Costs) -> float:
    """Ticks in a unit of cost: a power of two, so that it changes no digit of a cost."""
    return 2.0 ** (math.frexp(_TICKS)[1] - math.frexp(float(flat.max()))[1])


def _ticks(flat: Costs, share: int = _SHARE) -> _Indices:
    """Costs as whole numbers, each at least the share of the dearest when `share` is given."""
    ticks = np.rint(flat.astype(np.float64) * _per_cycle(flat)).astype(np.int64)
    return np.maximum(ticks, ticks.max() // share) if share else ticks


def _windows(tiles: int, size: float) -> _Indices:
    """The number of each tile's window."""
    count = max(1, round(tiles / size))
    return np.arange(tiles) * count // tiles


def _first_free(ticks: _Indices, blocks: int) -> tuple[_Indices, int]:
    """(the block that each tile in turn goes to, when the last one ends): to the one free first, the lowest of several.

    The heap holds time * blocks + block, one integer that sorts as the pair does.
    """
    heap = list(range(blocks))
    replace = heapq.heapreplace
    keys = [replace(heap, heap[0] + more) for more in (ticks * blocks).tolist()]
    return np.array(keys, np.int64) % blocks, max(heap) // blocks


def _filled(order: _Indices, owners: _Indices, shape: tuple[int, ...], blocks: int) -> Table:
    """The table in which tile order[i] is the next one of block owners[i]."""
    counts = np.bincount(owners, minlength=blocks)
    assert np.bincount(order, minlength=1).max() <= 1 and counts.sum() == math.prod(shape), "a tile is not there once"
    by_block = np.argsort(owners, kind="stable")
    rows = np.arange(order.size) - np.repeat(np.cumsum(counts) - counts, counts)
    z, y, x = np.unravel_index(order[by_block], shape) if order.size else (order, order, order)
    table = np.zeros((int(counts.max()) + 1, blocks, 4), np.int32)
    table[rows, owners[by_block], :3] = np.stack((x, y, z), axis=-1)
    table[0, :, 3] = counts
    return table
