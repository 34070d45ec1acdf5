"""Every interleaving of the events of a few tasks, one after the other: what may go wrong in any of them.

An explicit search over states, without clocks and without merging, as plain as can be. TMA copies end whenever they
like, dots and tile stores of one task in their order. Besides deadlocks, races and what is still running at the end, it
finds what depends on the schedule: a wait that passes at different completions of its barrier, an arrival that counts
for different phases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from tests.check.concrete import Event, Part, Run

T = TypeVar("T")
At = tuple[int, int]  # task, position of an event
Barrier = tuple[int, int, int, int]  # count, arrived, bytes, completions
_READS, _WRITES = ("load", "tma_store", "dot"), ("store", "copy")


class TooMany(Exception):
    """More states than were allowed."""


class Wrong(Exception):
    """Something that can go wrong: its kind and the line."""

    def __init__(self, kind: str, line: int) -> None:
        super().__init__(f"{kind} at line {line}")
        self.kind, self.line = kind, line


class _State(NamedTuple):
    positions: tuple[int, ...]
    barriers: tuple[Barrier, ...]
    copies: frozenset[At]  # under way
    dots: tuple[int, ...]  # done, by task
    stores: tuple[int, ...]
    named: tuple[tuple[int, int, int], ...]  # arrived threads, completions, tasks (bits) that wait for the next one


@dataclass
class Explorer:
    """Searches all interleavings of one run."""

    run: Run
    limit: int = 50_000
    states: int = 0
    seen_by: dict[At, set[int]] = field(default_factory=lambda: defaultdict(set))  # completions, by wait or arrival

    def __post_init__(self) -> None:
        self.tasks = self.run.tasks
        self.numbers: dict[Part, int] = {}
        self.named: dict[Part, int] = {}
        self.before: list[list[tuple[int, int]]] = []  # by task and position: dots and stores issued before
        for events in self.tasks:
            counts, dots, stores = [], 0, 0
            for event in events:
                counts.append((dots, stores))
                dots, stores = dots + (event.kind == "dot"), stores + (event.kind == "tma_store")
                if event.barrier is not None:
                    table = self.named if event.kind.startswith("bar_") else self.numbers
                    table.setdefault(event.barrier, len(table))
            self.before.append([*counts, (dots, stores)])
        self.writes = [
            (t, at, event) for t, events in enumerate(self.tasks) for at, event in enumerate(events)
            if event.kind in _WRITES
        ]  # fmt: skip
        self.forked = {other: (t, at) for t, events in enumerate(self.tasks) for at, e in enumerate(events)
                       if e.kind == "fork" for other in e.others}  # fmt: skip

    def explore(self) -> None:
        """Raises Wrong for the first thing that can go wrong, TooMany beyond the limit."""
        zeros = (0,) * len(self.tasks)
        barriers, named = ((0, 0, 0, 0),) * len(self.numbers), ((0, 0, 0),) * len(self.named)
        first = _State(zeros, barriers, frozenset(), zeros, zeros, named)
        pending, seen = [first], {first}
        while pending:
            state = pending.pop()
            self.states += 1
            if self.states > self.limit:
                raise TooMany
            following = list(self._following(state))
            if not following:
                self._stopped(state)
            for one in following:
                if one not in seen:
                    seen.add(one)
                    pending.append(one)

    # ---- one step further

    def _following(self, state: _State) -> Iterator[_State]:
        self._adjacent(state)
        self._ended(state)
        for task in range(len(self.tasks)):
            event = self._next(state, task)
            if event is not None:
                after = self._step(state, task, event)
                if after is not None:
                    yield after
            dots, stores = self.before[task][state.positions[task]]
            if state.dots[task] < dots:
                yield state._replace(dots=_set(state.dots, task, state.dots[task] + 1))
            if state.stores[task] < stores:
                yield state._replace(stores=_set(state.stores, task, state.stores[task] + 1))
        for at in state.copies:
            event = self.tasks[at[0]][at[1]]
            after = state._replace(copies=state.copies - {at})
            yield self._arrived(after, event, 0, -event.number)

    def _next(self, state: _State, task: int) -> Event | None:
        """The next event of a task that runs and is not at its end."""
        fork = self.forked.get(task)
        if fork is not None and state.positions[fork[0]] <= fork[1]:
            return None
        at = state.positions[task]
        return self.tasks[task][at] if at < len(self.tasks[task]) else None

    def _step(self, state: _State, task: int, event: Event) -> _State | None:
        """The state after an event; None when it has to wait."""
        at = (task, state.positions[task])
        moved = state._replace(positions=_set(state.positions, task, at[1] + 1))
        match event.kind:
            case "init":
                return self._with_barrier(moved, event, (event.number, 0, 0, 0))
            case "wait":
                completions = self._barrier(state, event)[3]
                if completions % 2 == event.number:
                    return None
                self._same(at, completions, "phase", event)
            case "arrive":
                self._same(at, self._barrier(state, event)[3], "arrivals", event)
                return self._arrived(moved, event, event.number, 0)
            case "expect":
                self._same(at, self._barrier(state, event)[3], "arrivals", event)
                return self._arrived(moved, event, 1, event.number)
            case "copy":
                self._access(state, task, event, event.part, True)
                self._same(at, self._barrier(state, event)[3], "arrivals", event)
                return moved._replace(copies=state.copies | {at})
            case "load" | "store" | "tma_store":
                self._access(state, task, event, event.part, event.kind == "store")
            case "dot":
                for part in event.others:
                    self._access(state, task, event, part, False)
            case "dot_wait" | "store_wait":
                issued = self.before[task][at[1]][event.kind == "store_wait"]
                if (state.dots if event.kind == "dot_wait" else state.stores)[task] < issued - event.number:
                    return None
            case "join":
                if any(state.positions[other] < len(self.tasks[other]) for other in event.others):
                    return None
            case "bar_sync" | "bar_arrive":
                return self._met(state, moved, task, event)
        return moved

    def _met(self, state: _State, moved: _State, task: int, event: Event) -> _State | None:
        assert event.barrier is not None
        number, bit = self.named[event.barrier], 1 << task
        arrived, completions, waiting = state.named[number]
        if waiting & bit:
            return None
        self._same((task, state.positions[task]), completions, "named-barrier", event)
        arrived += 32 * self.run.warps[task]
        if event.kind == "bar_sync":
            waiting, moved = waiting | bit, moved._replace(positions=state.positions)
        if arrived > event.number:
            raise Wrong("named-barrier", event.line)
        if arrived == event.number:
            for other in range(len(self.tasks)):
                if waiting >> other & 1:
                    moved = moved._replace(positions=_set(moved.positions, other, moved.positions[other] + 1))
            arrived, completions, waiting = 0, completions + 1, 0
        return moved._replace(named=_set(moved.named, number, (arrived, completions, waiting)))

    # ---- barriers

    def _barrier(self, state: _State, event: Event) -> Barrier:
        assert event.barrier is not None
        found = state.barriers[self.numbers[event.barrier]]
        if found[0] == 0:
            raise Wrong("barrier-setup", event.line)
        return found

    def _with_barrier(self, state: _State, event: Event, barrier: Barrier) -> _State:
        assert event.barrier is not None
        return state._replace(barriers=_set(state.barriers, self.numbers[event.barrier], barrier))

    def _arrived(self, state: _State, event: Event, arrivals: int, size: int) -> _State:
        count, arrived, missing, completions = self._barrier(state, event)
        arrived, missing = arrived + arrivals, missing + size
        if arrived > count:
            raise Wrong("arrivals", event.line)
        if arrived == count and missing == 0:
            arrived, completions = 0, completions + 1
        return self._with_barrier(state, event, (count, arrived, missing, completions))

    def _same(self, at: At, completions: int, kind: str, event: Event) -> None:
        found = self.seen_by[at]
        found.add(completions)
        if len(found) > 1:
            raise Wrong(kind, event.line)

    # ---- memory

    def _access(self, state: _State, task: int, event: Event, part: Part | None, writes: bool) -> None:
        """An access now, while asynchronous ones are under way."""
        assert part is not None
        for other, at in state.copies:
            if _touches(self.tasks[other][at], part):
                raise Wrong("race", event.line)
        for other, events in enumerate(self.tasks):
            if writes:
                dots, stores = state.dots[other], state.stores[other]
                for one in events[: state.positions[other]]:
                    dots, stores = dots - (one.kind == "dot"), stores - (one.kind == "tma_store")
                    running = (one.kind == "dot" and dots < 0) or (one.kind == "tma_store" and stores < 0)
                    if running and _touches(one, part):
                        raise Wrong("race", event.line)
        if not writes and not any(
            e.part is not None and e.part.overlaps(part) and state.positions[t] > at for t, at, e in self.writes
        ):
            raise Wrong("unwritten", event.line)

    def _adjacent(self, state: _State) -> None:
        """Accesses that two tasks could make at the same time."""
        found: list[Event] = []
        for task in range(len(self.tasks)):
            event = self._next(state, task)
            if event is None or event.kind not in (*_READS, *_WRITES):
                continue
            for other in found:
                if event.kind in _WRITES or other.kind in _WRITES:
                    parts = event.others if event.kind == "dot" else (event.part,)
                    if any(_touches(other, part) for part in parts if part is not None):
                        raise Wrong("race", event.line)
            found.append(event)

    def _stopped(self, state: _State) -> None:
        for task, events in enumerate(self.tasks):
            if state.positions[task] < len(events):
                raise Wrong("deadlock", events[state.positions[task]].line)

    def _ended(self, state: _State) -> None:
        """What runs on when a task, or all, have ended."""
        for task, events in enumerate(self.tasks):
            if state.positions[task] < len(events):
                continue
            dots, stores = self.before[task][-1]
            if state.dots[task] < dots:
                raise Wrong("in-flight", events[-1].line if events else 0)
            if state.positions[0] == len(self.tasks[0]) and (state.stores[task] < stores or state.copies):
                raise Wrong("in-flight", events[-1].line if events else 0)


def _touches(event: Event, part: Part) -> bool:
    parts = event.others if event.kind == "dot" else (event.part,)
    return any(isinstance(one, Part) and one.overlaps(part) for one in parts)


def _set(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])
