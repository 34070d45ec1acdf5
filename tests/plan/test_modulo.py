"""Modulo schedules: bounds, the heuristic, the exact solver, and what they say of loops."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest

from tests.support.programs import function
from tests.support.shipped import numbered_function, shipped
from wspec.ir.core import Operation
from wspec.ir.loc import value_name
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS
from wspec.model.machine import load_machine
from wspec.model.modulo import Edge, Node, Problem, exact, loop_problem, recurrence_bound, resource_bound, solve
from wspec.model.modulo.solve import Schedule
from wspec.passes.software_pipelining.choice import choose_late, lowered
from wspec.plan.partition import hot_loops

MACHINE = load_machine("h200")


def is_load(op: Operation) -> bool:
    return op.name == "tt.descriptor_load"


def first_loop() -> Operation:
    """Of attention without a mask: the loop over whole tiles of keys."""
    return hot_loops(numbered_function(shipped("attention.py:attention_fwd", "d128")))[0]


def dummies(count: int) -> list[Operation]:
    """Operations to name nodes by; none of them is a dot."""
    root = function('%a0 = "arith.constant"() {value = 1 : i32} : () -> i32')
    one = next(op for op in root.walk() if op.name == "arith.constant")
    return [one] * count


def problem(busy: list[dict[str, float]], edges: list[Edge]) -> Problem:
    ops = dummies(len(busy))
    totals: dict[str, float] = {}
    for units in busy:
        for unit, cycles in units.items():
            totals[unit] = totals.get(unit, 0.0) + cycles
    return Problem(tuple(Node(op, units) for op, units in zip(ops, busy, strict=True)), tuple(edges), totals)


def random_problem(seed: int) -> Problem:
    """A loop of a few nodes: a chain forwards, some values carried round."""
    draw = random.Random(seed)
    count = draw.randint(2, 9)
    busy = [{draw.choice(("tensor", "mufu", "fma")): float(draw.randint(1, 40))} for _ in range(count)]
    edges = []
    for target in range(1, count):
        for source in range(target):
            if draw.random() < 0.4:
                edges.append(Edge(source, target, max(busy[source].values()) + draw.randint(0, 20), 0))
    for _ in range(draw.randint(0, 3)):
        source, target = draw.randrange(count), draw.randrange(count)
        edges.append(Edge(source, target, max(busy[source].values()), draw.randint(1, 2)))
    return problem(busy, edges)


def broken(one: Problem, schedule: Schedule) -> list[str]:
    """What a schedule does that it must not; worked out cycle by cycle, and from the edges."""
    found = []
    interval = schedule.interval
    for edge in one.edges:
        if schedule.starts[edge.target] + edge.distance * interval < schedule.starts[edge.source] + edge.delay - 0.01:
            found.append(f"edge {edge}")
    for unit in one.totals:
        spans = []
        for node, start in zip(one.nodes, schedule.starts, strict=True):
            begin, left = start % interval, node.busy.get(unit, 0.0)
            spans += [(begin, min(begin + left, interval)), (0.0, begin + left - interval)]
        spans = sorted((a, b) for a, b in spans if b - a > 0.01)
        found += [f"{unit} at {b:.1f}" for (_, a), (b, _) in itertools.pairwise(spans) if b < a - 0.01]
    return found


# ---------------------------------------------------------------------------------------------------- bounds


def test_resources() -> None:
    one = problem([{"tensor": 100.0, "issue": 5.0}, {"fma": 30.0}, {"fma": 80.0}], [])
    assert resource_bound(one) == (110.0, "fma")
    assert recurrence_bound(one) == (0.0, ())


def test_recurrences() -> None:
    """30 + 20 round one iteration, 90 + 30 round two: the slower one counts for each iteration."""
    edges = [Edge(0, 1, 30, 0), Edge(1, 0, 20, 1), Edge(1, 2, 90, 0), Edge(2, 1, 30, 2)]
    bound, cycle = recurrence_bound(problem([{"fma": 1.0}] * 3, edges))
    assert bound == pytest.approx(60, abs=1) and {edge.source for edge in cycle} == {1, 2}


@pytest.mark.parametrize("seed", range(40))
def test_the_heuristic_keeps_every_rule(seed: int) -> None:
    one = random_problem(seed)
    schedule = solve(one, limit=50, seconds=0)
    assert schedule is not None and broken(one, schedule) == []
    assert schedule.interval >= schedule.lower - 0.01
    assert schedule.lower >= max(resource_bound(one)[0], recurrence_bound(one)[0]) - 0.01
    serial = sum(node.cycles for node in one.nodes) + sum(edge.delay for edge in one.edges)
    assert schedule.interval <= max(serial, 1.5 * schedule.lower)


@pytest.mark.parametrize("seed", range(20))
def test_the_exact_solver_is_never_worse(seed: int) -> None:
    if not exact.available():
        pytest.skip("OR-tools is not installed")
    one = random_problem(seed)
    heuristic, best = solve(one, seconds=0), solve(one, seconds=2.0)
    assert heuristic is not None and best is not None
    assert broken(one, best) == [] and best.interval <= heuristic.interval + 0.01
    assert best.lower <= best.interval + 0.01


def test_a_fixed_stage_is_kept() -> None:
    one = problem([{"tensor": 10.0}, {"fma": 10.0}], [Edge(0, 1, 10, 0)])
    schedule = solve(one, {0: 0, 1: 1}, seconds=0)
    assert schedule is not None and schedule.stage(1) == 1 and broken(one, schedule) == []


# -------------------------------------------------------------------------------------------------- attention


@pytest.mark.parametrize("blocks", [1, 2])
def test_attention_is_scheduled_as_it_should_be(blocks: int) -> None:
    """QK of the next tile runs over softmax: PV is an iteration behind, and the tensor core is never idle."""
    loop = first_loop()
    one = loop_problem(loop, MACHINE, is_load, blocks)
    schedule = solve(one, seconds=0)
    assert schedule is not None and broken(one, schedule) == []
    dots = [at for at, node in enumerate(one.nodes) if node.op.name in DOTS]
    assert [schedule.stage(at) for at in dots] == [0, 1]
    assert schedule.unit == "tensor" and schedule.interval == pytest.approx(2048 * blocks, rel=0.01)


def test_what_runs_late_pays() -> None:
    """In program order too: the late PV shortens the interval, and is what the planner takes."""
    loop = first_loop()
    one = loop_problem(loop, MACHINE, is_load)
    late = set(choose_late(loop, is_load, MACHINE, 1).late)
    ops = frozenset(op for op in loop.regions[0].block.ops if id_of(op) in late)
    assert {value_name(op.location) for op in ops if op.name in DOTS} == {"acc"}
    with_late, without = lowered(one, ops, 0), lowered(one, frozenset(), 0)
    assert with_late is not None and without is not None
    assert with_late.schedule.interval < 0.85 * without.schedule.interval
    assert broken(with_late.problem, with_late.schedule) == []
    exponentials = next(at for at, node in enumerate(one.nodes) if node.busy.get("mufu", 0) > 1000)
    assert with_late.schedule.stage(exponentials) == 0


def test_nothing_runs_late_where_memory_is_the_bound() -> None:
    slow = dataclasses.replace(MACHINE, name="slow memory", tma_rate=1.0)
    loop = first_loop()
    assert choose_late(loop, is_load, slow, 1).late == ()
    fast = dataclasses.replace(MACHINE, name="fast memory")
    assert choose_late(loop, is_load, fast, 1).late != ()


def test_rings_are_recurrences() -> None:
    """A tile of K takes its latency and transfer, the dot, and the hand-over back: with one buffer nothing overlaps."""
    loop = first_loop()
    loads = [op for op in loop.walk() if is_load(op)]
    bounds = []
    for depth in (1, 2, 3):
        one = loop_problem(loop, MACHINE, is_load, depths=dict.fromkeys(loads, depth))
        bounds.append(recurrence_bound(one)[0])
        assert {edge.distance for edge in one.edges if edge.why == "ring"} == {depth}
    assert bounds[0] > 2500 and bounds[0] > bounds[1] >= bounds[2]
