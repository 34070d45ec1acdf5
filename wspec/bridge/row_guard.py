"""The guard at the launch: the specialized kernel runs where rows lie apart as its proof needs it, else the plain one.

Two groups of warps store rows of a tile each, in no order. Which numbers of a launch say that no row reaches into
another one is known when the kernel is proved (`wspec.ir.rows`). They are looked at once for a grid and these numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wspec.bridge.frontend import KernelSource
from wspec.bridge.launch import Run, around
from wspec.bridge.launcher import keep
from wspec.bridge.overlap_guard import Plain, Tell
from wspec.bridge.recording import recording
from wspec.bridge.slots import BEFORE, Slot, reader, slots_of
from wspec.diagnostics import Remark
from wspec.host_descriptors import RowsOfLaunch
from wspec.ir.rows import Apart

MOST = 4096  # launches that are remembered
Needed = tuple[Apart, Remark]  # what must hold, and what is so where it does not


def with_rows_apart(
    kernel: Any, source: KernelSource, given: KernelSource, needed: Sequence[Needed], tell: Tell
) -> Any:
    """The kernel, which has the plain one launched instead where rows reach into each other.

    `given`: the source with all arguments that a launch of the kernel has, `source` as its user gives them. `tell` is
    given a remark the first time; what it raises, the launch raises.
    """
    if not needed:
        return kernel
    guard, plain = RowGuard(slots_of(given.ast.signature), needed), Plain(source, tell)
    arguments = BEFORE + len(source.ast.signature)
    return around(kernel, lambda launch: _with_guard(launch, guard, plain, arguments))


def _with_guard(launch: Run, guard: RowGuard, plain: Plain, arguments: int) -> Run:
    broken_in = guard.broken_in

    def run(x: int, y: int, z: int, stream: int, function: Any, packed: Any, *rest: Any) -> None:
        found = broken_in(x, y, z, rest)
        if recording.count and (now := recording.now) is not None:
            now.rows = guard
            now.once |= found >= 0
            now.alone |= not guard.is_of_descriptors
        if found < 0:
            launch(x, y, z, stream, function, packed, *rest)
        else:
            plain.launch(found, lambda: guard.remark(found), (x, y, z), stream, rest[:arguments])

    return run


class RowGuard:
    """What must hold of a launch's numbers."""

    def __init__(self, slots: Sequence[Slot | None], needed: Sequence[Needed]) -> None:
        self._remarks = list(dict(needed).values())
        self._rows = RowsOfLaunch(list(dict(needed)))
        self._used = sorted({at for apart, _ in needed for at in apart.arguments})
        found = [slots[at] if at < len(slots) else None for at in self._used]
        self._slots = [slot for slot in found if slot is not None]
        self._is_read = len(self._slots) == len(found)  # numbers inside a tuple are not
        self._read = reader(self._slots, BEFORE, on_grid=True)
        self._read_wholes = reader(self._slots, on_grid=True, wholes=True)
        self._known: dict[tuple[int, ...], int] = {}
        names = {number.name for apart, _ in needed for number in apart.numbers}
        of_grid = names & {"program_id", "num_programs"}
        self.is_of_descriptors = not of_grid and all(kind != "value" for _, kind, _ in self._slots)
        """Are shapes and strides of descriptors all that decides?"""

    def broken_in(self, x: int, y: int, z: int, rest: Sequence[Any]) -> int:
        """Which of the conditions does not hold in a launch; below zero where all do."""
        key = self._read(x, y, z, rest)
        found = self._known.get(key)
        return self._first_broken(key) if found is None else found

    def remark(self, broken: int) -> Remark:
        """For a launch that runs the plain kernel, since one of the conditions does not hold."""
        known = self._remarks[broken]
        return replace(known, message=f"{known.message} in this launch, which runs the plain kernel")

    def hold(self, arguments: Sequence[Any]) -> bool:
        """Do they in a launch with these, where a `direct.Whole` stands for each descriptor?"""
        key = self._read_wholes(1, 1, 1, arguments)
        found = self._known.get(key)
        return (self._first_broken(key) if found is None else found) < 0

    def _first_broken(self, key: tuple[int, ...]) -> int:
        x, y, z, *numbers = key
        values = dict(zip(self._used, numbers, strict=False))
        found = self._rows.first_broken((x, y, z), values) if self._is_read else 0
        keep(self._known, key, found, MOST)
        return found
