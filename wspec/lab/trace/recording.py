"""What a launch wrote down, as spans of time of each warp group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wspec.lab.trace.instrument import HEAD, Event, Instrumented, Layout

Ints = npt.NDArray[np.int64]
_LOW = 0xFFFFFFFF


def empty_table(layout: Layout) -> Ints:
    """The table a launch is given: `[rows, columns]`, as wspec/lab/trace/instrument.py describes it."""
    table = np.zeros((layout.rows, layout.columns), dtype=np.int64)
    recorded = layout.blocks * layout.tasks
    table[0, :recorded] = HEAD * layout.columns + np.arange(recorded)
    table[0, recorded:] = layout.positions
    return table


@dataclass(frozen=True, slots=True)
class Track:
    """One task of one block: event number `events[i]` lasts from `times[i]` to `times[i + 1]`.

    Times are cycles of the SM's clock, from the task's begin; `begin` is that clock, modulo 2^32.
    """

    block: int
    task: int
    sm: int
    events: Ints
    times: Ints  # one longer than `events`
    begin: int
    whole: bool  # there was room for every event

    @property
    def durations(self) -> Ints:
        """Cycles of each event."""
        return np.diff(self.times)


@dataclass(frozen=True, slots=True)
class Recording:
    """The table of a launch of `launched` blocks."""

    made: Instrumented
    table: Ints
    launched: int

    @property
    def blocks(self) -> int:
        """How many blocks were recorded."""
        return min(self.launched, self.made.layout.blocks)

    def event(self, number: int) -> Event:
        return self.made.events[number - 1]

    def tracks(self) -> Iterator[Track]:
        """Of every recorded block, its tasks in order."""
        for block in range(self.blocks):
            for task in range(self.made.layout.tasks):
                yield self.track(block, task)

    def on_sm(self, block: int) -> list[int]:
        """The recorded blocks that ran on the SM that `block` ran on, `block` first."""
        column = self.made.layout.tasks * np.arange(self.blocks)
        sms = self.table[2, column] >> 32
        return [block, *(int(other) for other in np.flatnonzero(sms == sms[block]) if other != block)]

    def track(self, block: int, task: int) -> Track:
        """One task of one block."""
        column = self.table[:, block * self.made.layout.tasks + task]
        numbers, clocks = (column >> 32) & _LOW, column & _LOW
        used = int(np.count_nonzero(numbers[HEAD:]))
        whole = used < len(column) - HEAD
        events = numbers[HEAD : HEAD + used]
        stamps = clocks[HEAD : HEAD + used]
        if whole:
            stamps = np.append(stamps, clocks[4])  # the task's end
        else:
            events = events[:-1]  # nobody knows when the last one ended
        steps = np.diff(np.concatenate((clocks[2:3], stamps))) & _LOW  # the counter has 32 bits
        return Track(block, task, int(numbers[2]), events, np.cumsum(steps), int(clocks[2]), whole)

    def clock_mhz(self) -> float:
        """Cycles a microsecond: the median over tasks, from begin to end by both clocks; 0 when none was recorded."""
        columns = np.arange(self.blocks * self.made.layout.tasks)
        nanoseconds = self.table[3, columns] - self.table[1, columns]
        cycles = (self.table[4, columns] - self.table[2, columns]) & _LOW
        good = nanoseconds > 0
        return float(np.median(1000.0 * cycles[good] / nanoseconds[good])) if good.any() else 0.0
