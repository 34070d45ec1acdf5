"""Which tiles two blocks may share, and that the plan says why others are not.

What divided kernels compute is in tests/execute/test_machine_kernels.py and tests/gpu/test_division.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.cases import odd_cases
from tests.support.compiling import Case, outcome
from wspec.ir.assembly import AWAIT_WORD, SET_WORD
from wspec.ir.core import Operation
from wspec.ir.loc import value_name
from wspec.plan.plan import Plan
from wspec.tile_scheduler import TileCost
from wspec.tile_scheduler.workspace import PARTIALS, WORDS

ODD = {case.name: case for case in odd_cases()}
ASKED = {"persistent": True, "gate": "off", "blocks": 1, "chain": "off"}


def plan_of(case: Case, **options: object) -> Plan:
    plan = outcome(case, **{**ASKED, **options}).plan
    assert plan is not None
    return plan


def arguments_of(module: Operation) -> list[str | None]:
    function = next(op for op in module.walk() if op.name == "tt.func")
    return [value_name(arg.location) for arg in function.regions[0].block.args]


@pytest.mark.parametrize("name", ["gemm", "gemm_transposed", "two_products", "fp8", "dequantized_b", "rows_64_warps_4"])
def test_a_product_whose_blocks_walk_is_divided(name: str) -> None:
    """Verified, proved and taken by libtriton, as `outcome` sees to."""
    made = outcome(ODD[name], **ASKED)
    assert made.plan is not None and made.module is not None and made.plan.divided and not made.plan.not_divided
    assert arguments_of(made.module)[-1] == PARTIALS
    code = [op.str_attr("asm_string") for op in made.module.walk() if op.name == "tt.elementwise_inline_asm"]
    groups = made.plan.consumer.replicas
    assert code.count(AWAIT_WORD) == code.count(SET_WORD) == groups
    cost = TileCost.from_text(made.plan.tiles)
    assert cost.divides >= 0 and cost.handing > made.plan.prediction.overhead_cycles > 0


def test_words_for_every_thread_and_room_for_all_sums() -> None:
    made = plan_of(ODD["gemm"])
    tile = TileCost.from_text(made.tiles)
    assert tile.slot == 128 * 128 and 32 * made.consumer.warps * made.consumer.replicas <= WORDS


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("attention_masked", "carries more than sums"),
        ("attention_two_loops", "2 loops that multiply"),
        ("dot_behind", "multiplies outside of its loop"),
        ("bias", "tt.store would happen once for each part"),
        ("moving", "carries more than sums"),
    ],
)
def test_what_cannot_be_divided_says_why(name: str, why: str) -> None:
    plan = plan_of(ODD[name])
    assert not plan.divided and why in plan.not_divided
    assert PARTIALS not in plan.to_text()
    asked = outcome(ODD[name], **ASKED, stream_k=True)
    assert asked.plan is None and asked.remarks[0].code == "not-divided" and why in asked.remarks[0].message


def test_blocks_that_share_an_sm_are_not_divided() -> None:
    plan = plan_of(ODD["rows_64_warps_4"], blocks=2)
    assert not plan.divided and "share an SM" in plan.not_divided


def test_a_third_task_keeps_tiles_whole() -> None:
    plan = plan_of(ODD["gemm"], chain="on")
    assert plan.helpers and not plan.divided and "third task" in plan.not_divided


def test_the_options() -> None:
    assert not plan_of(ODD["gemm"], stream_k=False).divided and not plan_of(ODD["gemm"], stream_k=False).not_divided
    asked = plan_of(ODD["gemm"], stream_k=True)
    assert asked.divided and TileCost.from_text(asked.tiles).handing == 0, "whatever it costs"
    assert not plan_of(ODD["gemm"], persistent=False).divided


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"divided": False}, "tiles says"),
        ({"tiles": "{}"}, "top level"),
        ({"tiles": ""}, "16384 sums"),
        ({"blocks_per_sm": 2}, "one to an SM"),
        ({"persistent": False}, "walk through tiles"),
        ({"team": 2}, "one team"),
    ],
)
def test_a_plan_that_would_write_elsewhere_is_refused(changes: dict[str, Any], why: str) -> None:
    made = outcome(ODD["gemm"], plan=replace(plan_of(ODD["gemm"]), **changes))
    assert made.module is None and made.remarks[0].code == "plan-mismatch" and why in made.remarks[0].message


def test_less_room_than_sums_take_is_refused() -> None:
    plan = plan_of(ODD["gemm"])
    small = replace(TileCost.from_text(plan.tiles), slot=8)
    made = outcome(ODD["gemm"], plan=replace(plan, tiles=small.to_text()))
    assert made.module is None and "16384 sums" in made.remarks[0].message


def test_another_trip_count_is_refused() -> None:
    """Parts would not be those of the loop."""
    plan = plan_of(ODD["gemm"])
    cost = TileCost.from_text(plan.tiles)
    longer = replace(cost, scalars=tuple(replace(one, value=2 * one.value) for one in cost.scalars))
    made = outcome(ODD["gemm"], plan=replace(plan, tiles=longer.to_text()))
    assert made.module is None and "trip count" in made.remarks[0].message


def test_other_estimates_are_taken() -> None:
    plan = plan_of(ODD["gemm"])
    dearer = replace(TileCost.from_text(plan.tiles), handing=1e6)
    assert outcome(ODD["gemm"], plan=replace(plan, tiles=dearer.to_text())).module is not None


def test_a_kernel_that_cannot_be_divided_is_not_by_a_plan() -> None:
    plan = plan_of(ODD["attention_masked"])
    made = outcome(ODD["attention_masked"], plan=replace(plan, divided=True))
    assert made.module is None and "more than sums" in made.remarks[0].message


def test_the_plan_leads_back_to_the_same_module() -> None:
    plan = plan_of(ODD["gemm"])
    assert Plan.from_text(plan.to_text()) == plan
    again = outcome(ODD["gemm"], plan=plan)
    assert again.plan == plan and again.module is not None and arguments_of(again.module)[-1] == PARTIALS
