"""Barriers: mbarriers, named barriers, and the meeting of the warps of one task."""

from __future__ import annotations

from collections.abc import Callable

from wspec.lab.simulate.actions import Action, Kind
from wspec.lab.simulate.costs import THREADS, WARP
from wspec.lab.simulate.player import Player
from wspec.lab.simulate.state import Group, Mbarrier, Named
from wspec.lab.simulate.timeline import Arrow
from wspec.model.fitted import MEETING, MEETING_MORE


class Handshakes:
    """The actions at barriers. Each says whether the warp group goes on at once."""

    def __init__(self, engine: Player) -> None:
        self.engine, self.numbers = engine, engine.numbers
        self.kinds: dict[Kind, Callable[[Group, Action], bool]] = {
            Kind.WAIT: self._wait,
            Kind.INIT: self._init,
            Kind.ARRIVE: self._arrive,
            Kind.EXPECT: self._expect,
            Kind.SYNC: self._sync,
            Kind.NAMED_ARRIVE: self._named_arrive,
            Kind.TASK_SYNC: self._task_sync,
        }

    # ---- mbarriers

    def barrier(self, group: Group, number: int) -> Mbarrier:
        return group.instance.barriers.setdefault(number, Mbarrier())

    def _init(self, group: Group, action: Action) -> bool:
        if group.is_first:
            barrier = self.barrier(group, action.a)
            barrier.count, barrier.missing, barrier.bytes, barrier.phase = action.b, action.b, 0, 0
        return True

    def _wait(self, group: Group, action: Action) -> bool:
        """One that has completed still has to be looked at, in the shadow of arithmetic if there is some."""
        barrier = self.barrier(group, action.a)
        if barrier.phase != action.b & 1:
            if action.early:
                return True
            self.engine.resume_after(self._ready(group), group, "latency")
        else:
            barrier.waiters.append((group, action.b & 1))
        return False

    def _arrive(self, group: Group, action: Action) -> bool:
        """Those who wait see it after the latency of a handshake."""
        if group.is_first:
            self.arrive_later(group, action, action.b)
        return True

    def _ready(self, group: Group) -> float:
        """Cycles of a wait that need not wait: its few instructions compete with those of the warps that compute."""
        others = self.engine.computing(group)
        return self.numbers.ready_alone + others * (self.numbers.ready_latency - self.numbers.ready_alone)

    def arrive_later(self, group: Group, action: Action, count: int) -> None:
        barrier, track, now = self.barrier(group, action.a), group.track, self.engine.clock.now
        key = ("arrive", group.instance.slot, action.a, count)
        self.engine.clock.at(self.numbers.mbarrier_latency, key, lambda: self.arrived(barrier, count, (track, now)))

    def _expect(self, group: Group, action: Action) -> bool:
        if group.is_first:
            barrier = self.barrier(group, action.a)
            barrier.bytes += action.b
            barrier.gets_bytes = True
            self.arrived(barrier, 1, (group.track, self.engine.clock.now))
        return True

    def arrived(self, barrier: Mbarrier, count: int, by: tuple[str, float]) -> None:
        barrier.missing -= count
        self._check(barrier, by)

    def landed(self, barrier: Mbarrier, size: int, by: tuple[str, float]) -> None:
        """Bytes that TMA was to bring are there."""
        barrier.bytes -= size
        self._check(barrier, by)

    def _check(self, barrier: Mbarrier, by: tuple[str, float]) -> None:
        if barrier.missing > 0 or barrier.bytes > 0:
            return
        barrier.phase ^= 1
        barrier.missing = barrier.count
        waiters, barrier.waiters = barrier.waiters, []
        for group, phase in waiters:
            if phase == barrier.phase:
                barrier.waiters.append((group, phase))
                continue
            self._arrow(by, group)
            self.engine.resume(group, "tile" if barrier.gets_bytes else "buffer")

    def _arrow(self, by: tuple[str, float], group: Group) -> None:
        if self.engine.result.record is not None and by[0] != group.track:
            self.engine.result.record.arrows.append(Arrow(*by, group.track, self.engine.clock.now))

    # ---- named barriers

    def _sync(self, group: Group, action: Action) -> bool:
        return self._meet(group, action.a, WARP * group.warps, action.b, "named barrier", self._named(action.b))

    def _named_arrive(self, group: Group, action: Action) -> bool:
        named = group.instance.named.setdefault(action.a, Named())
        named.threads += WARP * group.warps
        self._release(group, named, action.b, "named barrier", self._named(action.b))
        return True

    def _named(self, threads: int) -> float:
        return self.numbers.named_latency + (threads / THREADS - 1) * self.numbers.meeting_latency

    def _task_sync(self, group: Group, action: Action) -> bool:
        threads = THREADS * -(-group.instance.block.tasks[group.task].warps * WARP // THREADS)
        own, latency = min(threads, THREADS), MEETING + (threads / THREADS - 1) * MEETING_MORE
        return self._meet(group, -1 - group.task, own, threads, "warps of the task", latency)

    def _meet(self, group: Group, number: int, own: int, threads: int, cause: str, latency: float) -> bool:
        named = group.instance.named.setdefault(number, Named())
        named.threads += own
        named.waiters.append(group)
        self._release(group, named, threads, cause, latency)
        return False

    def _release(self, last: Group, named: Named, threads: int, cause: str, latency: float) -> None:
        if named.threads < threads:
            return
        named.threads -= threads
        waiters, named.waiters = named.waiters, []
        for group in waiters:
            if group is not last:
                self._arrow((last.track, self.engine.clock.now), group)
            self.engine.resume_after(latency, group, cause)
