"""tune=N: what is measured, on what, and what is kept. The driver only records, and the clock is made up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

import wspec
from tests.bridge.fake_driver import FakeDriver
from tests.bridge.sample_kernels import GEMM_BLOCKS, add, add_source, gemm
from tests.support import host_tables
from wspec import bridge
from wspec.bridge import Choice, Tuning, persistent, tuned, tuning
from wspec.bridge.cloned_arguments import CannotCopy, copied


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setattr(triton.runtime.driver, "_active", fake)
    return fake


# ---------------------------------------------------------------------------------------------------- copies


def test_views_of_one_storage_stay_views_of_one() -> None:
    base = torch.arange(64.0)
    left, right, other = base[:32], base[16:48].view(4, 8), torch.ones(4)
    made = copied(["a", "b", "c", "n"], [left, right, other, 5], {"b"})
    a, b, c, n = made.arguments
    b += 100
    assert n == 5 and c is other and torch.equal(base, torch.arange(64.0))
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != base.untyped_storage().data_ptr()
    assert a[16] == 116 and b.stride() == right.stride() and b.storage_offset() == 16
    made.restore()
    assert torch.equal(a, left) and torch.equal(b, right)


def test_descriptors_are_copied_with_their_tensor() -> None:
    base = torch.zeros(64, 64, dtype=torch.float16)
    given = TensorDescriptor.from_tensor(base, [32, 32])
    (twin,) = copied(["d"], [given], {"d"}).arguments
    twin.base.fill_(1)
    assert twin.block_shape == [32, 32] and twin.shape == given.shape and not base.any() and given.base is base


def test_what_is_written_must_be_a_tensor() -> None:
    with pytest.raises(CannotCopy, match="x is written and is no tensor"):
        copied(["x"], [1234], {"x"})


# --------------------------------------------------------------------------------------------------- choosing


class Kernels:
    """A kernel and others that it may be replaced by, all of them the same code under other names."""

    def __init__(self, times: dict[str, float], written: frozenset[str] | None = frozenset({"y_ptr"})) -> None:
        self.times, self.written = times, written
        self.said: list[str] = []
        self.timed: list[list[str]] = []
        self.searches = 0
        self.loaded: dict[str, Any] = {}

    def choices(self) -> Sequence[Choice]:
        self.searches += 1
        return [Choice(name, f"plan of {name}") for name in self.times if name != "own"]

    def load(self, choice: Choice) -> Any | None:
        if choice.name == "refused":
            return None
        kernel = self.loaded[choice.plan] = bridge.load_plain(add_source())
        return kernel

    def timer(self, runs: Sequence[Callable[[], None]], restore: Callable[[], None]) -> list[float]:
        names = [name for name in ("own", *self.times) if name in self.times and name != "refused"]
        names = list(dict.fromkeys(names))
        assert len(runs) == len(names)
        self.timed.append(names)
        for run in runs:
            restore()
            run()
        return [self.times[name] for name in names]

    def make(self) -> Any:
        names = ["x_ptr", "y_ptr", "n", "BLOCK"]
        of = Tuning("key", names, "own", self.choices, self.load, lambda: self.written, self.said.append, self.timer)
        return tuned(bridge.load_plain(add_source()), of)


def launch(kernel: Any, grid: tuple[int, int, int] = (8, 1, 1), n: int = 1024) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.zeros(n), torch.zeros(n)
    kernel[grid](x, y, n, 128)
    return x, y


def test_the_fastest_is_kept(driver: FakeDriver) -> None:
    kernels = Kernels({"own": 10.0, "slow": 12.0, "fast": 8.0})
    kernel = kernels.make()
    x, y = launch(kernel)
    assert kernels.timed == [["own", "slow", "fast"]]
    *trials, real = driver.launches
    assert len(trials) == 3 and real.arguments[1] is y and real.arguments[0] is x
    for trial in trials:  # what is written is a copy, what is read is not
        assert trial.arguments[0] is x and trial.arguments[1] is not y and trial.arguments[1].shape == y.shape
    assert "fast 8.0 us, own 10.0 us, slow 12.0 us; fast runs from now on" in kernels.said[0]
    launch(kernel)
    assert len(driver.launches) == 5 and len(kernels.timed) == 1


def test_what_gains_less_than_a_hundredth_is_not_taken(driver: FakeDriver) -> None:
    kernels = Kernels({"own": 10.0, "other": 9.95})
    launch(kernels.make())
    assert "own runs from now on" in kernels.said[0]


def test_a_choice_is_stored_with_its_plan(driver: FakeDriver) -> None:
    launch(Kernels({"own": 10.0, "fast": 8.0}).make())
    again = Kernels({"own": 10.0, "fast": 8.0})
    launch(again.make())
    assert again.timed == [] and again.searches == 0 and list(again.loaded) == ["plan of fast"] and again.said == []


def test_a_stored_choice_of_its_own_needs_no_search(driver: FakeDriver) -> None:
    launch(Kernels({"own": 7.0, "fast": 8.0}).make())
    again = Kernels({"own": 7.0, "fast": 8.0})
    launch(again.make())
    assert again.timed == [] and again.searches == 0 and again.loaded == {}


def test_launches_of_another_size_are_measured_anew(driver: FakeDriver) -> None:
    kernels = Kernels({"own": 10.0, "fast": 8.0})
    kernel = kernels.make()
    launch(kernel, n=1024)
    launch(kernel, n=1500)  # as many bits
    assert len(kernels.timed) == 1
    launch(kernel, n=4096)
    launch(kernel, (64, 1, 1), n=4096)
    assert len(kernels.timed) == 3


def test_an_empty_grid_measures_nothing(driver: FakeDriver) -> None:
    kernels = Kernels({"own": 10.0, "fast": 8.0})
    launch(kernels.make(), (0, 1, 1))
    assert kernels.timed == []


def test_plans_that_may_not_run_are_left_out(driver: FakeDriver) -> None:
    kernels = Kernels({"own": 10.0, "refused": 1.0, "fast": 8.0})
    launch(kernels.make())
    assert kernels.timed == [["own", "fast"]] and "refused" not in kernels.said[0]


def test_nothing_else_to_measure(driver: FakeDriver) -> None:
    kernels = Kernels({"own": 10.0})
    launch(kernels.make())
    assert kernels.timed == [] and kernels.said == ["nothing was measured: there is no other plan; own runs"]


def test_unknown_writes_are_not_risked(driver: FakeDriver) -> None:
    kernels = Kernels({"own": 10.0, "fast": 8.0}, written=None)
    launch(kernels.make())
    assert kernels.timed == [] and "not known what the kernel writes" in kernels.said[0] and len(driver.launches) == 1


def test_a_graph_runs_what_the_model_chose(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    capturing = [True]
    cuda = SimpleNamespace(
        is_available=lambda: True, is_current_stream_capturing=lambda: capturing[0], get_device_name=lambda: "card"
    )
    monkeypatch.setattr(tuning, "torch", SimpleNamespace(cuda=cuda))
    kernels = Kernels({"own": 10.0, "fast": 8.0})
    kernel = kernels.make()
    launch(kernel)
    assert kernels.timed == [] and "captured in a graph" in kernels.said[0] and len(driver.launches) == 1
    capturing[0] = False
    launch(kernel)
    assert len(kernels.timed) == 1


# --------------------------------------------------------------------------------------------- the whole of it


def test_a_kernel_under_tune(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The planner's own plan and another one, checked and compiled; the second function knows the choice."""
    monkeypatch.setattr(persistent.Tables, "get", host_tables.get)
    counts: list[int] = []

    def timer(runs: Sequence[Callable[[], None]], restore: Callable[[], None]) -> list[float]:
        restore()
        for run in runs:
            run()
        counts.append(len(runs))
        return [10.0, *(5.0 + at for at in range(len(runs) - 1))]

    monkeypatch.setattr(tuning, "time_on_gpu", timer)
    a = TensorDescriptor.from_tensor(torch.empty(256, 256, dtype=torch.float16), [128, 64])
    b = TensorDescriptor.from_tensor(torch.empty(256, 256, dtype=torch.float16), [64, 128])
    out = torch.empty(256, 256, dtype=torch.float16)
    for _ in range(2):
        kernel = wspec.compile(gemm, tune=2, gate="off")
        kernel[(2, 2)](a, b, out, 256, 256, **GEMM_BLOCKS, num_warps=8)
    assert counts == [2]  # the planner's own and one more; under gate=off the plain kernel is not asked
    assert driver.launches[-1].arguments[2] is out and driver.launches[0].arguments[2] is not out
    assert capsys.readouterr().err.count("[tuned]") == 1


def test_without_tune_nothing_is_different() -> None:
    kernel = wspec.compile(add, enabled=False, tune=4, remarks="off")
    assert "Tuned" not in type(kernel.outcome("*fp32:16", "*fp32:16", "i32").kernel).__name__
