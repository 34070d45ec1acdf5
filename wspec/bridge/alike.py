"""Launches of one binary that differ in numbers: what the first one came to is that of the others, but for these.

What a launch goes through is noted by those that know it (`recording.Recorded`): which of several binaries, the table
of tiles, the guard over arguments, where arguments lie in memory. A launch of other sizes asks them for what depends on
sizes, and one call of C (`direct.py`) writes it into a copy of what the driver was given. Triton is not asked.

Which binary and which table depends on the grid and a few numbers, or on what is near them. So launches that agree in
those are asked about once, and of a size beside one that was seen nothing is left but that call. It costs no more for
a size that was never seen than for one that was: nothing is kept of a size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from wspec.bridge import cuda
from wspec.bridge.again import is_capturing, order_of
from wspec.bridge.direct import Direct, direct
from wspec.bridge.launch import is_hooked, multiprocessors
from wspec.bridge.launcher import EARLY, keep
from wspec.bridge.recording import Recorded
from wspec.bridge.slots import reader
from wspec.bridge.tensor_maps import Unlike

_CANNOT = (TypeError, AttributeError, ValueError, IndexError, struct.error, Unlike)
"""What is out of the ordinary goes its own way."""

_MOST = 4096  # grids that are remembered
Grid = tuple[int, int, int]


class Alike:
    """Of a kernel, in a stream of the current device. `constants`: what launches have behind their arguments."""

    def __init__(self, kernel: Any, compiled: Any, constants: Sequence[Any]) -> None:
        self.kernel, self.compiled, self.constants = kernel, compiled, constants
        self._chooser: Any = None
        self._choice: Callable[..., Any] | None = None  # of arguments what the chooser decides by
        self._binaries: dict[Any, _Binary] = {}  # by what the chooser says
        self._grids: tuple[Callable[..., Any], dict[Any, _Grid]] | None = None  # of a launch the key, and by that

    def learn(self, recorded: Recorded) -> None:
        """From a launch that went the ordinary way and can be made again."""
        if recorded.alone or recorded.block.layout is None or recorded.chosen in self._binaries:
            return
        chooser = self._chooser = recorded.chooser
        self._binaries[recorded.chosen] = _Binary(self, recorded)
        tables = [one.tables for one in self._binaries.values() if one.tables is not None]
        nearly = not any(one.exact for one in tables)
        slots = sorted({slot for one in tables for _, slot in one.slots}.union(chooser.slots if chooser else ()))
        self._grids = reader(slots, nearly=nearly, on_grid=True, wholes=True), {}
        if chooser is not None and not (nearly and chooser.slots == slots):
            self._choice = reader(chooser.slots, nearly=True, wholes=True)
        for one in self._binaries.values():
            one.reads_key = one.tables is not None and slots == [slot for _, slot in one.tables.slots]
            one.reads_key = one.reads_key and nearly is not one.tables.exact

    def run(self, grid: Sequence[int], arguments: Sequence[Any], stream: int) -> None:
        """Launch the ordinary way, but for Triton's."""
        compiled, (x, y, z) = self.compiled, (*grid, 1, 1)[:3]
        run = getattr(compiled, "wspec_quick", None) or compiled.run
        run(x, y, z, stream, compiled.function, compiled.packed_metadata, None, None, None, *arguments, *self.constants)

    def launch(
        self, grid: Grid, arguments: tuple[Any, ...], place: tuple[int, int], step: tuple[int, int] = (0, 1)
    ) -> bool:
        """Launch, on a device and a stream, with the arguments that a user gives, a `Whole` for each descriptor.
        Was that done?

        step: an axis on which grids of other launches are expected to differ, and by how much.
        It is not where it is no ordinary launch, or nothing like it was seen, or a graph is captured.
        """
        x, y, z = grid
        if self._grids is None or x * y * z <= 0:
            return False
        read, grids = self._grids
        try:
            key = read(x, y, z, arguments)
            found = grids.get(key)
            if found is None or (entry := found.entry()) is None:
                found = None if is_capturing() else self._grid(key, arguments, place, step)
                if found is None or (entry := found.entry()) is None:
                    return False
                keep(grids, key, found, _MOST)
            return found.launch(arguments, entry)
        except _CANNOT:
            return False

    def _grid(
        self, key: tuple[int, ...], arguments: Sequence[Any], place: tuple[int, int], step: tuple[int, int]
    ) -> _Grid | None:
        """key: the grid, and the numbers that decide beside it."""
        chosen, grid, numbers = None, key[:3], key[3:]
        if self._chooser is not None:
            values = numbers if self._choice is None else self._choice(arguments)
            chosen = self._chooser.of(grid, values, multiprocessors(place[0]))
        binary = self._binaries.get(chosen)
        if binary is None:
            return None
        tables = binary.tables
        if tables is None:
            return _Grid(binary, grid, _no_entry, (), ())
        if not binary.reads_key:
            numbers = tables.read(arguments)
        entry, blocks, hidden, kept = tables.launched(place, grid, numbers, step)
        return _Grid(binary, (blocks, 1, 1), entry.ref, hidden, kept)


