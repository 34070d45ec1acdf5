"""Plays blocks on one SM.

Warp groups do their actions in order. Arithmetic, dots and transfers are flows that share the units (`fluid.py`), those
of one queue one after the other (`asynchrony.py`). Everything else is a latency.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from wspec.lab.simulate.actions import Action, Block, Flow, Kind
from wspec.lab.simulate.asynchrony import Asynchrony
from wspec.lab.simulate.clock import START, Clock
from wspec.lab.simulate.costs import ISSUE, SCHEDULERS, Numbers
from wspec.lab.simulate.errors import SimulationError
from wspec.lab.simulate.handshakes import Handshakes
from wspec.lab.simulate.state import Group, Instance
from wspec.lab.simulate.steady import Periods
from wspec.lab.simulate.timeline import Record, Slice, SmResult
from wspec.lab.simulate.unit_sharing import Sharing

Slot = tuple[float, Sequence[Block]]
"""When the first block of a slot begins, and the blocks it works through."""


class Engine:
    """One SM."""

    def __init__(
        self,
        numbers: Numbers,
        slots: Sequence[Slot],
        record: bool = False,
        extrapolate: bool = True,
        sharing: Sharing | None = None,
    ) -> None:
        """`sharing` remembers speeds from one run to the next; it knows how much the units can do."""
        self.numbers = numbers
        self.result = SmResult(record=Record() if record else None)
        self.clock = Clock(self.result.record, sharing=sharing or Sharing())
        self.handshakes = Handshakes(self)
        self.asynchrony = Asynchrony(self, self.handshakes)
        self.todo = [deque(blocks) for _, blocks in slots]
        self.instances: dict[int, Instance] = {}  # by slot, those that are on the SM
        self.periods = Periods(self) if extrapolate and not record else None
        self.given_up = False
        self._do: dict[Kind, Callable[[Group, Action], bool]] = {
            Kind.WORK: self._work,
            Kind.FORK: self._fork,
            Kind.JOIN: self._join,
            Kind.MARK: self._mark,
            **self.handshakes.kinds,
            **self.asynchrony.kinds,
        }
        for slot, (at, _) in enumerate(slots):
            self.clock.at(at, START, partial(self._next, slot))

    def run(self) -> SmResult:
        """Until all blocks are done. Raises SimulationError when nobody can go on."""
        clock, result = self.clock, self.result
        while not clock.idle and not self.given_up:
            clock.step()
        if self.given_up:
            result.cycles, result.busy, result.steps = clock.now, clock.busy, clock.steps
            return result
        stuck = [group for one in self.instances.values() for group in one.groups if not group.done]
        if stuck:
            group = next((g for g in stuck if g.at < len(g.actions) and g.since > 0), stuck[0])
            op = group.actions[group.at].op
            raise SimulationError(f"nobody can go on: {group.track} waits in {op.name}", op.location)
        result.cycles, result.busy, result.steps = clock.now, clock.busy, clock.steps
        return result

    # ---- blocks

    def _next(self, slot: int) -> None:
        """The next block of a slot."""
        self.instances.pop(slot, None)
        if not self.todo[slot]:
            return
        one = Instance(self.todo[slot].popleft(), slot, self.clock.now)
        for number, task in enumerate(one.block.tasks):
            parts = max(1, -(-task.warps // SCHEDULERS))
            for part in range(parts):
                name = f"{task.name}.{part}" if parts > 1 else task.name
                track = f"block {slot}: {name}" if len(self.todo) > 1 else name
                key, warps = (slot, len(one.groups)), min(SCHEDULERS, task.warps)
                one.groups.append(Group(one, key, number, track, warps, part == 0, task.actions))
        one.left = len(one.groups)
        self.instances[slot] = one
        self.begin(one, 0, self.numbers.block_start)

    def begin(self, one: Instance, task: int, delay: float) -> None:
        """Start a task after a while."""
        one.begun.add(task)
        for group in one.groups:
            if group.task == task:
                group.since = self.clock.now
                self.clock.at(delay, ("begin", group.key), partial(self._begin, group))

    def _begin(self, group: Group) -> None:
        self.spent(group, "start")
        self.advance(group)

    def _ended(self, group: Group) -> None:
        group.done = True
        one, totals = group.instance, self.result.waits.setdefault(group.track, {})
        one.left -= 1
        for cause, cycles in group.waits.items():
            totals[cause] = totals.get(cause, 0.0) + cycles
        if one.joining is not None and all(other.done for other in one.groups if other.task in one.begun - {0}):
            waiter, one.joining = one.joining, None
            self.resume(waiter, "buffer")
        if one.left == 0:
            self.result.blocks.append((one.slot, one.start, self.clock.now))
            self._next(one.slot)

    def give_up(self) -> None:
        """Nothing more is played: all blocks end now."""
        self.given_up = True
        for one in self.instances.values():
            self.result.blocks.append((one.slot, one.start, self.clock.now))
            for group in one.groups:
                totals = self.result.waits.setdefault(group.track, {})
                for cause, cycles in group.waits.items():
                    totals[cause] = totals.get(cause, 0.0) + cycles

    # ---- warp groups

    def advance(self, group: Group) -> None:
        """Do actions until one takes time."""
        actions, do = group.actions, self._do
        while group.at < len(actions):
            action = actions[group.at]
            group.since = self.clock.now
            if not do[action.kind](group, action):
                return
            group.at += 1
        self._ended(group)

    def spent(self, group: Group, cause: str) -> None:
        """The warp group has done nothing but wait since it began the action."""
        cycles = self.clock.now - group.since
        if cycles > 0:
            group.waits[cause] = group.waits.get(cause, 0.0) + cycles
            action = group.actions[group.at] if group.at < len(group.actions) else None
            self.slice(group.track, f"wait: {cause}", group.since, action, cause)

    def resume(self, group: Group, cause: str) -> None:
        """The action is over; the warp group waited in it."""
        self.spent(group, cause)
        group.at += 1
        self.advance(group)

    def resume_after(self, delay: float, group: Group, cause: str) -> None:
        self.clock.at(delay, ("resume", group.key, cause), lambda: self.resume(group, cause))

    def computing(self, group: Group) -> int:
        """How many other warp groups have instructions for the schedulers at this moment."""
        others = (one for one in self.clock.running if one.key != group.key)
        return sum(any(unit == ISSUE for unit, _ in one.flow.busy) for one in others)

    def slice(self, track: str, name: str, start: float, action: Action | None, cause: str = "") -> None:
        """Note what was done up to now."""
        record = self.result.record
        if record is None or self.clock.now <= start:
            return
        op, ops, size = (action.op, action.ops, action.b if action.flow is not None else 0) if action else (None, (), 0)
        record.slices.append(Slice(track, name, start, self.clock.now, op, cause, ops, size))

    # ---- arithmetic and control

    def _work(self, group: Group, action: Action) -> bool:
        group.piece = 0
        self._piece(group, action)
        return False

    def _piece(self, group: Group, action: Action) -> None:
        """The next piece of a stretch, or its end."""
        if group.piece == len(action.pieces):
            more = self.clock.now - group.since - action.cycles
            delays = sum(piece for piece in action.pieces if not isinstance(piece, Flow))
            for cause, cycles in (("units", more), ("latency", delays)):
                if cycles > 1e-6:
                    group.waits[cause] = group.waits.get(cause, 0.0) + cycles
            self.slice(group.track, "", group.since, action)
            group.at += 1
            self.advance(group)
            return
        piece = action.pieces[group.piece]
        group.piece += 1
        if isinstance(piece, Flow):
            self.clock.start(piece, group.key, lambda one: self._piece(group, action))
        else:
            if action.scalar:
                piece *= 1 + self.computing(group) * self.numbers.crowding
            self.clock.at(piece, ("piece", group.key), lambda: self._piece(group, action))

    def _fork(self, group: Group, action: Action) -> bool:
        one = group.instance
        if group.is_first:
            for task in range(1, len(one.block.tasks)):
                self.begin(one, task, self.numbers.fork)
        self.resume_after(self.numbers.fork, group, "start")
        return False

    def _join(self, group: Group, action: Action) -> bool:
        one = group.instance
        if not group.is_first or all(other.done for other in one.groups if other.task in one.begun - {0}):
            return True
        one.joining = group
        return False

    def _mark(self, group: Group, action: Action) -> bool:
        if self.periods is not None:
            self.periods.mark(group)
        return not self.given_up
