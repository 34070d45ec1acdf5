"""Time on one SM: events, and flows that share its units."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from wspec.lab.simulate.actions import Flow
from wspec.lab.simulate.costs import UNITS
from wspec.lab.simulate.timeline import Record, Sample
from wspec.lab.simulate.unit_sharing import Sharing

_TINY = 1e-6


@dataclass(eq=False, slots=True)
class Running:
    """A flow that runs, or waits for its turn."""

    flow: Flow
    key: Hashable  # tells it from others when states are compared
    then: Callable[[Running], None]
    left: float  # cycles it would take alone
    started: float = 0.0  # when it got its turn
    queue: Hashable | None = None
    behind: Running | None = None  # does not begin before that one has ended
    ended: bool = False
    done: bool = False
    rest: Flow | None = None  # what follows at once, in the same place of the queue
    reached: Callable[[], None] | None = None  # called when the rest begins

    @property
    def held(self) -> bool:
        return self.behind is not None and not self.behind.ended


Event = tuple[float, int, Hashable, Callable[[], None]]
START = "start"
"""The key of events that come when they come, whatever is jumped over: blocks that begin."""


@dataclass(slots=True)
class Clock:
    """Moves from event to event."""

    record: Record | None = None
    now: float = 0.0
    steps: int = 0
    events: list[Event] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    queues: dict[Hashable, deque[Running]] = field(default_factory=dict)
    busy: list[float] = field(default_factory=lambda: [0.0] * len(UNITS))
    sharing: Sharing = field(default_factory=Sharing)
    issued: float = 0.0  # when the tensor cores have taken what was issued so far
    _speeds: tuple[float, ...] = ()
    _shares: tuple[float, ...] = ()
    _changed: bool = True
    _count: int = 0

    def at(self, delay: float, key: Hashable, callback: Callable[[], None]) -> None:
        """Call back after a delay; `key` says what this is when states are compared."""
        self._count += 1
        heapq.heappush(self.events, (self.now + delay, self._count, key, callback))

    def start(
        self,
        flow: Flow,
        key: Hashable,
        then: Callable[[Running], None],
        queue: Hashable | None = None,
        behind: Running | None = None,
    ) -> Running:
        """Let a flow run; of those in a queue one after the other runs, one `behind` another not before that has ended.
        `then` is called when it is done."""
        one = Running(flow, key, then, flow.cycles, self.now, queue, behind)
        if queue is not None:
            before = self.queues.setdefault(queue, deque())
            before.append(one)
            if len(before) > 1 or one.held:
                return one
        self.running.append(one)
        self._changed = True
        return one

    @property
    def idle(self) -> bool:
        return not self.events and not self.running

    @property
    def next_start(self) -> float:
        """When a block begins that has not, in cycles from now; infinite where none does."""
        return min((time - self.now for time, _, key, _ in self.events if key == START), default=float("inf"))

    def step(self) -> None:
        """To the next moment at which something happens, and let it happen."""
        self.steps += 1
        if self._changed:
            self._share()
        soonest = self.events[0][0] - self.now if self.events else float("inf")
        for one, speed in zip(self.running, self._speeds, strict=True):
            soonest = min(soonest, one.left / speed)
        if soonest > 0:
            self.now += soonest
            for one, speed in zip(self.running, self._speeds, strict=True):
                one.left -= soonest * speed
            for unit, share in enumerate(self._shares):
                self.busy[unit] += soonest * share
        finished = [one for one in self.running if one.left <= _TINY]
        if finished:
            self.running = [one for one in self.running if one.left > _TINY]
            self._changed = True
            for one in finished:
                self._finish(one)
        while self.events and self.events[0][0] <= self.now + _TINY:
            heapq.heappop(self.events)[3]()

    def _share(self) -> None:
        self._speeds, self._shares = self.sharing.speeds(tuple(one.flow for one in self.running))
        self._changed = False
        if self.record is not None:
            self.record.samples.append(Sample(self.now, self._shares))

    def _finish(self, one: Running) -> None:
        if one.rest is not None:
            one.flow, one.left, one.rest = one.rest, one.rest.cycles, None
            self.running.append(one)
            if one.reached is not None:
                one.reached()
            return
        one.done = one.ended = True
        if one.queue is not None:
            self.queues[one.queue].popleft()
        for name, queue in self.queues.items():
            if queue and not queue[0].held and (name == one.queue or queue[0].behind is one):
                queue[0].started = self.now
                self.running.append(queue[0])
        one.then(one)

    def jump(self, cycles: float) -> None:
        """Everything that is to come comes later, but for starts: as many cycles at most as there are before them."""
        self.issued += cycles * (self.issued > self.now)
        self.now += cycles
        self.events = [
            (time + cycles * (key != START), number, key, callback) for time, number, key, callback in self.events
        ]
        heapq.heapify(self.events)
        for one in self.running:
            one.started += cycles
