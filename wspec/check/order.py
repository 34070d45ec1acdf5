"""What is known of the past in a state, as far as later verdicts can depend on it.

Clocks are only ever asked whether they have certain events behind them: the last accesses to each buffer, the waits
that saw a barrier's last completion, that completion and the one before. So of each clock one bit an event is enough.
Events that all tasks that may ask know of are no longer asked for. More knowledge never makes a verdict worse, so a
state need not be followed when one like it that knew less was (`explore`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from wspec.check.engine import Engine
from wspec.check.state import Barrier, Clock, NamedBarrier, State, Task, Touch, Unit


@dataclass(frozen=True, slots=True)
class Event:
    """Something that may be asked for: an event of a stream; who may ask."""

    stream: int
    epoch: int
    askers: frozenset[int]
    fenced: bool = False  # it is asked for in what asynchronous units see


class Past:
    """Of one state. `users`: whether the last use of each barrier matters (barriers are given up)."""

    def __init__(self, engine: Engine, state: State, users: bool) -> None:
        self.engine, self.state, self.users = engine, state, users
        self._running = [i for i, t in enumerate(state.tasks) if i == 0 or (t.active and not t.done)]

    def form(self) -> tuple[Hashable, int]:
        """Which events there are, and who knows of which: a bit each."""
        for view, barrier in self.state.barriers.items():
            if barrier.done_known and self.engine.names.tasks_of("waits", view.root) <= barrier.waits.keys():
                barrier.done_known, barrier.done_visible = {}, {}  # all who may wait for this completion have
        skeleton: list[Hashable] = []
        events = list(self._events(skeleton))
        self._asked_events = [(1 << at, event) for at, event in enumerate(events) if self._asked(event)]
        rest = (1 << len(events)) - 1
        for bit, _ in self._asked_events:
            rest ^= bit
        plain = _steps([(bit, event) for bit, event in self._asked_events if not event.fenced])
        fenced = _steps([(bit, event) for bit, event in self._asked_events if event.fenced])
        found, width = 0, len(events)
        memo: dict[tuple[int, int], int] = {}
        self._bits: list[int] = []
        for known, visible in self._holders():
            key = (id(known), id(visible))
            bits = memo.get(key)
            if bits is None:
                bits = memo[key] = rest | _behind(known, plain) | _behind(visible, fenced)
            self._bits.append(bits)
            found = found << width | bits
        self._width = width
        return tuple(skeleton), found

    def forget(self, wanted: int) -> None:
        """Make everybody know at most what `wanted` says, in the bits of `form`; perhaps less."""
        count = len(self._bits)
        for position, (holder, names) in enumerate(self._clocks()):
            have = self._bits[position]
            lost = have & ~(wanted >> self._width * (count - 1 - position))
            if not lost & (1 << self._width) - 1:
                continue
            for bit, event in self._asked_events:
                if lost & bit:
                    name = names[1 if event.fenced else 0]
                    clock: Clock = getattr(holder, name)
                    if clock.get(event.stream, 0) >= event.epoch:
                        setattr(holder, name, {**clock, event.stream: event.epoch - 1})

    def _clocks(self) -> Iterator[tuple[Task | Barrier | NamedBarrier, tuple[str, str]]]:
        """Everybody who knows something, and the names of the two clocks."""
        for task in self.state.tasks:
            yield task, ("known", "visible")
        barriers: list[Barrier | NamedBarrier] = [*self.state.barriers.values(), *self.state.named.values()]
        for barrier in barriers:
            yield barrier, ("known", "visible")
            yield barrier, ("done_known", "done_visible")

    def _holders(self) -> Iterator[tuple[Clock, Clock]]:
        for holder, (known, visible) in self._clocks():
            yield getattr(holder, known), getattr(holder, visible)

    # ---- events

    def _events(self, skeleton: list[Hashable]) -> Iterator[Event]:
        """Every event, in an order that only depends on what is added to `skeleton`."""
        tasks_of = self.engine.names.tasks_of
        for view, barrier in self.state.barriers.items():
            yield from self._of_barrier(view.root, self.engine.buffers.stream(("barrier", view)), barrier, skeleton)
        for number, named in self.state.named.items():
            yield Event(self.engine.buffers.stream(("named", number)), named.completions, tasks_of("uses", -1))
        for root, parts in self.state.buffers.items():
            writers, users = tasks_of("writes", root), tasks_of("uses", root)
            for part, history in parts.items():
                touches = [(history.write, users)] if history.write is not None else []
                touches += [(history.reads[key], writers) for key in sorted(history.reads)]
                for touch, askers in touches:
                    skeleton.append((part, touch.stream, self._behind(touch)))
                    yield Event(touch.stream, touch.epoch, askers)
                    if touch.fenced:
                        yield Event(touch.stream, touch.epoch, askers, True)

    def _of_barrier(self, root: int, stream: int, barrier: Barrier, skeleton: list[Hashable]) -> Iterator[Event]:
        tasks_of = self.engine.names.tasks_of
        arrivers, users = tasks_of("arrives", root), tasks_of("uses", root)
        yield Event(stream, barrier.completions, users)
        yield Event(stream, barrier.completions - 1, users)
        yield Event(*barrier.maker, users)
        skeleton.append(tuple(sorted(barrier.waits)))
        for task in sorted(barrier.waits):
            yield Event(*barrier.waits[task][:2], arrivers)
        if self.users:
            skeleton.append(tuple(sorted(barrier.users)))
            for task in sorted(barrier.users):
                yield Event(self.engine.buffers.stream((task, root)), barrier.users[task], users)

    def _asked(self, event: Event) -> bool:
        """Is there a task that may ask for the event and does not know of it?"""
        for index in event.askers:
            if index in self._running:
                task = self.state.tasks[index]
                if event.fenced:
                    if task.visible.get(event.stream, 0) < event.epoch:
                        return True
                elif task.known.get(event.stream, 0) < event.epoch:
                    return True
        return False

    def _behind(self, touch: Touch) -> int | None:
        """Of an access by wgmma and the like: how many were issued since, as long as it is not waited for."""
        task = self.state.tasks[touch.task]
        counts: dict[Unit, int] = {"dots": task.dots, "stores": task.stores, "elements": task.elements}
        if touch.unit not in counts or task.known.get(touch.stream, 0) >= touch.epoch:
            return None
        return counts[touch.unit] - touch.epoch


Steps = list[tuple[int, list[int], list[int]]]  # stream, its events, the bits of those up to each


def _steps(events: list[tuple[int, Event]]) -> Steps:
    streams: dict[int, dict[int, int]] = {}
    for bit, event in events:
        epochs = streams.setdefault(event.stream, {})
        epochs[event.epoch] = epochs.get(event.epoch, 0) | bit
    found: Steps = []
    for stream, epochs in streams.items():
        order, bits = sorted(epochs), [0]
        for epoch in order:
            bits.append(bits[-1] | epochs[epoch])
        found.append((stream, order, bits))
    return found


def _behind(clock: Clock, steps: Steps) -> int:
    """The bits of the events a clock has behind it."""
    found = 0
    if clock:
        for stream, order, bits in steps:
            if (epoch := clock.get(stream, 0)) >= order[0]:
                found |= bits[bisect_right(order, epoch)]
    return found
