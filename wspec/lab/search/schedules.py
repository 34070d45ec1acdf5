"""The modulo schedule of each loop that multiplies, under a plan: what starts when, in which task, what bounds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation
from wspec.ir.loc import value_name
from wspec.ir.numbering import id_of
from wspec.model.machine import Machine
from wspec.model.modulo import Edge, Problem, loop_problem, solve
from wspec.model.modulo.work import NAMES, rates
from wspec.passes.software_pipelining.choice import lowered
from wspec.passes.split import split
from wspec.pipeline import function_of
from wspec.plan.partition import hot_loops
from wspec.plan.plan import Plan
from wspec.plan.registers import consumer_need


@dataclass(frozen=True, slots=True)
class Row:
    """One operation of the steady state."""

    op: Operation
    name: str  # of its value in the source
    task: str
    unit: str  # that it keeps busy the longest
    cycles: float
    start: float  # from the start of the loop's first dot
    stage: int  # iterations behind that dot; negative: ahead


@dataclass(frozen=True, slots=True)
class SteadyState:
    """One loop under a plan. Cycles of an SM for an iteration of all blocks that share it."""

    loop: Operation
    rows: tuple[Row, ...]  # by start
    interval: float  # between two iterations of a warp group that gets its share of the SM
    shortest: float  # the same if any operation could run late, in any order
    unit: str  # the busiest unit
    resource: float  # its cycles
    recurrence: float  # of the slowest way round a cycle of values, buffers or the code's order
    way: str  # that way
    lower: float  # no schedule with these stages is shorter
    solver: str
    tasks: Mapping[str, float]  # task -> cycles of its busiest unit
    registers: int  # that a consumer's thread is expected to need in this loop

    @property
    def optimal(self) -> bool:
        """Is there no shorter one with these stages?"""
        return self.interval <= 1.002 * self.lower

    @property
    def bound(self) -> str:
        """A unit's name, or latency."""
        return self.unit if self.interval <= 1.05 * self.resource else "latency"


def schedules(module: Operation, plan: Plan, machine: Machine) -> tuple[SteadyState, ...]:
    """Those of the module that `decide` gave, numbered as the plan has it. The module stays as it is."""
    function = function_of(module)
    tasks = _tasks(module, plan)
    found = (_schedule(loop, plan, machine, tasks) for loop in hot_loops(function))
    return tuple(one for one in found if one is not None)


def _tasks(module: Operation, plan: Plan) -> dict[int, str]:
    """Operation -> the task that runs it; of those that several run, the one that multiplies."""
    op = ws.find(split(module.clone({}), plan))
    assert op is not None
    found: dict[int, str] = {}
    loads = {load for channel in plan.channels if not channel.is_computed for load in channel.loads}
    for (task, _), block in zip(plan.regions(), ws.task_blocks(op), strict=True):
        for number in (id_of(inner) for top in block.ops for inner in top.walk()):
            if number >= 0 and (number not in loads or task.kind == "producer"):
                found.setdefault(number, task.name)
    sent = {number: channel.source for channel in plan.values for number in channel.loads}
    return {**found, **sent, **dict.fromkeys(loads, plan.producer.name)}


def _schedule(loop: Operation, plan: Plan, machine: Machine, tasks: Mapping[int, str]) -> SteadyState | None:
    depths = {
        op: channel.depth for op in loop.walk() if (channel := plan.channel_of(id_of(op))) and not channel.is_computed
    }
    numbers = rates(machine)

    def crossing(source: Operation, target: Operation) -> float:
        """A value between tasks is stored, announced, waited for and loaded."""
        first, second = tasks.get(id_of(source)), tasks.get(id_of(target))
        between = source not in depths and first != second and plan.helpers
        return 2 * numbers.smem_latency + numbers.handshake if between else 0.0

    late = next((schedule.late for schedule in plan.loops if schedule.loop == id_of(loop)), ())
    problem = loop_problem(loop, machine, lambda op: op in depths, plan.blocks_per_sm, depths, crossing)
    chosen = frozenset(op for op in loop.regions[0].block.ops if id_of(op) in late)
    helpers = {helper.name for helper in plan.helpers}
    made = lowered(problem, chosen, apart=lambda op: tasks.get(id_of(op)) in helpers)
    if made is None:
        return None
    free = solve(problem)
    threads = 32 * plan.consumer.warps * plan.consumer.replicas // plan.team
    schedule = made.schedule
    rows = []
    busy: dict[str, dict[str, float]] = {}
    for at, node in enumerate(problem.nodes):
        unit = max(node.busy, key=lambda one: node.busy[one])
        task = tasks.get(id_of(node.op), plan.consumer.name)
        name = value_name(node.op.location) or node.op.name.partition(".")[2]
        rows.append(Row(node.op, name, task, NAMES[unit], node.cycles, schedule.starts[at], schedule.stage(at)))
        units = busy.setdefault(task, {})
        for one, cycles in node.busy.items():
            units[one] = units.get(one, 0.0) + cycles
    return SteadyState(
        loop,
        tuple(sorted(rows, key=lambda row: row.start)),
        schedule.interval,
        min(schedule.interval, free.interval) if free is not None else schedule.interval,
        NAMES.get(schedule.unit, schedule.unit),
        schedule.resource,
        schedule.recurrence,
        _way(schedule.cycle, made.problem),
        schedule.lower,
        schedule.solver,
        {task: max(units.values()) for task, units in busy.items()},
        consumer_need([loop], tuple(one for one in plan.loops if one.loop == id_of(loop)), threads),
    )


def _way(cycle: tuple[Edge, ...], problem: Problem) -> str:
    """`s -> p -> acc, next iteration`: by the names in the source."""
    names: list[str] = []
    for edge in cycle:
        op = problem.nodes[edge.source].op
        name = value_name(op.location) or op.name.partition(".")[2]
        if not names or names[-1] != name:
            names.append(name)
    if not names:
        return ""
    distance = sum(edge.distance for edge in cycle)
    return f"{' -> '.join(names)} -> {names[0]}, {distance} iteration{'s' if distance > 1 else ''}"
