"""A schedule for a loop: the heuristic's, or the exact solver's where the heuristic is not known to be the best."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from wspec.ir.shapes import DOTS
from wspec.model.modulo import exact
from wspec.model.modulo.bounds import recurrence_bound, resource_bound
from wspec.model.modulo.heuristic import place
from wspec.model.modulo.problem import Edge, Problem

MAX_STAGES = 2  # what `pipeline_loops` lowers: an iteration, and one behind
SECONDS = 0.5  # for the exact solver
EXACT_NODES = 40  # larger problems are left to the heuristic
_NEAR = 1.002  # of a lower bound: whole cycles, no more to be gained
_STEPS = 24


@dataclass(frozen=True, slots=True)
class Schedule:
    """A steady state: iteration j's starts are `interval` cycles after iteration j-1's."""

    interval: float  # cycles between two iterations
    starts: tuple[float, ...]  # of each node of the problem; the loop's first dot starts at 0
    resource: float  # cycles of the busiest unit
    unit: str  # that unit
    recurrence: float  # cycles of the slowest way round a cycle of values or buffers
    cycle: tuple[Edge, ...]  # that way
    lower: float  # no schedule is shorter
    solver: str  # "heuristic" or "CP-SAT"

    def stage(self, node: int) -> int:
        """How many iterations a node runs behind the loop's first dot; -1: it runs ahead."""
        return math.floor(self.starts[node] / self.interval + 1e-6) if self.interval else 0

    @property
    def optimal(self) -> bool:
        """Is it as short as can be?"""
        return self.interval <= self.lower * _NEAR

    @property
    def bound(self) -> str:
        """What keeps it from being shorter: a unit, "latency" where a chain of values takes longer than any unit."""
        return self.unit if self.interval <= self.resource * 1.05 else "latency"


def origin_of(problem: Problem) -> int:
    """The node that stages are counted from: the first dot, or the first node."""
    return next((at for at, node in enumerate(problem.nodes) if node.op.name in DOTS), 0)


def solve(
    problem: Problem,
    stages: Mapping[int, int] | None = None,
    limit: int = MAX_STAGES,
    seconds: float = SECONDS,
) -> Schedule | None:
    """The schedule of the shortest interval that was found; None for a loop that costs nothing.

    `stages` fixes the stage of some nodes; a schedule that does not exist under them is None too. The exact solver
    runs for at most `seconds`, where it is installed, and only where the heuristic stays above the lower bound.
    """
    stages = dict(stages or {})
    if not problem.nodes:
        return None
    key = (_shape(problem), frozenset(stages.items()), limit, seconds if exact.available() else 0.0)
    if key not in _known:
        if len(_known) >= _KEPT:
            _known.clear()
        _known[key] = _solve(problem, stages, limit, seconds)
    return _known[key]


_KEPT = 512  # schedules; a planner asks for the same loop many times
_known: dict[Hashable, Schedule | None] = {}


def _shape(problem: Problem) -> Hashable:
    """All that decides a schedule."""
    nodes = tuple((node.op.name in DOTS, tuple(sorted(node.busy.items()))) for node in problem.nodes)
    return nodes, problem.edges, tuple(sorted(problem.totals.items()))


def _solve(problem: Problem, stages: Mapping[int, int], limit: int, seconds: float) -> Schedule | None:
    resource, unit = resource_bound(problem)
    recurrence, cycle = recurrence_bound(problem)
    low = max(resource, recurrence)
    origin = origin_of(problem)
    starts, interval = _by_heuristic(problem, origin, stages, limit, low)
    lower, solver = low, "heuristic"
    pays = starts is None or interval > low * _NEAR
    if pays and seconds > 0 and len(problem.nodes) <= EXACT_NODES and exact.available():
        most = interval if starts is not None else _serial(problem)
        better, found, bound = exact.solve_exactly(problem, origin, stages, limit, low, most, starts, seconds)
        lower = max(low, bound)
        if better is not None and (starts is None or found < interval):
            starts, interval, solver = better, found, "CP-SAT"
    if starts is None:
        return None
    return Schedule(interval, tuple(starts), resource, unit, recurrence, cycle, min(lower, interval), solver)


def _serial(problem: Problem) -> float:
    """One thing after the other: there is always such a schedule, if there is any."""
    return sum(max(edge.delay, 0.0) for edge in problem.edges) + sum(node.cycles for node in problem.nodes) + 1.0


def _by_heuristic(
    problem: Problem, origin: int, stages: Mapping[int, int], limit: int, low: float
) -> tuple[list[float] | None, float]:
    """The shortest interval that the heuristic finds, by growing steps and then by bisection."""
    interval, step = low, 0.002
    found: list[float] | None = None
    fails = low
    for _ in range(_STEPS):
        found = place(problem, interval, origin, stages, limit)
        if found is not None:
            break
        fails = interval
        interval *= 1 + step
        step = min(2 * step, 0.25)
    if found is None:
        return None, interval
    while interval - fails > 0.002 * interval:
        middle = (interval + fails) / 2
        between = place(problem, middle, origin, stages, limit)
        if between is None:
            fails = middle
        else:
            found, interval = between, middle
    return found, interval
