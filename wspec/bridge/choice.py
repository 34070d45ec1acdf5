"""A kernel of several binaries. The model, which knows a launch's sizes, picks one, and then it is compiled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import triton

from wspec.bridge.frontend import KernelSource
from wspec.bridge.launch import Run, around, multiprocessors
from wspec.bridge.launcher import keep
from wspec.bridge.recording import recording
from wspec.bridge.slots import BEFORE, Slot, reader, slots_of
from wspec.tile_scheduler import LaunchWay, Ranking
from wspec.tile_scheduler.costs import Grid

MOST = 4096  # launches whose way is remembered
_UNKNOWN = object()


@dataclass(frozen=True, slots=True)
class Ways:
    """What launches of a kernel choose between."""

    ways: tuple[LaunchWay, ...]  # the first one is the kernel itself
    slots: Sequence[Slot | None]  # where a launch has the arguments of the compiled function
    load: Callable[[LaunchWay], Any | None]  # the compiled kernel of another way; None where it may not run after all


def choosing(kernel: Any, signature: Any, ways: tuple[LaunchWay, ...], load: Callable[[LaunchWay], Any | None]) -> Any:
    """The kernel, which has another binary launched where that is expected to be faster."""
    if len(ways) < 2:
        return kernel
    found = Ways(ways, slots_of(signature), load)
    return around(kernel, lambda run: Chooser(run, found))


class Chooser:
    """What launches: for each size the kernel of the way that the model expects to be fastest."""

    def __init__(self, run: Run, ways: Ways) -> None:
        self.run, self.ways = run, ways
        self._ranking = Ranking(ways.ways)
        self.slots = [ways.slots[index] for index in self._ranking.parameters]
        self._read = reader(self.slots, BEFORE, nearly=True)
        self.chosen: dict[tuple[Grid, tuple[int, ...]], Any | None] = {}  # None: the kernel itself
        self.kernels: dict[int, Any | None] = {0: None}
        self.lock = threading.Lock()

    def __call__(self, x: int, y: int, z: int, stream: int, function: Any, packed: Any, *rest: Any) -> None:
        other = self._of((x, y, z), self._read(rest))
        if recording.count and (now := recording.now) is not None:
            now.chooser, now.chosen = self, other
        if other is None:
            self.run(x, y, z, stream, function, packed, *rest)
        else:
            run = other.run  # loads it first
            run(x, y, z, stream, other.function, other.packed_metadata, *rest)

    def _of(self, grid: Grid, values: tuple[int, ...]) -> Any | None:
        key = grid, values
        other = self.chosen.get(key, _UNKNOWN)
        if other is _UNKNOWN:
            other = self.of(grid, values, _sms())
            keep(self.chosen, key, other, MOST)
        return other

    def of(self, grid: Grid, values: Sequence[int], sms: int) -> Any | None:
        """The kernel that a launch on so many SMs is to have, if it is another one; values are what is `near` the
        numbers at `slots`."""
        known = self.kernels
        for at in self._ranking.fastest(grid, values, sms):
            other = known[at] if at in known else self._kernel(at)
            if other is not None or at == 0:
                return other
        return None

    def _kernel(self, at: int) -> Any | None:
        if at in self.kernels:
            return self.kernels[at]
        with self.lock:
            if at not in self.kernels:
                self.kernels[at] = self.ways.load(self.ways.ways[at])
            return self.kernels[at]


def _sms() -> int:
    return multiprocessors(triton.runtime.driver.active.get_current_device())


def launch_of(
    source: KernelSource, ways: tuple[LaunchWay, ...], named: Mapping[str, Any]
) -> tuple[Grid, dict[int, int]] | None:
    """The grid, and the numbers that decide by their position in the compiled function, of a launch with arguments
    named like this; None where the grid is not among them, or the text of a type stands for a number."""
    grid = named.get("grid")
    if grid is None:
        return None
    grid = grid(named) if callable(grid) else grid
    x, y, z = (*grid, 1, 1, 1)[:3]
    signature, found = source.ast.signature, {}
    given, slots = [named.get(name) for name in signature], slots_of(signature)
    for index in sorted({index for way in ways for index in way.cost.parameters}):
        slot = slots[index]
        try:
            (found[index],) = reader([slot])(given)
        except (AttributeError, TypeError, ValueError):
            return None
    return (int(x), int(y), int(z)), found
