"""Kernels written with pointers on a GPU: the same numbers as plain, whatever strides and sizes, and specialized."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

import wspec
from tests.passes.pointer_promotion.traps import draw, executed, launch_of, loaded, lowered
from wspec.lab.bench import pointer_kernels
from wspec.lab.bench.pointers import ROWS, TILES, attention_case, product_case

pytestmark = pytest.mark.gpu

SHAPES = [(512, 512, 512), (300, 264, 208), (1, 8, 16), (129, 1000, 1000), (2000, 1304, 1040), (777, 776, 72)]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("tile", range(len(TILES)))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products(shape: tuple[int, int, int], tile: int, turned: bool) -> None:
    """Bit for bit: the same products are added in the same order."""
    case = product_case(*shape, turned)
    ours = wspec.compile(case.kernel, gate="off", strict=True)
    assert torch.equal(case.launch(ours, TILES[tile]), case.launch(case.kernel, TILES[tile]))


@pytest.mark.parametrize("rows", range(len(ROWS)))
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "dim"), [(1000, 64), (512, 128), (3001, 128), (64, 64)])
def test_attention(length: int, dim: int, causal: bool, rows: int) -> None:
    case = attention_case(length, dim, causal)
    ours = wspec.compile(case.kernel, gate="off", strict=True)
    torch.testing.assert_close(case.launch(ours, ROWS[rows]), case.theirs(), rtol=2e-2, atol=2e-2)


def test_rows_that_do_not_fit_run_plain(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = torch.randn(300, 203, device="cuda").half(), torch.randn(203, 333, device="cuda").half()
    c = torch.empty(300, 333, device="cuda").half()
    kernel = wspec.compile(pointer_kernels.product, gate="off")
    kernel[(9,)](a, b, c, 300, 333, 203, *a.stride(), *b.stride(), *c.stride(), **TILES[1])
    torch.testing.assert_close(c, a @ b, rtol=2e-2, atol=2e-2)
    assert "no multiple of 16" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_drawn_kernels(seed: int, tmp_path: Path) -> None:
    """Those of tests/passes/pointer_promotion, by default and with gate=off, against the executor.

    Tensors have room around them. The plain kernel on the card is no judge: tiles of 32 columns are known to be read
    out of bounds there (Triton's issue 11366).
    """
    trap, pick = draw(seed), random.Random(seed + 1)
    plain = loaded(trap, tmp_path, f"g{seed}")
    kernels: list[Any] = [wspec.compile(plain, gate="off", remarks="off"), wspec.compile(plain, remarks="off")]
    for _ in range(2):
        launch = launch_of(trap, pick, (64, pick.choice([32, 64]), pick.choice([32, 64])))
        expected = executed(lowered(plain, launch), launch, None)
        if not isinstance(expected, torch.Tensor):
            continue  # it reads outside of its tensors
        room = 1 << 16
        held = [torch.zeros(2 * room + one.numel(), device="cuda", dtype=one.dtype) for one in launch.tensors]
        for whole, one in zip(held, launch.tensors, strict=True):
            whole[room : room + one.numel()] = one.cuda()
        for kernel in kernels:
            c = held[2].clone()
            given = [held[0][room:], held[1][room:], c[room:]]
            blocks = dict(zip(("BM", "BN", "BK"), launch.blocks, strict=True))
            kernel[launch.grid](*given, *launch.numbers.values(), **blocks, num_warps=4, num_stages=2)
            assert torch.equal(c[room : room + expected.numel()].cpu(), expected), launch.numbers


def test_a_graph() -> None:
    case = product_case(512, 512, 512, False)
    ours = wspec.compile(case.kernel, gate="off", strict=True)
    expected = case.launch(ours, TILES[1])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = case.launch(ours, TILES[1])
    found.zero_()
    graph.replay()
    assert torch.equal(found, expected)
