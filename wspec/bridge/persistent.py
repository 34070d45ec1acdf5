"""Launching a kernel whose blocks walk through tiles: the user's grid becomes a table of tiles.

The table is an argument the user does not see. It depends on the grid and on those scalar arguments that decide how
long tiles take. The first time such a launch occurs on a stream the table is written in the order of that stream, by a
kernel (fill_table.py) or, where no formula says what stands in it, from memory of the host. So nobody waits for it, and
its memory can be given back like any tensor's while launches still read it. Who knows how the grids of other launches
will differ says so: small tables of a row of such grids are written at once, and are one entry.

Blocks that start early read their table before they wait for the kernels in front of them. So the launch behind the
writing of a table starts when that is over. Those after it in the stream come behind that launch.
"""

from __future__ import annotations

import copy
import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from wspec.bridge import cuda
from wspec.bridge.cache import Group, Result
from wspec.bridge.fill_table import Filler, Grids, words
from wspec.bridge.frontend import KernelSource
from wspec.bridge.launch import LaunchableKernel, Run, load_plain, multiprocessors
from wspec.bridge.launcher import EARLY, keep
from wspec.bridge.overlap_guard import Tell, guarded, silent
from wspec.bridge.promoted import Load, promoted, with_descriptors
from wspec.bridge.recording import recording
from wspec.bridge.row_guard import with_rows_apart
from wspec.bridge.slots import Slot, reader, slots_of
from wspec.bridge.table_memory import Chunks, Place
from wspec.bridge.table_rows import Rows, Step, back, longest
from wspec.bridge.workspace import PER_THREAD, partials_of
from wspec.tile_scheduler import (
    PARTIALS,
    TABLE,
    Direction,
    Division,
    Order,
    Sampler,
    TileLoop,
    blocks_of,
    coarse,
    how_divided,
    launch_table,
    partials_words,
)

KEPT_BYTES = 128 << 20
"""Of tables that a kernel keeps: with four heads those of all lengths from 16,384 to 131,072 take 79 to 111 MiB."""
MOST = 4096  # launches whose table is remembered
_PART = 4  # of what is kept, at most so much is written at once
_STEPS = 16  # that are remembered
_ALIGNED = 32  # int32
Key = tuple[int, int, tuple[int, int, int], tuple[int, ...]]  # device, stream, grid, the arguments that decide
Kind = tuple[Any, ...]  # device, stream, the first grid of a row, how many there are, the step, and `_what`
CLEARING = 5000.0  # cycles that a graph takes to clear memory for sums: 1.5 to 3.7 us (docs/results/pointers.md)


def load_kernel(
    source: KernelSource, result: Result, group: Group, tell: Tell = silent, fewer: Load | None = None
) -> Any:
    """The compiled kernel of a result: ours from the cache's files, or what Triton makes of the plain kernel.

    Ours is launched where the arguments do not overlap that must not, nor the rows. `tell` takes a remark on where they
    do. `fewer` makes what is launched where a launch can have descriptors only of tiles that go to products.
    """
    if not result.is_ours:
        return load_plain(source)
    longer = with_descriptors(source, result.promotion)
    if result.tile_loop is None:
        kernel: Any = LaunchableKernel(longer.ast, group, result.blocks_per_sm)
    else:
        kernel = PersistentKernel(longer, group, result.tile_loop, result.blocks_per_sm)
    kernel = with_rows_apart(kernel, source, longer, result.rows, tell)
    return guarded(promoted(kernel, source, result.promotion, tell, fewer), source, result.disjoint, tell)


