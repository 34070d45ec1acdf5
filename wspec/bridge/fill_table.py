"""The table of tiles of a launch, written on the card: a new size costs a launch of this kernel, and no copy."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies of jit functions are read by Triton, which has no types to give their arguments.

from __future__ import annotations

import threading
from typing import Any

import torch
import triton
import triton.language as tl

from wspec.bridge.everywhere import OWN
from wspec.bridge.launcher import quick
from wspec.tile_scheduler import Order

ENTRY = 8  # int32 of an entry and of the header
_BLOCK = 256  # entries of a program
_NUMBERS = [
    "rows", "tiles", "blocks", "length", "width", "size", "windows", "gx", "gy", "gz", "along", "second", "third",
    "coarsening", "axis", "ordered", "rising",
]  # fmt: skip


@triton.jit(do_not_specialize=_NUMBERS)
def fill_table(
    table_ptr, rows, tiles, blocks, length, width, size, windows, gx, gy, gz, along, second, third, coarsening, axis,
    ordered, rising, BLOCK: tl.constexpr,
):  # fmt: skip
    """`tile_scheduler.ordered_table`: a header, then `rows` entries for each block, one of them behind its last tile.

    length: of the axis `along` which tiles are numbered first; width: of the `second`; size: of a window; windows: how
    many there are. ordered, rising: 0 or 1. Entries are (x, y, z, n, 0, 0, -1, -1).
    """
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < rows * blocks
    block = entry // rows
    row = entry % rows
    full = tiles // blocks
    column = tl.where(ordered * (row % 2) == 1, blocks - 1 - block, block)
    last_column = tl.where(ordered * (full % 2) == 1, blocks - 1 - block, block)
    turn = row * blocks + column
    is_tile = inside & (turn < tiles)
    count = full + (last_column < tiles % blocks).to(tl.int32)
    if ordered == 1:
        window = tl.minimum(turn // size, windows - 1)
        start = window * size
        end = tl.where(window == windows - 1, tiles, start + size)
        within = tl.where(rising == 1, end - 1 - turn, turn - start)
        first = start // length
        skipped = start % length
        part = end % length
        lines = end // length - first
        low = tl.minimum(skipped, part)
        high = tl.maximum(skipped, part)
        more = lines + (part > skipped).to(tl.int32) - (part < skipped).to(tl.int32)
        before_low = low * lines
        before_high = before_low + (high - low) * more
        one = tl.maximum(lines, 1)
        at = tl.where(
            within < before_low,
            within // one,
            tl.where(
                within < before_high,
                low + (within - before_low) // tl.maximum(more, 1),
                high + (within - before_high) // one,
            ),
        )
        line = (
            first + (at < skipped).to(tl.int32) + within - at * lines - tl.minimum(at, part) + tl.minimum(at, skipped)
        )
    else:
        at = turn % length
        line = turn // length
    after = line // width
    line = line % width
    x = tl.where(along == 0, at, tl.where(second == 0, line, after))
    y = tl.where(along == 1, at, tl.where(second == 1, line, after))
    z = tl.where(along == 2, at, tl.where(second == 2, line, after))
    x = x * tl.where(axis == 0, coarsening, 1)
    y = y * tl.where(axis == 1, coarsening, 1)
    z = z * tl.where(axis == 2, coarsening, 1)
    nothing = entry * 0
    entry_ptr = table_ptr + (entry + 1) * 8
    tl.store(entry_ptr, tl.where(is_tile, x, 0), mask=inside)
    tl.store(entry_ptr + 1, tl.where(is_tile, y, 0), mask=inside)
    tl.store(entry_ptr + 2, tl.where(is_tile, z, 0), mask=inside)
    tl.store(entry_ptr + 3, tl.where(row == 0, count, 0), mask=inside)
    tl.store(entry_ptr + 4, nothing, mask=inside)
    tl.store(entry_ptr + 5, nothing, mask=inside)
    tl.store(entry_ptr + 6, nothing - 1, mask=inside)
    tl.store(entry_ptr + 7, nothing - 1, mask=inside)
    if tl.program_id(0) == 0:
        tl.store(table_ptr, rows)
        tl.store(table_ptr + 1, gx)
        tl.store(table_ptr + 2, gy)
        tl.store(table_ptr + 3, gz)
        for unused in tl.static_range(4, 8):
            tl.store(table_ptr + unused, rows * 0)


setattr(fill_table, OWN, True)


def numbers(order: Order, grid: tuple[int, int, int], coarsening: int, axis: int) -> tuple[int, ...]:
    """What `fill_table` takes for an order, in turn."""
    (along, second, third), sizes, blocks = order.dimensions, order.sizes, order.blocks
    tiles = sizes[0] * sizes[1] * sizes[2]
    size, windows = order.window
    return (
        -(-tiles // blocks) + 1, tiles, blocks, sizes[along], sizes[second], size, windows, *grid, along, second, third,
        coarsening, axis, int(order.axis is not None), int(order.rising),
    )  # fmt: skip


def words(order: Order) -> int:
    """int32 of the table."""
    return ENTRY * (1 + (order.rows + 1) * order.blocks)


def programs(order: Order) -> int:
    """Programs of `fill_table` that write it."""
    return -(-(order.rows + 1) * order.blocks // _BLOCK)


class Filler:
    """Writes tables on one device, on a stream."""

    def __init__(self) -> None:
        self._loaded: tuple[Any, Any] | None = None
        self._lock = threading.Lock()

    def fill(
        self, address: int, order: Order, grid: tuple[int, int, int], coarsening: int, axis: int, stream: int
    ) -> None:
        """`words` int32 at an address of the current device, in the order of the stream."""
        if self._loaded is None:
            with self._lock:
                self._loaded = _loaded()
        kernel, run = self._loaded
        given = numbers(order, grid, coarsening, axis)
        run(
            -(-given[0] * order.blocks // _BLOCK), 1, 1, stream, kernel.function, kernel.packed_metadata,
            None, None, None, address, *given, _BLOCK,
        )  # fmt: skip


def _loaded() -> tuple[Any, Any]:
    """The kernel on the current device, and what launches it."""
    constants = {"BLOCK": _BLOCK}
    kernel: Any = fill_table.warmup(torch.int32, *[2] * len(_NUMBERS), grid=(1,), **constants, num_warps=4)
    theirs = kernel.run
    return kernel, quick(theirs, kernel) or theirs
