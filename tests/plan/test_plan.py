"""A plan as text, what is said of a bad one, and what ties a plan to a kernel."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.programs import PROGRAMS, numbered, op_at, op_named, program
from wspec.decision import Decision
from wspec.ir import print_module, read
from wspec.ir.core import Operation
from wspec.ir.numbering import fingerprint, id_of, number
from wspec.ir.types import DenseArrayAttr, IntegerAttr, i32
from wspec.plan.fill import Fill
from wspec.plan.plan import Channel, LoopSchedule, Plan, PlanError, Prediction, Task, source_warps
from wspec.tile_scheduler import LoopCost, Raster, StreamK, TileCost, TileLoop
from wspec.tile_scheduler.costs import Trips
from wspec.tile_scheduler.scalars import Scalar

# -------------------------------------------------------------------------------------------------- round trip

cycles = st.floats(allow_nan=False, allow_infinity=False)
channels = st.builds(Channel, depth=st.integers(1, 16), sliced_dim=..., reused=...)
loops = st.builds(LoopSchedule, stage1=..., in_flight=...)
predictions = st.builds(Prediction, cycles, cycles, cycles, bound=...)
decisions = st.one_of(st.just(Decision(True)), st.builds(Decision, st.none(), st.text()))
not_negative = st.floats(0.0, 1e30)
scalars = (Scalar("constant", 32, (), 0), Scalar("argument", 32, (), 3), Scalar("program_id", 32, (), 1))
loop_costs = st.one_of(
    st.builds(LoopCost, st.just(7), not_negative, st.just((Trips(0, 1, 2),))),
    st.builds(LoopCost, st.just(7), not_negative, unknown=st.text(min_size=1)),
)
costs = st.builds(TileCost, not_negative, st.tuples(loop_costs), st.just(scalars))
parts = st.builds(StreamK, st.just(7), not_negative, st.integers(1))
tile_loops = st.one_of(
    st.builds(TileLoop, costs, st.integers(2, 9), st.integers(0, 2)),
    st.builds(TileLoop, costs, stream_k=st.builds(Decision, parts)),
    st.builds(TileLoop, costs, stream_k=st.builds(Decision, st.none(), st.text())),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any plan with one producer and one consumer, in either order."""
    kinds = draw(st.permutations(["producer", "consumer"]))
    tasks = tuple(draw(st.builds(Task, kind=st.just(kind), replicas=...)) for kind in kinds)
    rings = draw(st.lists(channels, max_size=3).map(tuple))
    schedules = draw(st.lists(loops, max_size=3).map(tuple))
    others = {"staging": ..., "smem_bytes": ..., "blocks_per_sm": ..., "prediction": predictions}
    others |= {
        "epilogue_overlap": decisions,
        "subtiling": decisions,
        "ping_pong": decisions,
        "programmatic_launch": decisions,
        "tile_loop": st.none() | tile_loops,
    }
    plan = st.builds(Plan, tasks=st.just(tasks), channels=st.just(rings), loops=st.just(schedules), **others)  # type: ignore[arg-type]
    return draw(plan)


@settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans())
def test_round_trip(plan: Plan) -> None:
    assert Plan.from_text(plan.to_text()) == plan


@pytest.mark.parametrize("name", sorted(path.name for path in PROGRAMS.iterdir()))
def test_plans_written_by_hand_round_trip(name: str) -> None:
    plan = Plan.from_text((PROGRAMS / name / "plan.toml").read_text())
    assert Plan.from_text(plan.to_text()) == plan


