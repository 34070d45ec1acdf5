"""The table that says which tiles each block works on.

`table[k][b]` is (x, y, z, n): the k-th tile of block b; n, in row 0 only, is how many tiles the block has. Entries
after a block's last tile are zeros, and so is the last row: a block loads entry k + 1 while it works on entry k.
"""

from __future__ import annotations

import heapq
import math

import numpy as np
import numpy.typing as npt

from wspec.tile_scheduler.costs import Costs
from wspec.tile_scheduler.integers import Array

Table = npt.NDArray[np.int32]

_TICKS = 1 << 30  # what the dearest tile lasts, so that times are whole numbers and equal ones compare equal
_SHARE = 256  # a tile lasts at least this part of the dearest, so that no block's list grows without end


def make_table(costs: Costs, blocks: int, *, waves: float = 2.0) -> Table:
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
        owners = _first_free(ticks[order], blocks)
    return _filled(order, owners, costs.shape, blocks)


def _checked(costs: Costs, blocks: int) -> Costs:
    costs = np.asarray(costs, np.float32)
    if blocks < 1:
        raise ValueError(f"blocks must be positive, got {blocks}")
    if costs.ndim != 3:
        raise ValueError(f"costs must be [gz, gy, gx], got {costs.ndim} dimensions")
    if costs.size and not (costs.min() >= 0 and np.isfinite(costs.max())):
        raise ValueError("costs must be finite and not negative")
    return costs


def _ticks(flat: Costs) -> Array:
    """Costs as whole numbers, each at least the share of the dearest."""
    per_cycle = 2.0 ** (math.frexp(_TICKS)[1] - math.frexp(float(flat.max()))[1])  # which changes no digit of a cost
    ticks = np.rint(flat.astype(np.float64) * per_cycle).astype(np.int64)
    found: Array = np.maximum(ticks, ticks.max() // _SHARE)
    return found


def _windows(tiles: int, size: float) -> Array:
    """The number of each tile's window."""
    count = max(1, round(tiles / size))
    return np.arange(tiles) * count // tiles


def _first_free(ticks: Array, blocks: int) -> Array:
    """The block that each tile in turn goes to: the one free first, the lowest of several.

    The heap holds time * blocks + block, one integer that sorts as the pair does.
    """
    heap = list(range(blocks))
    replace = heapq.heapreplace
    keys = [replace(heap, heap[0] + more) for more in (ticks * blocks).tolist()]
    return np.array(keys, np.int64) % blocks


def _filled(order: Array, owners: Array, shape: tuple[int, ...], blocks: int) -> Table:
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
