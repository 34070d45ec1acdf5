"""Plans from outside: edited ones are used, and what does not fit the kernel is refused with the field at fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.support.cases import odd_cases
from tests.support.compiling import Case, outcome, plain_module
from tests.support.invariants import assert_sound
from tests.support.worlds import assert_same_stores
from wspec.decision import Decision
from wspec.ir import print_module
from wspec.plan.fill import Fill
from wspec.plan.plan import Channel, LoopSchedule, Plan, Task
from wspec.tile_scheduler import TileCost, TileLoop

ODD = {case.name: case for case in odd_cases()}
GEMM, ATTENTION = ODD["gemm"], ODD["attention_masked"]
Edit = Callable[[Plan], Plan]


def own(case: Case, **options: Any) -> Plan:
    plan = outcome(case, **options).plan
    assert plan is not None
    return plan


def with_task(kind: str, **changes: Any) -> Edit:
    def edit(plan: Plan) -> Plan:
        tasks = tuple(replace(task, **changes) if task.kind == kind else task for task in plan.tasks)
        return replace(plan, tasks=tasks)

    return edit


def with_channel(index: int, **changes: Any) -> Edit:
    def edit(plan: Plan) -> Plan:
        rings = list(plan.channels)
        rings[index] = replace(rings[index], **changes)
        return replace(plan, channels=tuple(rings))

    return edit


def with_loop(**changes: Any) -> Edit:
    return lambda plan: replace(plan, loops=(replace(plan.loops[0], **changes), *plan.loops[1:]))


def with_plan(**changes: Any) -> Edit:
    return lambda plan: replace(plan, **changes)


# ------------------------------------------------------------------------------------------------ edits that are used


@pytest.mark.parametrize("case", [GEMM, ATTENTION], ids=str)
def test_a_plan_read_back_gives_the_same_kernel(case: Case) -> None:
    first = outcome(case)
    assert first.plan is not None and first.module is not None
    again = outcome(case, plan=Plan.from_text(first.plan.to_text()))
    assert again.plan == first.plan and again.module is not None
    same = print_module(again.module) == print_module(first.module)
    assert same


def test_another_depth_shows_in_the_kernel() -> None:
    text = own(GEMM, depth=2, shared_barriers=False).to_text()
    assert text.count("depth = 2") == 2
    made = outcome(GEMM, plan=Plan.from_text(text.replace("depth = 2", "depth = 4", 1)))
    assert made.plan is not None and made.module is not None
    assert [channel.depth for channel in made.plan.channels] == [4, 2]
    found = print_module(made.module, locations=False)
    assert "memdesc<4x64x64xf16" in found and "memdesc<2x64x128xf16" in found
    assert_sound(made.module, made.plan)
    assert_same_stores(plain_module(GEMM), made.module, seed=3)


EDITS: list[tuple[str, Case, Edit]] = [
    ("fewer registers", GEMM, with_task("consumer", registers=200)),
    ("more warps to load", GEMM, with_task("producer", warps=4)),
    ("no dots in flight", GEMM, with_loop(in_flight=False)),
    (
        "one buffer",
        GEMM,
        lambda plan: with_channel(0, depth=1, barriers="")(with_loop(in_flight=False)(with_plan(staging=())(plan))),
    ),
    ("no overlap", ATTENTION, with_loop(stage1=())),
    ("no staging", ATTENTION, with_plan(staging=())),
    ("ping_pong", ATTENTION, with_loop(ping_pong=True)),
    ("no turns", ATTENTION, with_loop(ping_pong=False)),
    ("turns in a loop that accumulates", GEMM, with_loop(ping_pong=True)),
    ("other names", GEMM, with_plan(kernel="mine")),
]


@pytest.mark.parametrize(("case", "edit"), [edit[1:] for edit in EDITS], ids=[edit[0] for edit in EDITS])
def test_edits_are_used(case: Case, edit: Edit) -> None:
    plan = edit(own(case, depth=2))
    made = outcome(case, plan=plan)
    assert [remark.code for remark in made.remarks] == ["specialized"], made.remarks
    assert made.plan is not None and made.module is not None
    assert made.plan == replace(plan, smem_bytes=made.plan.smem_bytes)
    assert_sound(made.module, plan)
    assert_same_stores(plain_module(case), made.module, seed=5)


def test_the_shared_memory_is_what_the_plan_takes() -> None:
    plan = own(GEMM, depth=2, shared_barriers=False)
    assert outcome(GEMM, plan=with_plan(smem_bytes=1)(plan)).plan == plan
    made = outcome(GEMM, plan=with_channel(0, depth=4)(plan))
    assert made.plan is not None
    assert made.plan.smem_bytes == plan.smem_bytes + 2 * plan.channels[0].buffer_bytes


# --------------------------------------------------------------------------------------------- edits that are refused

BAD: list[tuple[str, Case, Edit]] = [
    ("fingerprint", GEMM, with_plan(fingerprint="0" * 16)),
    ("source_warps", GEMM, with_plan(source_warps=4)),
    ("tasks.warps", GEMM, with_task("consumer", warps=8)),
    ("tasks.warps", GEMM, with_task("producer", warps=3)),
    ("tasks.warps", GEMM, with_task("producer", replicas=2)),
    ("tasks.registers", GEMM, with_task("consumer", registers=201)),
    ("tasks.registers", GEMM, with_task("producer", registers=16)),
    ("tasks.registers", GEMM, with_task("producer", registers=240)),
    ("tasks.replicas", GEMM, with_task("consumer", replicas=4, registers=96)),
    ("blocks_per_sm", GEMM, with_plan(blocks_per_sm=0)),
    ("tasks.registers", GEMM, with_plan(blocks_per_sm=3)),
    ("channels.a.loads", GEMM, with_channel(0, loads=(3,))),
    ("channels.a.barriers", GEMM, with_channel(0, barriers="c")),
    ("channels.a.barriers", GEMM, lambda plan: with_channel(0, depth=3)(with_plan(staging=())(plan))),
    ("channels.k.barriers", ATTENTION, with_channel(1, barriers="v")),
    ("channels.a.loads", GEMM, with_channel(0, loads=())),
    ("channels.b.loads", GEMM, lambda plan: with_channel(1, loads=plan.channels[0].loads)(plan)),
    ("channels.a.loads", GEMM, lambda p: with_channel(0, loads=(*p.channels[0].loads, *p.channels[1].loads))(p)),
    ("channels", GEMM, with_channel(0, name="b")),
    ("channels", GEMM, with_channel(0, name="a.0")),
    ("channels.a.reused", GEMM, with_channel(0, reused=False)),
    ("tasks.warps", GEMM, with_channel(0, fill=Fill.CP_ASYNC)),
    ("channels.a.fill", GEMM, lambda plan: with_channel(0, fill=Fill.CP_ASYNC)(with_task("producer", warps=4)(plan))),
    ("channels.a.fill", ODD["pointers"], with_channel(0, fill=Fill.TMA)),
    ("tasks.warps", ODD["pointers"], with_task("producer", warps=2)),
    ("channels.a.buffer_bytes", GEMM, with_channel(0, buffer_bytes=64)),
    ("channels.a.sliced_dim", GEMM, with_channel(0, sliced_dim=-1)),
    ("channels.a.sliced_dim", GEMM, with_channel(0, sliced_dim=1)),
    ("channels.depth", GEMM, with_channel(0, depth=16)),
    ("staging", GEMM, with_plan(staging=((3, "a", "ring"),))),
    ("staging", GEMM, with_plan(staging=((9999, "a", "ring"),))),
    ("staging", ATTENTION, lambda plan: with_plan(staging=tuple((s, n, "shelf") for s, n, _ in plan.staging))(plan)),
    ("staging", ATTENTION, lambda plan: with_plan(staging=tuple((s, "none", k) for s, _, k in plan.staging))(plan)),
    ("staging", GEMM, lambda plan: with_plan(staging=tuple((s, "", "own") for s, *_ in plan.staging))(plan)),
    ("channels.a.stays", GEMM, with_channel(0, stays=True)),
    ("channels.q.stays", ATTENTION, with_channel(0, stays=False)),
    ("loops.ping_pong", ODD["skipped_tiles"], with_loop(ping_pong=True)),
    ("fingerprint", GEMM, with_plan(tile_loop=TileLoop(TileCost(0.0)))),
    ("epilogue_overlap", ATTENTION, with_plan(epilogue_overlap=Decision(True))),
    ("loops.loop", GEMM, with_loop(loop=3)),
    ("loops.stage1", GEMM, with_loop(stage1=(3,), in_flight=False)),
    ("loops.stage1", ATTENTION, lambda plan: with_loop(stage1=plan.loops[0].stage1[1:])(plan)),
    ("loops.in_flight", ATTENTION, with_loop(stage1=(), in_flight=True)),
    ("loops.in_flight", GEMM, lambda plan: with_channel(0, depth=1)(with_plan(staging=())(plan))),
]


@pytest.mark.parametrize(("field", "case", "edit"), BAD, ids=[f"{field}-{i}" for i, (field, *_) in enumerate(BAD)])
def test_what_does_not_fit_is_refused(field: str, case: Case, edit: Edit) -> None:
    plan = edit(own(case, depth=2))
    made = outcome(case, plan=plan)
    (remark,) = made.remarks
    assert remark.code == "plan-mismatch"
    assert remark.message.startswith(f"plan: {field}: ")
    assert remark.note and made.plan is None


def test_no_channel_at_all() -> None:
    made = outcome(GEMM, plan=replace(own(GEMM), channels=(), staging=()))
    assert made.remarks[0].code == "plan-mismatch"


def test_a_plan_for_another_kernel() -> None:
    made = outcome(ATTENTION, plan=own(GEMM))
    assert made.remarks[0].code == "plan-mismatch"
    assert own(GEMM).fingerprint in made.remarks[0].message
    assert own(ATTENTION).fingerprint in made.remarks[0].message


def test_a_plan_for_another_tile_of_the_kernel() -> None:
    assert outcome(ODD["rows_256_warps_8"], plan=own(GEMM)).remarks[0].code == "plan-mismatch"


def test_a_plan_made_up_out_of_nothing() -> None:
    """The least a plan can say."""
    tasks = (Task("mma", "consumer", 8, 240), Task("load", "producer", 1, 24))
    known = own(GEMM)
    loads = [channel.loads for channel in known.channels]
    rings = (Channel("one", loads[0], 2, 16384), Channel("two", loads[1], 3, 16384))
    plan = Plan("k", known.fingerprint, 8, tasks, rings, (LoopSchedule(known.loops[0].loop),))
    made = outcome(GEMM, plan=plan)
    assert [remark.code for remark in made.remarks] == ["specialized"], made.remarks
    assert made.module is not None
    assert_sound(made.module, plan)
    assert_same_stores(plain_module(GEMM), made.module, seed=7)


# ------------------------------------------------------------------------------------------------------ any edit at all

BASES = [ODD[name] for name in ("gemm", "attention_two_loops", "two_products", "persistent", "store_between_loops")]
SMALL = st.integers(-1, 40)


@st.composite
def edits(draw: st.DrawFn, plan: Plan) -> Plan:
    """The plan with something changed, sensible or not."""
    kind = draw(st.sampled_from(["task", "channel", "drop", "merge", "loop", "stage1", "staging", "blocks"]))
    index = draw(st.integers(0, len(plan.channels) - 1))
    if kind == "task":
        changes = {"warps": (1, 2, 4, 8), "registers": (24, 40, 96, 200, 240), "replicas": (1, 2, 3, 4)}
        name = draw(st.sampled_from(sorted(changes)))
        value = draw(st.sampled_from(changes[name]))
        return with_task(draw(st.sampled_from(["consumer", "producer"])), **{name: value})(plan)
    if kind == "channel":
        loads = st.lists(SMALL, max_size=2).map(tuple)
        fields = {"depth": st.integers(1, 6), "sliced_dim": st.integers(-1, 1), "reused": st.booleans(), "loads": loads}
        name = draw(st.sampled_from(sorted(fields)))
        return with_channel(index, **{name: draw(fields[name])})(plan)
    if kind == "drop":
        return replace(plan, channels=plan.channels[:index] + plan.channels[index + 1 :])
    if kind == "merge":
        first, other = plan.channels[0], plan.channels[index]
        rest = [channel for channel in plan.channels[1:] if channel is not other]
        return replace(plan, channels=(replace(first, loads=(*first.loads, *other.loads)), *rest))
    if kind == "loop":
        late = () if draw(st.booleans()) else plan.loops[0].stage1
        return with_loop(in_flight=draw(st.booleans()), stage1=late, ping_pong=draw(st.booleans()))(plan)
    if kind == "stage1":
        return with_loop(stage1=tuple(draw(st.lists(SMALL, max_size=6, unique=True))), in_flight=False)(plan)
    if kind == "staging":
        names = [channel.name for channel in plan.channels]
        place = st.tuples(SMALL, st.sampled_from([*names, ""]), st.sampled_from(["buffer", "ring", "own", "subtiles"]))
        kept = draw(st.sampled_from([(), plan.staging]))
        return replace(plan, staging=(*kept, *draw(st.lists(place, max_size=1))))
    return replace(plan, blocks_per_sm=draw(st.integers(0, 3)))


@hypothesis.settings(
    max_examples=40, deadline=None, database=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
)
@hypothesis.given(st.data(), st.sampled_from(BASES), st.integers(1, 3))
def test_any_plan_is_refused_or_right(data: st.DataObject, case: Case, count: int) -> None:
    plan = own(case, depth=2)
    for _ in range(count):
        hypothesis.assume(plan.channels)
        plan = data.draw(edits(plan))
    made = outcome(case, plan=plan)
    (remark,) = made.remarks
    if made.module is None:
        assert remark.code == "plan-mismatch", remark
        return
    hypothesis.event("accepted")
    assert_sound(made.module, plan)
    assert_same_stores(plain_module(case), made.module, seed=count)
