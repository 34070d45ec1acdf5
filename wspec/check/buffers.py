"""Accesses to shared memory: each must come after those it conflicts with, in every schedule.

*Ordinary* accesses are by the threads of a task (local_load, local_store), the others by asynchronous units: TMA,
wgmma, cp.async. They go through different proxies: what threads or cp.async wrote is seen by TMA and wgmma only after a
proxy fence, and TMA may overwrite what threads are still reading unless a fence comes between (docs/checker.md says
what is known of the latter).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from wspec.check import code as c
from wspec.check.findings import Finding, Found
from wspec.check.names import Names
from wspec.check.state import Clock, History, State, Task, Touch, Unit, joined
from wspec.ir.core import Operation


class Buffers:
    """Checks and records every access."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._streams: dict[Hashable, int] = {}
        self._roots: dict[tuple[Unit, int], dict[int, int]] = {}  # unit, task -> allocation -> stream
        self.readers: dict[int, Touch] = {}  # streams of reads, and a read of each
        self.tiles: dict[int, c.View] = {}  # streams of TMA writes, and the buffers they are about

    # ---- streams

    def stream(self, key: Hashable) -> int:
        """The number of a stream: (task, allocation), (unit, task, allocation), ("barrier", view), ("tile", view)."""
        return self._streams.setdefault(key, len(self._streams))

    def happened(self, index: int, task: Task, root: int) -> tuple[int, int]:
        """A new event of a task that concerns an allocation: (stream, event)."""
        stream = self.stream((index, root))
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
                    self._again(state, index, task, view, step.op)
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
                value = task.registers[register]
                if isinstance(value, c.Running) and value.epoch > task.dots_done:
                    text = f"{self.names.task(index)} uses the result of a dot that may still be running"
                    self._fail("in-flight", step.op, text, "wait for the dot first")
            case c.Fence():
                task.visible = task.known
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

    def _dot(self, state: State, index: int, task: Task, step: c.Dot) -> None:
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
        self._access(state, task, view, Touch(*self.happened(index, task, view.root), index, op, "threads"), writes)

    def _access(self, state: State, task: Task, view: c.View, touch: Touch, writes: bool) -> None:
        parts = state.buffers.setdefault(view.root, {})
        view, written = view.region, False
        for part, history in parts.items():
            if part != view and not part.overlaps(view):
                continue
            if history.write is not None:
                written |= not history.maybe
                self._ordered(task, view, touch, writes, history.write, True)
            if writes:
                for read in history.reads.values():
                    self._ordered(task, view, touch, writes, read, False)
        if not writes and not written:
            text = f"{self.names.task(touch.task)} reads {self.names.view(view)}, which nobody has written"
            self._fail("unwritten", touch.op, text, "wait for the copy that fills it")
        history = parts.setdefault(view, History())
        if writes:
            history.write, history.maybe = touch, False
            history.reads.clear()
        else:
            history.reads[touch.stream] = touch
            self.readers.setdefault(touch.stream, touch)

    def _ordered(self, task: Task, view: c.View, touch: Touch, writes: bool, before: Touch, wrote: bool) -> None:
        """`before` must have happened, and be visible to the unit that touches the buffer now."""
        if task.known.get(before.stream, 0) < before.epoch:
            raise Found(self.names.race(touch.task, view, touch, writes, before, wrote))
        if touch.fenced or (writes and before.task == touch.task):
            return  # a task's own accesses before a TMA write: Triton's back end puts the fence in
        if before.fenced and task.visible.get(before.stream, 0) < before.epoch:
            raise Found(self.names.unfenced(touch.task, view, touch, before, wrote))

    def _again(self, state: State, index: int, task: Task, view: c.View, op: Operation) -> None:
        """The same allocation once more: whoever used it the last time must be done."""
        for part, history in list(state.buffers.get(view.root, {}).items()):
            for before in _touches(history):
                if task.known.get(before.stream, 0) < before.epoch:
                    touch = Touch(*self.happened(index, task, view.root), index, op, "threads")
                    raise Found(self.names.race(index, part, touch, True, before, False))
        state.buffers[view.root] = {}

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


def _touches(history: History) -> Iterator[Touch]:
    if history.write is not None:
        yield history.write
    yield from history.reads.values()
