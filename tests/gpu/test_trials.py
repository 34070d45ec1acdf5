"""Trials on a card: launches that are made again without looking come to the next look all the same.

A graph that is captured while a trial is on holds the kernel that was faster so far.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

import wspec
from tests.bridge.sample_kernels import GEMM_BLOCKS, gemm
from wspec.bridge import trial
from wspec.bridge.overlap_guard import Plain
from wspec.bridge.trial import Contest, Trial

pytestmark = pytest.mark.gpu
SIZE = 2048


def test_looks_come_again_though_launches_are_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    settle = Trial._settle

    def decide(self: Trial, contest: Contest) -> None:
        settle(self, contest)
        contest.keeps = len(looks) == 0  # the specialized kernel after the first look, the plain one since
        looks.append(contest.launches)

    ways = Counter[str]()
    start, call = Plain.start, Trial.__call__

    def plain(self: Plain, *args: Any) -> None:
        ways["plain"] += 1
        start(self, *args)

    def ordinary(self: Trial, *args: Any) -> None:
        ways["ordinary"] += 1
        call(self, *args)

    for bound, value in {"CLOSE": 1e3, "HOT_MS": 1e9, "HOST_BOUND": 0.0}.items():  # each look tells, others follow
        monkeypatch.setattr(trial, bound, value)
    monkeypatch.setattr(Trial, "_settle", decide)
    monkeypatch.setattr(Trial, "__call__", ordinary)
    monkeypatch.setattr(Plain, "start", plain)
    torch.manual_seed(0)
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(SIZE, SIZE, device="cuda", dtype=torch.float16)
    left, right = TensorDescriptor.from_tensor(a, [128, 64]), TensorDescriptor.from_tensor(b, [64, 128])
    kernel = wspec.compile(gemm)
    for number in range(3000):
        kernel[(SIZE // 128, SIZE // 128)](left, right, c, SIZE, SIZE, **GEMM_BLOCKS, num_warps=8)
        if number % 100 == 0:
            torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=2e-1)
            c.zero_()
    first, second, third = looks[:3]
    assert second > trial.LATER * first and third > trial.LATER * second
    assert ways["ordinary"] < 1000, "most launches are made again without looking"
    assert ways["plain"] >= 2 * trial.ROW, "some of either kind are timed"


@pytest.mark.parametrize("tolerance", [0.0, 1e9])
def test_a_graph_holds_what_was_faster_so_far(monkeypatch: pytest.MonkeyPatch, tolerance: float) -> None:
    """A host that ran ahead has not asked for the times when it begins to capture."""
    plain: list[bool] = []
    start = Plain.start

    def counted(self: Plain, *args: Any) -> None:
        plain.append(torch.cuda.is_current_stream_capturing())
        start(self, *args)

    settled: list[Contest] = []
    monkeypatch.setattr(Trial, "_settle", lambda self, contest: settled.append(contest))
    monkeypatch.setattr(Plain, "start", counted)
    monkeypatch.setattr(trial, "TOLERANCE", tolerance)
    monkeypatch.setattr(trial, "HOST_BOUND", 0.0)
    torch.manual_seed(0)
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(SIZE, SIZE, device="cuda", dtype=torch.float16)
    left, right = TensorDescriptor.from_tensor(a, [128, 64]), TensorDescriptor.from_tensor(b, [64, 128])
    kernel = wspec.compile(gemm)

    def launch() -> None:
        kernel[(SIZE // 128, SIZE // 128)](left, right, c, SIZE, SIZE, **GEMM_BLOCKS, num_warps=8)

    for _ in range(trial.QUIET + 1):
        launch()
    torch.cuda.synchronize()
    torch.cuda._sleep(1_000_000_000)  # half a second: the trial's turns wait behind it
    for _ in range(40):
        launch()
    assert settled == []
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    assert (plain[-1] is True) is (tolerance == 0.0)
    c.zero_()
    graph.replay()
    torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=2e-1)
