"""Kernels that nobody decorated, while a switch is on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

import wspec
from tests.bridge.fake_driver import FakeDriver
from tests.bridge.sample_kernels import GEMM_BLOCKS, FakeSpecialize, add, gemm
from wspec.bridge import WspecFunction

PLAIN = [kind.run for kind in (JITFunction, Autotuner, Heuristics)]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setattr(triton.runtime.driver, "_active", fake)
    return fake


@pytest.fixture
def specialize(monkeypatch: pytest.MonkeyPatch) -> FakeSpecialize:
    fake = FakeSpecialize()
    monkeypatch.setattr("wspec.pipeline.specialize", fake)
    return fake


def fresh(kernel: Any = add) -> Any:
    """A kernel that was never launched."""
    return triton.jit(kernel.fn)


def x() -> torch.Tensor:
    return torch.empty(1024)


def test_on_off_and_on(driver: FakeDriver, specialize: FakeSpecialize) -> None:
    """What is compiled with it on is not found with it off, and what is compiled with it off not with it on."""
    kernel = fresh()
    plain = kernel[(8,)](x(), x(), 1024)
    with wspec.enable(remarks="off"):
        ours = kernel[(8,)](x(), x(), 1024)
        assert kernel[(4,)](x(), x(), 1024) is ours
    assert kernel[(8,)](x(), x(), 1024) is plain
    assert "wspec" in ours.asm and "wspec" not in plain.asm
    assert specialize.calls == 1 and len(driver.launches) == 4
    assert [kind.run for kind in (JITFunction, Autotuner, Heuristics)] == PLAIN


def test_what_others_put_over_a_launch_stays(
    driver: FakeDriver, specialize: FakeSpecialize, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profiler that comes while it is on sees launches afterwards too, and so it does when it is on again."""
    monkeypatch.setattr(JITFunction, "run", JITFunction.run)
    seen: list[Any] = []
    with wspec.enable(remarks="off"):
        inner = JITFunction.run

        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(self.fn)
            return inner(self, *args, **kwargs)

        monkeypatch.setattr(JITFunction, "run", run)
    kernel = fresh()
    assert "wspec" not in kernel[(8,)](x(), x(), 1024).asm and seen == [add.fn]
    with wspec.enable(remarks="off"):
        assert "wspec" in kernel[(8,)](x(), x(), 1024).asm
    assert "wspec" not in kernel[(8,)](x(), x(), 1024).asm and JITFunction.run is run
    assert Autotuner.run is PLAIN[1]


