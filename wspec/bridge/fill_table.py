"""The table of tiles of a launch, written on the card: a new size costs a launch of these kernels, and no copy."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies of jit functions are read by Triton, which has no types to give their arguments.

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from wspec.bridge.everywhere import OWN
from wspec.bridge.launcher import quick
from wspec.tile_scheduler import SLOTS, Division, Numbering, Order
from wspec.tile_scheduler.order import LINES, SPARED
from wspec.tile_scheduler.raster import KEPT

ENTRY = 8  # int32 of an entry and of the header
ENTRY_CYCLES = 15.0
"""In which an SM of an H200 writes an entry: 22 MiB, 726,000 entries, took 52 us on 132 SMs, 5 of them a launch
(docs/results/launches.md). Where tiles go by lines it computes about a third more."""
_BLOCK = 256  # entries of a program
_SPARED = tl.constexpr(SPARED)
_LINES = tl.constexpr(LINES)
_KEPT = tl.constexpr(KEPT)
_NUMBERS = [
    "gx", "gy", "gz", "by_x", "by_y", "by_z", "apart", "slots", "along", "second", "third", "coarsening", "axis",
    "ordered", "rising", "shared", "in_raster", "in_kept", "group", "down",
]  # fmt: skip


@triton.jit
def _before(at, start, end, length):
    """How many of the tiles from one number to another have a lower place in their lines."""
    lines = end // length - start // length
    return at * lines + tl.minimum(at, end % length) - tl.minimum(at, start % length)


@triton.jit
def _rank(number, start, end, length):
    """Of a tile among those, by their places in their lines and then by the lines."""
    at = number % length
    return _before(at, start, end, length) + number // length - start // length - (at < start % length).to(tl.int32)


@triton.jit
def _ranked(rank, start, end, length):
    """The tile with that rank: its place in its line, and the line."""
    skipped = start % length
    part = end % length
    lines = end // length - start // length
    low = tl.minimum(skipped, part)
    high = tl.maximum(skipped, part)
    more = lines + (part > skipped).to(tl.int32) - (part < skipped).to(tl.int32)
    before_low = low * lines
    before_high = before_low + (high - low) * more
    is_low = rank < before_low
    is_high = rank >= before_high
    behind = tl.where(is_low, 0, tl.where(is_high, before_high, before_low))
    each = tl.maximum(tl.where(is_low | is_high, lines, more), 1)
    at = tl.where(is_low, 0, tl.where(is_high, high, low)) + (rank - behind) // each
    return at, start // length + (at < skipped).to(tl.int32) + rank - _before(at, start, end, length)


@triton.jit
def _common(one, other):
    """The greatest common divisor."""
    while other > 0:
        left = one % other
        one = other
        other = left
    return one


@triton.jit
def _in_window(turn, tiles, blocks, size, windows, length, rising, by_lines):
    """(place in its line, line) of the tile whose turn it is, where not all cost the same."""
    window = tl.minimum(turn // size, windows - 1)
    start = window * size
    end = tl.where(window == windows - 1, tiles, start + size)
    inside = turn - start
    rank = tl.where(rising == 1, end - start - 1 - inside, inside)
    number = turn
    is_first = inside < 0
    if by_lines:
        paired = window < windows - 1
        row = (inside >= blocks).to(tl.int32)  # of two
        column = inside - row * blocks
        place = tl.where((row + window) % 2 == 1, blocks - 1 - column, column)
        divisor = _common(size, length)
        cycle = length // divisor
        cycle = cycle * (1 + cycle % 2)
        moved = tl.where(divisor > 2, window // cycle, 0) % blocks
        number = start + place + moved - tl.where(place + moved >= blocks, blocks, 0)
        evened = blocks - 1 - _rank(number, start, start + blocks, length)
        is_first = paired & (row == 0)
        rank = tl.where(paired, evened, rank)
        start = tl.where(paired, start + blocks, start)
    at, line = _ranked(rank, start, end, length)
    if by_lines:
        at = tl.where(is_first, number % length, at)
        line = tl.where(is_first, number // length, line)
    return at, line


@triton.jit
def _numbered(turn, in_raster, in_kept, group, down):
    """The number of the tile whose turn it is, in raster order (`Numbering.numbers`), unless `in_raster` is 0."""
    if in_raster > 0:
        plane = turn // (in_raster * in_kept)
        inside = turn - plane * (in_raster * in_kept)
        chunk = inside // (_KEPT * in_raster)
        inside -= chunk * (_KEPT * in_raster)
        width = tl.minimum(in_kept - chunk * _KEPT, _KEPT)
        one = inside // width
        other = inside - one * width + chunk * _KEPT
        along = tl.where(down == 1, one, other)
        across = tl.where(down == 1, other, one)
        length = tl.where(down == 1, in_raster, in_kept)
        others = tl.where(down == 1, in_kept, in_raster)
        first = along - along % group
        number = plane * (in_raster * in_kept) + first * others + along - first
        turn = number + across * tl.minimum(length - first, group)
    return turn


@triton.jit
def _write_header(table_ptr, rows, gx, gy, gz):
    """In front of the entries: how many a block has, and the grid."""
    tl.store(table_ptr, rows)
    tl.store(table_ptr + 1, gx)
    tl.store(table_ptr + 2, gy)
    tl.store(table_ptr + 3, gz)
    for unused in tl.static_range(4, 8):
        tl.store(table_ptr + unused, rows * 0)


@triton.jit(do_not_specialize=_NUMBERS)
def fill_table(
    table_ptr, gx, gy, gz, by_x, by_y, by_z, apart, slots, along, second, third, coarsening, axis, ordered, rising,
    shared, in_raster, in_kept, group, down, BLOCK: tl.constexpr,
):  # fmt: skip
    """`tile_scheduler.ordered_table`: a header, then as many entries for each block, one of them behind its last tile.

    Of a row of grids that begins with one and goes by steps, as many as programs have a second number; tables are
    `apart` int32.
    slots: blocks that run at a time; along: the axis along which tiles are numbered first, then the `second`. ordered,
    rising, shared: 0 or 1. in_raster, in_kept, group, down: a `Numbering`; 0: none. Entries are
    (x, y, z, n, 0, 0, -1, -1).
    """
    gx += tl.program_id(1) * by_x
    gy += tl.program_id(1) * by_y
    gz += tl.program_id(1) * by_z
    table_ptr += tl.program_id(1) * apart
    sx = (gx + tl.where(axis == 0, coarsening, 1) - 1) // tl.where(axis == 0, coarsening, 1)
    sy = (gy + tl.where(axis == 1, coarsening, 1) - 1) // tl.where(axis == 1, coarsening, 1)
    sz = (gz + tl.where(axis == 2, coarsening, 1) - 1) // tl.where(axis == 2, coarsening, 1)
    length = tl.where(along == 0, sx, tl.where(along == 1, sy, sz))
    width = tl.where(second == 0, sx, tl.where(second == 1, sy, sz))
    tiles = sx * sy * sz
    blocks = tl.minimum(slots, tiles)
    rows = (tiles + blocks - 1) // blocks + 1
    pair = 2 * blocks
    size = pair * ((length + pair - 1) // pair)  # of a window
    missing = size - tiles % size
    spared = (missing < size) & (length.to(tl.int64) * missing <= size.to(tl.int64) * _SPARED)
    windows = tl.maximum(tiles // size + spared.to(tl.int32), 1)
    holds_lines = _LINES * length.to(tl.int64) <= blocks
    is_row = holds_lines & (shared == 0)
    by_lines = (length <= blocks) & ((shared == 1) | ~holds_lines)
    size = tl.where(is_row, blocks, size)
    windows = tl.where(is_row, 2 * windows - 1, windows)
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < rows * blocks
    block = entry // rows
    row = entry % rows
    full = tiles // blocks
    step = tl.where(is_row & (ordered == 1), (blocks + length - 1) // length, 0)
    moved = tl.where(row < windows - 1, row // 2 * step, 0) % blocks
    place = block - moved + tl.where(block < moved, blocks, 0)
    column = tl.where(ordered * (row % 2) == 1, blocks - 1 - place, place)
    last_column = tl.where(ordered * (full % 2) == 1, blocks - 1 - block, block)
    turn = row * blocks + column
    is_tile = inside & (turn < tiles)
    count = full + (last_column < tiles % blocks).to(tl.int32)
    if ordered == 1:
        at, line = _in_window(turn, tiles, blocks, size, windows, length, rising, by_lines)
    else:
        number = _numbered(turn, in_raster, in_kept, group, down)
        at = number % length
        line = number // length
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
        _write_header(table_ptr, rows, gx, gy, gz)


DIVIDED = [
    "gx", "gy", "gz", "by_x", "by_y", "by_z", "apart", "trips", "blocks", "shortest", "in_raster", "in_kept", "group",
    "down",
]  # fmt: skip
SOME = 32  # blocks whose entries a program writes


@triton.jit
def _cut(at, shared, trips, blocks, shortest):
    """The iteration, of all those of the shared tiles in a row, at which that share begins."""
    cut = (2 * at.to(tl.int64) * shared * trips + blocks) // (2 * blocks)
    inside = cut % trips
    return tl.where(inside < shortest, cut - inside, tl.where(trips - inside < shortest, cut - inside + trips, cut))


@triton.jit
def _share(block, shared, trips, blocks, shortest):
    """Of a block: its first tile and the iteration there, the part that it has of the tile behind its last, and how
    many tiles are its alone."""
    begin = _cut(block, shared, trips, blocks, shortest)
    end = _cut(block + 1, shared, trips, blocks, shortest)
    first, skipped = (begin // trips).to(tl.int32), (begin % trips).to(tl.int32)
    last, part = (end // trips).to(tl.int32), (end % trips).to(tl.int32)
    return first, skipped, part, last - first - (skipped > 0).to(tl.int32)


@triton.jit(do_not_specialize=DIVIDED)
def fill_divided(
    table_ptr, gx, gy, gz, by_x, by_y, by_z, apart, trips, blocks, shortest, in_raster, in_kept, group, down,
    SLOTS: tl.constexpr, SOME: tl.constexpr,
):  # fmt: skip
    """`tile_scheduler.divided_launch`: a header, then as many entries for each block; of a row of grids, as above.

    Each program counts for all blocks how many tiles are begun before those of its own.
    """
    gx += tl.program_id(1) * by_x
    gy += tl.program_id(1) * by_y
    gz += tl.program_id(1) * by_z
    table_ptr += tl.program_id(1) * apart
    waves = gx * gy * gz // blocks
    rows = waves + 4
    start = (waves - 1) * blocks
    shared = gx * gy * gz - start
    block = tl.program_id(0) * SOME + tl.arange(0, SOME)
    inside = block < blocks
    _, skipped, part, count = _share(block, shared, trips, blocks, shortest)
    begins, ends = (part > 0).to(tl.int32), (skipped > 0).to(tl.int32)
    other = tl.arange(0, SLOTS)
    _, _, other_part, other_count = _share(other, shared, trips, blocks, shortest)
    other_count = tl.where(other < blocks, other_count, 0)
    lower = other[None, :] < block[:, None]
    sooner = (other_part[None, :] < part[:, None]) | ((other_part[None, :] == part[:, None]) & lower)
    before = tl.sum(tl.where(sooner, other_count[None, :], 0), 1)
    divided = tl.sum(other_count, 0) + tl.sum((lower & (other_part > 0)[None, :]).to(tl.int32), 1)
    early = start // blocks
    number = early + begins + count + ends
    for row in range(0, rows):
        at = row - early - begins
        is_first = (row == early) & (begins == 1)
        is_rest = (at == count) & (ends == 1)
        is_tile = row < number
        tile = tl.where(is_first, divided, tl.where(is_rest, divided - 1, before + at))
        tile = tl.where(row < early, row * blocks + block, start + tile)
        tile = _numbered(tl.where(is_tile, tile, 0), in_raster, in_kept, group, down)
        tile = tl.where(is_tile, tile, 0)
        whole = is_tile & ~is_first & ~is_rest
        entry_ptr = table_ptr + (block * rows + row + 1) * 8
        tl.store(entry_ptr, tile % gx, mask=inside)
        tl.store(entry_ptr + 1, tile // gx % gy, mask=inside)
        tl.store(entry_ptr + 2, tile // gx // gy, mask=inside)
        tl.store(entry_ptr + 3, tl.where(row == 0, number, 0), mask=inside)
        tl.store(entry_ptr + 4, tl.where(is_rest, skipped, 0), mask=inside)
        tl.store(entry_ptr + 5, tl.where(is_first, part, tl.where(is_rest, trips, 0)), mask=inside)
        tl.store(entry_ptr + 6, tl.where(is_rest, block - 1, tl.where(whole | is_first, -1, 0)), mask=inside)
        tl.store(entry_ptr + 7, tl.where(is_first, block, tl.where(whole | is_rest, -1, 0)), mask=inside)
    if tl.program_id(0) == 0:
        _write_header(table_ptr, rows, gx, gy, gz)


for _kernel in (fill_table, fill_divided):
    setattr(_kernel, OWN, True)


class Grids(NamedTuple):
    """A row of grids whose tables are written at once."""

    first: tuple[int, int, int]
    by: tuple[int, int, int]  # from one to the next
    many: int
    apart: int  # int32 from a table to the next


def numbers(order: Order, row: Grids, slots: int, coarsening: int, axis: int) -> tuple[int, ...]:
    """What `fill_table` takes for orders like that, in turn."""
    return (
        *row.first, *row.by, row.apart, slots, *order.dimensions, coarsening, axis, int(order.axis is not None),
        int(order.rising), int(order.shared), *_numbering(order.numbering),
    )  # fmt: skip


def _numbering(found: Numbering | None) -> tuple[int, ...]:
    """What both kernels take for tiles in raster order."""
    return (0, 0, 1, 0) if found is None else (found.shared, found.kept, found.group, int(found.down))


def divided_numbers(how: Division, row: Grids, numbering: Numbering | None = None) -> tuple[int, ...]:
    """What `fill_divided` takes, in turn."""
    return *row.first, *row.by, row.apart, how.trips, how.blocks, how.shortest, *_numbering(numbering)


def divided_programs(how: Division) -> int:
    """Programs of `fill_divided` that write it."""
    return -(-how.blocks // SOME)


def words(order: Order) -> int:
    """int32 of the table."""
    return ENTRY * (1 + _entries(order))


def programs(order: Order) -> int:
    """Programs of `fill_table` that write it."""
    return -(-_entries(order) // _BLOCK)


def _entries(order: Order) -> int:
    (x, y, z), blocks = order.sizes, order.blocks
    return (-(-x * y * z // blocks) + 1) * blocks


class Filler:
    """Writes tables on one device, on a stream."""

    def __init__(self) -> None:
        self._loaded: tuple[Any, Any] | None = None
        self._divided: tuple[Any, Any] | None = None
        self._lock = threading.Lock()

    def fill(self, address: int, order: Order, row: Grids, slots: int, coarsening: int, axis: int, stream: int) -> None:
        """Tables at an address of the current device, in the order of the stream, for so many blocks at a time.

        The order is that of the last of them, which has most `words`.
        """
        if self._loaded is None:
            with self._lock:
                self._loaded = filling()
        kernel, run = self._loaded
        run(
            programs(order), row.many, 1, stream, kernel.function, kernel.packed_metadata,
            None, None, None, address, *numbers(order, row, slots, coarsening, axis), _BLOCK,
        )  # fmt: skip

    def divide(self, address: int, how: Division, row: Grids, stream: int, numbering: Numbering | None = None) -> None:
        """The same of launches whose last tiles are divided. Nothing reads what is written for grids that cannot be."""
        if self._divided is None:
            with self._lock:
                self._divided = dividing()
        kernel, run = self._divided
        run(
            divided_programs(how), row.many, 1, stream, kernel.function, kernel.packed_metadata,
            None, None, None, address, *divided_numbers(how, row, numbering), SLOTS, SOME,
        )  # fmt: skip


def filling() -> tuple[Any, Any]:
    """`fill_table` on the current device, and what launches it."""
    return _loaded(fill_table, _NUMBERS, BLOCK=_BLOCK)


def dividing() -> tuple[Any, Any]:
    """`fill_divided`, too."""
    return _loaded(fill_divided, DIVIDED, SLOTS=SLOTS, SOME=SOME)


def _loaded(function: Any, numbers: list[str], **constants: int) -> tuple[Any, Any]:
    kernel: Any = function.warmup(torch.int32, *[2] * len(numbers), grid=(1,), **constants, num_warps=4)
    theirs = kernel.run
    return kernel, quick(theirs, kernel) or theirs
