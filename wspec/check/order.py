"""What is known of the past in a state, as far as later verdicts can depend on it.

Clocks are only ever asked whether they have certain events behind them: the last accesses to each buffer, the waits that
saw a barrier's last completion, that completion and the one before. So of each clock one bit an event is enough. Events
that all tasks that may ask know of are no longer asked for. More knowledge never makes a verdict worse, so a state need
not be followed when one like it that knew less was (`explore`).
"""

from __future__ import annotations

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
        asked = [(at, event) for at, event in enumerate(events) if self._asked(event)]
        plain = [(1 << at, e.stream, e.epoch) for at, e in asked if not e.fenced]
        fenced = [(1 << at, e.stream, e.epoch) for at, e in asked if e.fenced]
        rest = (1 << len(events)) - 1
        for bit, _, _ in (*plain, *fenced):
            rest &= ~bit
        self._events_asked, self._width = asked, len(events)
        found = 0
        memo: dict[tuple[int, int], int] = {}
        for known, visible in self._holders():
            key = (id(known), id(visible))
            bits = memo.get(key)
            if bits is None:
                bits = rest
                for bit, stream, epoch in plain:
                    if known.get(stream, 0) >= epoch:
                        bits |= bit
                for bit, stream, epoch in fenced:
                    if visible.get(stream, 0) >= epoch:
                        bits |= bit
                memo[key] = bits
            found = found << self._width | bits
        return tuple(skeleton), found

    def forget(self, wanted: int) -> None:
        """Make everybody know at most what `wanted` says, in the bits of `form`; perhaps less."""
        holders = list(self._clocks())
        for position, (holder, names) in enumerate(holders):
            bits = wanted >> self._width * (len(holders) - 1 - position)
            for at, event in self._events_asked:
                if not bits >> at & 1:
                    name = names[1 if event.fenced else 0]
                    clock: Clock = getattr(holder, name)
                    if clock.get(event.stream, 0) >= event.epoch:
                        setattr(holder, name, {**clock, event.stream: event.epoch - 1})

    def _clocks(self) -> Iterator[tuple[Task | Barrier | NamedBarrier, tuple[str, str]]]:
        """Everybody who knows something, and the names of the two clocks."""
        for task in self.state.tasks:
            yield task, ("known", "visible")
        for barrier in (*self.state.barriers.values(), *self.state.named.values()):
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
        yield Event(stream, barrier.completions, arrivers)
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
