"""From a table of stamps to spans, shares and trace events."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.support.recorded import Subject, timed
from wspec.lab.trace import Recording, Tracer
from wspec.lab.trace.instrument import HEAD, Layout
from wspec.lab.trace.recording import empty_table
from wspec.lab.trace.summary import PARTS, event_times, measured_parts, predicted_parts, tile_cycles
from wspec.lab.trace.timeline import measured_events, title

SUBJECT = Subject("d64_causal")


@pytest.fixture(scope="module")
def recording() -> Recording:
    _, found = SUBJECT.run(SUBJECT.instrumented())
    assert found is not None
    return timed(found)


def test_the_table_a_launch_gets() -> None:
    table = empty_table(Layout(rows=7, blocks=2, tasks=3))
    assert table.shape == (7, 9) and (table[1:] == 0).all()
    assert table[0].tolist() == [HEAD * 9 + column for column in range(6)] + [63] * 3


def test_spans(recording: Recording) -> None:
    """The clock's low half overflows on the way."""
    for track in recording.tracks():
        assert (track.durations == 100).all() and track.times[0] == 100 and track.begin == 2**32 - 250
        assert len(track.times) == len(track.events) + 1
    assert recording.clock_mhz() == pytest.approx(1000)
    assert recording.on_sm(1) == [1, 0, 2], "the executor has one SM"


def test_shares(recording: Recording) -> None:
    for task in range(recording.made.layout.tasks):
        shares = measured_parts(recording, task)
        assert tuple(shares) == PARTS and sum(shares.values()) == pytest.approx(1)
        times = event_times(recording, task)
        assert sum(one.share for one in times) == pytest.approx(1)
        assert all(one.mean == one.median == 100 and one.event.task == task for one in times)
        waits = sum(one.share for one in times if one.event.kind == "tile")
        assert shares["tile"] == pytest.approx(waits)
    assert measured_parts(recording, 0)["tile"] > 0 and measured_parts(recording, 1)["buffer"] > 0


def test_predicted_shares() -> None:
    shares = predicted_parts({"tile": 10.0, "dot": 20.0, "named barrier": 5.0, "units": 30.0}, 100.0)
    assert shares == {"tile": 0.1, "buffer": 0.0, "tensor core": 0.2, "turn": 0.05, "store": 0.0, "rest": 0.65}


def test_tiles(recording: Recording) -> None:
    track = recording.track(0, 0)
    cycles = tile_cycles(track, recording)
    begins = [at for at, number in enumerate(track.events) if recording.event(int(number)).begins_tile]
    assert cycles.tolist() == [100 * (b - a) for a, b in itertools.pairwise(begins)] and len(cycles)


def test_a_timeline(recording: Recording) -> None:
    events = list(measured_events(recording, 0, 1000.0, 3))
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in events} == {3}
    tracks = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert tracks[:2] == ["block 0: mma", "block 0: load"] and len(tracks) == 6
    assert len(slices) == sum(len(track.events) for track in recording.tracks())
    first = [event for event in slices if event["tid"] == 1]
    assert first[0]["ts"] == pytest.approx(0.1) and all(event["dur"] == pytest.approx(0.1) for event in first)
    assert [event["ts"] for event in first] == sorted(event["ts"] for event in first)
    assert any(event["name"].startswith("wait: tile k, attention.py:") for event in first)


def test_titles() -> None:
    said = {title(event).rpartition(", ")[0] for event in SUBJECT.instrumented().events}
    assert {"wait: tile q", "wait: buffer k", "issue dots scores", "wait: dots acc", "load v", "compute"} <= said


def test_nothing_was_launched() -> None:
    from wspec.diagnostics import WspecError
    from wspec.kernels.attention import attention_fwd

    with pytest.raises(ValueError, match="nothing was launched"):
        Tracer(attention_fwd).recording()
    with pytest.raises(WspecError, match="detail: 'most' is none of tiles, loops, all"):
        Tracer(attention_fwd, detail="most")


def test_an_empty_recording() -> None:
    made = SUBJECT.instrumented()
    none = Recording(made, empty_table(made.layout), 0)
    assert list(none.tracks()) == [] and none.clock_mhz() == 0.0
    assert not np.any(list(measured_parts(none, 0).values()))
