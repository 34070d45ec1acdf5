"""Kernels on which other specializers fail: ours compiles them, runs them right, or leaves them alone with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton

import wspec
from tests.bridge.fake_driver import FakeDriver
from tests.outside.breakers import BREAKERS, Breaker, output
from wspec.execute.arguments import parameters
from wspec.execute.launch import Kernel
from wspec.ir import read
from wspec.lab.persistent_launch import descriptors_of

LEFT = {"small_tiles": "not-partitionable"}
TRITON_STOPS = ("pointer_loop", "two_loops", "varlen")  # in its own specialization

each_breaker = pytest.mark.parametrize("name", BREAKERS)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setattr(triton.runtime.driver, "_active", fake)
    return fake


def options(breaker: Breaker) -> dict[str, Any]:
    return {**breaker.constants, "num_warps": breaker.warps, "num_stages": breaker.stages}


@each_breaker
def test_numbers(name: str, driver: FakeDriver) -> None:
    """In the executor, specialized wherever it can be."""
    breaker = BREAKERS[name]
    kernel = wspec.compile(breaker.kernel, gate="off", persistent=False, remarks="off")
    arguments = breaker.arguments("cpu")
    made = kernel._offline(arguments, options(breaker))
    outcome = made.outcome()
    assert (outcome.reason.code if outcome.reason is not None else None) == LEFT.get(name)
    if not outcome.specialized:
        return
    assert outcome.proof.startswith("proved")
    module = Kernel(read(made.dump("specialized")))
    grid = (*breaker.grid, 1, 1)[:3]
    known = parameters(module.function)
    given = dict(zip(breaker.kernel.arg_names, arguments, strict=False))
    given |= descriptors_of(outcome.result.promotion, known, grid, given)
    module.run(grid, {name: given[name] for name in (one.name for one in known) if name in given})
    torch.testing.assert_close(
        output(breaker, arguments).double(), breaker.expected(arguments), rtol=breaker.tolerance, atol=breaker.tolerance
    )


@pytest.mark.slow
@each_breaker
def test_by_default(name: str, driver: FakeDriver) -> None:
    """A launch, as a user has it: something runs."""
    breaker = BREAKERS[name]
    kernel = wspec.compile(breaker.kernel, persistent=False, remarks="off")
    kernel[breaker.grid](*breaker.arguments("cpu"), **options(breaker))
    assert len(driver.launches) == 1


@pytest.mark.parametrize("name", TRITON_STOPS)
def test_what_triton_fails_to_specialize(name: str, driver: FakeDriver, capsys: pytest.CaptureFixture[str]) -> None:
    """The plain kernel of one that asks for Triton's own specialization does not have it where that fails."""
    breaker = BREAKERS[name]
    with pytest.raises(RuntimeError):
        breaker.kernel[breaker.grid](*breaker.arguments("cpu"), **options(breaker))
    kernel = wspec.compile(breaker.kernel, enabled=False)
    kernel[breaker.grid](*breaker.arguments("cpu"), **options(breaker))
    assert len(driver.launches) == 1
    assert "Triton's own specialization" in capsys.readouterr().err


def test_what_triton_specializes_wrongly(driver: FakeDriver, capsys: pytest.CaptureFixture[str]) -> None:
    """Of one that hangs as Triton 3.6 specializes it, the plain kernel does not have that either."""
    breaker = BREAKERS["odd_rows"]
    try:
        own = breaker.kernel.warmup(*breaker.arguments("cpu"), grid=breaker.grid, **options(breaker))
    except RuntimeError:
        if triton.__version__.startswith("3.6."):  # whose fault this is about
            raise
        pytest.skip("this Triton's passes fail on it")
    if "ttg.warp_specialize(" not in own.asm["ttgir"]:
        pytest.skip("this Triton does not specialize it")
    kernel = wspec.compile(breaker.kernel, enabled=False)
    loaded = kernel.warmup(*breaker.arguments("cpu"), grid=breaker.grid, **options(breaker))
    assert "ttg.warp_specialize(" not in loaded.asm["ttgir"]
    assert "is a barrier in use" in capsys.readouterr().err
    unchecked = wspec.compile(breaker.kernel, enabled=False, check="off")
    loaded = unchecked.warmup(*breaker.arguments("cpu"), grid=breaker.grid, **options(breaker))
    assert "ttg.warp_specialize(" in loaded.asm["ttgir"]
