"""Where the time of a recording went: by what a warp group waited for, by event, by tile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from wspec.lab.trace.instrument import KINDS, Event
from wspec.lab.trace.recording import Ints, Recording, Track

PARTS = ("tile", "buffer", "tensor core", "turn", "store", "rest")
"""What predicted and measured time are divided into: waiting for a tile, for a buffer or value, issuing dots and
waiting for them, waiting for a turn, storing and waiting for stores; and the rest, above all arithmetic."""

_OF_KIND = {
    "tile": "tile",
    "buffer": "buffer",
    "dot": "tensor core",
    "issue": "tensor core",
    "turn": "turn",
    "store": "store",
}
_OF_CAUSE = {"tile": "tile", "buffer": "buffer", "dot": "tensor core", "named barrier": "turn", "store": "store"}


@dataclass(frozen=True, slots=True)
class EventTime:
    """One event of one task over all recorded blocks: how often, and cycles."""

    event: Event
    count: int
    mean: float
    median: float
    share: float  # of the task's recorded time


def measured_parts(recording: Recording, task: int) -> dict[str, float]:
    """Part -> share of the time that a task was recorded, over all recorded blocks."""
    cycles = dict.fromkeys(KINDS, 0)
    for track in _tracks(recording, task):
        for number, total in _totals(track).items():
            cycles[recording.event(number).kind] += total
    return _shares(dict.fromkeys(PARTS, 0.0), cycles, _OF_KIND)


def predicted_parts(waits: Mapping[str, float], cycles: float) -> dict[str, float]:
    """The same of what the simulator says of a warp group: cause -> cycles, of `cycles` in all."""
    known = {cause: spent for cause, spent in waits.items() if cause in _OF_CAUSE}
    return _shares(dict.fromkeys(PARTS, 0.0), {**known, "": cycles - sum(known.values())}, _OF_CAUSE)


def event_times(recording: Recording, task: int) -> list[EventTime]:
    """Of every event that occurred, in the order of the code."""
    found: dict[int, list[Ints]] = {}
    for track in _tracks(recording, task):
        durations = track.durations
        for number in np.unique(track.events):
            found.setdefault(int(number), []).append(durations[track.events == number])
    together = {number: np.concatenate(parts) for number, parts in sorted(found.items())}
    whole = sum(float(each.sum()) for each in together.values()) or 1.0
    return [
        EventTime(
            recording.event(number), len(each), float(each.mean()), float(np.median(each)), float(each.sum()) / whole
        )
        for number, each in together.items()
    ]


def tile_cycles(track: Track, recording: Recording) -> Ints:
    """Cycles from the begin of each tile to the begin of the next; the last tile of a block is left out."""
    begins = [event.number for event in recording.made.events if event.begins_tile]
    return np.diff(track.times[:-1][np.isin(track.events, begins)])


def _tracks(recording: Recording, task: int) -> list[Track]:
    return [recording.track(block, task) for block in range(recording.blocks)]


def _totals(track: Track) -> dict[int, int]:
    """Event -> cycles."""
    if not len(track.events):
        return {}
    sums = np.bincount(track.events, weights=track.durations)
    return {int(number): int(sums[number]) for number in np.unique(track.events)}


def _shares(empty: dict[str, float], spent: Mapping[str, float], names: Mapping[str, str]) -> dict[str, float]:
    whole = sum(spent.values()) or 1.0
    for what, cycles in spent.items():
        empty[names.get(what, "rest")] += cycles / whole
    return empty
