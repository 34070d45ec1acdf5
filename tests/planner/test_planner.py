"""What the planner decides, and that options are respected or refused with a reason."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import triton
import triton.language as tl

from tests.support.cases import GEMM, TILE, desc, odd_cases, our_attention
from tests.support.compiling import Case, outcome, plain_module
from tests.support.invariants import assert_sound
from tests.support.programs import numbered, program
from tests.support.proved import assert_proved
from tests.support.verified import specialize
from wspec.bridge.versions import INSTALLED
from wspec.diagnostics import Declined, Remark
from wspec.model.machine import load_machine
from wspec.options import Options
from wspec.pipeline import Outcome
from wspec.plan.partition import hot_loops
from wspec.plan.plan import Channel, Plan
from wspec.planner.gate import check_pays, constant_trips

ODD = {case.name: case for case in odd_cases()}
ATTENTION = our_attention(128, False, "bf16")
CAUSAL = our_attention(128, True, "bf16")


def plan_of(case: Case, **options: Any) -> Plan:
    made = outcome(case, **options)
    assert made.plan is not None, made.remarks
    return made.plan


def reason(case: Case, **options: Any) -> Remark:
    made = outcome(case, **options)
    assert made.plan is None
    return made.remarks[0]


def channel(plan: Plan, name: str) -> Channel:
    return next(channel for channel in plan.channels if channel.name == name)


# ---------------------------------------------------------------------------------------------------- decisions


def test_rings_are_called_as_in_the_source() -> None:
    plan = plan_of(CAUSAL)
    assert [channel.name for channel in plan.channels] == ["q", "k", "v"]


def test_loads_without_a_name_get_different_ones() -> None:
    names = [channel.name for channel in plan_of(ODD["gemm_transposed"]).channels]
    assert len(set(names)) == len(names) == 2


def test_loads_of_one_tensor_in_loops_that_follow_each_other_share_a_ring() -> None:
    assert [len(channel.loads) for channel in plan_of(CAUSAL).channels] == [1, 2, 2]
    assert [len(channel.loads) for channel in plan_of(ODD["attention_masked"]).channels] == [1, 1, 1]


def test_tiles_that_are_turned_in_registers_have_rings() -> None:
    """Where there is room: otherwise, and where nobody wants them, a consumer waits for such a tile."""
    turned = ODD["dequantized_turned"]
    both, one = plan_of(turned), plan_of(turned, turned_tiles=False)
    assert ([ring.name for ring in both.channels], [ring.name for ring in one.channels]) == (["w", "x"], ["x"])
    waits = one.prediction.iteration_cycles - both.prediction.iteration_cycles
    assert waits >= load_machine("h200").tma_dram_latency
    assert [ring.name for ring in plan_of(turned, depth=12).channels] == ["x"]
    assert reason(turned, depth=12, turned_tiles=True).code == "shared-memory"


def test_what_is_filled_once_is_one_deep_and_never_released() -> None:
    q = channel(plan_of(ATTENTION), "q")
    assert (q.depth, q.reused, q.sliced) == (1, False, True)


def test_what_is_filled_once_a_tile_is_released() -> None:
    q = channel(plan_of(ODD["attention_persistent"]), "q")
    assert q.reused


def test_rows_are_sliced_and_columns_are_not() -> None:
    plan = plan_of(ODD["gemm"])
    assert [(channel.name, channel.sliced_dim) for channel in plan.channels] == [("a", 0), ("b", -1)]
    turned = plan_of(ODD["a_transposed"])
    assert [channel.sliced_dim for channel in turned.channels] == [1, -1]


def test_the_output_goes_through_memory_that_is_done() -> None:
    assert [place[1:] for place in plan_of(ATTENTION).staging] == [("q", "buffer")]
    ring = [] if INSTALLED.whole_views else [("a", "ring")]  # five buffers are no whole number of stored tiles
    assert [place[1:] for place in plan_of(ODD["gemm"]).staging] == ring
    own = [place[1:] for place in plan_of(ODD["persistent"]).staging]
    assert own == [("", "own")], "the next tile comes while this one is stored"
    assert len(plan_of(ODD["store_between_loops"]).staging) <= 1, "the ring is still filled behind the first store"
    assert plan_of(ODD["turned_once"]).staging == (), "a group has columns of the tile that was read, and stores rows"
    assert len(plan_of(ODD["stored_whole"]).staging) == len(ring), "the other is stored whole, by one of the groups"


@triton.jit
def weighted(a_desc, b_desc, c_desc, w_ptr, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows of B times a number each, which each consumer computes for itself; a tile of C that fills half of the SM."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        weights = tl.exp(tl.load(w_ptr + i + tl.arange(0, BK)))
        b = b_desc.load([i, column]).to(tl.float32) * weights[:, None]
        acc = tl.dot(a_desc.load([row, i]), b.to(tl.float16), acc)
    c_desc.store([row, column], acc)


WIDE = {**GEMM, "b_desc": desc(64, 256), "c_desc": desc(128, 256, "fp32")}
WEIGHTED = Case("weighted", weighted, {**WIDE, "w_ptr": "*fp32:16"}, {**TILE, "BN": 256})


def test_the_output_goes_through_the_ring_that_has_room_for_it() -> None:
    """The first ring is half as large."""
    plan = plan_of(dataclasses.replace(ODD["gemm"], types=WIDE, values={**TILE, "BN": 256}), consumers=1)
    assert [place[1:] for place in plan.staging] == [("b", "ring")]


@pytest.mark.parametrize("gate", ["model", "off"])
def test_a_plan_whose_producer_runs_ahead_is_preferred(gate: str) -> None:
    """Two consumers need B twice, blocks that walk through tiles need a buffer for C: neither leaves room for it."""
    plan = plan_of(WEIGHTED, gate=gate, persistent=None)
    assert not plan.persistent and plan.consumer.replicas == 1
    assert min(channel.depth for channel in plan.channels) > 1
    assert plan_of(WEIGHTED, gate="off", persistent=True).channels[0].depth == 1


@pytest.mark.parametrize("case", [ATTENTION, CAUSAL, ODD["gemm"], ODD["three_dots"]], ids=str)
def test_memory_adds_up(case: Case) -> None:
    plan = plan_of(case)
    rings = sum(channel.depth * channel.buffer_bytes for channel in plan.channels)
    assert rings <= plan.smem_bytes <= 227 * 1024 // plan.blocks_per_sm


def test_every_loop_that_multiplies_has_a_schedule() -> None:
    assert [bool(loop.stage1) for loop in plan_of(ODD["attention_two_loops"]).loops] == [True, True]
    assert [loop.in_flight for loop in plan_of(ODD["gemm"]).loops] == [True]


def test_a_prediction_says_what_bounds() -> None:
    prediction = plan_of(ODD["gemm"]).prediction
    assert prediction.iteration_cycles > 0 and prediction.plain_iteration_cycles > 0
    assert prediction.bound in ("tensor core", "memory", "exponential and arithmetic")


# ------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize("consumers", [1, 2])
def test_consumers_are_as_many_as_asked_for(consumers: int) -> None:
    made = outcome(ODD["gemm"], consumers=consumers)
    assert made.plan is not None and made.module is not None
    assert made.plan.consumer.replicas == consumers
    assert_sound(made.module, made.plan)


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize(("columns", "depth", "groups"), [(64, 128, 1), (32, 128, 1), (64, 64, 2), (128, 64, 2)])
def test_narrow_products_in_long_steps_are_for_one_group(columns: int, depth: int, groups: int, warps: int) -> None:
    types = {"a_desc": desc(128, depth), "b_desc": desc(depth, columns), "c_desc": desc(128, columns), "k": "i32:16"}
    values = {"BM": 128, "BN": columns, "BK": depth, "num_warps": warps}
    case = dataclasses.replace(ODD["gemm"], types=types, values=values)
    made = outcome(case, gate="off")
    assert made.plan is not None and made.module is not None
    assert (made.plan.consumer.replicas, made.plan.consumer.warps) == (groups, 4)
    assert_sound(made.module, made.plan)
    assert plan_of(case, gate="off", consumers=2).consumer.replicas == 2


def test_more_consumers_than_the_tile_has_rows_for() -> None:
    remark = reason(ODD["gemm"], consumers=3)
    assert remark.code == "not-partitionable"
    assert remark.message.startswith("3 consumers cannot share the tile")
    assert "fewer consumers" in remark.note


def test_more_consumers_than_the_epilogue_allows() -> None:
    remark = reason(ODD["column_sums"], consumers=2)
    assert remark.code == "not-partitionable" and "reduced over" in remark.message


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("case", [ODD["attention_two_loops"], ODD["gemm"]], ids=str)
def test_rings_are_as_deep_as_asked_for(case: Case, depth: int) -> None:
    made = outcome(case, depth=depth)
    assert made.plan is not None and made.module is not None, made.remarks
    assert {channel.depth for channel in made.plan.channels if channel.reused} == {depth}
    assert_sound(made.module, made.plan)


def test_rings_that_do_not_fit() -> None:
    remark = reason(ODD["gemm"], depth=16)
    assert remark.code == "shared-memory"
    assert "232448" in remark.message and remark.note == "ask for less depth"


def test_tiles_that_do_not_fit() -> None:
    types = {**GEMM, "a_desc": desc(256, 256), "b_desc": desc(256, 256), "c_desc": desc(256, 256)}
    case = Case("large", ODD["gemm"].fn, types, {**TILE, "BM": 256, "BN": 256, "BK": 256, "num_warps": 8})
    assert reason(case, gate="model").code in ("shared-memory", "registers")
    assert reason(case, gate="off").code == "shared-memory"


def test_overlap_can_be_turned_off() -> None:
    plan = plan_of(ATTENTION, overlap=False)
    assert not any(loop.stage1 or loop.in_flight for loop in plan.loops)
    assert any(loop.stage1 for loop in plan_of(ATTENTION).loops)
    assert not any(loop.in_flight for loop in plan_of(ODD["gemm"], overlap=False).loops)


def test_a_ring_one_deep_keeps_no_dots_in_flight() -> None:
    """The next tile comes when the dot is done, and the dot is waited for when the next tile is there: for ever."""
    assert not any(loop.in_flight for loop in plan_of(ODD["gemm"], depth=1).loops)


@pytest.mark.parametrize("blocks", [1, 2])
def test_blocks_share_the_machine(blocks: int) -> None:
    small = our_attention(64, False, "bf16")
    made = outcome(small, blocks=blocks, gate="off")
    assert made.plan is not None, made.remarks
    plan = made.plan
    assert plan.blocks_per_sm == blocks
    assert plan.smem_bytes <= 228 * 1024 // blocks - 1024


def test_more_blocks_than_there_is_room_for() -> None:
    remark = reason(ATTENTION, blocks=4)
    assert remark.code in ("shared-memory", "registers")
    assert remark.note


@pytest.mark.parametrize("warps", [1, 2, 4])
def test_the_producer_has_as_many_warps_as_asked_for(warps: int) -> None:
    made = outcome(ODD["gemm"], producer_warps=warps)
    assert made.plan is not None and made.module is not None
    assert made.plan.producer.warps == warps
    assert_sound(made.module, made.plan)


def test_registers_are_as_asked_for() -> None:
    plan = plan_of(ODD["gemm"], consumer_registers=200, producer_registers=40)
    assert (plan.consumer.registers, plan.producer.registers) == (200, 40)


def test_registers_that_there_are_not() -> None:
    remark = reason(ODD["gemm"], consumer_registers=256, producer_registers=256)
    assert remark.code == "registers"


def test_a_dot_beside_the_loops_must_find_its_registers_too() -> None:
    """ptxas assembles it within what a thread has at launch, or ends (C7602)."""
    types = {**GEMM, "b_desc": desc(64, 32), "w_desc": desc(32, 128)}
    case = Case("wide", ODD["dot_behind"].fn, types, {**TILE, "BN": 32}, {"gate": "off"})
    remark = reason(case, blocks=2)
    assert remark.code == "registers"
    assert remark.message == "a dot needs 90 registers a thread when the kernel starts, 2 blocks an SM leave 80"
    assert plan_of(case).blocks_per_sm == 1


# ---------------------------------------------------------------------------------------------------------- the gate


def test_the_gate_can_be_turned_off() -> None:
    assert reason(ODD["trips_2"], trials=0).code == "short-loop"
    assert outcome(ODD["trips_2"], gate="off").plan is not None


def test_attention_passes_the_gate() -> None:
    assert plan_of(ATTENTION, gate="model").prediction.iteration_cycles > 0


def test_what_is_expected_to_be_slower_is_left_alone() -> None:
    root = numbered(plain_module(ODD["gemm"]))
    loops = hot_loops(root)
    plan = plan_of(ODD["gemm"])
    slower = dataclasses.replace(plan.prediction, plain_iteration_cycles=plan.prediction.iteration_cycles)
    with pytest.raises(Declined) as caught:
        check_pays(dataclasses.replace(plan, prediction=slower), loops)
    remark = caught.value.remark
    assert remark.code == "gate-slower" and remark.location == loops[0].location


@pytest.mark.parametrize(
    ("plain", "iterations", "alone", "tried"),
    [
        (1.1, None, "", ""),
        (0.9, None, "gate-slower", ""),  # the model may be wrong by as much
        (0.8, None, "gate-slower", "gate-slower"),
        (1.1, 2, "short-loop", "short-loop"),
        (1.1, 40, "", ""),
        (1.0, 40, "gate-slower", ""),
    ],
)
def test_more_is_tried_than_is_trusted(
    plain: float, iterations: int | None, alone: str, tried: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expected cycles of the plain kernel over ours, the loop's iterations, and why it is left alone."""
    loops, plan = hot_loops(numbered(plain_module(ODD["gemm"]))), plan_of(ODD["gemm"])
    expected = dataclasses.replace(
        plan.prediction, iteration_cycles=1000.0, plain_iteration_cycles=1000.0 * plain, overhead_cycles=1500.0
    )
    monkeypatch.setattr("wspec.planner.gate.constant_trips", lambda loop: iterations)
    for is_tried, code in ((False, alone), (True, tried)):
        found = ""
        try:
            check_pays(dataclasses.replace(plan, prediction=expected), loops, is_tried=is_tried)
        except Declined as declined:
            found = declined.remark.code
        assert found == code


