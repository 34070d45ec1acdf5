"""Accesses to shared memory: each must come after those it conflicts with, in every schedule.

*Ordinary* accesses are by the threads of a task (local_load, local_store), the others by asynchronous units: TMA,
wgmma, cp.async. They go through different proxies: what threads or cp.async wrote is seen by TMA and wgmma only after a
proxy fence, and TMA may overwrite what threads are still reading unless a fence comes between (docs/checker.md says
what is known of the latter).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace

from wspec.check import code as c
from wspec.check.findings import Finding, Found, Kind
from wspec.check.memory import Memory, narrowed
from wspec.check.names import Names
from wspec.check.state import Clock, History, State, Task, Touch, Unit, joined
from wspec.ir.core import Operation


class Buffers:
    """Checks and records every access."""

    def __init__(self, names: Names, memory: Memory) -> None:
        self.names, self.memory = names, memory
        self.loads: dict[int, int] = {}  # streams of reads by threads -> the task
        self._fences_known = memory.program.placement is not None
        self._streams: dict[Hashable, int] = {}
        self._roots: dict[tuple[Unit, int], dict[int, int]] = {}  # unit, task -> allocation -> stream
        self.readers: dict[int, Touch] = {}  # streams of reads, and a read of each
        self.tiles: dict[int, c.View] = {}  # streams of TMA writes, and the buffers they are about

    # ---- streams

    def stream(self, key: Hashable) -> int:
        """The number of a stream.

        (task, allocation), ("loads", task, allocation), (unit, task, allocation), ("barrier", view), ("tile", view).
        """
        return self._streams.setdefault(key, len(self._streams))

    def happened(self, index: int, task: Task, root: int) -> tuple[int, int]:
        """A new event of a task that concerns an allocation: (stream, event)."""
        stream = self.stream((index, root))
        task.now += 1
        task.known = {**task.known, stream: task.now}
        return stream, task.now

    def _loaded(self, index: int, task: Task, root: int) -> tuple[int, int]:
        """A new event of a task that reads an allocation: (stream, event)."""
        stream = self.stream(("loads", index, root))
        self.loads[stream] = index
        task.now += 1
        task.known = {**task.known, stream: task.now}
        return stream, task.now

    def _of_unit(self, unit: Unit, index: int, root: int) -> int:
        roots = self._roots.setdefault((unit, index), {})
        if root not in roots:
            roots[root] = self.stream((unit, index, root))
        return roots[root]

    def _complete(self, unit: Unit, index: int, task: Task, epoch: int) -> None:
        """The first `epoch` operations of a unit of a task are done."""
        streams = self._roots.get((unit, index), {}).values()
        task.known = joined(task.known, dict.fromkeys(streams, epoch))

    def _dots_done(self, index: int, task: Task, count: int) -> None:
        self._complete("dots", index, task, count)
        task.dots_done = max(task.dots_done, count)

    def all_elements(self, index: int, task: Task) -> Clock:
        """Every cp.async of the task so far."""
        return dict.fromkeys(self._roots.get(("elements", index), {}).values(), task.elements + 1)

    # ---- the steps

    def touch(self, state: State, index: int, task: Task, step: c.Step) -> None:
        match step:
            case c.Allocate(dst=dst, root=root, filled=filled):
                view = c.View(root)
                task.registers[dst] = view
                if filled:
                    self._ordinary(state, index, task, view, step.op, True)
                elif root in state.buffers:
                    self._give_up(state, index, task, view, step.op)
            case c.Scratch(root=root, read=read):
                self._ordinary(state, index, task, c.View(root), step.op, True)
                if read:
                    self._ordinary(state, index, task, c.View(root), step.op, False)
            case c.Release(view=register):
                self._give_up(state, index, task, self._view(task, register, step.op), step.op)
            case c.Access(view=register, writes=writes):
                view = self._view(task, register, step.op)
                self._ordinary(state, index, task, view, step.op, writes)
            case c.Dot():
                self._dot(state, index, task, step)
            case c.WaitDots(pending=pending, pairs=pairs):
                self._dots_done(index, task, task.dots - pending)
                values = [task.registers[source] for _, source in pairs]
                for (target, _), value in zip(pairs, values, strict=True):
                    complete = isinstance(value, c.Running) and value.epoch <= task.dots_done
                    task.registers[target] = None if complete else value
            case c.Use(register=register):
                self._complete_value(index, task, task.registers[register], step.op, False)
            case c.Fence():
                self._fence(index, task)
            case c.StoreTile(view=register):
                task.stores += 1
                view = self._view(task, register, step.op)
                touch = Touch(self._of_unit("stores", index, view.root), task.stores, index, step.op, "stores")
                self._access(state, task, view, touch, False)
            case c.WaitStores(pending=pending):
                self._complete("stores", index, task, task.stores - pending)
            case c.CopyElements(view=register):
                view = self._view(task, register, step.op)
                stream = self._of_unit("elements", index, view.root)
                self._access(state, task, view, Touch(stream, task.elements + 1, index, step.op, "elements"), True)
            case c.CommitElements():
                task.elements += 1
            case c.WaitElements(pending=pending):
                self._complete("elements", index, task, task.elements - pending)

    def _complete_value(self, index: int, task: Task, value: c.Content, op: Operation, chained: bool) -> None:
        """A value of a dot that is used must have gone through a wait; `chained`: as a sum that a dot goes on with.

        Its registers are written until the wait, and only what goes through the wait is ordered behind it: a use of
        the old name may be moved before it.
        """
        if not isinstance(value, c.Running) or (chained and value.epoch > task.dots_done):
            return
        if value.epoch > task.dots_done:
            text = f"{self.names.task(index)} uses the result of a dot that may still be running"
            self._fail("in-flight", op, text, "wait for the dot first")
        text = f"{self.names.task(index)} uses the result of a dot under its name from before the wait"
        self._fail("in-flight", op, text, "use the result of the ttng.warp_group_dot_wait")

    def _fence(self, index: int, task: Task) -> None:
        """What has happened is seen by asynchronous units afterwards, but for reads by threads of other tasks.

        A write that is known is there, whoever fences after it. That a read is over shows only where its value is: the
        thread that reads has to fence.
        """
        visible = dict(task.known)
        for stream, reader in self.loads.items():
            if reader != index and stream in visible:
                visible[stream] = task.visible.get(stream, 0)
        task.visible = visible
        task.fenced = task.known

    def _dot(self, state: State, index: int, task: Task, step: c.Dot) -> None:
        if step.accumulator is not None:
            self._complete_value(index, task, task.registers[step.accumulator], step.op, True)
        task.dots += 1
        for register in step.views:
            view = self._view(task, register, step.op)
            stream = self._of_unit("dots", index, view.root)
            self._access(state, task, view, Touch(stream, task.dots, index, step.op, "dots"), False)
        if not step.asynchronous:
            self._dots_done(index, task, task.dots)
        if step.dst is not None:
            task.registers[step.dst] = c.Running(task.dots) if step.asynchronous else None

    def tile(self, state: State, index: int, task: Task, step: c.Copy) -> tuple[int, int]:
        """A TMA copy into a buffer: (stream, event) of its completion."""
        view = self._view(task, step.view, step.op)
        stream = self.stream(("tile", view))
        self.tiles[stream] = view
        event = state.writes[view] = state.writes.get(view, 0) + 1
        self._access(state, task, view, Touch(stream, event, index, step.op, "tile"), True)
        return stream, event

    def _view(self, task: Task, register: int, op: Operation) -> c.View:
        view = task.registers[register]
        if not isinstance(view, c.View):
            raise Found(Finding("undecided", "unknown-index", "which buffer this is cannot be followed", op.location))
        return view

    # ---- order

    def _ordinary(self, state: State, index: int, task: Task, view: c.View, op: Operation, writes: bool) -> None:
        event = self.happened(index, task, view.root) if writes else self._loaded(index, task, view.root)
        self._access(state, task, view, Touch(*event, index, op, "threads"), writes)

    def set_up(self, state: State, index: int, task: Task, view: c.View, key: c.View, op: Operation) -> None:
        """A barrier is initialized or given up: a write of its bytes, which another barrier may not have."""
        if key.root not in self.memory.mixed:
            return
        area = self.memory.barrier_area(key)
        for other, barrier in state.barriers.items():
            near = other.root in (key.root, *self.memory.beside[key.root])
            if other != key and barrier.live and near and area.overlaps(self.memory.barrier_area(other)):
                self._over_barrier(view, other, op)
        words = self.memory.is_words(key.root)
        self._ordinary(state, index, task, key if words else view, op, True)

    def _over_barrier(self, view: c.View, key: c.View, op: Operation) -> None:
        message = f"{self.names.view(view)} is written over {self.names.view(key)}, which is a barrier in use"
        note = "put a ttng.inval_barrier behind the barrier's last use"
        kind: Kind = "undecided" if view.box or narrowed(op, self.names) else "error"
        path = (("the barrier", self.names.program.roots[key.root].location),)
        raise Found(Finding(kind, "barrier-setup", message, op.location, path, note))

    def _access(self, state: State, task: Task, view: c.View, touch: Touch, writes: bool) -> None:
        if writes and (self.memory.under[view.root] or self.memory.beside[view.root]):
            self._overwrite(state, task, view, touch)
        parts = state.buffers.setdefault(view.root, {})
        view, written = view.region, False
        for part, history in parts.items():
            if part != view and not part.overlaps(view):
                continue
            if history.write is not None:
                written |= not history.maybe
                self._ordered(task, view, touch, writes, history.write, True, part)
            if writes:
                for read in history.reads.values():
                    self._ordered(task, view, touch, writes, read, False, part)
        if not writes and not written:
            since = " since its memory was something else's" if self.memory.beside[view.root] else ""
            text = f"{self.names.task(touch.task)} reads {self.names.view(view)}, which nobody has written{since}"
            self._fail("unwritten", touch.op, text, "wait for the copy that fills it")
        history = parts.setdefault(view, History())
        if writes:
            history.write, history.maybe = touch, False
            history.reads.clear()
        else:
            history.reads[touch.stream] = touch
            self.readers.setdefault(touch.stream, touch)

    def _overwrite(self, state: State, task: Task, view: c.View, touch: Touch) -> None:
        """A write where other allocations, or barriers, have their bytes too: they must be done with, and are lost."""
        if touch.op.name not in _SET_UP:
            for key, barrier in state.barriers.items():
                near = barrier.live and key.root in self.memory.under[view.root]
                if near and self.memory.overlaps_barrier(view, key):
                    self._over_barrier(view, key, touch.op)
        for root in self.memory.beside[view.root]:
            parts = state.buffers.get(root, {})
            for part, history in list(parts.items()):
                if not self.memory.share_bytes(view, part):
                    continue
                if history.write is not None:
                    self._ordered(task, view, touch, True, history.write, True, part)
                for read in history.reads.values():
                    self._ordered(task, view, touch, True, read, False, part)
                if self.memory.covers(view, part):
                    del parts[part]
                else:
                    history.maybe = True

    def _ordered(
        self, task: Task, view: c.View, touch: Touch, writes: bool, before: Touch, wrote: bool, part: c.View
    ) -> None:
        """`before` must have happened, and be visible to the unit that touches the buffer now."""
        if task.known.get(before.stream, 0) < before.epoch:
            found = self.names.race(touch.task, view, touch, writes, before, wrote, part)
            raise Found(self._certain(found, touch, before, view, part))
        if touch.fenced or not before.fenced or task.visible.get(before.stream, 0) >= before.epoch:
            return
        if writes and before.task == touch.task and not self._fences_known:
            return  # a task's own accesses before a TMA write: Triton's back end puts the fence in
        if before.op.name in _SET_UP and before.task == touch.task:
            return  # Triton's back end leaves it out there, in every pipelined kernel
        missing = self.names.unfenced(touch.task, view, touch, before, wrote, part)
        if before.op.name in _SET_UP or task.fenced.get(before.stream, 0) >= before.epoch:
            missing = replace(missing, kind="undecided")  # what PTX says of these can be read in two ways
        raise Found(self._certain(missing, touch, before, view, part))

    def _certain(self, found: Finding, touch: Touch, before: Touch, view: c.View, part: c.View) -> Finding:
        """An error about bytes that are guessed is not certain: boxes of two allocations, parts of other views.

        Wherever a guessed part is, it is in a slot all of which the other access touches.
        """
        if found.kind != "error":
            return found
        one, other = narrowed(touch.op, self.names), narrowed(before.op, self.names)
        if view.root != part.root or (one and other):
            guessed = one or other or bool(view.box or part.box)
        else:
            guessed = (one and not _is_around(part, view)) or (other and not _is_around(view, part))
        return replace(found, kind="undecided") if guessed else found

    def _give_up(self, state: State, index: int, task: Task, view: c.View, op: Operation) -> None:
        """A buffer is given up, or allocated once more: whoever used it must be done, and what it held is gone."""
        for part, history in state.buffers.get(view.root, {}).items():
            if not part.overlaps(view.region):
                continue
            for before in _touches(history):
                if task.known.get(before.stream, 0) < before.epoch:
                    touch = Touch(*self.happened(index, task, view.root), index, op, "threads")
                    raise Found(self.names.race(index, part, touch, True, before, False, part))
            history.maybe = True  # whoever writes there must still come after that, fences included

    def unfinished(self, state: State, index: int, task: Task) -> Finding | None:
        """At the end of a task: something of its own that may still be running; at the end of all, of anybody's."""
        if index == 0:
            for parts in state.buffers.values():
                for part, history in parts.items():
                    for before in _touches(history):
                        if before.unit != "threads" and task.known.get(before.stream, 0) < before.epoch:
                            return self.names.unfinished(part, before)
        if task.dots_done < task.dots:
            message = f"{self.names.task(index)} ends while a dot of it may still be running"
            return Finding("error", "in-flight", message, self.names.last_op(index).location, note="wait for the dot")
        return None

    def _fail(self, code: str, op: Operation, message: str, note: str) -> None:
        raise Found(Finding("error", code, message, op.location, note=note))


_SET_UP = ("ttng.init_barrier", "ttng.inval_barrier")


def _touches(history: History) -> Iterator[Touch]:
    if history.write is not None:
        yield history.write
    yield from history.reads.values()


def _is_around(one: c.View, other: c.View) -> bool:
    """Is one view all of the slot that another one is in?"""
    return not one.box and one.path == other.path[: len(one.path)]