def test_every_field_stands_in_the_text() -> None:
    chain = Channel("p", (4,), 2, 1024, source="lead", readers=("mma",), result=1, private=True, fill=Fill.COMPUTED)
    pieces = Channel("b", (6,), 2, 1024, fill=Fill.CP_ASYNC, barriers="a")
    slower = Prediction(chain_cycles=1.0, chain_note="too slow")
    places = Raster(0, 1, (Scalar("program_id", 32, (), 0), Scalar("constant", 32, (), 1)), 2, 64, 32, 1, True)
    cost = TileCost(0.0, (LoopCost(2, 1.0, unknown="-"),))
    tiles = TileLoop(cost, stream_k=Decision(StreamK(2, 1.0, 1)), raster=Decision(places))
    alone = TileLoop(TileCost(0.0), coarsening=2, axis=1)
    said = {"epilogue_overlap": Decision(None, "-"), "subtiling": Decision(True), "ping_pong": Decision(True)}
    said |= {"programmatic_launch": Decision(True), "shared_barriers": Decision(True)}
    plan = sample(channels=(chain, pieces), prediction=slower, packed=(5,), tile_loop=tiles, **said)
    text = plan.to_text() + sample(tile_loop=alone).to_text()
    kinds = Plan, Task, Channel, LoopSchedule, Prediction, Decision, TileLoop, StreamK, Raster, TileCost, LoopCost
    for kind in kinds:
        for field in dataclasses.fields(kind):
            assert field.name in text


def test_what_few_plans_have_is_left_out() -> None:
    assert "packed" not in sample().to_text()
    assert Plan.from_text(sample(packed=(5, 7)).to_text()).packed == (5, 7)


def test_how_a_buffer_is_filled_is_a_word() -> None:
    """Left out where it goes without saying: TMA brings tiles, and a task computes what has a source."""
    pieces = Channel("b", (6,), 2, 1024, fill=Fill.CP_ASYNC)
    text = sample(channels=(Channel("a", (3,), 2, 1024), pieces)).to_text()
    assert text.count("fill = ") == 1 and 'fill = "cp.async"' in text
    assert [channel.fill for channel in Plan.from_text(text).channels] == [Fill.TMA, Fill.CP_ASYNC]
    chain = sample(channels=(Channel("p", (4,), 2, 1024, source="mma", fill=Fill.COMPUTED),))
    assert "fill = " not in chain.to_text() and Plan.from_text(chain.to_text()) == chain
    with pytest.raises(PlanError, match=r"channels\[1\].fill: 'ldg' is none of tma, cp.async, computed"):
        Plan.from_text(text.replace('"cp.async"', '"ldg"'))
    with pytest.raises(PlanError, match=r"channels.b: fill is 'computed', but no source computes it"):
        Plan.from_text(text.replace('"cp.async"', '"computed"'))


def sample(**changes: object) -> Plan:
    plan = Plan(
        "k",
        "0" * 16,
        8,
        (Task("mma", "consumer", 4, 240, 2), Task("load", "producer", 1, 24)),
        (Channel("a", (3,), 2, 1024), Channel("q", (1,), 1, 1024, 0, False)),
        (LoopSchedule(2, (5,)),),
    )
    return dataclasses.replace(plan, **changes)  # type: ignore[arg-type]


def test_what_a_plan_knows() -> None:
    plan = sample()
    assert (plan.consumer.name, plan.producer.name) == ("mma", "load")
    assert plan.total_warps == 12, "in whole warp groups"
    a, q = plan.channels
    assert plan.channel_of(3) is a and plan.channel_of(1) is q and plan.channel_of(2) is None
    assert q.sliced and not a.sliced


# ------------------------------------------------------------------------------------------------------ bad plans


