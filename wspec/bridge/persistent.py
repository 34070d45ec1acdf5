"""Launching a kernel whose blocks walk through tiles: the user's grid becomes a table of tiles.

The table is an argument the user does not see. It depends on the grid and on those scalar arguments that decide how
long tiles take. The first time such a launch occurs on a stream the table is written in the order of that stream, by a
kernel (fill_table.py) or, where no formula says what stands in it, from memory of the host. So nobody waits for it, and
its memory can be given back like any tensor's while launches still read it.

Blocks that start early read their table before they wait for the kernels in front of them. So the launch behind the
writing of a table starts when that is over. Those after it in the stream come behind that launch.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from wspec.bridge import cuda
from wspec.bridge.cache import Group, Result
from wspec.bridge.fill_table import Filler, words
from wspec.bridge.frontend import KernelSource
from wspec.bridge.launch import LaunchableKernel, Run, load_plain, multiprocessors
from wspec.bridge.launcher import EARLY, keep
from wspec.bridge.overlap_guard import Tell, guarded, silent
from wspec.bridge.promoted import Load, promoted, with_descriptors
from wspec.bridge.recording import recording
from wspec.bridge.row_guard import with_rows_apart
from wspec.bridge.slots import Slot, reader, slots_of
from wspec.bridge.table_memory import MOST_BYTES, Chunks, Place
from wspec.bridge.workspace import PER_THREAD, partials_of
from wspec.tile_scheduler import (
    PARTIALS,
    TABLE,
    Order,
    Sampler,
    TileLoop,
    blocks_of,
    coarse,
    how_divided,
    launch_table,
    partials_words,
)

KEPT_BYTES = 64 << 20  # of tables that a kernel keeps
MOST = 4096  # launches whose table is remembered
AT_ONCE = 8  # tables of grids that lie beside each other
_ALIGNED = 32  # int32
Key = tuple[int, int, tuple[int, int, int], tuple[int, ...]]  # device, stream, grid, the arguments that decide
Kind = tuple[Any, ...]  # device, stream, grid, and what else of a launch its table depends on
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
            over = _over_parts if self.tables.exact else _over_tiles
            self._run = over(self._run, _once(self._behind, self._starts_early), self.tables)


def _once(behind: Run, starts_early: Callable[[int], bool]) -> Run:
    """Launches behind all that is in the stream; made again, that launch starts as ones like it do."""

    def run(blocks: int, *args: Any) -> None:
        behind(blocks, *args)
        if recording.count and (now := recording.now) is not None:
            now.contents[EARLY] = starts_early(blocks)

    return run


def _over_tiles(launch: Run, first: Run, tables: Tables) -> Run:
    """On the blocks and with the table of a grid; `first` launches behind the writing of a table."""

    def run(grid_x: int, grid_y: int, grid_z: int, *args: Any) -> None:
        if grid_x * grid_y * grid_z <= 0:
            launch(grid_x, grid_y, grid_z, *args, 0)
            return
        entry = tables.get(args[0], (grid_x, grid_y, grid_z), args[_BEFORE:])
        if recording.count:
            recording.rely(entry)
            recording.has_table(tables)
        (launch if entry.settled else first)(entry.blocks, 1, 1, *args, entry.address)
        entry.settled = True

    return run


def _over_parts(launch: Run, first: Run, tables: Tables) -> Run:
    """The same for a kernel that can divide tiles, where there is memory for sums on their way."""

    def run(grid_x: int, grid_y: int, grid_z: int, *args: Any) -> None:
        if grid_x * grid_y * grid_z <= 0:
            launch(grid_x, grid_y, grid_z, *args, 0, 0)
            return
        entry = tables.get(args[0], (grid_x, grid_y, grid_z), args[_BEFORE:])
        entry, blocks, hidden, kept = tables.given(entry, args[0])
        if recording.count:
            recording.rely(entry)
            recording.has_table(tables)
            recording.keep(*kept)
        (launch if entry.settled else first)(blocks, 1, 1, *args, *hidden)
        entry.settled = True

    return run


_BEFORE = 6  # stream, function, packed metadata, launch metadata, and the hooks before and after


@dataclass(slots=True, eq=False)
class _Divided:
    blocks: int
    memory: torch.Tensor  # in which the table lies
    address: int
    words: int  # of memory for sums that the launch needs


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Entry:
    blocks: int
    memory: torch.Tensor  # in which the table lies
    address: int
    kind: Kind = ()  # among those that are kept
    divided: _Divided | None = None  # the same launch with the last tiles divided, where that pays: then
    order: Order | None = None  # of whole tiles, of which there is no table, is what one would be made by
    settled: bool = False  # a launch stands behind the writing of the table, and did not start before that was over


@dataclass(slots=True, eq=False)
class _Group:
    """Tables of neighbouring grids, written at once."""

    memory: torch.Tensor
    address: int  # of the first
    apart: int  # int32 from one to the next
    keys: list[Kind]  # of what goes when the memory does
    first: _Entry | None = None  # of the launch that had them written


class Tables:
    """The tables of one kernel; several threads may launch it."""

    def __init__(self, tiles: TileLoop, slots: Sequence[Slot | None], blocks_per_sm: int) -> None:
        self.tiles = tiles
        self.slots = [(index, slots[index]) for index in tiles.cost.parameters]
        self._indices = tiles.cost.parameters
        self.blocks_per_sm = blocks_per_sm
        self.exact = bool(tiles.stream_k)  # how tiles are divided depends on each number, how they are ordered does not
        self.read = reader([slot for _, slot in self.slots], nearly=not self.exact)
        self.sampler = Sampler(tiles.cost)
        self.kinds: dict[Key, Kind] = {}
        self.entries: dict[Kind, _Entry] = {}  # of which many launches have the same
        self.groups: dict[Kind, _Group] = {}
        self.memory: Chunks[Kind] = Chunks()
        self.captured: list[Any] = []  # what CUDA graphs read
        self.lock = threading.Lock()

    def get(self, stream: int, grid: tuple[int, int, int], args: Sequence[Any]) -> _Entry:
        """The blocks to launch and the table, for a launch in this stream of the current device.

        Who holds the entry until the launch is made keeps the table's memory.
        """
        key = torch.cuda.current_device(), stream, grid, self.read(args)
        if torch.cuda.is_current_stream_capturing():
            return self._captured(key)
        kind = self.kinds.get(key)
        entry = self.entries.get(kind) if kind is not None else None
        if entry is None:
            with recording.aside():
                entry = self._of(key)
            if entry.kind:
                keep(self.kinds, key, entry.kind, MOST)
        return entry

    def given(self, entry: _Entry, stream: int) -> tuple[_Entry, int, tuple[int, ...], Sequence[Any]]:
        """How many blocks a launch in the stream has, its arguments that nobody gives, and the memory they are in.

        Before these the entry, or another one where there is no memory for sums.
        """
        if not self.exact:
            return entry, entry.blocks, (entry.address,), ()
        divided = entry.divided
        if divided is not None:
            memory = partials_of(stream, divided.words)
            if memory is not None:
                return entry, divided.blocks, (divided.address, memory.data_ptr()), (memory,)
            entry = self._undivided(entry)
        return entry, entry.blocks, (entry.address, 0), ()

    def of(self, key: Key) -> _Entry:
        """What `get` gives for a launch like none before, where no graph is captured, and others of its kind are
        expected: where tables are small, those of neighbours are written with it."""
        return self._of(key, AT_ONCE)

    def _of(self, key: Key, at_once: int = 1) -> _Entry:
        device, stream, grid, values = key
        slots, named = multiprocessors(device) * self.blocks_per_sm, self._named(values)
        order, tiles = None, self.tiles
        direction = self.sampler.direction(grid, named)
        if direction is not None:
            x, y, z = sizes = coarse(grid, tiles.coarsening, tiles.axis)
            count = x * y * z
            order = Order(sizes, count if count < slots else slots, *direction)
        if stream == PER_THREAD:  # which names another stream in each thread
            with in_stream(device, stream):
                return self._of_its_own(key, order, named, slots)
        kind = (*key, "divided") if self.exact else _kind(key, order)
        entry = self.entries.get(kind)
        if entry is None:
            with self.lock:
                entry = self.entries.get(kind) or self._new(kind, order, named, slots, at_once)
        return entry

    def _new(self, kind: Kind, order: Order | None, named: Mapping[int, int], slots: int, at_once: int) -> _Entry:
        grid = kind[2]
        if order is None:
            entry = self._uploaded(kind, *launch_table(self.tiles, grid, named, slots))
        elif at_once > 1 and not self.exact and 4 * words(order) * at_once <= MOST_BYTES:
            return self._beside_others(kind, order, slots, at_once)
        else:
            entry = (self._divided(kind, order, named, slots) if self.exact else None) or self._written(kind, order)
        return self._kept(kind, entry)

    def _kept(self, kind: Kind, entry: _Entry) -> _Entry:
        """Its table is the last thing in the stream."""
        mark(kind[0], kind[1]).record(kind[1])
        self.entries[kind] = entry
        if self.memory.bytes > KEPT_BYTES:
            for old in self.memory.more_than(KEPT_BYTES):
                self.entries.pop(old, None)
                self.groups.pop(old, None)
        return entry

    def _beside_others(self, kind: Kind, order: Order, slots: int, count: int) -> _Entry:
        """With tables of `count` grids that differ on the first axis only: lengths that come one after the other."""
        device, stream, (x, y, z), _, axis, rising = kind
        begin = x - x % count or 1
        key = device, stream, begin, y, z, axis, rising
        group = self.groups.get(key)
        new = group is None
        if group is None:
            group = self.groups[key] = self._group(key, slots, x - x % count + count - begin)
        entry = _Entry(order.blocks, group.memory, group.address + 4 * group.apart * (x - begin), kind)
        group.keys.append(kind)
        if new:
            group.first = entry
            return self._kept(kind, entry)
        entry.settled = group.first is not None and group.first.settled
        self.entries[kind] = entry
        return entry

    def _group(self, key: Kind, slots: int, count: int) -> _Group:
        device, stream, x, y, z, axis, rising = key
        tiles = self.tiles
        a, b, c = sizes = coarse((x + count - 1, y, z), tiles.coarsening, tiles.axis)
        largest = Order(sizes, min(slots, a * b * c), axis, rising)
        apart = words(largest)
        apart += -apart % _ALIGNED
        memory, address, keys = self.memory.take(key, (device, stream), 4 * apart * count, _allocate)
        several = count, apart, slots
        filler(device).fill(address, largest, (x, y, z), tiles.coarsening, tiles.axis, stream, several)
        return _Group(memory, address, apart, keys)

    def _undivided(self, entry: _Entry) -> _Entry:
        """Of the same launch, with whole tiles: there is no memory for sums now."""
        kind, order = (*entry.kind, "whole"), entry.order
        assert order is not None
        if torch.cuda.is_current_stream_capturing():
            return self._of_its_own(entry.kind[:4], order, {}, 0)
        with self.lock, recording.aside():
            return self.entries.get(kind) or self._kept(kind, self._written(kind, order))

    def _divided(self, kind: Kind, order: Order, values: Mapping[int, int], slots: int) -> _Entry | None:
        """The launch with the last tiles divided, if that pays."""
        device, stream, grid, *_ = kind
        found, how = how_divided(self.tiles, grid, values, slots), self.tiles.stream_k.value
        if found is None or how is None:
            return None
        memory, address, _ = self.memory.take(kind, (device, stream), 4 * found.words, _allocate)
        filler(device).divide(address, found, grid, stream)
        divided = _Divided(found.blocks, memory, address, partials_words(how, found.blocks))
        return _Entry(order.blocks, memory, 0, kind, divided, order)

    def _named(self, values: tuple[int, ...]) -> dict[int, int]:
        """By the arguments' positions in the compiled function."""
        return dict(zip(self._indices, values))  # noqa: B905  # every call counts

    def _written(self, kind: Kind, order: Order) -> _Entry:
        """By the card, in memory that it shares with others."""
        device, stream, grid, *_ = kind
        memory, address, _ = self.memory.take(kind, (device, stream), 4 * words(order), _allocate)
        filler(device).fill(address, order, grid, self.tiles.coarsening, self.tiles.axis, stream)
        return _Entry(order.blocks, memory, address, kind)

    def _uploaded(self, kind: Kind, blocks: int, table: Any) -> _Entry:
        device, stream, *_ = kind
        with in_stream(device, stream):
            memory = _upload(device, table)[1]
        self.memory.add(kind, memory)
        return _Entry(blocks, memory, memory.data_ptr(), kind)

    def _of_its_own(self, key: Key, order: Order | None, values: Mapping[int, int], slots: int) -> _Entry:
        """In memory of its own of torch's current stream, for one launch."""
        device, stream, grid, _ = key
        tiles = self.tiles
        blocks = blocks_of(tiles, grid, slots)
        if order is None:
            pinned, memory = _upload(device, launch_table(tiles, grid, values, slots)[1])
            if torch.cuda.is_current_stream_capturing():
                self.captured.append(pinned)  # the graph copies it whenever it runs
            return _Entry(blocks, memory, memory.data_ptr())
        memory = torch.empty(words(order), dtype=torch.int32, device=torch.device("cuda", device))
        filler(device).fill(memory.data_ptr(), order, grid, tiles.coarsening, tiles.axis, stream)
        return _Entry(blocks, memory, memory.data_ptr())

    def _captured(self, key: Key) -> _Entry:
        """For a launch that a graph will make: one that is there already and stays, or one that the graph writes."""
        device, _, grid, values = key
        slots, named = multiprocessors(device) * self.blocks_per_sm, self._named(values)
        blocks = blocks_of(self.tiles, grid, slots)
        order = self.sampler.order(grid, named, blocks, self.tiles.coarsening, self.tiles.axis)
        with self.lock:
            streams = {other[1] for other in self.entries if other[0] == device}
            keys = [(device, other, grid, values) for other in streams]
            kinds = [kind for one in keys for kind in (_kind(one, order), (*one, "divided"))]
            known = [(kind[1], self.entries[kind]) for kind in kinds if kind in self.entries]
        for other, entry in known:
            if mark(device, other).is_over() and (entry.divided is None or self._pays_in_graph(key)):
                self.captured.append(entry.memory)
                return replace(entry, settled=True)
        return self._of_its_own(key, order, named, slots)

    def _pays_in_graph(self, key: Key) -> bool:
        """To divide tiles, though the graph clears memory for their sums."""
        device, _, grid, values = key
        slots = multiprocessors(device) * self.blocks_per_sm
        return how_divided(self.tiles, grid, self._named(values), slots, more=CLEARING) is not None


def _kind(key: Key, order: Order | None) -> Kind:
    """What a table of whole tiles depends on: on the values that decide by the order alone, if there is one."""
    device, stream, grid, values = key
    return (device, stream, grid, order.blocks, order.axis, order.rising) if order else (device, stream, grid, values)


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
