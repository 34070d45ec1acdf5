"""The order of the rings, in which a step's copies are issued."""

from __future__ import annotations

from typing import Any

import pytest
import triton
import triton.language as tl

from tests.support.cases import desc, odd_cases, product
from tests.support.compiling import Case, outcome
from wspec.plan.plan import Plan
from wspec.show.explain import done

ODD = {case.name: case for case in odd_cases()}


def plan_of(case: Case, **options: Any) -> Plan:
    plan = outcome(case, gate="off", **options).plan
    assert plan is not None
    return plan


def streamed(plan: Plan) -> list[str]:
    return [channel.name for channel in plan.channels if channel.streams]


@pytest.mark.parametrize("options", [{}, {"persistent": True}, {"shared_barriers": False}, {"raster": True}], ids=str)
@pytest.mark.parametrize(
    ("box", "channels"), [((128, 64), ["b", "a"]), ((64, 128), ["a", "b"]), ((128, 128), ["a", "b"])], ids=str
)
def test_the_larger_tile_of_a_product_comes_last(
    box: tuple[int, int], channels: list[str], options: dict[str, Any]
) -> None:
    options = {"persistent": "raster" in options} | options
    plan = plan_of(product(*box, 64), **options)
    assert streamed(plan) == channels
    said = [line for line in done(plan, {}) if "each step asks for" in line]
    assert said == (
        ["each step asks for a behind b: more of a larger tile reaches several SMs at once so"]
        if channels == ["b", "a"]
        else []
    )


@triton.jit
def product_of_a_product(a_desc, b_desc, c_desc, d_desc, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_n = tl.cdiv(n, BN)
    row, column = tl.program_id(0) // tiles_n * BM, tl.program_id(0) % tiles_n * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, k, BK):
        total = tl.dot(a_desc.load([row, step]), b_desc.load([step, column]), total)
    c_desc.store([row, column], tl.dot(total.to(tl.float16), d_desc.load([0, 0])).to(tl.float16))


def test_beside_a_product_behind_the_loop() -> None:
    """Which the loop over tiles has in it."""
    types = {"a_desc": desc(128, 64), "b_desc": desc(64, 64), "c_desc": desc(128, 64), "d_desc": desc(64, 64)}
    blocks = {"BM": 128, "BN": 64, "BK": 64, "num_warps": 4}
    case = Case("twice", product_of_a_product, types | dict.fromkeys("nk", "i32:16"), blocks)
    plan = plan_of(case, persistent=True)
    assert plan.raster.value is not None and plan.raster.value.larger
    assert streamed(plan)[:2] == ["b", "a"] and len(plan.channels) == 3


@triton.jit
def products_in_turn(q_desc, k_desc, v_desc, o_desc, n, BM: tl.constexpr, BN: tl.constexpr, DV: tl.constexpr):
    row = tl.program_id(0) * BM
    q = q_desc.load([row, 0])
    total = tl.zeros((BM, DV), dtype=tl.float32)
    for key in range(0, n, BN):
        k = k_desc.load([key, 0])
        v = v_desc.load([key, 0])
        total = tl.dot(tl.dot(q, k.T).to(tl.float16), v, total)
    o_desc.store([row, 0], total.to(tl.float16))


def test_what_another_product_reads_keeps_its_turn() -> None:
    """Keys are wider than values, and are needed first."""
    types = {"q_desc": desc(64, 128), "k_desc": desc(64, 128), "v_desc": desc(64, 64), "o_desc": desc(64, 64)}
    case = Case("turns", products_in_turn, types | {"n": "i32:16"}, {"BM": 64, "BN": 64, "DV": 64, "num_warps": 4})
    plan = plan_of(case)
    assert streamed(plan) == ["k", "v"]
    sizes = {channel.name: channel.buffer_bytes for channel in plan.channels}
    assert sizes["k"] > sizes["v"]