def edited(old: str, new: str) -> str:
    text = sample().to_text()
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel = \n", r"^plan is not valid TOML: .*line 1"),
        (edited("depth = 2", "deep = 2"), r"^plan: channels\[0\] has unknown field 'deep'; it may have .*depth"),
        (edited("depth = 2\n", ""), r"^plan: channels\[0\]: .*missing.* 'depth'"),
        (edited("depth = 2", "depth = 0"), r"^plan: channels\.a: depth must be at least 1, found 0"),
        (edited('kernel = "k"\n', ""), r"^plan: the top level: .*missing.* 'kernel'"),
        (edited('kernel = "k"', 'kernal = "k"'), r"^plan: the top level has unknown field 'kernal'"),
        (
            edited('"producer"', '"consumer"'),
            r"^plan: expected one producer and one consumer task, found consumer, con",
        ),
        ('kernel = "k"\nfingerprint = ""\nsource_warps = 4\ntasks = []\nchannels = []\n', r"found none$"),
        ("tasks = 3", r"^plan: tasks must be a list of tables"),
        ("loops = [3]", r"^plan: loops\[0\] must be a table"),
        ("prediction = 3", r"^plan: prediction must be a table"),
        ("epilogue_overlap = 3", r"^plan: epilogue_overlap must be a table"),
        ("tile_loop = 3", r"^plan: tile_loop: .*the top level must have the fields"),
        ("[tile_loop]\n", r"^plan: tile_loop: .*the top level must have the fields"),
        ("[tile_loop]\ncost = {}\n", r"^plan: tile_loop: .*must have the fields fixed, loops, scalars"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Plan.from_text(text)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("depth = 2", 'depth = "2"', "depth"),
        ("depth = 2", "depth = 2.5", "depth"),
        ("loads = [3]", "loads = 3", "loads"),
        ("loads = [3]", 'loads = ["a"]', "loads"),
        ("registers = 240", 'registers = "many"', "registers"),
        ("reused = false", 'reused = "no"', "reused"),
        ('name = "mma"', "name = 3", "name"),
        ("stage1 = [5]", "stage1 = 5", "stage1"),
        ("staging = []", "staging = [3]", "staging"),
        ("staging = []", 'staging = [["q", 3, "ring"]]', "staging"),
        ("smem_bytes = 0", 'smem_bytes = "all"', "smem_bytes"),
        ("overhead_cycles = 0.0", 'overhead_cycles = "few"', "overhead_cycles"),
        ("version = 3", "version = 2", "version"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(old: str, new: str, field: str) -> None:
    with pytest.raises(PlanError, match=field):
        Plan.from_text(edited(old, new))


# --------------------------------------------------------------------------------------------------- fingerprints


def test_operations_are_numbered_in_program_order() -> None:
    root = program("chain")
    assert [id_of(op) for op in root.walk()] == list(range(len(list(root.walk()))))
    assert id_of(Operation.create("arith.constant")) == -1, "what a pass has added has no number"


def test_source_warps() -> None:
    assert source_warps(program("gemm")) == 8
    assert source_warps(program("chain")) == 4


def test_fingerprint_is_that_of_the_program() -> None:
    """Not of its names, places, numbers, or the process that computes it."""
    root = program("gemm")
    again = read(print_module(root.parent_op or root, locations=False))
    assert fingerprint(numbered(again)) == fingerprint(root)
    for op in root.walk():
        op.attributes.clear()
    assert fingerprint(root) == fingerprint(program("gemm"))


def test_fingerprints_differ() -> None:
    names = sorted(path.name for path in PROGRAMS.iterdir() if path.name != "divided")  # its program is gemm's
    assert len({fingerprint(program(name)) for name in names}) == len(names)


def test_fingerprint_sees_types_and_structure() -> None:
    root = program("gemm")
    before = fingerprint(root)
    op_at(root, "half").name = "arith.extf"
    assert fingerprint(root) != before
    root = program("gemm")
    root.regions[0].block.ops.remove(op_named(root, "tt.descriptor_store"))
    number(root)
    assert fingerprint(root) != before


def test_fingerprint_sees_constants_and_operands() -> None:
    before = fingerprint(program("gemm"))
    root = program("gemm")
    op_at(root, "c64").properties["value"] = i32(32)
    assert fingerprint(root) != before
    root = program("gemm")
    load = op_at(root, "b")
    load.operands[1:] = reversed(load.operands[1:])
    assert fingerprint(root) != before


def test_attributes_of_a_program_keep_their_kind() -> None:
    root = program("chain")
    order = op_at(root, "k_t").attr("order")
    assert isinstance(order, DenseArrayAttr) and order.values == (1, 0)
    assert isinstance(op_at(root, "c64").attr("value"), IntegerAttr)
