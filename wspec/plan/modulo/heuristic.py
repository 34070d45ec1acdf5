"""Iterative modulo scheduling: nodes by their height, each at the first place that is free, evicting what stands in
the way of one that finds none. B. Ramakrishna Rau, "Iterative modulo scheduling", MICRO 1994.
"""

from __future__ import annotations

from collections.abc import Mapping

from wspec.plan.modulo.problem import Problem

_TRIES = 8  # placements of each node, in the mean, before an interval is given up
_EPSILON = 1e-6
Starts = list[float]


def place(problem: Problem, interval: float, origin: int, stages: Mapping[int, int], limit: int) -> Starts | None:
    """Starts at this interval, or None where none were found.

    `origin` starts at 0; nodes of `stages` start in their own interval counted from there, all others in 0..`limit` - 1
    or before the origin.
    """
    return _Placing(problem, interval, origin, stages, limit).run()


class _Placing:
    def __init__(
        self, problem: Problem, interval: float, origin: int, stages: Mapping[int, int], limit: int
    ) -> None:
        self.problem, self.interval, self.origin, self.limit = problem, interval, origin, limit
        self.stages = stages
        count = len(problem.nodes)
        self.starts: list[float | None] = [None] * count
        self.last: list[float] = [-1e18] * count
        self.into: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        self.out: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        for edge in problem.edges:
            gap = edge.delay - edge.distance * interval
            self.into[edge.target].append((edge.source, gap))
            self.out[edge.source].append((edge.target, gap))

    def run(self) -> Starts | None:
        count = len(self.problem.nodes)
        height = self._heights()
        if height is None or any(
            cycles > self.interval + _EPSILON for node in self.problem.nodes for cycles in node.busy.values()
        ):
            return None
        order = sorted(range(count), key=lambda at: (at != self.origin, -height[at], at))
        budget = _TRIES * count
        while None in self.starts:
            budget -= 1
            if budget < 0:
                return None
            at = next(one for one in order if self.starts[one] is None)
            start = self._find(at)
            if start is None:
                return None
            self._put(at, start)
        found = [start for start in self.starts if start is not None]
        return found if self._holds(found) else None

    def _heights(self) -> list[float] | None:
        """The longest way to an end; None where a cycle of values takes longer than the interval allows."""
        height = [node.cycles for node in self.problem.nodes]
        for _ in range(len(height) + 1):
            changed = False
            for at, users in enumerate(self.out):
                best = max((height[user] + gap for user, gap in users), default=0.0)
                if best > height[at] + _EPSILON:
                    height[at], changed = best, True
            if not changed:
                return height
        return None

    def _window(self, at: int) -> tuple[float, float]:
        """The first and the last start that the node's stage allows."""
        if at == self.origin:
            return 0.0, 0.0
        stage = self.stages.get(at)
        if stage is not None:
            return stage * self.interval, (stage + 1) * self.interval - _EPSILON
        return -1e18, self.limit * self.interval - _EPSILON

    def _find(self, at: int) -> float | None:
        """The first free start at or after what feeds it; a taken one where there is none, later than the last."""
        low, high = self._window(at)
        known = [(before, gap) for before, gap in self.into[at] if self.starts[before] is not None and before != at]
        for before, gap in known:
            low = max(low, (self.starts[before] or 0.0) + gap)
        if low < -1e17:  # nothing before it is placed: as late as what needs it allows
            users = [(self.starts[user] or 0.0) - gap for user, gap in self.out[at] if self.starts[user] is not None]
            low = min(users) if users else 0.0
            low = min(low, high)
        if low > high + _EPSILON:
            return None
        for start in sorted({low, *self._ends(at, low)}):
            if start <= high + _EPSILON and start < low + self.interval and not self._conflicts(at, start):
                return start
        forced = max(low, self.last[at] + 1.0)
        return forced if forced <= high else low

    def _ends(self, at: int, low: float) -> list[float]:
        """Where units that the node uses become free, within one interval from `low`."""
        found = []
        for other, node in enumerate(self.problem.nodes):
            start = self.starts[other]
            if start is None or other == at:
                continue
            for unit in self.problem.nodes[at].busy:
                if unit in node.busy:
                    end = start + node.busy[unit]
                    found.append(low + (end - low) % self.interval)
        return found

    def _conflicts(self, at: int, start: float) -> list[int]:
        """The nodes that are in the way."""
        mine = self.problem.nodes[at].busy
        found = []
        for other, node in enumerate(self.problem.nodes):
            there = self.starts[other]
            if there is None or other == at:
                continue
            for unit, cycles in mine.items():
                if unit in node.busy and self._overlap(start, cycles, there, node.busy[unit]):
                    found.append(other)
                    break
        return found

    def _overlap(self, one: float, long: float, other: float, wide: float) -> bool:
        """Do two bookings of a unit meet anywhere in the interval?"""
        ahead = (other - one) % self.interval
        if self.interval - ahead < _EPSILON:
            ahead = 0.0
        return ahead < long - _EPSILON or self.interval - ahead < wide - _EPSILON

    def _put(self, at: int, start: float) -> None:
        for other in self._conflicts(at, start):
            if other != self.origin:
                self.starts[other] = None
        self.starts[at] = self.last[at] = start
        for user, gap in self.out[at]:
            there = self.starts[user]
            if user not in (at, self.origin) and there is not None and there < start + gap - _EPSILON:
                self.starts[user] = None

    def _holds(self, starts: Starts) -> bool:
        """The origin may have been overrun."""
        edges = all(
            starts[edge.target] + edge.distance * self.interval >= starts[edge.source] + edge.delay - 1e-3
            for edge in self.problem.edges
        )
        return edges and not any(self._conflicts(at, start) for at, start in enumerate(starts))
