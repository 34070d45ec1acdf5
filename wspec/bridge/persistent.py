"""Launching a kernel whose blocks walk through tiles: the user's grid becomes a table of tiles.

The table is an argument the user does not see. It depends on the grid and on those scalar arguments that decide how
long tiles take, is made by the latency model the first time such a launch occurs, and stays on the device.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from wspec.bridge.cache import Group, Result
from wspec.bridge.frontend import KernelSource
from wspec.bridge.launch import LaunchableKernel, load_plain
from wspec.bridge.overlap_guard import Tell, guarded, silent
from wspec.bridge.workspace import partials_of
from wspec.tile_scheduler import PARTIALS, TABLE, TileLoop, divided_launch, launch_table, partials_words

KEPT = 256  # tables a kernel keeps on a device

Run = Callable[..., None]


def load_kernel(source: KernelSource, result: Result, group: Group, tell: Tell = silent) -> Any:
    """The compiled kernel of a result: ours from the cache's files, or what Triton makes of the plain kernel.

    Ours is launched where the arguments do not overlap that must not. `tell` takes a remark on where they do.
    """
    if not result.specialized:
        return load_plain(source)
    if result.tile_loop is None:
        kernel: Any = LaunchableKernel(source.ast, group, result.blocks_per_sm)
    else:
        kernel = PersistentKernel(source, group, result.tile_loop, result.blocks_per_sm)
    return guarded(kernel, source, result.disjoint, tell)


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
        entry = tables.get((grid_x, grid_y, grid_z), args[_BEFORE:])
        launch(entry.blocks, 1, 1, *args, entry.table.data_ptr())

    return run


def _over_parts(launch: Run, tables: Tables) -> Run:
    """The same for a kernel that can divide tiles, where there is memory for sums on their way."""

    def run(grid_x: int, grid_y: int, grid_z: int, *args: Any) -> None:
        if grid_x * grid_y * grid_z <= 0:
            launch(grid_x, grid_y, grid_z, *args, 0, 0)
            return
        entry = tables.get((grid_x, grid_y, grid_z), args[_BEFORE:])
        memory = partials_of(args[0], entry.divided.words) if entry.divided is not None else None
        if entry.divided is None or memory is None:
            launch(entry.blocks, 1, 1, *args, entry.table.data_ptr(), 0)
        else:
            launch(entry.divided.blocks, 1, 1, *args, entry.divided.table.data_ptr(), memory.data_ptr())

    return run


_BEFORE = 6  # stream, function, packed metadata, launch metadata, and the hooks before and after

Slot = tuple[int, str, int]  # position among the launch's arguments; "value", "shape" or "stride"; which dimension


def slots_of(signature: Mapping[str, Any]) -> list[Slot | None]:
    """Where the value of each argument of the compiled function comes from; None for what has no whole number."""
    found: list[Slot | None] = []
    for position, kind in enumerate(signature.values()):
        if kind == "constexpr":
            continue
        if isinstance(kind, str) and kind.startswith("tensordesc"):
            rank = kind.count(",", kind.index("[")) + 1
            found.append(None)
            found += [(position, "shape", axis) for axis in range(rank)]
            found += [(position, "stride", axis) for axis in range(rank)]
        elif isinstance(kind, str) and kind[0] in "iu":
            found.append((position, "value", 0))
        else:
            found.append(None)
    return found


@dataclass(slots=True)
class _Entry:
    blocks: int
    table: torch.Tensor
    divided: _Entry | None = None  # the same launch with the last tiles divided, where that pays
    words: int = 0  # of memory for sums that the launch needs


class Tables:
    """The tables of one kernel; several threads may launch it."""

    def __init__(self, tiles: TileLoop, slots: Sequence[Slot | None], blocks_per_sm: int) -> None:
        self.tiles = tiles
        self.slots = [(index, slots[index]) for index in tiles.cost.parameters]
        self.blocks_per_sm = blocks_per_sm
        self.entries: OrderedDict[tuple[Any, ...], _Entry] = OrderedDict()
        self.captured: list[tuple[torch.Tensor, torch.Tensor]] = []  # what CUDA graphs read, and copy from
        self.lock = threading.Lock()

    def get(self, grid: tuple[int, int, int], args: Sequence[Any]) -> _Entry:
        """The blocks to launch and the table, on the current device."""
        device = torch.cuda.current_device()
        values = tuple(_value(args, slot) for _, slot in self.slots)
        key = (device, grid, values)
        entry = self.entries.get(key)
        if entry is None:
            entry = self._made(key, device, grid, values)
        return entry

    def _made(self, key: tuple[Any, ...], device: int, grid: tuple[int, int, int], values: tuple[int, ...]) -> _Entry:
        sms = torch.cuda.get_device_properties(device).multi_processor_count
        named = {index: value for (index, _), value in zip(self.slots, values, strict=True)}
        slots = sms * self.blocks_per_sm
        blocks, table = launch_table(self.tiles, grid, named, slots)
        host = torch.from_numpy(table)
        if torch.cuda.is_current_stream_capturing():  # the graph fills its own copy whenever it runs
            pinned = host.pin_memory()
            captured = _Entry(blocks, pinned.to(torch.device("cuda", device), non_blocking=True))
            self.captured.append((captured.table, pinned))
            return captured
        entry = _Entry(blocks, host.to(torch.device("cuda", device)))
        divided = self.tiles.stream_k.value
        if divided is not None and (parts := divided_launch(self.tiles, grid, named, slots)) is not None:
            made = torch.from_numpy(parts[1]).to(torch.device("cuda", device))
            entry.divided = _Entry(parts[0], made, words=partials_words(divided, parts[0]))
        with self.lock:
            self.entries[key] = entry
            if len(self.entries) > KEPT:
                torch.cuda.synchronize(device)  # a launch that is under way may still read the one that goes
                self.entries.popitem(last=False)
        return entry


def _value(args: Sequence[Any], slot: Slot | None) -> int:
    assert slot is not None, "costs depend on whole numbers only"
    position, kind, axis = slot
    if kind == "value":
        return int(args[position])
    return int((args[position].shape if kind == "shape" else args[position].strides)[axis])
