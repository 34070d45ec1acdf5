"""Chains: where kernels are cut, when the model takes a third task, and what a plan of one may say."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import triton
import triton.language as tl

from tests.support.cases import desc, odd_cases
from tests.support.compiling import Case, outcome
from tests.support.goldens import ROOT
from tests.support.invariants import assert_sound
from tests.support.verified import specialize
from wspec import bridge
from wspec.ir import print_module, read
from wspec.ir.core import Operation
from wspec.ir.numbering import number
from wspec.kernels import attention, matmul, persistent, quantized
from wspec.model.machine import load_machine
from wspec.options import Options
from wspec.pipeline import Outcome
from wspec.plan.graph import Dataflow
from wspec.plan.partition import hot_loops
from wspec.plan.plan import Channel, Plan
from wspec.planner.chain import bounding, has_converter
from wspec.planner.chain_cost import memory_wait
from wspec.planner.cuts import Cut, find_cuts
from wspec.specs.variants import variant_signature

MODULES = {"attention": attention, "matmul": matmul, "persistent": persistent, "quantized": quantized}
INT8, INT4 = ("quantized", "int8_weights_kernel"), ("quantized", "int4_weights_kernel")
PERSISTENT, ATTENTION = ("persistent", "matmul_persistent_kernel"), ("attention", "attention_fwd")
MATMUL = ("matmul", "matmul_descriptor_kernel")
H200 = load_machine("h200")
ODD = {case.name: case for case in odd_cases()}


@functools.cache
def text_of(file: str, kernel: str, variant: str) -> str:
    signature = variant_signature(ROOT / "kernels" / f"{file}.toml", kernel, variant, vars(MODULES[file]))
    values = {**signature.values, **signature.options}
    return bridge.ttgir(bridge.from_signature(getattr(MODULES[file], kernel), signature.types, values))


def made(which: tuple[str, str], variant: str, plan: Plan | None = None, **options: Any) -> Outcome:
    return specialize(read(text_of(*which, variant)), Options(**options), plan=plan)


def plan_of(which: tuple[str, str], variant: str, **options: Any) -> Plan:
    outcome = made(which, variant, **options)
    assert outcome.plan is not None, outcome.remarks
    return outcome.plan


def tasks(plan: Plan) -> dict[str, tuple[int, int]]:
    """Warps and replicas, by name."""
    return {task.name: (task.warps, task.replicas) for task in plan.tasks}


def ends(plan: Plan) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(channel.name, channel.source, channel.readers) for channel in plan.channels]


# ------------------------------------------------------------------------------------------------------ cuts


@pytest.mark.parametrize(
    ("which", "variant", "expected"),
    [
        (INT8, "m64", [("convert", 1)]),
        (INT4, "m64", [("convert", 2)]),
        (PERSISTENT, "bf16", [("store", 1)]),
        (("matmul", "matmul_descriptor_kernel"), "bf16", []),
        (ATTENTION, "d64", [("lead", 5)]),
    ],
)
def test_cuts(which: tuple[str, str], variant: str, expected: list[tuple[str, int]]) -> None:
    """What the task of each cut is for, by the anchors before and behind it, and how many values cross."""
    assert [(kind, len(cut.values)) for kind, cut in cuts_of(read(text_of(*which, variant)))] == expected


def cuts_of(module: Operation) -> list[tuple[str, Cut]]:
    function = next(op for op in module.walk() if op.name == "tt.func")
    number(function)
    cuts = find_cuts(Dataflow(function), hot_loops(function), H200)
    return [("convert" if cut.converts else "store" if cut.stores else "lead", cut) for cut in cuts]


def test_three_dots_can_be_cut_in_two_places() -> None:
    """Between the first and the second, and between the second and the third; what sends equal values is one cut."""
    found = cuts_of(read(_text(ODD["three_dots"])))
    assert [(kind, len(cut.before), len(cut.values)) for kind, cut in found] == [("lead", 1, 1), ("lead", 2, 1)]
    (_, first), (_, second) = found
    assert first.before < second.before and second.behind < first.behind and first.place < second.place


# --------------------------------------------------------------------------------------------------- choices


def test_a_dequantized_tile_is_made_by_a_task_of_its_own() -> None:
    plan = plan_of(INT8, "m256")
    assert tasks(plan) == {"mma": (4, 1), "convert": (4, 1), "load": (1, 1)}
    assert ends(plan) == [("q", "", ("convert",)), ("a", "", ()), ("w", "convert", ("mma",))]
    assert plan.loops[0].in_flight, "dots of converted tiles run on into the next iteration"


def test_replicas_share_the_rows_of_values_and_tiles() -> None:
    plan = plan_of(INT8, "wide", chain="on")
    assert tasks(plan) == {"mma": (4, 2), "convert": (4, 2), "load": (1, 1)}
    assert [channel.sliced_dim for channel in plan.channels] == [0, -1, 0]


def test_replicas_share_a_right_operand_whole() -> None:
    case = ODD["dequantized_b"]
    plan = specialize(read(_text(case)), Options(chain="auto", gate="off")).plan
    assert plan is not None
    (value,) = plan.values
    assert not value.sliced and plan.arrivals(value) == plan.consumer.replicas == 2
    assert tasks(plan)["convert"] == (8, 1)


def test_an_output_tile_is_stored_by_a_task_of_its_own() -> None:
    plan = plan_of(PERSISTENT, "bf16", chain="on")
    assert plan.staging == (), "what the task stores comes from a ring"
    assert tasks(plan) == {"mma": (4, 2), "store": (1, 1), "load": (1, 1)}
    assert plan.total_warps == 12, "the storing warp shares the producer's warp group"
    assert [channel.depth for channel in plan.channels] == [3, 3, 1]


def test_a_store_that_runs_on_needs_no_task() -> None:
    plan = plan_of(PERSISTENT, "bf16")
    assert not plan.helpers and [kind for *_, kind in plan.staging] == ["subtiles"]
    assert "with a task 'store' an iteration would take" in plan.prediction.chain_note


@pytest.mark.parametrize(
    ("which", "variant", "note"),
    [
        (INT8, "m64", "with a task 'convert' an iteration would take"),
        (INT8, "wide", "with a task 'convert' an iteration would take"),
        (INT4, "m64", "with a task 'convert' an iteration would take"),
        (ATTENTION, "d64", "with a task 'lead' an iteration would take"),
        (ATTENTION, "d128", "a chain of 20 warps leaves 96 registers a thread at launch"),
    ],
)
def test_no_chain_where_the_model_expects_none_to_pay(which: tuple[str, str], variant: str, note: str) -> None:
    plan = plan_of(which, variant, gate="off")
    assert not plan.helpers and note in plan.prediction.chain_note


def test_a_short_ring_behind_short_iterations_is_not_taken() -> None:
    assert plan_of(PERSISTENT, "square").helpers == ()


@pytest.mark.parametrize("chain", ["auto", "on"])
def test_a_kernel_that_walks_by_itself_has_an_sm_alone(chain: str) -> None:
    """It is launched with one program for each SM, so shared memory is not kept for a second one."""
    signature = variant_signature(ROOT / "kernels" / "persistent.toml", PERSISTENT[1], "bf16", vars(persistent))
    types = {**signature.types, "a_desc": "tensordesc<bf16[64, 32]>", "b_desc": "tensordesc<bf16[128, 32]>"}
    values = {**signature.values, "BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "num_warps": 4}
    types["c_desc"] = "tensordesc<bf16[64, 128]>"
    text = bridge.ttgir(bridge.from_signature(persistent.matmul_persistent_kernel, types, values))
    plan = specialize(read(text), Options(chain=chain, gate="off")).plan
    assert plan is not None and plan.blocks_per_sm == 1 and bool(plan.helpers) == (chain == "on")


def test_a_person_decides() -> None:
    assert plan_of(INT8, "m64", chain="off", gate="off").helpers == ()
    assert plan_of(INT8, "wide", chain="on").helpers
    plan = plan_of(INT8, "m64", chain="on", value_depth=3, helper_warps=8)
    assert plan.values[0].depth == 3 and tasks(plan)["convert"] == (8, 1)


def test_a_chain_that_cannot_be_had_is_refused_by_name() -> None:
    remark = made(MATMUL, "bf16", chain="on", persistent=False).remarks[0]
    assert remark.code == "no-chain" and remark.note


# ---------------------------------------------------------------------------------------- loops over tiles


def test_a_loop_over_tiles_brings_a_store_to_hand_over() -> None:
    plan = plan_of(MATMUL, "bf16", chain="on")
    assert (
        plan.tile_loop is not None
        and plan.tile_loop.cost.loops
        and tasks(plan) == {"mma": (4, 2), "store": (1, 1), "load": (1, 1)}
    )


@pytest.mark.parametrize("options", [{}, {"chain": "on"}])
def test_a_chain_that_converts_walks_through_tiles(options: dict[str, Any]) -> None:
    plan = plan_of(INT8, "m256", **options)
    assert has_converter(plan) and plan.persistent


def test_another_chain_is_not_put_into_a_loop_over_tiles_unasked() -> None:
    plan = plan_of(ATTENTION, "d64", chain="on")
    assert plan.helpers and not has_converter(plan) and not plan.persistent


def test_memory_is_waited_for_as_long_as_a_buffer_takes_to_make_its_round() -> None:
    """Of two dots the first one hands its buffer back within the iteration."""
    plan = plan_of(INT8, "m64", chain="on", blocks=1)
    waits = [memory_wait(with_depth(plan, depth), 1, 0.0, H200) for depth in (1, 2, 3, 5)]
    assert waits[0] == waits[1] == pytest.approx(2 * waits[2]) == pytest.approx(4 * waits[3])
    assert memory_wait(with_depth(plan, 2), 2, 0.0, H200) == pytest.approx(waits[1] / 1.5)
    assert waits[1] > H200.tma_dram_latency
    assert memory_wait(replace(plan, blocks_per_sm=2), 1, 0.0, H200) == 0.0


def with_depth(plan: Plan, depth: int) -> Plan:
    """Of the rings of loaded tiles."""
    return replace(plan, channels=tuple(c if c.source else replace(c, depth=depth) for c in plan.channels))


@pytest.mark.parametrize(
    ("which", "variant"), [(INT8, "m256"), (INT4, "m64"), (MATMUL, "bf16"), (PERSISTENT, "bf16"), (ATTENTION, "d64")]
)
def test_chains_in_loops_over_tiles_are_sound(which: tuple[str, str], variant: str) -> None:
    first = made(which, variant, chain="on", persistent=True)
    assert first.plan is not None and first.module is not None
    assert first.plan.helpers and first.plan.persistent
    assert_sound(first.module, first.plan)
    again = made(which, variant, Plan.from_text(first.plan.to_text()))
    assert again.module is not None, again.remarks
    assert print_module(again.module) == print_module(first.module)


@pytest.mark.parametrize("name", ["three_dots", "attention_masked", "attention_two_loops", "attention_grouped"])
def test_odd_kernels_are_sound_as_chains(name: str) -> None:
    outcome = specialize(read(_text(ODD[name])), Options(chain="on", gate="off"))
    assert outcome.module is not None and outcome.plan is not None and outcome.plan.helpers
    assert_sound(outcome.module, outcome.plan)


def test_a_tile_that_is_rounded_in_the_rank_of_a_batch_is_not_stored_by_another_task() -> None:
    """TMA would have to take it from the buffer as it is, and as it is it cannot be stored to one."""
    outcome = specialize(read(_text(ODD["gated"])), Options(gate="off"))
    assert outcome.plan is not None and not outcome.plan.helpers
    outcome = specialize(read(_text(ODD["gated"])), Options(chain="on", gate="off"))
    assert outcome.module is None and outcome.remarks[0].code == "no-chain"


def _text(case: Case) -> str:
    from tests.support.compiling import lowered

    return lowered(case)


Edit = Callable[[Plan], Plan]


def ring(name: str, **changes: Any) -> Edit:
    def edit(plan: Plan) -> Plan:
        def one(channel: Channel) -> Channel:
            return replace(channel, **changes) if channel.name == name else channel

        return replace(plan, channels=tuple(map(one, plan.channels)))

    return edit


def task(name: str, **changes: Any) -> Edit:
    return lambda plan: replace(
        plan, tasks=tuple(replace(task, **changes) if task.name == name else task for task in plan.tasks)
    )


# -------------------------------------------------------------------------------------------- chains of four


def four(**options: Any) -> Outcome:
    return made(INT8, "wide", chain="all", persistent=True, **options)


def test_as_many_tasks_as_there_are_places_for() -> None:
    """What is loaded is made an operand of, multiplied and stored, each by a task that goes on meanwhile."""
    plan = four().plan
    assert plan is not None
    assert [task.name for task in plan.computing] == ["convert", "mma", "store"]
    assert [task.name for task in plan.computing if plan.does_effects(task)] == ["store"]
    assert tasks(plan) == {"mma": (4, 2), "convert": (4, 2), "store": (1, 1), "load": (1, 1)}
    assert ends(plan)[2:] == [("w", "convert", ("mma",)), ("out", "mma", ("store",))]
    assert [channel.sliced_dim for channel in plan.values] == [0, 1], "rows of W are columns of C"
    assert plan.total_warps == 20, "the storing warp shares the producer's warp group"


@pytest.mark.parametrize("name", ["attention_persistent", "three_dots", "dequantized_b"])
def test_chains_of_four_tasks_are_sound(name: str) -> None:
    outcome = specialize(read(_text(ODD[name])), Options(chain="all", gate="off", persistent=True))
    assert outcome.module is not None and outcome.plan is not None and len(outcome.plan.tasks) == 4
    assert_sound(outcome.module, outcome.plan)


def narrow(case: Case) -> Case:
    """With tiles of 64 rows and 4 warps."""
    types = {name: type.replace("128, 64", "64, 64") for name, type in case.types.items()}
    return replace(case, name=f"{case.name}_narrow", types=types, values={**case.values, "BM": 64, "num_warps": 4})


def test_three_dots_make_a_chain_of_five() -> None:
    """Each product has a task of its own, and so has the store."""
    outcome = specialize(read(_text(narrow(ODD["three_dots"]))), Options(chain="all", gate="off", persistent=True))
    assert outcome.module is not None and outcome.plan is not None
    assert [task.name for task in outcome.plan.computing] == ["lead", "lead2", "mma", "store"]
    assert [(channel.source, channel.readers) for channel in outcome.plan.values] == [
        ("lead", ("lead2",)), ("lead2", ("mma",)), ("mma", ("store",)),
    ]  # fmt: skip
    assert_sound(outcome.module, outcome.plan)


def test_a_plan_of_four_tasks_can_be_edited() -> None:
    plan = four().plan
    assert plan is not None
    edited = ring("out", depth=2)(ring("q", depth=2)(plan))
    outcome = made(INT8, "wide", Plan.from_text(edited.to_text()))
    assert outcome.module is not None and outcome.plan == edited, outcome.remarks
    assert_sound(outcome.module, edited)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda plan: ring("out", readers=("convert",))(plan), "channels: the values of mma and convert go round"),
        (lambda plan: ring("out", source="convert")(plan), "channels: one task makes the stores, mma and store send"),
        (lambda plan: task("store", replicas=2)(plan), "tasks.warps: a helper is 1 of 1 warps here"),
        (lambda plan: task("convert", replicas=1)(plan), "tasks.warps: a helper is 2 of 4 warps here"),
    ],
)
def test_what_does_not_fit_four_tasks_is_refused(edit: Edit, words: str) -> None:
    plan = four().plan
    assert plan is not None
    remark = made(INT8, "wide", edit(plan)).remarks[0]
    assert remark.code == "plan-mismatch" and remark.message.startswith(f"plan: {words}")


def test_a_further_task_is_taken_only_where_it_divides_the_one_that_bounds() -> None:
    """The task that converts bounds an iteration; one that stores would take nothing from it."""
    plan = plan_of(INT4, "m64", chain="on", persistent=True)
    assert bounding(plan) == "convert" and [task.name for task in plan.helpers] == ["convert"]


# ----------------------------------------------------------------------------------------- plans from outside

SUBJECTS = [(INT8, "m64"), (INT8, "wide"), (INT4, "m64"), (PERSISTENT, "bf16"), (ATTENTION, "d64")]


@pytest.mark.parametrize(("which", "variant"), SUBJECTS)
def test_a_plan_read_back_gives_the_same_kernel(which: tuple[str, str], variant: str) -> None:
    first = made(which, variant, chain="on")
    assert first.plan is not None and first.module is not None
    assert_sound(first.module, first.plan)
    again = made(which, variant, Plan.from_text(first.plan.to_text()))
    assert again.module is not None, again.remarks
    assert print_module(again.module) == print_module(first.module)


BAD: list[tuple[str, Edit]] = [
    ("tasks", lambda plan: replace(plan, channels=tuple(c for c in plan.channels if not c.source))),
    ("tasks.warps", task("convert", warps=2)),
    ("tasks.warps", task("convert", replicas=2)),
    ("tasks.registers", task("convert", registers=100)),
    ("channels.w.loads", ring("w", loads=(5,))),
    ("channels.w.loads", ring("w", loads=(1000,))),
    ("channels.w.buffer_bytes", ring("w", buffer_bytes=64)),
    ("channels.w.readers", ring("w", readers=("convert",))),
    ("channels.w.readers", ring("w", reused=False)),
    ("channels.w.stays", ring("w", stays=True)),
    ("optimizations", lambda plan: replace(plan, loops=tuple(replace(loop, ping_pong=True) for loop in plan.loops))),
    ("channels.w.sliced_dim", ring("w", sliced_dim=0)),
    ("channels.q.readers", ring("q", readers=("mma",))),
    ("channels.a.readers", ring("a", readers=("convert",))),
    ("channels.depth", ring("w", depth=16)),
]


@pytest.mark.parametrize(("field", "edit"), BAD)
def test_what_does_not_fit_is_refused_with_the_field(field: str, edit: Edit) -> None:
    plan = edit(plan_of(INT8, "m64", chain="on", blocks=1))
    outcome = made(INT8, "m64", plan)
    assert outcome.module is None
    assert outcome.remarks[0].code == "plan-mismatch"
    assert outcome.remarks[0].message.startswith(f"plan: {field}: ")


@triton.jit
def in_other_places(q_desc, k_desc, v_desc, o_desc, length, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Two loops over the same tiles: what one multiplies first the other one multiplies last."""
    row = tl.program_id(0) * BM
    q = q_desc.load([row, 0])
    acc = tl.zeros([BM, D], tl.float32)
    for at in tl.range(0, length, BN):
        p = tl.exp2(tl.dot(q, k_desc.load([at, 0]).T)).to(tl.float16)
        acc = tl.dot(p, v_desc.load([at, 0]), acc)
    for at in tl.range(0, length, BN):
        p = tl.exp2(tl.dot(q, v_desc.load([at, 0]).T)).to(tl.float16)
        acc = tl.dot(p, k_desc.load([at, 0]), acc)
    o_desc.store([row, 0], acc.to(tl.float16))


@pytest.mark.parametrize("chain", ["on", "off"])
def test_tiles_that_other_tasks_read_in_another_loop_have_rings_of_their_own(chain: str) -> None:
    """A buffer is free when all readers of its ring have left it, and in each loop another task would never come."""
    types = {**dict.fromkeys(("q_desc", "k_desc", "v_desc", "o_desc"), desc(128, 64)), "length": "i32"}
    case = Case("in_other_places", in_other_places, types, {"BM": 128, "BN": 64, "D": 64})
    found = outcome(case, chain=chain, gate="off")  # what it emits is proved
    assert found.plan is not None, found.remarks
    rings = [channel for channel in found.plan.channels if not channel.stays and not channel.is_computed]
    assert sorted(len(ring.loads) for ring in rings) == ([1] * 4 if chain == "on" else [2, 2])
