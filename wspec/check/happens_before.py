"""What is known of the past in a state, as far as later verdicts can depend on it.

Clocks are only ever asked whether they have certain events behind them: the last accesses to each buffer, the waits
that saw a barrier's last completion, that completion and the one before. An event that all tasks that may ask know of
is no longer asked for, and is as good as none. So of the past there is left who does not know of which events. More
knowledge never makes a verdict worse, and neither does an event less: a state need not be followed when one like it, in
which as much or more was not known, was (`explore`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

from wspec.check.clock import look, timed
from wspec.check.code import View
from wspec.check.engine import Engine
from wspec.check.future_uses import Ahead
from wspec.check.names import Role
from wspec.check.rings import Turn
from wspec.check.state import Barrier, Clock, History, NamedBarrier, State, Task, Touch, Unit

Lacks = tuple[
    int, ...
]  # by holder, which events it does not know of, as bits; last the buffers that nobody has written


class Event(NamedTuple):
    """Something that is asked for: an event of a stream; its bit."""

    bit: int
    stream: int
    epoch: int
    fenced: bool = False  # it is asked for in what asynchronous units see


class Holder(NamedTuple):
    """Something that knows of events: who it is, the names of its two clocks, and to whom it may hand them on."""

    of: Task | Barrier | NamedBarrier
    known: str
    visible: str
    readers: tuple[int, ...] | None  # tasks; None: it is asked itself
    own: int = 0  # events that it is asked for itself


Ring = tuple[list[Clock], list[Clock], list[tuple[int, int]], tuple[int, ...]]
"""Of an allocation of barriers: what those know who may arrive, and who may use it; who may wait, each with the one it
asks through; and the latter alone."""

_AT_ONCE = ("threads", "tile")
"""Units of which nothing is issued and waited for later."""


class Bits:
    """A bit for each event, the same in all states: who did what with which buffer, and how long ago."""

    def __init__(self) -> None:
        self._bits: dict[Hashable, int] = {}
        self._names: list[Hashable] = []
        self._fresh = 0

    def of(self, name: Hashable) -> int:
        found = self._bits.get(name)
        if found is None:
            found = self._bits[name] = 1 << len(self._bits)
            self._names.append(name)
        return found

    def fresh(self) -> int:
        """A number that is higher than any before."""
        self._fresh += 1
        return self._fresh

    def names(self, bits: int) -> Iterator[tuple[int, Hashable]]:
        """Bits, each with what it stands for."""
        while bits:
            bit = bits & -bits
            yield bit, self._names[bit.bit_length() - 1]
            bits ^= bit


def at_least(less: Lacks, more: Lacks) -> bool:
    """Is everything that `less` lacks lacking in `more`?"""
    return all(one & other == one for one, other in zip(less, more, strict=True))


def together(lacks: list[Lacks]) -> Lacks:
    """What is lacking in any."""
    found = list(lacks[0])
    for more in lacks[1:]:
        for at, bits in enumerate(more):
            found[at] |= bits
    return tuple(found)


class Past:
    """Of one state, its rings turned. `users`: whether the last use of each barrier matters (they are given up);
    `twice`: whether a barrier hands on what it has to those who have waited for its last completion already."""

    def __init__(
        self, engine: Engine, state: State, users: bool, turn: Turn, bits: Bits, ahead: Ahead, twice: bool = False
    ) -> None:
        self.engine, self.state, self.users, self.turn, self.bits = engine, state, users, turn, bits
        self._twice = twice
        self._ahead = ahead
        self.names: dict[Hashable, View] | None = None  # of the parts of buffers, once they are asked for
        running = [i == 0 or (t.active and not t.done) for i, t in enumerate(state.tasks)]
        # A task that is still to be started will know what the one around it knows then.
        again = turn.rings.again
        self._asking = [i if running[i] else None if t.done and not again else 0 for i, t in enumerate(state.tasks)]
        self._running = running
        used = ((turn.key(view), view, one) for view, one in state.barriers.items() if ahead.uses(view.root))
        self.barriers = sorted(used, key=itemgetter(0))
        self._named = sorted(state.named.items())

    def form(self) -> Lacks:
        """Who lacks what."""
        self.written: list[tuple[int, History, bool]] = []  # bit, part, whether its write is asked for
        self.events: list[Event] = []
        self._clocks: dict[tuple[Role, int], list[Clock]] = {}
        self._views: dict[tuple[Role, int], list[Clock]] = {}
        self._rings: dict[int, Ring] = {}
        self.holders = [*self._of_tasks()]
        for key, view, barrier in self.barriers:
            self.holders += self._of_barrier(key, view, barrier)
        self.holders += self._of_named()
        self._of_buffers()
        plain = _steps([event for event in self.events if not event.fenced])
        fenced = _steps([event for event in self.events if event.fenced])
        every = 0
        for event in self.events:
            every |= event.bit
        knows: dict[int, int] = {}  # clocks are often the same
        sees: dict[int, int] = {}
        lacks: list[int] = []
        for of, known, visible, readers, own in timed(self.holders):
            wanted = every
            if readers is not None:  # what those who may learn it know already does not matter
                wanted = own
                for reader in readers:
                    wanted |= lacks[reader]
            if wanted:
                clock, view = getattr(of, known), getattr(of, visible)
                behind = knows.get(id(clock))
                if behind is None:
                    behind = knows[id(clock)] = _behind(clock, plain)
                seen = sees.get(id(view))
                if seen is None:
                    seen = sees[id(view)] = _behind(view, fenced)
                wanted &= every & ~(behind | seen)
            lacks.append(wanted)
        self.lacks = lacks
        self.every = every
        return self.lacking()

    def lacking(self) -> Lacks:
        """What `form` said."""
        written = 0
        for bit, _, _ in self.written:
            written |= bit
        return *self.lacks, ~written

    # ---- holders

    def _of_tasks(self) -> Iterator[Holder]:
        for index, task in enumerate(self.state.tasks):
            yield Holder(task, "known", "visible", None if self._running[index] else (0,))

    def _of_barrier(self, key: Hashable, view: View, barrier: Barrier) -> Iterator[Holder]:
        """The events of a barrier, and what it hands on to those who may wait, now or, perhaps once more, for its last
        completion."""
        ring = self._rings.get(view.root)
        if ring is None:
            ring = self._rings[view.root] = self._ring(view.root)
        arrivers, users, waiting, readers = ring
        stream, completions = self.engine.buffers.stream(("barrier", view)), barrier.completions
        if _is_asked(users, stream, completions):  # who knows of it knows of the last one
            self._happened(("now", key), stream, completions)
            if _is_asked(users, stream, completions - 1):
                self._happened(("last", key), stream, completions - 1)
        if _is_asked(users, *barrier.maker):
            self._happened(("made", key), *barrier.maker)
        own = 0
        for task, (source, epoch, _) in barrier.waits.items():
            if _is_asked(arrivers, source, epoch):
                own |= self._happened(("wait", key, task), source, epoch)
        if self.users:
            for task, epoch in barrier.users.items():
                used = self.engine.buffers.stream((task, view.root))
                if _is_asked(users, used, epoch):
                    self._happened(("use", key, task), used, epoch)
        yield Holder(barrier, "known", "visible", readers, own)
        done = barrier.waits if not self._twice else {}
        later = readers if not done else tuple(at for one, at in waiting if one not in done)
        yield Holder(barrier, "done_known", "done_visible", later)

    def _ring(self, root: int) -> Ring:
        """Who asks for what of the barriers of an allocation."""
        asking = ((one, self._asking[one]) for one in self._ahead.tasks("waits", root))
        waiting = [(one, at) for one, at in asking if at is not None]
        arrivers, users = self._asking_for("arrives", root), self._asking_for("uses", root)
        return arrivers, users, waiting, tuple(at for _, at in waiting)

    def _of_named(self) -> Iterator[Holder]:
        everybody = tuple(index for index in range(len(self.state.tasks)) if self._asking[index] == index)
        clocks = self._known_by(range(len(self.state.tasks)))
        for number, named in self._named:
            stream = self.engine.buffers.stream(("named", number))
            if _is_asked(clocks, stream, named.completions):
                self._happened(("named", number), stream, named.completions)
            yield Holder(named, "known", "visible", everybody)

    # ---- events

    def _of_buffers(self) -> None:
        key, tiles = self.turn.key, self.engine.buffers.tiles
        for root, parts in self.state.buffers.items():
            used = bool(self._ahead.tasks("uses", root))
            for part, history in timed(parts.items()):
                name = key(part)
                if history.write is not None:
                    touch = history.write
                    tile = tiles.get(touch.stream)
                    source = touch.stream if tile is None else key(tile)
                    # That copies are over is asked at the end as well; for other units, their own task has to know.
                    asked = self._touched(("write", name, source), touch, "uses", root, touch.unit == "tile")
                    if used and not history.maybe:
                        self.written.append((self.bits.of(("written", name)), history, asked))
                for stream, touch in history.reads.items():
                    self._touched(("read", name, stream), touch, "writes", root)

    def _touched(self, name: tuple[Hashable, ...], touch: Touch, role: Role, root: int, at_end: bool = False) -> bool:
        """The events of an access; is one of them asked for, by tasks with that role or at the end?"""
        look()
        stream, epoch = touch.stream, touch.epoch
        behind = None if touch.unit in _AT_ONCE else self.behind(touch)
        asked = behind is not None or _is_asked(self._asking_for(role, root), stream, epoch)
        if asked or (at_end and _is_asked(self._known_by((0,)), stream, epoch)):
            self._happened((*name, behind), stream, epoch)
            asked = True
        if touch.fenced and _is_asked(self._asking_for_fenced(role, root), stream, epoch):
            self._happened((*name, behind, "fenced"), stream, epoch, fenced=True)
            asked = True
        return asked

    def _known_by(self, tasks: Iterable[int]) -> list[Clock]:
        """What those know that tasks ask through, of those that may ask."""
        return [self.state.tasks[index].known for one in tasks if (index := self._asking[one]) is not None]

    def _asking_for(self, role: Role, root: int) -> list[Clock]:
        """What the tasks know that may still have a role for an allocation."""
        found = self._clocks.get((role, root))
        if found is None:
            found = self._clocks[role, root] = self._known_by(self._ahead.tasks(role, root))
        return found

    def _asking_for_fenced(self, role: Role, root: int) -> list[Clock]:
        """What asynchronous units of those see."""
        found = self._views.get((role, root))
        if found is None:
            asking = (self._asking[one] for one in self._ahead.tasks(role, root))
            found = self._views[role, root] = [self.state.tasks[at].visible for at in asking if at is not None]
        return found

    def _happened(self, name: Hashable, stream: int, epoch: int, fenced: bool = False) -> int:
        """An event that somebody asks for who does not know of it; its bit."""
        bit = self.bits.of(name)
        self.events.append(Event(bit, stream, epoch, fenced))
        return bit

    def behind(self, touch: Touch) -> int | None:
        """Of an access by wgmma and the like: how many were issued since, as long as it is not waited for."""
        task = self.state.tasks[touch.task]
        counts: dict[Unit, int] = {"dots": task.dots, "stores": task.stores, "elements": task.elements}
        if touch.unit not in counts or task.known.get(touch.stream, 0) >= touch.epoch:
            return None
        return counts[touch.unit] - touch.epoch


def _is_asked(clocks: list[Clock], stream: int, epoch: int) -> bool:
    """Does one of those who ask not know of an event?"""
    for clock in clocks:  # noqa: SIM110 - a generator takes twice as long
        if clock.get(stream, 0) < epoch:
            return True
    return False


Steps = tuple[list[tuple[int, int, int]], list[tuple[int, list[int], list[int]]]]
"""Streams of one event, with it and its bit; and those of several, with the bits of those up to each."""


def _steps(events: Iterable[Event]) -> Steps:
    streams: dict[int, dict[int, int]] = {}
    for event in events:
        epochs = streams.get(event.stream)
        if epochs is None:
            streams[event.stream] = {event.epoch: event.bit}
        else:
            epochs[event.epoch] = epochs.get(event.epoch, 0) | event.bit
    single, several = [], []
    for stream, epochs in streams.items():
        if len(epochs) == 1:
            single.append((stream, *next(iter(epochs.items()))))
            continue
        order, bits = sorted(epochs), [0]
        for epoch in order:
            bits.append(bits[-1] | epochs[epoch])
        several.append((stream, order, bits))
    return single, several


def _behind(clock: Clock, steps: Steps) -> int:
    """The bits of the events a clock has behind it."""
    found = 0
    if clock:
        known = clock.get
        for stream, epoch, bit in steps[0]:
            if known(stream, 0) >= epoch:
                found |= bit
        for stream, order, bits in steps[1]:
            if (last := known(stream, 0)) >= order[0]:
                found |= bits[bisect_right(order, last)]
    return found