def test_a_loop_of_one_stage_waits_for_its_tiles() -> None:
    """The plain kernel's, which Triton does not pipeline then: beside one of two stages that has as many blocks."""

    def plain_cycles(stages: int) -> float:
        case = dataclasses.replace(ATTENTION, values={**ATTENTION.values, "num_stages": stages})
        return plan_of(case).prediction.plain_iteration_cycles

    assert plain_cycles(1) > plain_cycles(2)


def test_trip_counts_that_are_constant() -> None:
    assert [constant_trips(loop) for loop in hot_loops(numbered(plain_module(ODD["trips_2"])))] == [2]
    assert [constant_trips(loop) for loop in hot_loops(program("gemm"))] == [None]


# ------------------------------------------------------------------------------------------------- same every time


@pytest.mark.parametrize("case", [ODD["gemm"], ODD["attention_two_loops"]], ids=str)
def test_plans_and_modules_are_the_same_every_time(case: Case) -> None:
    first, second = outcome(case, keep_stages=True), outcome(case, keep_stages=True)
    assert first.plan == second.plan
    assert first.stages == second.stages


def test_stages_are_kept_when_asked_for() -> None:
    made: Outcome = outcome(ODD["gemm"], keep_stages=True)
    assert list(made.stages)[:2] == ["input", "plan"]
    assert list(made.stages)[2] == "split" and list(made.stages)[-1] == "finish"
    assert outcome(ODD["gemm"]).stages == {}


def test_the_plan_of_a_program() -> None:
    root = program("gemm")
    module = root.parent_op
    assert module is not None
    made = specialize(module, Options(gate="off", blocks=1, depth=2, persistent=False))
    assert made.plan is not None and made.module is not None
    assert_proved(made.module)
    by_hand = Channel("a", (6,), 2, 16384, 0, barriers="b")
    assert made.plan.channels[1] == by_hand
    assert dataclasses.replace(made.plan.channels[0], name="b") == Channel("b", (8,), 2, 8192)
