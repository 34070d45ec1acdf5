"""mbarriers and named barriers: what they do, and that no schedule can make them do anything else (see `engine`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from wspec.check import code as c
from wspec.check.buffers import Buffers
from wspec.check.findings import Finding, Found
from wspec.check.names import Names
from wspec.check.state import Barrier, Clock, NamedBarrier, State, Task, joined
from wspec.ir.core import Operation

MAX_COUNT = (1 << 20) - 1  # of arrivals, and of bytes, in a phase (PTX ISA, mbarrier)


class Barriers:
    """The steps that touch barriers. Each returns False when the task has to wait."""

    def __init__(self, names: Names, buffers: Buffers, warps: list[int]) -> None:
        self._names, self._buffers, self._warps = names, buffers, warps
        self._waited = {  # barriers that somebody waits on; how another one counts does not matter
            root
            for code in names.program.codes
            for step in code.steps
            if isinstance(step, c.Wait)
            for root in names.may_be(step.op.operands[0])
        }
        self._in_parts = [  # tasks of several warps, of which one alone may tell others to go on
            code.warps > 1 and any(isinstance(step, c.Expect | c.Copy) for step in code.steps)
            for code in names.program.codes
        ]
        self.together = False  # are the warps of a task taken to do everything together?
        self.completed = False  # a phase was completed: somebody may go on
        self.steps: dict[type[c.Step], Callable[[State, int, Task, Any], bool]] = {
            c.Init: self._init,
            c.Invalidate: self._invalidate,
            c.Expect: self._expect,
            c.Arrive: self._arrive,
            c.Copy: self._copy,
            c.ArriveElements: self._arrive_elements,
            c.Wait: self._wait,
            c.Named: self._named,
        }

    def _barrier(self, state: State, index: int, task: Task, step: c.Step, register: int) -> tuple[c.View, Barrier]:
        _, view = self._named_view(task, step, register)
        barrier = state.barriers.get(view)
        if barrier is None or not barrier.live:
            message = f"{self._names.task(index)} uses {self._names.view(view)}, which is not initialized"
            raise Found(Finding("error", "barrier-setup", message, step.op.location))
        maker, event = barrier.maker
        if task.known.get(maker, 0) < event:
            message = f"{self._names.task(index)} may use {self._names.view(view)} before it is initialized"
            raise Found(Finding("error", "barrier-setup", message, step.op.location))
        barrier.users[index] = self._buffers.happened(index, task, view.root)[1]
        return view, barrier

    def _named_view(self, task: Task, step: c.Step, register: int) -> tuple[c.View, c.View]:
        """A view of a barrier, and the barrier it stands for."""
        view = task.registers[register]
        key = self._buffers.memory.barrier(view) if isinstance(view, c.View) else None
        if key is None or not isinstance(view, c.View):
            raise Found(_unknown(step.op))
        return view, key

    def _init(self, state: State, index: int, task: Task, step: c.Init) -> bool:
        seen, view = self._named_view(task, step, step.barrier)
        old = state.barriers.get(view)
        if old is not None and old.live:
            message = f"{self._names.view(view)} is initialized again while it is in use"
            raise Found(Finding("error", "barrier-setup", message, step.op.location, note="invalidate it first"))
        if not 1 <= step.count <= MAX_COUNT:
            message = f"{self._names.view(view)} is initialized for {step.count} arrivals"
            note = f"an mbarrier counts from 1 to {MAX_COUNT}"
            raise Found(Finding("error", "barrier-setup", message, step.op.location, note=note))
        if old is not None and task.known.get(old.maker[0], 0) < old.maker[1]:
            message = f"{self._names.view(view)} may be initialized before it is given up"
            raise Found(Finding("error", "barrier-setup", message, step.op.location))
        self._buffers.set_up(state, index, task, seen, view, step.op)
        barrier = Barrier(step.count, self._buffers.happened(index, task, view.root))
        if old is not None:
            barrier.completions = old.completions + old.completions % 2
            task.known = joined(task.known, {self._buffers.stream(("barrier", view)): barrier.completions})
        state.barriers[view] = barrier
        return True

    def _invalidate(self, state: State, index: int, task: Task, step: c.Invalidate) -> bool:
        view, barrier = self._barrier(state, index, task, step, step.barrier)
        late = [
            t for t, event in barrier.users.items() if task.known.get(self._buffers.stream((t, view.root)), 0) < event
        ]
        if late:
            message = f"{self._names.view(view)} is given up while {self._names.task(late[0])} may still use it"
            raise Found(Finding("error", "barrier-setup", message, step.op.location))
        seen = task.registers[step.barrier]
        assert isinstance(seen, c.View)
        barrier.live = False
        self._buffers.set_up(state, index, task, seen, view, step.op)
        barrier.maker = self._buffers.happened(index, task, view.root)
        return True

    def _use(self, task: Task, view: c.View) -> None:
        """Warps that use an allocation of barriers again come together first: Triton's back end sees to it."""
        if task.passing:
            if view.root in task.touched:
                task.gather()
            else:
                task.touched |= {view.root}

    def _arrival(
        self, state: State, index: int, task: Task, step: c.Step, view: c.View, barrier: Barrier, known: Clock
    ) -> None:
        """An arrival, or bytes, must belong to the phase that is on now, whatever the others do.

        `known`: what has happened before it.
        """
        stream = self._buffers.stream(("barrier", view))
        if task.known.get(stream, 0) < barrier.completions:
            early = self._names.early_arrival(index, step.op, view)
            raise Found(early if view.root in self._waited else replace(early, kind="undecided"))
        barrier.known = joined(barrier.known, known)
        barrier.visible = joined(barrier.visible, task.visible)
        barrier.arrivals = (*barrier.arrivals, (index, step.op))
        barrier.loose = tuple(one for one in barrier.loose if one[0] != index)

    def _settle(self, state: State, view: c.View, barrier: Barrier, op: Operation) -> None:
        if barrier.arrived > barrier.count:
            raise Found(self._names.over_arrival(op, view, barrier))
        if barrier.arrived < barrier.count or barrier.bytes != 0:
            return
        if barrier.loose:
            raise Found(self._names.early_arrival(barrier.loose[0][0], barrier.loose[0][1], view))
        for task, (waited, event, wait) in barrier.waits.items():
            if barrier.known.get(waited, 0) < event:
                missed = self._names.missed_phase(task, wait, view, barrier)
                # Where a bar.sync stands between a wait and what one thread does is the back end's, for a part.
                apart = any(stream == waited for stream, _, _ in state.tasks[task].passing)
                raise Found(replace(missed, kind="undecided") if apart else missed)
        barrier.completions += 1
        self.completed = True
        stream = self._buffers.stream(("barrier", view))
        barrier.done_known = {**barrier.known, stream: barrier.completions}
        barrier.done_visible = barrier.visible
        barrier.known, barrier.visible, barrier.arrived, barrier.waits, barrier.arrivals = {}, {}, 0, {}, ()

    def _expect(self, state: State, index: int, task: Task, step: c.Expect) -> bool:
        view, barrier = self._barrier(state, index, task, step, step.barrier)
        self._use(task, view)
        self._arrival(state, index, task, step, view, barrier, task.one_warp_knows())
        barrier.arrived += 1
        barrier.bytes += step.bytes
        if barrier.bytes > MAX_COUNT:
            message = f"{self._names.view(view)} is to expect {barrier.bytes} bytes in one phase"
            note = f"an mbarrier counts at most {MAX_COUNT}"
            raise Found(Finding("error", "bytes", message, step.op.location, note=note))
        self._settle(state, view, barrier, step.op)
        return True

    def _arrive(self, state: State, index: int, task: Task, step: c.Arrive) -> bool:
        view, barrier = self._barrier(state, index, task, step, step.barrier)
        task.gather()  # one thread arrives, behind a bar.sync
        self._arrival(state, index, task, step, view, barrier, task.known)
        barrier.arrived += step.count
        self._settle(state, view, barrier, step.op)
        return True

    def _copy(self, state: State, index: int, task: Task, step: c.Copy) -> bool:
        view, barrier = self._barrier(state, index, task, step, step.barrier)
        stream, event = self._buffers.tile(state, index, task, step)
        if step.bytes != step.room:
            raise Found(self._names.wrong_size(index, step.op, task.registers[step.view], step.bytes, step.room))
        self._use(task, view)
        self._arrival(state, index, task, step, view, barrier, task.one_warp_knows())
        barrier.known = joined(barrier.known, {stream: event})
        barrier.bytes -= step.bytes
        self._settle(state, view, barrier, step.op)
        return True

    def _arrive_elements(self, state: State, index: int, task: Task, step: c.ArriveElements) -> bool:
        view, barrier = self._barrier(state, index, task, step, step.barrier)
        self._arrival(state, index, task, step, view, barrier, task.known)  # all threads arrive
        barrier.known = joined(barrier.known, self._buffers.all_elements(index, task))
        barrier.arrived += step.count
        if step.count == 0:  # nothing but a later arrival of the same task keeps the phase open until then
            barrier.loose = (*barrier.loose, (index, step.op))
            return True
        self._settle(state, view, barrier, step.op)
        return True

    def _wait(self, state: State, index: int, task: Task, step: c.Wait) -> bool:
        phase = task.registers[step.phase]
        view, barrier = self._barrier(state, index, task, step, step.barrier)
        if not isinstance(phase, int):
            message = f"which phase of {self._names.view(view)} this waits for cannot be followed"
            raise Found(Finding("undecided", "unknown-index", message, step.op.location))
        if barrier.completions % 2 == phase & 1:
            return False
        stream = self._buffers.stream(("barrier", view))
        if task.known.get(stream, 0) < barrier.completions - 1:
            raise Found(self._names.early_wait(index, step.op, view, barrier))
        task.known = joined(task.known, barrier.done_known)
        task.visible = joined(task.visible, barrier.done_visible)
        self._use(task, view)
        stream = self._buffers.stream(("waits", index, view.root))
        task.now += 1
        if self._in_parts[index] and not self.together:
            task.passing = (*task.passing, (stream, task.known.get(stream, 0), view))
            task.touched |= {view.root}
        task.known = {**task.known, stream: task.now}
        barrier.waits[index] = (stream, task.now, step.op)
        return True

    def _named(self, state: State, index: int, task: Task, step: c.Named) -> bool:
        barrier = state.named.get(step.number)
        if barrier is None:
            barrier = state.named[step.number] = NamedBarrier(step.threads, step.op)
        stream = self._buffers.stream(("named", step.number))
        if task.named is None:
            self._arrive_named(index, task, step, barrier, stream)
            if step.waits:
                task.named = (step.number, barrier.completions)
            if barrier.arrived == barrier.threads:
                barrier.completions += 1
                self.completed = True
                barrier.done_known = {**barrier.known, stream: barrier.completions}
                barrier.done_visible = barrier.visible
                for other in state.tasks:
                    # Those who wait for this use know now: it may be used again before they go on.
                    if other.named == (step.number, barrier.completions - 1):
                        other.known = joined(other.known, barrier.done_known)
                        other.visible = joined(other.visible, barrier.done_visible)
                barrier.known, barrier.visible, barrier.arrived = {}, {}, 0
        if step.waits:
            assert task.named is not None
            task.gather()
            if barrier.completions == task.named[1]:
                return False
            task.named = None
        return True

    def _arrive_named(self, index: int, task: Task, step: c.Named, barrier: NamedBarrier, stream: int) -> None:
        name = f"named barrier {step.number}"
        if barrier.threads != step.threads:
            message = f"{name} is used for {step.threads} threads here and for {barrier.threads} elsewhere"
            raise Found(
                Finding("error", "named-barrier", message, step.op.location, (("elsewhere", barrier.op.location),))
            )
        if task.known.get(stream, 0) < barrier.completions:
            message = f"{self._names.task(index)} may arrive on {name} before the threads of its last use have left it"
            raise Found(Finding("error", "named-barrier", message, step.op.location, note="use another number"))
        barrier.known = joined(barrier.known, task.known)
        barrier.visible = joined(barrier.visible, task.visible)
        barrier.arrived += 32 * self._warps[index]
        if barrier.arrived > barrier.threads:
            message = f"more than {barrier.threads} threads arrive on {name}"
            raise Found(Finding("error", "named-barrier", message, step.op.location))


def _unknown(op: Operation) -> Finding:
    return Finding("undecided", "unknown-index", "which barrier this is cannot be followed", op.location)
