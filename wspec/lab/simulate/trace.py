"""A timeline as trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing show.

Processes are the warp groups of the SM and its units; a thread is one warp group, the tensor core as one warp group
uses it, or TMA. How busy the units are is drawn as counters. An arrow goes from what completed a barrier to the wait
that it ended. Times are microseconds at the stated clock; `args` has cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wspec.diagnostics import place_text
from wspec.ir.core import Operation
from wspec.ir.loc import value_name
from wspec.lab.simulate.costs import NAMES, UNITS
from wspec.lab.simulate.timeline import Record, Slice

Event = dict[str, Any]
_GROUPS, _UNITS = 1, 2
_UNIT_TRACKS = ("tensor core", "TMA")
_INSIDE = 0.25  # cycles; an arrow's ends lie inside of the slices it connects


def trace(record: Record, clock_mhz: float, title: str) -> dict[str, Any]:
    """The JSON object of a timeline."""
    tracks = {track: number for number, track in enumerate(sorted({one.track for one in record.slices}, key=_order), 1)}
    events = [*_names(tracks, title), *_slices(record, tracks, clock_mhz), *_arrows(record, tracks, clock_mhz)]
    events += _counters(record, clock_mhz)
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"kernel": title, "clock_mhz": clock_mhz}}


def _order(track: str) -> tuple[bool, str]:
    return _is_unit(track), track


def _is_unit(track: str) -> bool:
    return track.startswith(_UNIT_TRACKS)


def _process(track: str) -> int:
    return _UNITS if _is_unit(track) else _GROUPS


def _names(tracks: dict[str, int], title: str) -> Iterator[Event]:
    for process, name in ((_GROUPS, f"warp groups: {title}"), (_UNITS, "units of the SM")):
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
    for track, number in tracks.items():
        where = {"pid": _process(track), "tid": number}
        yield {"ph": "M", "name": "thread_name", **where, "args": {"name": track}}
        yield {"ph": "M", "name": "thread_sort_index", **where, "args": {"sort_index": number}}


def _slices(record: Record, tracks: dict[str, int], clock_mhz: float) -> Iterator[Event]:
    for one in sorted(record.slices, key=lambda one: (one.start, -one.end)):
        args: dict[str, Any] = {"cycles": round(one.end - one.start, 1), "at cycle": round(one.start, 1)}
        if one.op is not None:
            args["operation"] = one.op.name
            args["line"] = place_text(one.op.location)
        if one.ops:
            args["operations"] = ", ".join(dict.fromkeys(short_name(op) for op in one.ops))
        if one.size:
            args["FLOP" if one.track.startswith("tensor") else "bytes"] = one.size
        yield {
            "ph": "X",
            "name": _title(one),
            "cat": one.cause or "work",
            "pid": _process(one.track),
            "tid": tracks[one.track],
            "ts": one.start / clock_mhz,
            "dur": (one.end - one.start) / clock_mhz,
            "args": args,
        }


def _title(one: Slice) -> str:
    """`scores = warp_group_dot, attention.py:64`; of a wait, for what and where."""
    if one.op is None:
        return one.name or "start"
    line = place_text(one.op.location)
    what = one.name if one.cause else short_name(one.op)
    if _is_unit(one.track):
        what = f"{what} ({one.name})"
    return f"{what}, {line.rpartition('/')[2]}" if line else what


def short_name(op: Operation) -> str:
    """`p = exp2`: the value's name in the source and the operation, without its dialect."""
    name = value_name(op.location)
    return f"{name} = {op.name.partition('.')[2]}" if name and op.results else op.name.partition(".")[2]


def _arrows(record: Record, tracks: dict[str, int], clock_mhz: float) -> Iterator[Event]:
    for number, one in enumerate(record.arrows, start=1):
        if one.from_track not in tracks or one.to_track not in tracks:
            continue
        ends = (("s", one.from_track, one.from_time), ("f", one.to_track, one.to_time))
        for phase, track, time in ends:
            yield {
                "ph": phase,
                "bp": "e",
                "id": number,
                "name": "barrier",
                "cat": "barrier",
                "pid": _process(track),
                "tid": tracks[track],
                "ts": max(0.0, time - _INSIDE) / clock_mhz,
            }


def _counters(record: Record, clock_mhz: float) -> Iterator[Event]:
    """A sample where something changes."""
    before: tuple[float, ...] = (-1.0,) * len(UNITS)
    for sample in record.samples:
        busy = sample.busy
        for at, unit in enumerate(UNITS):
            if abs(busy[at] - before[at]) > 1e-6:
                percent = round(100 * busy[at], 2)
                yield {
                    "ph": "C",
                    "name": f"{NAMES[unit]}, % busy",
                    "pid": _UNITS,
                    "ts": sample.time / clock_mhz,
                    "args": {"busy": percent},
                }
        before = busy
