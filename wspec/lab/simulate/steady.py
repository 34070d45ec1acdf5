"""Long loops: when an SM is in a state it has been in before, what happened between comes again.

Looked at is the state at the beginning of iterations of one warp group's loop: what every warp group is doing and how
much of it is left, what is queued, barriers, all relative to now, to a hundredth of a cycle. When it is that of an
earlier iteration, and the actions still to be done are those of that period over again (they are compared, so a loop
that ends, or a branch that goes another way, ends the repetition), time jumps over as many whole periods as there are.
Nothing is approximated but that hundredth of a cycle.

Shared units can keep a loop from ever repeating exactly: its iterations differ by a few cycles. After PATIENCE of them
a state is taken for an earlier one when all agrees but the cycles that are left, and WINDOW iterations lie between. The
mean of the window is then what is repeated; `SmResult.approximated` says for how many cycles. Where not even that
comes again in ENOUGH iterations, several blocks drifting past each other, what is left takes as long as the second half
of those.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from wspec.lab.simulate.actions import Action, Kind
from wspec.lab.simulate.clock import START
from wspec.lab.simulate.player import Player
from wspec.lab.simulate.state import Group, Instance

_REMEMBERED = 64
PATIENCE, WINDOW = 48, 32
ENOUGH = 160


@dataclass(slots=True)
class _Moment:
    now: float
    number: int  # iterations seen before it
    at: list[int]
    busy: list[float]
    waits: list[dict[str, float]]


class Periods:
    """Finds repetitions and jumps over them."""

    def __init__(self, engine: Player) -> None:
        self.engine = engine
        self._moments: dict[Hashable, _Moment] = {}
        self._rough: dict[Hashable, _Moment] = {}
        self._seen = 0
        self._blocks: tuple[int, ...] = ()
        self._leader: Group | None = None
        self._iterations = 0  # of the leader since these blocks are there
        self._half: _Moment | None = None

    def mark(self, group: Group) -> None:
        """An iteration of a loop of this warp group begins."""
        instances = [self.engine.instances[slot] for slot in sorted(self.engine.instances)]
        blocks = tuple(map(id, instances))
        if blocks != self._blocks:
            self._forget()
            self._blocks, self._leader = blocks, _leader(instances[0])
            self._iterations, self._half = 0, None
        if group is not self._leader:
            return
        groups = [one for instance in instances for one in instance.groups]
        self._seen += 1
        at, waits = [one.at for one in groups], [dict(one.waits) for one in groups]
        now = _Moment(self.engine.clock.now, self._seen, at, list(self.engine.clock.busy), waits)
        self._iterations += 1
        if self._iterations == ENOUGH // 2:
            self._half = now
        last = not any(self.engine.todo)
        stuck = last and self._iterations >= ENOUGH and self.engine.result.skipped == 0
        if stuck and self._half is not None and self._finish(self._half, groups):
            return
        discrete, left = self._state(instances, groups)
        moment = self._moments.get((discrete, left))
        if moment is not None and self._jump(moment, groups):
            self._forget()
            return
        if len(self._moments) >= _REMEMBERED:
            self._moments.clear()
        self._moments[discrete, left] = now
        if self._seen > PATIENCE:
            rough = self._rough.setdefault(discrete, now)
            before = self.engine.result.skipped
            if self._seen - rough.number >= WINDOW and self._jump(rough, groups):
                self.engine.result.approximated += self.engine.result.skipped - before
                self._forget()

    def _finish(self, half: _Moment, groups: list[Group]) -> bool:
        """Iterations by the hundred, and still no repetition: the others take as long as those of the second half.

        Everything that is left is given up, its time and what it keeps busy is added. Only where a lot is left.
        """
        leader = self._leader
        assert leader is not None
        at = half.at[groups.index(leader)]
        done = sum(action.kind is Kind.MARK for action in leader.actions[at : leader.at])
        left = sum(action.kind is Kind.MARK for action in leader.actions[leader.at :])
        times = left / done
        if times < 1:
            return False
        engine, clock = self.engine, self.engine.clock
        more = times * (clock.now - half.now)
        for group, waits in zip(groups, half.waits, strict=True):
            for cause, cycles in group.waits.items():
                group.waits[cause] = cycles + times * (cycles - waits.get(cause, 0.0))
        clock.busy = [now + times * (now - then) for now, then in zip(clock.busy, half.busy, strict=True)]
        clock.now += more
        engine.result.skipped += more
        engine.result.approximated += more
        engine.give_up()
        return True

    def _forget(self) -> None:
        self._moments.clear()
        self._rough.clear()
        self._seen = 0

    def _state(self, instances: list[Instance], groups: list[Group]) -> tuple[Hashable, Hashable]:
        """What can only agree or not, and the cycles that are left of everything."""
        clock = self.engine.clock
        now = clock.now
        events = sorted((round(time - now, 2), repr(key)) for time, _, key, _ in clock.events if key != START)
        running = tuple((id(one.flow), one.key) for one in clock.running)
        queued = tuple((id(one.flow), one.key, one.held) for queue in clock.queues.values() for one in queue)
        barriers = tuple(
            (number, one.missing, one.bytes, one.phase, tuple(group.key for group, _ in one.waiters))
            for instance in instances
            for number, one in instance.barriers.items()
        )
        named = tuple(
            (number, one.threads, tuple(group.key for group in one.waiters))
            for instance in instances
            for number, one in instance.named.items()
        )
        mine = tuple(
            (one.done, one.piece, one.limit, one.unfinished("dots"), one.unfinished("stores"),
             one.unfinished("copies"), len(one.copies), _doing(one))
            for one in groups
        )  # fmt: skip
        left = (
            tuple(time for time, _ in events),
            tuple(round(one.left, 2) for one in clock.running),
            tuple(round(now - one.since, 1) for one in groups),
            round(max(0.0, clock.issued - now), 2),
        )
        return (tuple(sorted(key for _, key in events)), running, queued, barriers, named, mine), left

    def _jump(self, before: _Moment, groups: list[Group]) -> bool:
        """Over as many periods as all have before them, less one."""
        clock = self.engine.clock
        period = clock.now - before.now
        times: int | None = None
        for group, start in zip(groups, before.at, strict=True):
            length = group.at - start
            if length:
                same = _agreement(group.actions, start, group.at)
                times = min(same // length, times) if times is not None else same // length
            elif not group.done and group.since < before.now and group.limit is None:
                continue  # it has waited all the time, and goes on waiting
        times = int(min((times or 0) - 1, clock.next_start / period - 1)) if period > 0 else 0
        if times < 1:
            return False
        for group, start, waits in zip(groups, before.at, before.waits, strict=True):
            group.at += times * (group.at - start)
            group.since += times * period
            for cause, cycles in group.waits.items():
                group.waits[cause] = cycles + times * (cycles - waits.get(cause, 0.0))
        clock.busy = [now + times * (now - then) for now, then in zip(clock.busy, before.busy, strict=True)]
        clock.jump(times * period)
        self.engine.result.skipped += times * period
        return True


def _doing(group: Group) -> int:
    """The action itself: the same one in every iteration."""
    return id(group.actions[group.at]) if group.at < len(group.actions) else 0


def _leader(instance: Instance) -> Group:
    """The warp group with the most iterations before it."""
    return max(instance.groups, key=lambda one: sum(action.kind is Kind.MARK for action in one.actions))


def _agreement(actions: tuple[Action, ...], earlier: int, later: int) -> int:
    """How many actions from `later` on are those from `earlier` on."""
    low, high = 0, len(actions) - later
    if actions[earlier : earlier + high] == actions[later : later + high]:
        return high
    while low < high - 1:  # the first `low` agree, the first `high` do not
        middle = (low + high) // 2
        if actions[earlier : earlier + middle] == actions[later : later + middle]:
            low = middle
        else:
            high = middle
    return low
