"""Launching a kernel that has one argument more than its user knows of, behind all others."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wspec.bridge.cache import Group, Result
from wspec.bridge.frontend import KernelSource
from wspec.bridge.launch import LaunchableKernel
from wspec.bridge.overlap_guard import guarded, silent
from wspec.bridge.persistent import PersistentKernel
from wspec.bridge.promoted import promoted, with_descriptors
from wspec.bridge.recording import recording
from wspec.bridge.row_guard import with_rows_apart
from wspec.tile_scheduler import TileLoop


@dataclass(frozen=True, slots=True)
class Appended:
    """The argument: its name, its type as a signature has it, and what to pass when so many blocks are launched."""

    name: str
    type: str
    value: Callable[[int], int]


def load_appended(source: KernelSource, result: Result, group: Group, argument: Appended) -> Any:
    """The compiled kernel of a specialized result, which launches as the kernel did."""
    longer = with_descriptors(source, result.promotion)
    if result.tile_loop is None:
        kernel: Any = _Longer(longer.ast, group, result.blocks_per_sm, argument)
    else:
        kernel = _LongerPersistent(longer, group, result.tile_loop, result.blocks_per_sm, argument)
    kernel = with_rows_apart(kernel, source, longer, result.rows, silent)
    return guarded(promoted(kernel, source, result.promotion, silent), source, result.disjoint)


class _Longer(LaunchableKernel):
    """Passes the argument."""

    argument: Appended

    def __init__(self, src: Any, group: Group, blocks_per_sm: int = 1, argument: Appended | None = None) -> None:
        if argument is not None:
            self.argument = argument
        ast = copy.copy(src)
        ast.signature = {**src.signature, self.argument.name: self.argument.type}
        super().__init__(ast, group, blocks_per_sm)

    def _init_handles(self) -> None:
        first = self.module is None
        super()._init_handles()
        if first:
            self._wrap(functools.partial(_with_value, value=self.argument.value))


class _LongerPersistent(PersistentKernel, _Longer):
    """Of a kernel whose blocks walk through tiles: the table of tiles comes before the argument."""

    def __init__(
        self, source: KernelSource, group: Group, tiles: TileLoop, blocks_per_sm: int, argument: Appended
    ) -> None:
        self.argument = argument
        super().__init__(source, group, tiles, blocks_per_sm)


def _with_value(launch: Callable[..., None], value: Callable[[int], int]) -> Callable[..., None]:
    def run(grid_x: int, grid_y: int, grid_z: int, *args: Any) -> None:
        recording.once()  # memory for what is written down may be another the next time
        launch(grid_x, grid_y, grid_z, *args, value(grid_x * grid_y * grid_z))

    return run
