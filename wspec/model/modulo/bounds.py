"""What no schedule can beat: the busiest unit, and the slowest way round a cycle of values or buffers."""

from __future__ import annotations

from wspec.model.modulo.problem import Edge, Problem

_PRECISION = 0.5  # cycles


def resource_bound(problem: Problem) -> tuple[float, str]:
    """(cycles, unit): the time of the busiest unit."""
    if not problem.totals:
        return 0.0, ""
    unit = max(problem.totals, key=lambda one: problem.totals[one])
    return problem.totals[unit], unit


def recurrence_bound(problem: Problem) -> tuple[float, tuple[Edge, ...]]:
    """(cycles, a cycle that is the reason): the largest delay over distance of all cycles.

    Found by bisection: an interval is too short exactly when some cycle has a positive sum of delay - distance *
    interval, which Bellman-Ford finds.
    """
    low, high = 0.0, sum(edge.delay for edge in problem.edges) + 1.0
    cause = _positive_cycle(problem, low)
    if cause is None:
        return 0.0, ()
    while high - low > _PRECISION:
        middle = (low + high) / 2
        found = _positive_cycle(problem, middle)
        if found is None:
            high = middle
        else:
            low, cause = middle, found
    distance = sum(edge.distance for edge in cause)
    return sum(edge.delay for edge in cause) / max(distance, 1), cause


def _positive_cycle(problem: Problem, interval: float) -> tuple[Edge, ...] | None:
    """A cycle that does not hold at this interval."""
    longest = [0.0] * len(problem.nodes)
    before: list[Edge | None] = [None] * len(problem.nodes)
    last = -1
    for _ in range(len(problem.nodes) + 1):
        last = -1
        for edge in problem.edges:
            reached = longest[edge.source] + edge.delay - edge.distance * interval
            if reached > longest[edge.target] + 1e-6:
                longest[edge.target], before[edge.target], last = reached, edge, edge.target
        if last < 0:
            return None
    at = last
    for _ in problem.nodes:  # back along the edges until it is certain to be inside of the cycle
        edge_in = before[at]
        assert edge_in is not None
        at = edge_in.source
    found: list[Edge] = []
    start = at
    while True:
        edge_in = before[at]
        assert edge_in is not None
        found.append(edge_in)
        at = edge_in.source
        if at == start:
            return tuple(reversed(found))
