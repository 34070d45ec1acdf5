"""A recording as trace events, to stand beside the predicted ones (wspec/lab/simulate/trace.py) in one file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wspec.diagnostics import place_text
from wspec.lab.trace.instrument import Event
from wspec.lab.trace.recording import Recording, Track

_WAITS = {"tile": "tile", "buffer": "buffer", "turn": "turn", "dot": "dots"}
_WORK = {"issue": "issue dots", "load": "load", "store": "store", "loop": "loop", "work": "compute"}


def measured_events(recording: Recording, block: int, clock_mhz: float, process: int) -> Iterator[dict[str, Any]]:
    """The process of the SM that ran `block`: a track for each task of each recorded block there.

    Microseconds from the first stamp on that SM, at `clock_mhz`, whose clock all its blocks share.
    """
    blocks = recording.on_sm(block)
    tracks = [recording.track(each, task) for each in blocks for task in range(recording.made.layout.tasks)]
    first = min((track.begin for track in tracks if len(track.events)), default=0)
    sm = tracks[0].sm if tracks else 0
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": f"measured: warp groups on SM {sm}"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
    for number, track in enumerate(tracks, start=1):
        name = recording.made.tasks[track.task]
        where = {"pid": process, "tid": number}
        shown = f"block {track.block}: {name}" if len(blocks) > 1 else name
        yield {"ph": "M", "name": "thread_name", **where, "args": {"name": shown}}
        yield {"ph": "M", "name": "thread_sort_index", **where, "args": {"sort_index": number}}
        yield from _slices(recording, track, first, clock_mhz, where)


def _slices(
    recording: Recording, track: Track, first: int, clock_mhz: float, where: dict[str, int]
) -> Iterator[dict[str, Any]]:
    begin = track.begin - first
    for number, start, cycles in zip(track.events, track.times, track.durations, strict=False):
        event = recording.event(int(number))
        args: dict[str, Any] = {"cycles": int(cycles), "at cycle": begin + int(start)}
        args |= {"operation": event.operation} if event.operation else {}
        yield {
            "ph": "X",
            "name": title(event),
            "cat": event.kind,
            **where,
            "ts": (begin + int(start)) / clock_mhz,
            "dur": int(cycles) / clock_mhz,
            "args": {**args, "line": place_text(event.location)},
        }


def title(event: Event) -> str:
    """`wait: tile k, attention.py:117`; of arithmetic what follows it."""
    line = place_text(event.location).rpartition("/")[2]
    what = f"wait: {_WAITS[event.kind]}" if event.kind in _WAITS else _WORK[event.kind]
    name = f" {event.name}" if event.name else ""
    return f"{what}{name}, {line}" if line else f"{what}{name}"