def test_its_own_kernels_are_none_of_the_process(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels that write tables of tiles are part of launching others."""
    from wspec import ledger
    from wspec.bridge.fill_table import dividing, filling

    monkeypatch.setattr(ledger, "_ledger", ledger._Ledger())
    with wspec.enable(remarks="off"):
        filling()
        dividing()
    assert wspec.report().entries == () and wspec.report().launches == {}


def test_warming_up_is_no_launch(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    from wspec import ledger

    monkeypatch.setattr(ledger, "_ledger", ledger._Ledger())
    with wspec.enable(remarks="off"):
        fresh().warmup(x(), x(), 1024, grid=(8,))
    assert len(wspec.report().entries) == 1 and wspec.report().launches == {}


def test_many_arguments_are_cut_short() -> None:
    """In the table; entries have all."""
    from wspec.ledger import SHOWN, Entry, Summary

    many = ", ".join(f"argument_{at}: *bf16" for at in range(40))
    told = Entry("busy", "file.py:3", f"busy({many}; num_warps=8, num_stages=3)", True, "", 1.25, 0.5)
    text = "".join(str(Summary((told,), {"busy": 3})).replace("│", " ").split())
    assert "argument_0:*bf16,argument_1:*bf16," in text and ",...;num_warps=8,num_stages=3" in text
    assert "argument_39" not in text and len(text) < 3 * SHOWN + 800


def test_the_last_one_counts(driver: FakeDriver, specialize: FakeSpecialize) -> None:
    kernel, outer = fresh(), wspec.enable(remarks="off")
    with wspec.enable(enabled=False, remarks="off"):
        assert "wspec" not in kernel[(8,)](x(), x(), 1024).asm
    assert "wspec" in kernel[(8,)](x(), x(), 1024).asm
    outer.disable()
    outer.disable()  # twice is as good as once
    assert JITFunction.run is PLAIN[0]


def test_again_with_the_same_options_a_kernel_is_as_it_was_left(
    driver: FakeDriver, specialize: FakeSpecialize, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of a program that enters it each time compiles and tunes once."""
    tuned = []
    configs = [triton.Config({"BLOCK": block}) for block in (128, 256)]
    kernel = triton.autotune(configs, ["n"])(fresh())
    monkeypatch.setattr(Autotuner, "_bench", lambda self, *args, config, **meta: tuned.append(config) or 1.0)
    for _ in range(3):
        with wspec.enable(remarks="off", compile_jobs=1):
            ours = kernel[(8,)](x(), x(), 1024)
    assert "wspec" in ours.asm and len(tuned) == 2
    with wspec.enable(remarks="off", compile_jobs=1, depth=2):
        kernel[(8,)](x(), x(), 1024)
    assert len(tuned) == 4, "other options are another kernel"


def test_autotuned_kernels(driver: FakeDriver, specialize: FakeSpecialize, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is tuned, and its owner finds what tuning left behind."""
    configs = [triton.Config({"BLOCK": block}) for block in (128, 256)]
    kernel = triton.heuristics({"n": lambda args: 1024})(triton.autotune(configs, ["x_ptr"])(fresh()))
    monkeypatch.setattr(Autotuner, "_bench", lambda self, *args, config, **meta: float(config.kwargs["BLOCK"]))
    with wspec.enable(remarks="off", compile_jobs=1):
        ran = kernel[(8,)](x(), x())
    assert "wspec" in ran.asm
    assert isinstance(kernel.fn, Autotuner) and type(kernel.fn.fn) is JITFunction
    tuner = triton.autotune(configs, ["n"])(fresh())
    with wspec.enable(remarks="off", compile_jobs=1):
        tuner[(8,)](x(), x(), 1024)
    assert tuner.best_config.kwargs == {"BLOCK": 128}


def test_a_kernel_with_a_decorator_of_its_own(driver: FakeDriver, specialize: FakeSpecialize) -> None:
    kernel = wspec.compile(fresh(), enabled=False, remarks="off")
    with wspec.enable():
        assert "wspec" not in kernel[(8,)](x(), x(), 1024).asm, "its own options hold"
    assert isinstance(kernel, WspecFunction)


def test_report(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from wspec import ledger

    monkeypatch.setattr(ledger, "_ledger", ledger._Ledger())
    assert str(wspec.report()) == "wspec: no kernel was compiled"
    a, b = (
        triton.tools.tensor_descriptor.TensorDescriptor.from_tensor(torch.empty(256, 256, dtype=torch.float16), block)
        for block in ([128, 64], [64, 128])
    )
    with wspec.enable(gate="off", persistent=False):
        fresh()[(8,)](x(), x(), 1024)
        product = fresh(gemm)
        for _ in range(3):
            product[(2, 2)](a, b, torch.empty(256, 256, dtype=torch.float16), 256, 256, **GEMM_BLOCKS, num_warps=8)
    found = wspec.report()
    left, done = found.entries
    assert (left.kernel, left.specialized, left.gain) == ("add", False, None) and left.reason.startswith("no-loop: ")
    assert done.specialized and done.reason == "" and done.gain is not None and done.seconds > 0
    assert done.place.startswith("sample_kernels.py:")
    assert found.launches == {"add": 1, "gemm": 3}
    assert "1 of 2 compiled kernels specialized" in str(found)