class PersistentKernel(LaunchableKernel):
    """A compiled kernel that is launched on the grid its user gives, and runs on as many blocks as fit."""

    def __init__(self, source: KernelSource, group: Group, tiles: TileLoop, blocks_per_sm: int) -> None:
        ast = copy.copy(source.ast)
        ast.signature = {**source.ast.signature, TABLE: "*i32"}
        if tiles.stream_k:
            ast.signature[PARTIALS] = "*i32"
        super().__init__(ast, group, blocks_per_sm)
        self.tables = Tables(tiles, slots_of(source.ast.signature), blocks_per_sm)

    def _init_handles(self) -> None:
        first = self.module is None
        super()._init_handles()
        if first:
            self._run = _over_tiles(self._run, _once(self._behind, self._starts_early), self.tables)


def _once(behind: Run, starts_early: Callable[[int], bool]) -> Run:
    """Launches behind all that is in the stream; made again, that launch starts as ones like it do."""

    def run(blocks: int, *args: Any) -> None:
        behind(blocks, *args)
        if recording.count and (now := recording.now) is not None and now.contents:  # else Triton has launched
            now.contents[EARLY] = starts_early(blocks)

    return run


def _over_tiles(launch: Run, first: Run, tables: Tables) -> Run:
    """On the blocks and with the table of a grid, and memory for sums on their way where tiles may be divided; `first`
    launches behind the writing of a table."""
    nothing = (0, 0) if tables.exact else (0,)

    def run(grid_x: int, grid_y: int, grid_z: int, *args: Any) -> None:
        if grid_x * grid_y * grid_z <= 0:
            launch(grid_x, grid_y, grid_z, *args, *nothing)
            return
        found = tables.get(args[0], (grid_x, grid_y, grid_z), args[_BEFORE:])
        entry, blocks, hidden, kept = tables.given(found, args[0])
        if recording.count:
            recording.rely(entry)
            recording.has_table(tables)
            recording.keep(*kept)
        (launch if entry.settled else first)(blocks, 1, 1, *args, *hidden)
        entry.settled = True

    return run


_BEFORE = 6  # stream, function, packed metadata, launch metadata, and the hooks before and after


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Entry:
    """Tables that were written at once: of a grid, or of a row of grids that are a step apart."""

    memory: torch.Tensor  # in which they lie
    address: int  # of the first
    apart: int = 0  # bytes from one to the next
    settled: bool = False  # a launch stands behind the writing of them, and did not start before that was over
    ref: weakref.ref[_Entry] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.ref = weakref.ref(self)


class Table(NamedTuple):
    """Of one launch."""

    entry: weakref.ref[_Entry]
    blocks: int
    address: int
    words: int = 0  # of memory for sums that it needs; 0: no tile is divided
    whole: tuple[Key, Direction] | None = None  # if tiles are divided: of which launch, and how whole ones would go


Found = tuple[_Entry, Table]


