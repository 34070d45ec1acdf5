"""Recording on a Hopper GPU: the results stay the same, and what was recorded is a possible history."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import wspec
from wspec.cli import main
from wspec.kernels.attention import Launch, attention_fwd
from wspec.lab.trace import Tracer

pytestmark = pytest.mark.gpu
ATTENTION = f"{Path(__file__).parents[2]}/kernels/attention.py:attention_fwd"
FASTEST_MHZ = 2500


@pytest.mark.parametrize("detail", ["loops", "all"])
def test_what_a_launch_writes(detail: str) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 8, 1024, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    tracer, outputs = Tracer(attention_fwd, detail=detail), []
    for kernel in (wspec.compile(attention_fwd, strict=True, gate="off"), tracer.kernel):
        out, lse = torch.empty_like(q), torch.empty(q.shape[:3], device="cuda")
        launch = Launch.of(q, k, v, out, lse, causal=True, scale=0.125)
        launch.run(kernel)
        outputs.append((out, lse))
    assert all(map(torch.equal, *outputs))
    found = tracer.recording()
    assert found.launched == found.blocks > 0
    for track in found.tracks():
        assert track.whole and len(track.events) > 3
        assert {found.event(int(number)).task for number in track.events} == {track.task}
        assert (track.durations > 0).all() and track.times[-1] < 1e7
        assert 0 <= track.sm < torch.cuda.get_device_properties(0).multi_processor_count
    assert 300 < found.clock_mhz() < FASTEST_MHZ
    begun = sum(int(np.sum(track.events == track.events[0])) for track in found.tracks() if track.task == 0)
    assert begun == launch.grid[0] * launch.grid[1] * launch.grid[2], "every tile was begun once"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "batch=2,heads=8,kv_heads=8,seqlen_q=1024,seqlen_k=1024"
    place = tmp_path / "timeline.json"
    arguments = ("trace", ATTENTION, "--variant", "d64_causal", "--sizes", sizes, "--measure", "-o", str(place))
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "an overhead of" in said and "the same bits with stamps" in said
    events = json.loads(place.read_text())["traceEvents"]
    assert {event["pid"] for event in events if event["ph"] == "X"} == {1, 2, 3}
