"""Tiles that begin and end at numbers in memory: packed sequences, experts, pages.

Drawn kernels against their promoted forms, and whole kernels of those kinds, specialized, in the executor.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

import wspec
from tests.bridge.fake_driver import FakeDriver
from tests.passes.pointer_promotion.sequences import same
from tests.passes.pointer_promotion.traps import Count
from wspec.execute import Kernel
from wspec.execute.arguments import parameters
from wspec.host_descriptors import MOST_BEFORE, SPAN, HostDescriptor, Promotion, Term
from wspec.ir import read
from wspec.lab.bench.pointer_cases import experts_case, packed_case, paged_case
from wspec.lab.persistent_launch import descriptors_of


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setattr(triton.runtime.driver, "_active", fake)
    return fake


@pytest.mark.parametrize("seed", range(16))
def test_drawn_kernels_are_the_same(seed: int, tmp_path: Path) -> None:
    count = Count()
    assert same(seed, tmp_path, count, launches=2) == []
    assert count.launches == 2


def test_drawn_kernels_are_promoted(tmp_path: Path) -> None:
    """Otherwise nothing is tested."""
    count = Count()
    for seed in range(16, 32):
        same(seed, tmp_path, count, launches=2)
    assert count.promoted >= 8 and count.compared >= 6, count


def test_drawn_kernels_specialized(tmp_path: Path) -> None:
    """Divided into tasks as well: the producer loads numbers too, and counts rows."""
    count = Count()
    for seed in range(32, 48):
        assert same(seed, tmp_path, count, launches=2, divided=True) == []
    assert count.specialized >= 4, count


class Executed:
    """Stands for a kernel: a launch of it specializes it, shows that it is promoted, and runs it in the executor."""

    def __init__(self, kernel: Any, boxes: int, **options: Any) -> None:
        self.kernel, self.boxes = kernel, boxes
        self.compiled = wspec.compile(kernel, gate="off", persistent=False, remarks="off", **options)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: Any, **meta: Any) -> None:
            made = self.compiled._offline(arguments, meta)
            outcome = made.outcome()
            assert outcome.specialized and outcome.proof.startswith("proved"), outcome.reason
            promotion = outcome.result.promotion
            assert promotion is not None and len(promotion.descriptors) == self.boxes
            module = Kernel(read(made.dump("specialized")))
            known = parameters(module.function)
            given = dict(zip(self.kernel.arg_names, arguments, strict=False))
            given |= descriptors_of(promotion, known, (*grid, 1, 1)[:3], given)
            module.run((*grid, 1, 1)[:3], {one.name: given[one.name] for one in known})

        return launch


ROWS = {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 2}
CASES = {
    "sequences": (packed_case((70, 0, 1, 130), 128, False, "cpu", 256), 4, ROWS),
    "causal sequences": (packed_case((64, 129), 128, True, "cpu", 256), 4, ROWS),
    "experts": (
        experts_case(3, 150, 136, 200, "cpu"), 3,
        {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4, "num_stages": 2},
    ),
    "pages": (paged_case((30, 0, 65), (30, 70, 200), 128, "cpu", 256), 4, ROWS),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_whole_kernels(name: str, driver: FakeDriver) -> None:
    case, boxes, meta = CASES[name]
    torch.testing.assert_close(case.launch(Executed(case.kernel, boxes), meta), case.theirs(), rtol=2e-2, atol=2e-2)


# ------------------------------------------------------------------------------------------- what a launch makes


def free(pitch: int) -> Promotion:
    """Boxes of 64 rows of `pitch` bf16 values, of which only the kernel knows where they begin."""
    row = (Term(pitch),)
    one = HostDescriptor("a_tiles", 0, "bf16", 2, (64, 64), (), (None, (Term(100),)), (row, (Term(1),)), (None, None))
    assert one.is_free(0) and not one.is_free(1)
    return Promotion((), (one,), ())


@pytest.mark.parametrize("pitch", [104, 128, 4096, 1 << 20])
def test_a_free_dimension_reaches_all_memory(pitch: int) -> None:
    made = free(pitch).of((1, 1, 1), {})
    assert not isinstance(made, str)
    half = made[0].shape[0] // 2
    assert made[0].offset == -half * pitch * 2 and half <= MOST_BEFORE
    assert SPAN <= half * pitch * 2 < SPAN + pitch * 2


def test_rows_that_cannot_reach_it() -> None:
    assert "too few to reach all memory" in str(free(64).of((1, 1, 1), {}))
    assert "too few to reach all memory" in str(free(-4096).of((1, 1, 1), {}))
