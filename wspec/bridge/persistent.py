"""Launching a kernel whose blocks walk through tiles: the user's grid becomes a table of tiles.

The table is an argument the user does not see. It depends on the grid and on those scalar arguments that decide how
long tiles take. The first time such a launch occurs on a stream the table is written in the order of that stream, by a
kernel (fill_table.py) or, where no formula says what stands in it, from memory of the host. So nobody waits for it, and
its memory can be given back like any tensor's while launches still read it.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from wspec.bridge import cuda
from wspec.bridge.cache import Group, Result
from wspec.bridge.fill_table import Filler, words
from wspec.bridge.frontend import KernelSource
from wspec.bridge.launch import LaunchableKernel, load_plain
from wspec.bridge.overlap_guard import Tell, guarded, silent
from wspec.bridge.promoted import promoted, with_descriptors
from wspec.bridge.recording import recording
from wspec.bridge.slots import Slot, slots_of, value_of
from wspec.bridge.workspace import PER_THREAD, partials_of
from wspec.tile_scheduler import (
    PARTIALS,
    TABLE,
    Sampler,
    TileLoop,
    blocks_of,
    divided_launch,
    launch_table,
    partials_words,
)

KEPT_BYTES = 64 << 20  # of tables that a kernel keeps

Run = Callable[..., None]


def load_kernel(source: KernelSource, result: Result, group: Group, tell: Tell = silent) -> Any:
    """The compiled kernel of a result: ours from the cache's files, or what Triton makes of the plain kernel.

    Ours is launched where the arguments do not overlap that must not. `tell` takes a remark on where they do.
    """
    if not result.specialized:
        return load_plain(source)
    longer = with_descriptors(source, result.promotion)
    if result.tile_loop is None:
        kernel: Any = LaunchableKernel(longer.ast, group, result.blocks_per_sm)
    else:
        kernel = PersistentKernel(longer, group, result.tile_loop, result.blocks_per_sm)
    return guarded(promoted(kernel, source, result.promotion, tell), source, result.disjoint, tell)


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
            divides = self.tables.tiles.stream_k
            self._run = (_over_parts if divides else _over_tiles)(self._run, self.tables)


def _over_tiles(launch: Run, tables: Tables) -> Run:
    def run(grid_x: int, grid_y: int, grid_z: int, *args: Any) -> None:
        if grid_x * grid_y * grid_z <= 0:
            launch(grid_x, grid_y, grid_z, *args, 0)
            return
        entry = tables.get(args[0], (grid_x, grid_y, grid_z), args[_BEFORE:])
        if recording.count:
            recording.keep(entry)
        launch(entry.blocks, 1, 1, *args, entry.address)

    return run


def _over_parts(launch: Run, tables: Tables) -> Run:
    """The same for a kernel that can divide tiles, where there is memory for sums on their way."""

    def run(grid_x: int, grid_y: int, grid_z: int, *args: Any) -> None:
        if grid_x * grid_y * grid_z <= 0:
            launch(grid_x, grid_y, grid_z, *args, 0, 0)
            return
        entry = tables.get(args[0], (grid_x, grid_y, grid_z), args[_BEFORE:])
        memory = partials_of(args[0], entry.divided.words) if entry.divided is not None else None
        if recording.count:
            recording.keep(entry, memory)
        if entry.divided is None or memory is None:
            launch(entry.blocks, 1, 1, *args, entry.address, 0)
        else:
            launch(entry.divided.blocks, 1, 1, *args, entry.divided.address, memory.data_ptr())

    return run


_BEFORE = 6  # stream, function, packed metadata, launch metadata, and the hooks before and after


@dataclass(slots=True)
class _Entry:
    blocks: int
    table: torch.Tensor
    divided: _Entry | None = None  # the same launch with the last tiles divided, where that pays
    words: int = 0  # of memory for sums that the launch needs
    written: Any = None  # the event behind the table's writing
    address: int = 0

    def __post_init__(self) -> None:
        self.address = self.table.data_ptr()


Key = tuple[int, int, tuple[int, int, int], tuple[int, ...]]  # device, stream, grid, the arguments that decide


class Tables:
    """The tables of one kernel; several threads may launch it."""

    def __init__(self, tiles: TileLoop, slots: Sequence[Slot | None], blocks_per_sm: int) -> None:
        self.tiles = tiles
        self.slots = [(index, slots[index]) for index in tiles.cost.parameters]
        self.blocks_per_sm = blocks_per_sm
        self.sampler = Sampler(tiles.cost)
        self.entries: OrderedDict[Key, _Entry] = OrderedDict()
        self.bytes = 0
        self.captured: list[Any] = []  # what CUDA graphs read
        self.lock = threading.Lock()

    def get(self, stream: int, grid: tuple[int, int, int], args: Sequence[Any]) -> _Entry:
        """The blocks to launch and the table, for a launch in this stream of the current device."""
        key = torch.cuda.current_device(), stream, grid, tuple([value_of(args, slot) for _, slot in self.slots])
        if torch.cuda.is_current_stream_capturing():
            return self._captured(key)
        entry = self.entries.get(key)
        if entry is None:
            entry = self._made(key)
            if stream != PER_THREAD:  # which names another stream in each thread
                self._keep(key, entry)
        return entry

    def _made(self, key: Key) -> _Entry:
        """A table that is written in the stream of the launch."""
        device, stream, grid, values = key
        named = {index: value for (index, _), value in zip(self.slots, values, strict=True)}
        slots = multiprocessors(device) * self.blocks_per_sm
        with in_stream(device, stream):
            entry = self._whole(device, stream, grid, named, slots)
            divided = self.tiles.stream_k.value
            if divided is not None and (parts := divided_launch(self.tiles, grid, named, slots)) is not None:
                table = self._upload(device, parts[1])
                entry.divided = _Entry(parts[0], table, words=partials_words(divided, parts[0]))
            event: Any = torch.cuda.Event
            entry.written = event()
            entry.written.record()
        return entry

    def _whole(
        self, device: int, stream: int, grid: tuple[int, int, int], values: Mapping[int, int], slots: int
    ) -> _Entry:
        tiles = self.tiles
        blocks = blocks_of(tiles, grid, slots)
        order = self.sampler.order(grid, values, blocks, tiles.coarsening, tiles.axis)
        if order is None:
            return _Entry(blocks, self._upload(device, launch_table(tiles, grid, values, slots)[1]))
        table = torch.empty(words(order), dtype=torch.int32, device=torch.device("cuda", device))
        filler(device).fill(table, order, grid, tiles.coarsening, tiles.axis, stream)
        return _Entry(blocks, table)

    def _upload(self, device: int, table: Any) -> torch.Tensor:
        """On the device, in the order of the current stream."""
        pinned = torch.from_numpy(table).pin_memory()
        if torch.cuda.is_current_stream_capturing():
            self.captured.append(pinned)  # the graph copies it whenever it runs
        return pinned.to(torch.device("cuda", device), non_blocking=True)

    def _keep(self, key: Key, entry: _Entry) -> None:
        with self.lock:
            self.entries[key] = entry
            self.bytes += entry.table.nbytes
            while self.bytes > KEPT_BYTES and len(self.entries) > 1:
                self.bytes -= self.entries.popitem(last=False)[1].table.nbytes

    def _captured(self, key: Key) -> _Entry:
        """For a launch that a graph will make: one that is there already and stays, or one that the graph writes."""
        device, stream, grid, values = key
        with self.lock:
            known = [
                one for (where, _, *what), one in self.entries.items() if where == device and what == [grid, values]
            ]
        for entry in known:
            if entry.written is not None and is_over(entry.written):
                self.captured.append(entry.table)
                return replace(entry, divided=None)
        named = {index: value for (index, _), value in zip(self.slots, values, strict=True)}
        return self._whole(device, stream, grid, named, multiprocessors(device) * self.blocks_per_sm)


@functools.cache
def multiprocessors(device: int) -> int:
    """SMs of the device."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


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


def is_over(event: Any) -> bool:
    """Has the card come past the event? Asked while a graph is captured, which such a question would break off."""
    with cuda.relaxed_capture() as relaxed:
        return relaxed and bool(event.query())
