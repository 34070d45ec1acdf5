"""Kernels that are not specialized, with descriptors in the place of pointers: promote=1 alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

import wspec
from tests.bridge.fake_card import Card
from tests.bridge.fake_driver import FakeDriver
from wspec.bridge import generic_text, promoted, undivided
from wspec.bridge.text import reparse
from wspec.execute import Kernel
from wspec.execute.arguments import parameters
from wspec.ir import read
from wspec.lab.bench.pointer_cases import packed_case
from wspec.lab.bench.pointer_kernels import product
from wspec.lab.persistent_launch import descriptors_of

META = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP": 8, "num_warps": 4, "num_stages": 3}
ROWS = {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 2}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setattr(triton.runtime.driver, "_active", fake)
    return fake


def arguments(m: int, n: int, k: int, pitch: int = 0) -> tuple[Any, ...]:
    """Of a product: matrices of small integers whose rows are `pitch` elements longer than their columns."""
    shapes = (m, k), (k, n), (m, n)
    a, b, c = (torch.randint(-3, 4, (rows, columns + pitch)).bfloat16()[:, :columns] for rows, columns in shapes)
    return (a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride())


def grid(m: int, n: int) -> tuple[int]:
    return (triton.cdiv(m, 64) * triton.cdiv(n, 64),)


def described(driver: FakeDriver) -> int:
    """The descriptors of the one launch that there was."""
    (done,) = driver.launches
    driver.launches.clear()
    return sum(isinstance(one, TensorDescriptor) for one in done.arguments)


def executed(compiled: Any, arguments: tuple[Any, ...], grid: tuple[int, ...], meta: dict[str, Any]) -> None:
    """Run what a launch would, in the executor."""
    outcome = compiled._offline(arguments, meta).outcome()
    assert outcome.promoted and not outcome.specialized
    module = Kernel(read(generic_text(reparse(outcome.kernel.asm["ttgir"]))))
    known, whole = parameters(module.function), (*grid, 1, 1)[:3]
    given = dict(zip(compiled.arg_names, arguments, strict=False))
    given |= descriptors_of(outcome.result.promotion, known, whole, given)
    module.run(whole, {one.name: given[one.name] for one in known})


def test_asked_for(driver: FakeDriver, capsys: pytest.CaptureFixture[str]) -> None:
    """The launch makes descriptors, or runs the plain kernel where they would be others."""
    kernel = wspec.compile(product, specialize=False, promote=True)
    for pitch, count in ((0, 3), (8, 3), (4, 0), (1, 0)):
        kernel[grid(128, 192)](*arguments(128, 192, 256, pitch), **META)
        assert described(driver) == count, pitch
    said = capsys.readouterr().err
    assert "not specialized, but 3 tiles that went through pointers go through tensor descriptors [promoted]" in said
    assert "no kernel is divided into tasks" in said and "no multiple of 16" in said


def test_the_outcome_says_so(driver: FakeDriver) -> None:
    kernel = wspec.compile(product, specialize=False, promote=True, remarks="off")
    outcome = kernel.outcome(*arguments(128, 192, 256), **META)
    assert outcome.promoted and not outcome.specialized and outcome.plan is None
    assert outcome.reason is not None and outcome.reason.code == "disabled"
    text = str(outcome)
    assert "not specialized, with descriptors for its pointers" in text
    assert "a_ptr_tiles: tiles that the kernel finds through a_ptr are boxes of 64 x 64 of a descriptor" in text
    assert outcome.guarded == (("a_ptr", "c_ptr"), ("b_ptr", "c_ptr"))
    assert outcome.kernel.asm["ptx"].count("cp.async.bulk.tensor") > 3
    kernel[grid(128, 192)](*arguments(128, 192, 256), **META)
    assert "with descriptors, not specialized: disabled" in wspec.report().entries[-1].reason


def test_the_cache_has_it(driver: FakeDriver) -> None:
    for _ in range(2):
        kernel = wspec.compile(product, specialize=False, promote=True, remarks="off")
        kernel[grid(128, 192)](*arguments(128, 192, 256), **META)
        assert described(driver) == 3


def test_memory_that_is_shared(driver: FakeDriver) -> None:
    """The copy engine does not see what a kernel's threads have just stored."""
    kernel = wspec.compile(product, specialize=False, promote=True, remarks="off")
    a, b, _, *numbers = arguments(128, 128, 128)
    kernel[grid(128, 128)](a, b, a, *numbers, **META)
    assert described(driver) == 0


@pytest.mark.parametrize(("pitch", "count"), [(0, 0), (8, 3), (1, 0)])
def test_by_default(driver: FakeDriver, pitch: int, count: int) -> None:
    """Where Triton copies elements one by one: it does not know that 16 bytes of rows of 200 elements are aligned."""
    kernel = wspec.compile(product, specialize=False, remarks="off")
    kernel[grid(128, 192)](*arguments(128, 192, 192, pitch), **META)
    assert described(driver) == count


def test_never(driver: FakeDriver) -> None:
    kernel = wspec.compile(product, specialize=False, promote=False, remarks="off")
    kernel[grid(128, 192)](*arguments(128, 192, 192, 8), **META)
    assert described(driver) == 0


def test_declined_by_the_gate(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is left alone for its speed has descriptors where they are asked for."""
    kernel = wspec.compile(product, promote=True, remarks="off")
    small = {**META, "BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}  # no tile for the asynchronous tensor cores
    outcome = kernel.outcome(*arguments(128, 192, 256), **small)
    assert not outcome.specialized and outcome.promoted and outcome.reason is not None


@pytest.mark.parametrize("sizes", [(128, 192, 256), (100, 72, 200), (1, 8, 16)])
def test_products(driver: FakeDriver, sizes: tuple[int, int, int]) -> None:
    compiled = wspec.compile(product, specialize=False, promote=True, remarks="off")
    given = arguments(*sizes)
    executed(compiled, given, grid(*sizes[:2]), META)
    a, b, c = given[:3]
    assert torch.equal(c.float(), (a.float() @ b.float()).bfloat16().float())


def test_packed_sequences(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promoted, "grounds", lambda device: Card().grounds)
    case = packed_case((70, 0, 1, 130), 128, True, "cpu", 256)

    class Executed:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            def launch(*given: Any, **meta: Any) -> None:
                compiled = wspec.compile(case.kernel, specialize=False, promote=True, remarks="off")
                executed(compiled, given, grid, meta)

            return launch

    torch.testing.assert_close(case.launch(Executed(), ROWS), case.theirs(), rtol=2e-2, atol=2e-2)


def test_what_does_not_compile_is_said(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plain kernel runs."""

    def fails(text: str, source: object) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(undivided, "finish_as_triton", fails)
    compiled = wspec.compile(product, specialize=False, promote=True)
    compiled[grid(128, 192)](*arguments(128, 192, 256), **META)
    assert not any(isinstance(one, TensorDescriptor) for one in driver.launches[0].arguments)
    assert (
        "keeps its pointers: with descriptors it does not compile: RuntimeError: no such luck"
        in capsys.readouterr().err
    )
