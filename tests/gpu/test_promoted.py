"""Kernels written with pointers on a GPU: the same numbers as plain, whatever strides and sizes, and specialized."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import wspec
from tests.passes.pointer_promotion import sequences
from tests.passes.pointer_promotion.traps import Launch, draw, executed, launch_of, loaded, lowered
from wspec.lab.bench import pointer_kernels
from wspec.lab.bench.pointer_cases import (
    ROWS,
    TILES,
    Case,
    attention_case,
    experts_case,
    packed_case,
    paged_case,
    product_case,
)

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


LOADED = (
    *(packed_case((300, 0, 1, 2049, 64), dim, causal) for dim in (64, 128) for causal in (False, True)),
    experts_case(8, 3000, 1000, 520),
    experts_case(3, 300, 136, 72),
    paged_case((300, 1, 0, 64), (1000, 77, 64, 64), 128),
) if torch.cuda.is_available() else ()  # fmt: skip


@pytest.mark.parametrize("meta", range(3))
@pytest.mark.parametrize("case", LOADED, ids=lambda case: case.name)
def test_numbers_in_memory(case: Case, meta: int) -> None:
    """Packed sequences, experts and pages; the last ones are left alone, for threads cannot copy their tiles ahead."""
    ours = wspec.compile(case.kernel, gate="off")
    configuration = case.configurations[meta]
    found = case.launch(ours, configuration)
    torch.testing.assert_close(found, case.theirs(), rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(found, case.launch(case.kernel, configuration), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("case", LOADED, ids=lambda case: case.name)
def test_descriptors_alone(case: Case) -> None:
    """In kernels that are not specialized."""
    ours = wspec.compile(case.kernel, specialize=False, promote=True, trials=0)
    torch.testing.assert_close(case.launch(ours, case.configurations[1]), case.theirs(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_with_descriptors_alone(shape: tuple[int, int, int]) -> None:
    case = product_case(*shape, False)
    ours = wspec.compile(case.kernel, specialize=False, promote=True, trials=0)
    assert torch.equal(case.launch(ours, TILES[1]), case.launch(case.kernel, TILES[1]))


@pytest.mark.parametrize("shape", [(512, 512, 512), (129, 1000, 1000), (2000, 1304, 1040)], ids=str)
def test_steps_of_half_the_depth(shape: tuple[int, int, int]) -> None:
    """Bit for bit: the same products are added in the same order."""
    case, meta = product_case(*shape, False), {**TILES[1], "BLOCK_K": 128, "num_stages": 2}
    ours = wspec.compile(case.kernel, gate="off", strict=True)
    assert torch.equal(case.launch(ours, meta), case.launch(case.kernel, meta))


@pytest.mark.parametrize("seed", range(2000, 2040))
def test_drawn_kernels_with_numbers_in_memory(seed: int, tmp_path: Path) -> None:
    """Those of sequences.py, as below."""
    pick = random.Random(seed + 1)
    plain = loaded(sequences.draw(seed), tmp_path, f"s{seed}")
    on_the_card(plain, [sequences.launch_of(pick) for _ in range(3)])


def test_rows_that_do_not_fit_run_plain(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = torch.randn(300, 203, device="cuda").half(), torch.randn(203, 333, device="cuda").half()
    c = torch.empty(300, 333, device="cuda").half()
    kernel = wspec.compile(pointer_kernels.product, gate="off")
    kernel[(9,)](a, b, c, 300, 333, 203, *a.stride(), *b.stride(), *c.stride(), **TILES[1])
    torch.testing.assert_close(c, a @ b, rtol=2e-2, atol=2e-2)
    assert "no multiple of 16" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(1000, 1060))
def test_drawn_kernels(seed: int, tmp_path: Path) -> None:
    """Those of tests/passes/pointer_promotion, by default and with gate=off, against the executor.

    Tensors have room around them. The plain kernel on the card is no judge: tiles of 32 columns are known to be read
    out of bounds there (Triton's issue 11366).
    """
    trap, pick = draw(seed), random.Random(seed + 1)
    plain = loaded(trap.source, tmp_path, f"g{seed}")
    on_the_card(plain, [launch_of(trap, pick, (64, pick.choice([32, 64]), pick.choice([32, 64]))) for _ in range(2)])


def on_the_card(plain: Any, launches: Sequence[Launch]) -> None:
    """Launches of a drawn kernel, by default and with gate=off, write what the executor does."""
    kernels: list[Any] = [wspec.compile(plain, gate="off", remarks="off"), wspec.compile(plain, remarks="off")]
    for launch in launches:
        expected = executed(lowered(plain, launch), launch, None)
        if not isinstance(expected, torch.Tensor):
            continue  # it reads outside of its tensors
        room = 1 << 16
        held = [torch.zeros(2 * room + one.numel(), device="cuda", dtype=one.dtype) for one in launch.tensors]
        for whole, one in zip(held, launch.tensors, strict=True):
            whole[room : room + one.numel()] = one.cuda()
        tables = [table.cuda() for table in launch.tables.values()]
        for kernel in kernels:
            c = held[2].clone()
            given = [held[0][room:], held[1][room:], c[room:], *tables]
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
