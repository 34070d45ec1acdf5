"""Which legal part of a loop runs late: the one whose modulo schedule, lowered in program order, is the shortest.

`schedule.py` knows what may run an iteration late; here the schedules decide what does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wspec.ir.core import Operation
from wspec.ir.numbering import id_of
from wspec.model.machine import Machine
from wspec.model.modulo import Problem, Schedule, in_order, loop_problem, solve
from wspec.model.modulo.solve import SECONDS, origin_of
from wspec.passes.software_pipelining.stages import goes_ahead, late_parts
from wspec.plan.fitted import LATE_GAIN
from wspec.plan.plan import LoopSchedule

CLOSE = 1.05  # schedules of the heuristic nearer than this are left to the exact solver


def choose_late(loop: Operation, is_load: Callable[[Operation], bool], machine: Machine, blocks: int) -> LoopSchedule:
    """The late part of one loop where `blocks` blocks share an SM; empty where nothing is gained."""
    parts = late_parts(loop, is_load)
    if not parts:
        return LoopSchedule(id_of(loop))
    problem = loop_problem(loop, machine, is_load, blocks)
    choices = [frozenset[Operation](), *(frozenset(part) for part in parts)]
    intervals = _intervals(problem, choices, 0.0)
    if len(intervals) > 1 and sorted(intervals)[1] < CLOSE * min(intervals):
        intervals = _intervals(problem, choices, SECONDS)
    best = min(range(1, len(choices)), key=lambda at: intervals[at] * (1.0 if at == 1 else 1 / LATE_GAIN))
    if intervals[best] >= LATE_GAIN * intervals[0]:
        return LoopSchedule(id_of(loop))
    return LoopSchedule(id_of(loop), tuple(id_of(op) for op in loop.regions[0].block.ops if op in choices[best]))


def _intervals(problem: Problem, choices: list[frozenset[Operation]], seconds: float) -> list[float]:
    found = (lowered(problem, late, seconds) for late in choices)
    return [schedule.schedule.interval if schedule is not None else float("inf") for schedule in found]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A loop's schedule as the passes emit it: stages given, instructions in program order."""

    problem: Problem
    schedule: Schedule


def lowered(
    problem: Problem,
    late: frozenset[Operation],
    seconds: float = SECONDS,
    apart: Callable[[Operation], bool] = lambda op: False,
) -> Lowered | None:
    """The schedule under which these operations run an iteration late, and no others; None where there is none.

    What goes ahead of the late dots is done in the iteration before.

    What is `apart` belongs to another task: it need not keep to the order of the task that multiplies.
    """
    if not problem.nodes:
        return None
    origin = origin_of(problem)
    body = problem.nodes[origin].op.parent
    behind = late - set(goes_ahead([op for op in body.ops if op in late] if body is not None else []))
    stages = {
        at: int(node.op in behind)
        for at, node in enumerate(problem.nodes)
        if at >= origin and "tma" not in node.busy and not apart(node.op)
    }
    ordered = in_order(problem, stages, origin, apart)
    schedule = solve(ordered, stages, seconds=seconds)
    return None if schedule is None else Lowered(ordered, schedule)
