"""Launching the instrumented kernel through Triton's own launch path, with a driver that writes launches down."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton

from tests.bridge.fake_driver import FakeDriver
from tests.bridge.sample_kernels import add
from wspec import bridge
from wspec.bridge import persistent
from wspec.diagnostics import WspecError
from wspec.kernels import matmul
from wspec.kernels.attention import Launch, attention_fwd
from wspec.lab.trace import Tracer, tracer

TABLE, TRACE = 4096, 8192  # addresses


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> FakeDriver:
    fake, found = FakeDriver(), (SimpleNamespace(settled=True), SimpleNamespace(blocks=2, address=TABLE, whole=None))
    monkeypatch.setattr(triton.runtime.driver, "_active", fake)
    monkeypatch.setattr(persistent.Tables, "get", lambda self, stream, grid, args: found)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: _At(TRACE))
    return fake


class _At:
    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


def launch(kernel: Any) -> Launch:
    q, out = (torch.empty(1, 2, 256, 64, dtype=torch.bfloat16) for _ in range(2))
    made = Launch.of(q, q, q, out, torch.empty(1, 2, 256), causal=False, scale=0.125)
    kernel[made.grid](*made.args, **made.meta)
    return made


@pytest.mark.parametrize("walks", [True, False])
def test_the_table_comes_last(driver: FakeDriver, walks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    generic = tracer.instrument
    monkeypatch.setattr(tracer, "instrument", lambda *given: (asked.append(given[-1]), generic(*given))[1])
    for _ in range(2):  # the second one finds the binary in the cache
        stamped = Tracer(attention_fwd, detail="loops", persistent=walks, gate="off")
        made = launch(stamped.kernel)
        (done,) = driver.launches
        driver.launches.clear()
        assert done.arguments[-1] == TRACE
        assert (done.arguments[-2] == TABLE) == walks
        assert done.grid == ((2, 1, 1) if walks else made.grid)
        assert stamped.launched == (2 if walks else made.grid[0] * made.grid[1])
        assert stamped.made is not None and "spill" in stamped.ptxas_log
    assert asked == ["loops", "loops"]


def test_a_kernel_whose_tiles_may_be_divided(driver: FakeDriver) -> None:
    """Behind the table comes memory for sums, of which this launch needs none, and then the stamps' table."""
    stamped = Tracer(matmul.matmul_descriptor_kernel, detail="loops", persistent=True, gate="off")
    a, out = (torch.empty(256, 256, dtype=torch.bfloat16) for _ in range(2))
    made = matmul.Launch.of(a, a, out, variant="descriptor", config=matmul.Config())
    stamped.kernel[made.grid](*made.args, **made.meta)
    (done,) = driver.launches
    assert list(done.arguments[-3:]) == [TABLE, 0, TRACE]


def test_a_kernel_that_is_left_alone(driver: FakeDriver) -> None:
    x = torch.empty(1024)
    with pytest.raises(WspecError, match=r"\[no-loop\]") as caught:
        Tracer(add).kernel[(8,)](x, x, 1024)
    assert caught.value.remark.severity == "error" and driver.launches == []


def test_it_is_another_kernel_than_the_one_it_traces(driver: FakeDriver) -> None:
    kernels = [Tracer(attention_fwd, detail=detail).kernel for detail in ("loops", "all")]
    assert len({kernel.cache_key for kernel in (*kernels, attention_fwd)}) == 3
    assert bridge.innermost(kernels[0]) is kernels[0] and kernels[0].plain is attention_fwd