class Tables:
    """The tables of one kernel; several threads may launch it."""

    def __init__(self, tiles: TileLoop, slots: Sequence[Slot | None], blocks_per_sm: int) -> None:
        self.tiles = tiles
        self.sampler = Sampler(tiles.cost, tiles.raster.value)
        self.slots = [(index, slots[index]) for index in self.sampler.parameters]
        self.blocks_per_sm = blocks_per_sm
        self.exact = bool(tiles.stream_k)  # how tiles are divided depends on each number, how they are ordered does not
        self.read = reader([slot for _, slot in self.slots], nearly=not (self.exact or tiles.raster))
        self.known: dict[Key, Table] = {}
        self.entries: dict[Kind, _Entry] = {}  # of which many launches have the same
        self.rows = Rows()  # of those the ones that have tables of several grids
        self.steps: dict[Step, None] = {}  # of rows that were written
        self.memory: Chunks[Kind] = Chunks()
        self.captured: list[Any] = []  # what CUDA graphs read
        self.lock = threading.Lock()

    def get(self, stream: int, grid: tuple[int, int, int], args: Sequence[Any]) -> Found:
        """The blocks to launch and the table, for a launch in this stream of the current device.

        Who holds the entry until the launch is made keeps the table's memory.
        """
        key = torch.cuda.current_device(), stream, grid, self.read(args)
        if torch.cuda.is_current_stream_capturing():
            return self._captured(key)
        table = self.known.get(key)
        entry = table.entry() if table is not None else None
        if table is not None and entry is not None:
            return entry, table
        with recording.aside():
            found = self.of(key)
        if stream != PER_THREAD:
            keep(self.known, key, found[1], MOST)
        return found

    def given(self, found: Found, stream: int) -> tuple[_Entry, int, tuple[int, ...], Sequence[Any]]:
        """How many blocks a launch in the stream has, its arguments that nobody gives, and the memory they are in.

        Before these the entry, or another one where there is no memory for sums.
        """
        entry, table = found
        if table.whole is not None:
            memory = partials_of(stream, table.words)
            if memory is not None:
                return entry, table.blocks, (table.address, memory.data_ptr()), (memory,)
            entry, table = self._undivided(*table.whole)
        return entry, table.blocks, ((table.address, 0) if self.exact else (table.address,)), ()

    def launched(
        self, place: Place, grid: tuple[int, int, int], values: tuple[int, ...], step: Step
    ) -> tuple[_Entry, int, tuple[int, ...], Sequence[Any]]:
        """What `given` says of a launch like none before, where no graph is captured.

        step: by which grids of other launches are expected to differ: tables of many are written at once.
        """
        device, stream = place
        direction = self.sampler.direction(grid, values)
        if not self.exact and direction is not None:
            found = self.rows.find(place, grid, step, direction)
            if found is not None:
                entry, at = found
                blocks = blocks_of(self.tiles, grid, multiprocessors(device) * self.blocks_per_sm)
                return entry, blocks, (entry.address + entry.apart * at,), ()
        return self.given(self._of((device, stream, grid, values), step, direction), stream)

    def of(self, key: Key, step: Step | None = None) -> Found:
        """What `get` gives for a launch like none before, where no graph is captured; step: as in `launched`."""
        return self._of(key, step, self.sampler.direction(key[2], key[3]))

    def _of(self, key: Key, step: Step | None, direction: Direction | None) -> Found:
        device, stream, grid, values = key
        slots = multiprocessors(device) * self.blocks_per_sm
        if stream == PER_THREAD:  # which names another stream in each thread
            with in_stream(device, stream):
                return self._of_its_own(key, direction, slots)
        how = how_divided(self.tiles, grid, self.sampler.of_cost(values), slots) if self.exact else None
        in_row = direction is not None and direction[2] is None  # the host makes one, or grids differ in their numbers
        what, step = _what(key, direction, how), step if in_row else None
        found = None if step is None else self.rows.find((device, stream), grid, step, what)
        if found is None and (one := self.entries.get((device, stream, grid, 1, None, what))) is not None:
            found = one, 0
        if found is None:
            with self.lock:
                found = self._there(key, what) or self._made(key, step, direction, how, what, slots)
        entry, at = found
        return entry, self._table(key, entry, at, direction, how, slots)

    def _there(self, key: Key, what: Any) -> tuple[_Entry, int] | None:
        """A table that somebody had written, by itself or in a row, and how many are before it."""
        device, stream, grid, _ = key
        entry = self.entries.get((device, stream, grid, 1, None, what))
        return (entry, 0) if entry is not None else self.rows.find_any((device, stream), grid, self.steps, what)

    def _made(
        self, key: Key, step: Step | None, direction: Direction | None, how: Division | None, what: Any, slots: int
    ) -> tuple[_Entry, int]:
        """A table that nobody has yet, with those of a row where that is expected to be of use."""
        device, stream, grid, values = key
        alone = device, stream, grid, 1, None, what
        if direction is None:
            return self._uploaded(alone, values, slots), 0
        if step is not None:
            found = self._row(key, step, direction, how, what, slots)
            if found is not None:
                return found
        return self._written(alone, direction, how, slots), 0

    def _row(
        self, key: Key, step: Step, direction: Direction, how: Division | None, what: Any, slots: int
    ) -> tuple[_Entry, int] | None:
        """With its table those of the row, and how many are before it; None where it is to be alone, or there is no
        memory for so many."""
        device, stream, grid, values = key
        axis, size = step

        def length(most: int) -> int:
            tiles = grid[0] * grid[1] * grid[2]
            last = tiles * most // (grid[axis] // size * self.tiles.coarsening)
            entries = last + (2 if how is None else 4) * min(slots, last)
            return longest(entries, tiles * self.sampler.mean(grid, values), KEPT_BYTES // _PART)

        found = self.rows.row((device, stream), grid, step, what, length)
        if found is None:
            return None
        octave, nth, many, at = found
        try:
            entry = self._written((device, stream, back(grid, step, at), many, step, what), direction, how, slots)
        except torch.cuda.OutOfMemoryError:
            self.rows.one_by_one(octave)
            return None
        octave.rows[nth] = entry.ref
        if step not in self.steps:
            keep(self.steps, step, None, _STEPS)
        return entry, at

    def _table(
        self, key: Key, entry: _Entry, at: int, direction: Direction | None, how: Division | None, slots: int
    ) -> Table:
        here, address = entry.ref, entry.address + entry.apart * at
        if how is None:
            return Table(here, blocks_of(self.tiles, key[2], slots), address)
        assert self.tiles.stream_k.value is not None and direction is not None
        return Table(here, how.blocks, address, partials_words(self.tiles.stream_k.value, how.blocks), (key, direction))

    def _written(self, kind: Kind, direction: Direction, how: Division | None, slots: int) -> _Entry:
        """By the card, in memory that it shares with others."""
        device, stream, first, count, step, _ = kind
        tiles, (axis, size) = self.tiles, step or (0, 0)
        by = size * (axis == 0), size * (axis == 1), size * (axis == 2)
        x, y, z = last = first[0] + (count - 1) * by[0], first[1] + (count - 1) * by[1], first[2] + (count - 1) * by[2]
        order = self._order(last, direction, slots)
        apart = words(order) if how is None else replace(how, tiles=x * y * z).words
        apart += -apart % _ALIGNED
        memory, address = self.memory.take(kind, (device, stream), 4 * apart * count, _allocate)
        row = Grids(first, by, count, apart)
        if how is None:
            filler(device).fill(address, order, row, slots, tiles.coarsening, tiles.axis, stream)
        else:
            filler(device).divide(address, how, row, stream, direction[2])
        return self._kept(kind, _Entry(memory, address, 4 * apart))

    def _kept(self, kind: Kind, entry: _Entry) -> _Entry:
        """Its tables are the last thing in the stream."""
        mark(kind[0], kind[1]).record(kind[1])
        self.entries[kind] = entry
        if self.memory.bytes > KEPT_BYTES:
            for old in self.memory.more_than(KEPT_BYTES):
                self.entries.pop(old, None)
        return entry

    def _undivided(self, key: Key, direction: Direction) -> Found:
        """Of the same launch, with whole tiles: there is no memory for sums now."""
        slots = multiprocessors(key[0]) * self.blocks_per_sm
        if torch.cuda.is_current_stream_capturing():
            return self._of_its_own(key, direction, slots)
        with self.lock, recording.aside():
            entry, at = self._there(key, direction) or self._made(key, None, direction, None, direction, slots)
        return entry, self._table(key, entry, at, direction, None, slots)

    def _uploaded(self, kind: Kind, values: Sequence[int], slots: int) -> _Entry:
        device, stream, grid, *_ = kind
        with in_stream(device, stream):
            memory = _upload(device, self._by_host(grid, values, slots))[1]
        self.memory.add(kind, memory)
        return self._kept(kind, _Entry(memory, memory.data_ptr()))

    def _by_host(self, grid: tuple[int, int, int], values: Sequence[int], slots: int) -> Any:
        """By the host, where no formula says what stands in it."""
        return launch_table(self.tiles, grid, dict(zip(self.sampler.parameters, values, strict=True)), slots)[1]

    def _order(self, grid: tuple[int, int, int], direction: Direction, slots: int) -> Order:
        """In which the card writes the tiles of a launch."""
        tiles = self.tiles
        sizes, blocks = coarse(grid, tiles.coarsening, tiles.axis), blocks_of(tiles, grid, slots)
        along, rising, numbering = direction
        return Order(sizes, blocks, along, rising, self.blocks_per_sm > 1, numbering)

    def _of_its_own(self, key: Key, direction: Direction | None, slots: int) -> Found:
        """In memory of its own of torch's current stream, for one launch."""
        device, stream, grid, values = key
        tiles = self.tiles
        if direction is None:
            pinned, memory = _upload(device, self._by_host(grid, values, slots))
            if torch.cuda.is_current_stream_capturing():
                self.captured.append(pinned)  # the graph copies it whenever it runs
        else:
            order = self._order(grid, direction, slots)
            memory = torch.empty(words(order), dtype=torch.int32, device=torch.device("cuda", device))
            row = Grids(grid, (0, 0, 0), 1, 0)
            filler(device).fill(memory.data_ptr(), order, row, slots, tiles.coarsening, tiles.axis, stream)
        entry = _Entry(memory, memory.data_ptr())
        return entry, self._table(key, entry, 0, direction, None, slots)

    def _captured(self, key: Key) -> Found:
        """For a launch that a graph will make: one that is there already and stays, or one that the graph writes.

        Tiles are divided where that pays though the graph clears memory for their sums.
        """
        device, _, grid, values = key
        slots = multiprocessors(device) * self.blocks_per_sm
        direction = self.sampler.direction(grid, values)
        how = how_divided(self.tiles, grid, self.sampler.of_cost(values), slots, more=CLEARING) if self.exact else None
        what = _what(key, direction, how)
        with self.lock:
            streams = {kind[1] for kind in self.entries if kind[0] == device}
            known = [(other, self._there((device, other, grid, values), what)) for other in streams]
        for other, found in known:
            if found is not None and mark(device, other).is_over():
                entry = replace(found[0], settled=True)
                self.captured.append(entry.memory)
                return entry, self._table(key, entry, found[1], direction, how, slots)
        return self._of_its_own(key, direction, slots)


def _what(key: Key, direction: Direction | None, how: Division | None) -> Any:
    """What a table depends on beside the grid: how tiles are divided, or in which order they go, or the numbers."""
    if how is not None:
        return how.trips, how.shortest, "divided", direction and direction[2]
    return direction or (key[3],)


def _allocate(place: Place, size: int) -> torch.Tensor:
    """Bytes of a device, in the order of a stream."""
    device, stream = place
    with in_stream(device, stream):
        return torch.empty(size // 4, dtype=torch.int32, device=torch.device("cuda", device))


def _upload(device: int, table: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """On the device, in the order of the current stream; and the memory of the host that it is copied from."""
    pinned = torch.from_numpy(table).pin_memory()
    return pinned, pinned.to(torch.device("cuda", device), non_blocking=True)


def in_stream(device: int, stream: int) -> AbstractContextManager[Any]:
    """With the stream torch's current one, to which memory belongs; nothing is done where it is."""
    if torch.cuda.current_stream(device).cuda_stream == stream:
        return nullcontext()
    external: Any = torch.cuda.ExternalStream
    return torch.cuda.stream(external(stream, device))


@functools.cache
def filler(device: int) -> Filler:
    """What writes tables on the device."""
    return Filler()


@functools.cache
def mark(device: int, stream: int) -> cuda.Mark:
    """The place in a stream behind the last table that was written there; the device is the current one."""
    return cuda.Mark()
