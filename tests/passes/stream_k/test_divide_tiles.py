"""Which tiles two blocks may share, and that the plan says why others are not.

What divided kernels compute is in tests/execute/test_machine_kernels.py and tests/gpu/test_division.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.cases import odd_cases
from tests.support.compiling import Case, outcome
from wspec.decision import Decision
from wspec.ir.assembly import AWAIT_WORD, SET_WORD
from wspec.ir.core import Operation
from wspec.ir.loc import value_name
from wspec.model.machine import load_machine
from wspec.plan.plan import Plan
from wspec.tile_scheduler import StreamK, TileCost
from wspec.tile_scheduler.names import PARTIALS, WORDS

ODD = {case.name: case for case in odd_cases()}
ASKED = {"persistent": True, "gate": "off", "blocks": 1, "chain": "off"}


def plan_of(case: Case, **options: object) -> Plan:
    plan = outcome(case, **{**ASKED, **options}).plan
    assert plan is not None
    return plan


def divided(plan: Plan) -> StreamK:
    """What the plan says of divided tiles."""
    assert plan.stream_k.value is not None and not plan.stream_k.why_not
    return plan.stream_k.value


def with_loop(plan: Plan, **changes: Any) -> Plan:
    """The plan with another loop over tiles."""
    assert plan.tile_loop is not None
    return replace(plan, tile_loop=replace(plan.tile_loop, **changes))


def arguments_of(module: Operation) -> list[str | None]:
    function = next(op for op in module.walk() if op.name == "tt.func")
    return [value_name(arg.location) for arg in function.regions[0].block.args]


PRODUCTS = ["gemm", "gemm_transposed", "two_products", "fp8", "dequantized_b", "rows_64_warps_4", "assumed"]


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_whose_blocks_walk_is_divided(name: str) -> None:
    """Verified, proved and taken by libtriton, as `outcome` sees to."""
    made = outcome(ODD[name], **ASKED)
    assert made.plan is not None and made.module is not None
    assert arguments_of(made.module)[-1] == PARTIALS
    code = [op.str_attr("asm_string") for op in made.module.walk() if op.name == "tt.elementwise_inline_asm"]
    groups = made.plan.consumer.replicas
    assert code.count(AWAIT_WORD) == code.count(SET_WORD) == groups
    said, loop = divided(made.plan), made.plan.tile_loop
    assert loop is not None and said.loop in {one.loop for one in loop.cost.loops}
    assert said.fix_up_cycles > made.plan.prediction.overhead_cycles > 0


def test_blocks_out_of_step_wait_longer_for_tiles_that_take_as_long_as_products() -> None:
    """128 x 128 x 64: 32 KiB an iteration, which no other block wants at that time."""
    machine = load_machine("h200")
    made = plan_of(ODD["gemm"])
    apart = 32768 / machine.apart_tma_rate
    assert divided(made).apart_cycles == pytest.approx(apart - made.prediction.iteration_cycles, rel=0.01)
    assert divided(plan_of(ODD["gemm"], stream_k=True)).apart_cycles == 0


def test_words_for_every_thread_and_room_for_all_sums() -> None:
    made = plan_of(ODD["gemm"])
    assert divided(made).sums == 128 * 128 and 32 * made.consumer.warps * made.consumer.replicas <= WORDS


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
    assert not plan.stream_k and why in plan.stream_k.why_not
    assert PARTIALS not in plan.to_text()
    asked = outcome(ODD[name], **ASKED, stream_k=True)
    assert asked.plan is None and asked.remarks[0].code == "not-divided" and why in asked.remarks[0].message


def test_blocks_that_share_an_sm_are_not_divided() -> None:
    plan = plan_of(ODD["rows_64_warps_4"], blocks=2)
    assert not plan.stream_k and "share an SM" in plan.stream_k.why_not


def test_a_third_task_keeps_tiles_whole() -> None:
    plan = plan_of(ODD["gemm"], chain="on")
    assert plan.helpers and not plan.stream_k and "third task" in plan.stream_k.why_not


def test_a_divided_tile_is_not_finished_beside_the_next_one() -> None:
    """Its first part hands its sums on where it ends, which cannot wait. Of the two, stream-K is the slower one."""
    whole = plan_of(ODD["weighted"])
    assert whole.epilogue_overlap and not whole.stream_k and "hands on cannot wait" in whole.stream_k.why_not
    for options in ({"stream_k": True}, {"epilogue_overlap": False}):
        assert divided(plan_of(ODD["weighted"], **options)).sums == 128 * 64
    asked = outcome(ODD["weighted"], **ASKED, stream_k=True, epilogue_overlap=True)
    assert [one.code for one in asked.remarks] == ["excluded"]


def test_the_options() -> None:
    assert plan_of(ODD["gemm"], stream_k=False).stream_k == Decision(None, "")
    asked = plan_of(ODD["gemm"], stream_k=True)
    assert divided(asked).fix_up_cycles == 0, "whatever it costs"
    assert not plan_of(ODD["gemm"], persistent=False).stream_k


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda plan: with_loop(plan, stream_k=Decision()), "made for kernel"),
        (lambda plan: with_loop(plan, cost=TileCost(0.0)), "16384 sums"),
        (lambda plan: with_loop(plan, stream_k=Decision(replace(divided(plan), loop=0))), "16384 sums"),
        (lambda plan: replace(plan, blocks_per_sm=2), "several blocks an SM exclude each other"),
        (lambda plan: replace(plan, tile_loop=None), "made for kernel"),
        (lambda plan: with_loop(plan, coarsening=2), "made for kernel"),
    ],
)
def test_a_plan_that_would_write_elsewhere_is_refused(change: Callable[[Plan], Plan], why: str) -> None:
    made = outcome(ODD["gemm"], plan=change(plan_of(ODD["gemm"])))
    assert made.module is None and made.remarks[0].code == "plan-mismatch" and why in made.remarks[0].message


def test_less_room_than_sums_take_is_refused() -> None:
    plan = plan_of(ODD["gemm"])
    made = outcome(ODD["gemm"], plan=with_loop(plan, stream_k=Decision(replace(divided(plan), sums=8))))
    assert made.module is None and "16384 sums" in made.remarks[0].message


def test_another_trip_count_is_refused() -> None:
    """Parts would not be those of the loop."""
    plan = plan_of(ODD["gemm"])
    assert plan.tile_loop is not None
    cost = plan.tile_loop.cost
    longer = replace(cost, scalars=tuple(replace(one, value=2 * one.value) for one in cost.scalars))
    made = outcome(ODD["gemm"], plan=with_loop(plan, cost=longer))
    assert made.module is None and "trip count" in made.remarks[0].message


def test_other_estimates_are_taken() -> None:
    plan = plan_of(ODD["gemm"])
    assert plan.tile_loop is not None
    dearer = with_loop(plan, stream_k=Decision(replace(divided(plan), fix_up_cycles=1e6)))
    dearer = with_loop(dearer, cost=replace(plan.tile_loop.cost, fixed=1e6))
    assert outcome(ODD["gemm"], plan=dearer).module is not None


def test_a_kernel_that_cannot_be_divided_is_not_by_a_plan() -> None:
    plan = plan_of(ODD["attention_masked"])
    asked = with_loop(plan, stream_k=Decision(StreamK(0, 0.0, 1)))
    made = outcome(ODD["attention_masked"], plan=asked)
    assert made.module is None and "more than sums" in made.remarks[0].message


def test_the_plan_leads_back_to_the_same_module() -> None:
    plan = plan_of(ODD["gemm"])
    assert Plan.from_text(plan.to_text()) == plan
    again = outcome(ODD["gemm"], plan=plan)
    assert again.plan == plan and again.module is not None and arguments_of(again.module)[-1] == PARTIALS
