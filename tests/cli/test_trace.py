"""wspec trace: what it refuses, and a measured timeline beside the predicted one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from tests.cli.helpers import ATTENTION, KERNEL, done, refused
from tests.support.recorded import Subject, timed
from wspec.cli import trace_measured

SIZES = ("--sizes", "seqlen_q=200,seqlen_k=330")


def test_measuring_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "error: --measure: no CUDA GPU is visible" in refused("trace", ATTENTION, "--measure")


def test_what_a_launch_lacks() -> None:
    """The flags named are those that this command has."""
    said = refused("trace", KERNEL)
    assert "no example of inputs for attend" in said and "or give --grid X,Y,Z and --set keys=4096" in said
    assert "or give --set keys=4096" in refused("trace", KERNEL, "--grid", "4")
    assert "predicted" in done("trace", KERNEL, "--grid", "4", "--set", "keys=4096")


def test_what_does_not_go_with_measuring(tmp_path: Path) -> None:
    module = tmp_path / "kernel.ttgir"
    module.write_text("")
    assert "--measure launches a kernel, but" in refused("trace", str(module), "--measure")
    for flag in (("--grid", "4"), ("--set", "heads=2"), ("--plain",), ("--sm-blocks", "1")):
        said = refused("trace", ATTENTION, "--measure", *flag)
        assert f"{flag[0]} and --measure do not go together" in said


def test_measured_beside_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a recording of the executor's in place of a card's."""
    subject = Subject("d64_causal")
    _, recording = subject.run(subject.instrumented())
    assert recording is not None
    made = trace_measured.Measured(timed(recording), "a card", 100.0, 104.0, True, "0 bytes spilled")
    monkeypatch.setattr(trace_measured, "check", lambda args: None)
    monkeypatch.setattr(trace_measured, "measure", lambda args: made)
    place = tmp_path / "timeline.json"
    said = done("trace", ATTENTION, "--variant", "d64_causal", *SIZES, "--measure", "-o", str(place))
    assert "with stamps  104.0 us, 1.040 x: an overhead of 4.0 %" in said
    assert re.search(r"a tile +\d+00 cycles from begin to begin, the median of 5", said)
    assert "the same bits with stamps" in said and "wait: tile k" in said
    assert [line.split()[:2] for line in said.splitlines() if "predicted  " in line] == [
        ["mma", "predicted"], ["load", "predicted"],
    ]  # fmt: skip
    events = json.loads(place.read_text())["traceEvents"]
    assert {event["pid"] for event in events if event["ph"] == "X"} == {1, 2, 3}
    measured = [event for event in events if event["pid"] == trace_measured.PROCESS and event["ph"] == "X"]
    assert len(measured) == sum(len(track.events) for track in made.recording.tracks())


def test_less_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject("d64_causal")
    _, recording = subject.run(subject.instrumented("loops", rows=16))
    assert recording is not None
    made = trace_measured.Measured(timed(recording), "a card", 100.0, 100.0, True, "")
    monkeypatch.setattr(trace_measured, "check", lambda args: None)
    monkeypatch.setattr(trace_measured, "measure", lambda args: made)
    said = done("trace", ATTENTION, "--variant", "d64_causal", *SIZES, "--measure", "--detail", "loops")
    assert "loop " in said and "wait: tile k" not in said and "only the first 16 events were kept" in said