class _Binary:
    """What a launch of it came to."""

    def __init__(self, alike: Alike, recorded: Recorded) -> None:
        self.kernel, self.block, self.function = alike.kernel, recorded.block, recorded.function
        self.contents, self.tables, self.constants = bytes(recorded.contents), recorded.tables, alike.constants
        self.rows, self.reads_key = recorded.rows, False  # do tables take the numbers that decide, as they stand there?
        self.adds, guard = bool(recorded.derived or recorded.scratch), recorded.guard  # addresses that nobody gives
        order = order_of(recorded.places)
        self.pairs = () if guard is None else tuple(guard.pairs_at(order))
        self.direct: Direct | None = None
        self.is_known = False

    def learn(self, given: Sequence[Any]) -> Direct | None:
        """What launches with arguments like these, if it is there. Raises Unlike, and may be asked again."""
        if not self.adds:
            behind = len(self.constants)
            self.direct = direct(self.block, self.contents, given, behind, self.pairs, self.function)
        self.is_known = True
        return self.direct


class _Grid:
    """What is the same in all launches of a binary that have a grid, and what else decides, in common."""

    __slots__ = ("_binary", "_early", "_hidden", "_kept", "_sizes", "entry")

    def __init__(
        self,
        binary: _Binary,
        sizes: tuple[int, ...],
        entry: Callable[[], Any],
        hidden: tuple[int, ...],
        kept: Sequence[Any],
    ) -> None:
        """sizes: of the grid that is launched; entry: gives what has its table, while that is kept; hidden: arguments
        that nobody gives, and `kept` the memory they are in, if nobody else keeps it."""
        self._binary, self._sizes, self.entry, self._hidden, self._kept = binary, sizes, entry, hidden, kept
        early = binary.block.starts_early
        x, y, z = sizes
        self._early = bool(binary.contents[EARLY]) if early is None else early(x * y * z)

    def launch(self, arguments: tuple[Any, ...], entry: Any) -> bool:
        """With these arguments, and what `entry` gave; whether that was done."""
        binary = self._binary
        launch = binary.direct if binary.is_known else binary.learn(arguments)
        if launch is None or (binary.rows is not None and not binary.rows.hold(arguments)):
            return False
        if is_hooked() or binary.kernel.pre_run_hooks or (self._hidden and is_capturing()):
            return False
        status = launch(*self._sizes, self._early and entry.settled, arguments, self._hidden)
        if status > 0:
            raise cuda.error(status)
        if status == 0:
            entry.settled = True
        return status == 0


class _NoEntry:
    """In the place of one, of a launch without a table."""

    settled = True


_NO_ENTRY = _NoEntry()


def _no_entry() -> _NoEntry:
    return _NO_ENTRY
