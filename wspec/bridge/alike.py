"""Launches of one binary that differ in numbers: what the first one came to is that of the others, but for these.

What a launch goes through is noted by those that know it (`recording.Recorded`): which of several binaries, the table
of tiles, the guard over arguments, where arguments lie in memory. A launch of other sizes asks them for what depends on
sizes and writes it into a copy of what the driver was given. Triton is not asked.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Sequence
from typing import Any

from wspec.bridge.again import Ready, block_of, order_of
from wspec.bridge.launcher import Unlike, start
from wspec.bridge.recording import Recorded

_CANNOT = (TypeError, AttributeError, struct.error, Unlike)  # what is out of the ordinary goes the ordinary way

_NOT = False, None


class Alike:
    """Of a kernel, in a stream of the current device. `constants`: what launches have behind their arguments."""

    def __init__(self, kernel: Any, compiled: Any, constants: Sequence[Any]) -> None:
        self.kernel, self.compiled, self.constants = kernel, compiled, constants
        self._chooser: Any = None
        self._binaries: dict[Any, _Binary] = {}  # by what the chooser says

    def learn(self, recorded: Recorded, count: int) -> None:
        """From a launch that went the ordinary way and can be made again; its user gives so many arguments."""
        if not recorded.alone and recorded.block.lay is not None:
            self._chooser = recorded.chooser
            self._binaries[recorded.chosen] = _Binary(self, recorded, count)

    def run(self, grid: Sequence[int], arguments: Sequence[Any], stream: int) -> None:
        """Launch the ordinary way, but for Triton's."""
        compiled, (x, y, z) = self.compiled, (*grid, 1, 1)[:3]
        run = compiled.run
        run(x, y, z, stream, compiled.function, compiled.packed_metadata, None, None, None, *arguments, *self.constants)

    def launch(
        self, grid: Sequence[int], arguments: Sequence[Any], place: tuple[int, int]
    ) -> tuple[bool, Ready | None]:
        """Launch, on a device and a stream, with all arguments; where the kernel has descriptors, with the tensors that
        they are the whole of. Whether that was done, and what does so again.

        It is not where it is no ordinary launch, or nothing like it was seen.
        """
        x, y, z = (*grid, 1, 1)[:3]
        if x * y * z <= 0:
            return _NOT
        try:
            chooser = self._chooser
            binary = self._binaries.get(None if chooser is None else chooser.of(x, y, z, arguments))
            return _NOT if binary is None else binary.launch((x, y, z), arguments, place)
        except _CANNOT:
            return _NOT


class _Binary:
    """What a launch of it came to."""

    def __init__(self, alike: Alike, recorded: Recorded, count: int) -> None:
        block = self._block = recorded.block
        self._kernel, self._lay, self._starts_early = alike.kernel, block.lay, block.starts_early
        self._contents, self._function = bytes(recorded.contents), recorded.function
        self._memory, self._tables = block_of(recorded, count), recorded.tables
        guard = recorded.guard
        self._pairs = [] if guard is None else guard.pairs_at(order_of(recorded.places))

    def launch(
        self, grid: tuple[int, int, int], arguments: Sequence[Any], place: tuple[int, int]
    ) -> tuple[bool, Ready | None]:
        x, y, z = grid
        if self._block.given_up:
            return _NOT
        hidden: tuple[int, ...] = ()
        relied: Sequence[Any] = ()
        kept: Sequence[Any] = ()
        settled, entry = True, None
        if self._tables is not None:
            entry = self._tables.of((*place, grid, self._tables.read(arguments)))
            settled, relied = entry.settled, (weakref.ref(entry),)
            x, hidden, kept = self._tables.given(entry, place[1])
            y = z = 1
        early = self._starts_early is not None and self._starts_early(x * y * z)
        contents = bytearray(self._contents)
        addresses, reach = self._lay(contents, x, y, z, early and settled, *arguments, *hidden)
        apart = [(one, reach[one], other, reach[other]) for one, other in self._pairs]
        again = Ready(self._kernel, self._memory, self._function, bytes(contents), apart, relied, kept)
        if not again(*addresses):
            return _NOT
        if entry is not None and entry.undecided:
            entry.settled = True
            return True, None
        if not settled:
            assert entry is not None
            entry.settled = True
            start(contents, early)
            again.become(bytes(contents))
        return True, again
