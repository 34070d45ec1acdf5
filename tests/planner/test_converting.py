"""Loops whose groups make an operand of their own products: which those are, and what the model expects of them."""

from __future__ import annotations

import pytest
import torch

from tests.support.cases import odd_cases, our_attention, our_matmul
from tests.support.compiling import Case, plain_module
from wspec.ir.core import Operation
from wspec.ir.shapes import DOTS
from wspec.kernels.matmul import Config as Tile
from wspec.kernels.quantized import Config, specialized_kernel
from wspec.lab.bench.quantized import Case as Product
from wspec.lab.bench.quantized import make_inputs, make_launch
from wspec.model.machine import load_machine
from wspec.model.operations import loop_work
from wspec.planner.converting import converting_cycles, converts

H200 = load_machine("h200")


def hot_loop(case: Case) -> Operation:
    loops = [op for op in plain_module(case).walk() if op.name == "scf.for"]
    return next(loop for loop in loops if any(op.name in DOTS for op in loop.walk()))


@pytest.mark.parametrize("name", ["dequantized_a", "dequantized_b"])
def test_what_is_computed_from_a_tile_converts(name: str) -> None:
    assert converts(hot_loop(next(case for case in odd_cases() if case.name == name)))


@pytest.mark.parametrize("case", [our_attention(64, False, "bf16"), our_matmul(Tile(), True, "bf16")], ids=str)
def test_loaded_tiles_and_products_do_not(case: Case) -> None:
    assert not converts(hot_loop(case))


def test_blocks_share_and_groups_hide() -> None:
    loop = hot_loop(next(case for case in odd_cases() if case.name == "dequantized_a"))
    work = loop_work(loop, H200)
    alone, plain = converting_cycles(loop, work, 1, 1, 0.0, 0.0, H200)
    assert plain > alone > work.mma + work.compute
    assert converting_cycles(loop, work, 1, 2, 0.0, 0.0, H200)[0] < alone
    assert converting_cycles(loop, work, 2, 1, 0.0, 0.0, H200)[0] >= alone / 2
    assert converting_cycles(loop, work, 1, 1, 0.0, 500.0, H200) == (alone + 500.0, plain)
    assert converting_cycles(loop, work, 1, 1, 500.0, 0.0, H200)[0] > alone


@pytest.mark.parametrize(
    ("bits", "tile", "blocks", "helpers"),
    [
        (8, Config(16), 1, []),
        (8, Config(128), 1, []),
        (8, Config(256, 64, 64), 1, ["convert"]),
        (8, Config(64), None, []),
        (4, Config(64), 1, ["convert"]),
        (4, Config(64), None, []),
        (4, Config(128), 1, ["convert"]),
        (4, Config(256, 64, 64), 1, ["convert"]),
    ],
)
def test_a_third_task_where_it_was_faster(bits: int, tile: Config, blocks: int | None, helpers: list[str]) -> None:
    """With as many blocks on an SM as the launch has there: docs/chains.md."""
    small = Product(bits, 16, 256, 1024)
    launch = make_launch(small, make_inputs(small, torch.device("cpu"), 0), tile)
    plan = specialized_kernel(bits, blocks).plan(*launch.args, **launch.meta)
    assert plan is not None and [task.name for task in plan.helpers] == helpers
