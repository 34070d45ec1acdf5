"""Iterative modulo scheduling: nodes by their height, each at the first place that is free, evicting what stands in
the way of one that finds none. B. Ramakrishna Rau, "Iterative modulo scheduling", MICRO 1994.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from wspec.model.modulo.problem import Problem

_TRIES = 8  # placements of each node, in the mean, before an interval is given up
_EPSILON = 1e-6
Starts = list[float]
Rivals = list[list[tuple[int, list[tuple[float, float]]]]]
"""Of each node: the others that use a unit which it uses, each with how long it and they use such units."""


def place(problem: Problem, interval: float, origin: int, stages: Mapping[int, int], limit: int) -> Starts | None:
    """Starts at this interval, or None where none were found.

    `origin` starts at 0; nodes of `stages` start in their own interval counted from there, all others in 0..`limit` - 1
    or before the origin. A node that nothing feeds which is placed already starts with the origin in a first attempt,
    and as late as what needs it allows in a second one.
    """
    early = _Placing(problem, interval, origin, stages, limit, False).run()
    return early if early is not None else _Placing(problem, interval, origin, stages, limit, True).run()


@lru_cache(maxsize=2)
def _rivals(busy: tuple[tuple[tuple[str, float], ...], ...]) -> Rivals:
    """From the cycles of each unit that nodes take; the same for all intervals that are tried for a loop."""
    uses = [dict(one) for one in busy]
    return [
        [
            (other, [(cycles, theirs[unit]) for unit, cycles in mine.items() if unit in theirs])
            for other, theirs in enumerate(uses)
            if other != at and not mine.keys().isdisjoint(theirs)
        ]
        for at, mine in enumerate(uses)
    ]


class _Placing:
    def __init__(
        self, problem: Problem, interval: float, origin: int, stages: Mapping[int, int], limit: int, late: bool
    ) -> None:
        self.problem, self.interval, self.origin, self.limit = problem, interval, origin, limit
        self.stages, self.late = stages, late
        count = len(problem.nodes)
        self.starts: list[float | None] = [None] * count
        self.last: list[float] = [-1e18] * count
        self.into: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        self.out: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        for edge in problem.edges:
            gap = edge.delay - edge.distance * interval
            self.into[edge.target].append((edge.source, gap))
            self.out[edge.source].append((edge.target, gap))
        self.rivals = _rivals(tuple(tuple(node.busy.items()) for node in problem.nodes))

    def run(self) -> Starts | None:
        count = len(self.problem.nodes)
        height = self._heights()
        if height is None or any(
            cycles > self.interval + _EPSILON for node in self.problem.nodes for cycles in node.busy.values()
        ):
            return None
        self.windows = self._windows()
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

    def _windows(self) -> list[tuple[float, float]]:
        """The first and the last start of each node that its stage allows, and the stages of all that need it."""
        first, last = [], []
        for at in range(len(self.problem.nodes)):
            stage = self.stages.get(at)
            if at == self.origin:
                low, high = 0.0, 0.0
            elif stage is not None:
                low, high = stage * self.interval, (stage + 1) * self.interval - _EPSILON
            else:
                low, high = -1e18, self.limit * self.interval - _EPSILON
            first.append(low)
            last.append(high)
        for _ in last if self.late else ():
            for at, users in enumerate(self.out):
                last[at] = min([last[at], *(last[user] - gap for user, gap in users if user != at)])
        return list(zip(first, last, strict=True))

    def _find(self, at: int) -> float | None:
        """The first free start at or after what feeds it; a taken one where there is none, later than the last."""
        low, high = self.windows[at]
        known = [(before, gap) for before, gap in self.into[at] if self.starts[before] is not None and before != at]
        for before, gap in known:
            low = max(low, (self.starts[before] or 0.0) + gap)
        if low < -1e17:  # nothing before it is placed: as late as what needs it allows, and as late as is free
            users = [
                start - gap for user, gap in self.out[at] if (start := self.starts[user]) is not None and user != at
            ]
            high = min([high if self.late or users else 0.0, *users])
            free = (start for start in sorted({high, *self._beginnings(at, high)}, reverse=True))
            return next((start for start in free if self._is_free(at, start)), high)
        if low > high + _EPSILON:
            return None
        for start in sorted({low, *self._ends(at, low)}):
            if start <= high + _EPSILON and start < low + self.interval and self._is_free(at, start):
                return start
        forced = max(low, self.last[at] + 1.0)
        return forced if forced <= high else low

    def _ends(self, at: int, low: float) -> list[float]:
        """Where units that the node uses become free, within one interval from `low`."""
        placed = ((self.starts[other], bookings) for other, bookings in self.rivals[at])
        return [
            low + (start + wide - low) % self.interval
            for start, bookings in placed
            if start is not None
            for _, wide in bookings
        ]

    def _beginnings(self, at: int, high: float) -> list[float]:
        """Starts from which the node ends where another one begins to use a unit, within one interval up to `high`."""
        placed = ((self.starts[other], bookings) for other, bookings in self.rivals[at])
        return [
            high - (high - (start - long)) % self.interval
            for start, bookings in placed
            if start is not None
            for long, _ in bookings
        ]

    def _conflicts(self, at: int, start: float) -> Iterator[int]:
        """The nodes that are in the way: those with a booking of a unit that meets one of this node's."""
        starts, interval = self.starts, self.interval
        for other, bookings in self.rivals[at]:
            there = starts[other]
            if there is None:
                continue
            ahead = (there - start) % interval
            if interval - ahead < _EPSILON:
                ahead = 0.0
            for long, wide in bookings:
                if ahead < long - _EPSILON or interval - ahead < wide - _EPSILON:
                    yield other
                    break

    def _is_free(self, at: int, start: float) -> bool:
        return next(self._conflicts(at, start), None) is None

    def _put(self, at: int, start: float) -> None:
        for other in list(self._conflicts(at, start)):
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
        return edges and all(self._is_free(at, start) for at, start in enumerate(starts))
