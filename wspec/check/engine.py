"""Executes the steps of the tasks, one schedule only, and proves while doing so that every other one is the same.

Why one schedule is enough. Let every wait be shown (a) not to pass before the completion it is meant for, whatever the
others do: the waiting task knows of the completion before that one; and (b) not to miss it: the completion after it
comes only after the wait. Let every arrival be shown to belong to its phase: the arriving task knows of the completion
before. Then no schedule can do anything else at this barrier, so all have the same events in the same order
(happens-before), wait for the same and end the same way; accesses without an order in this one schedule have none in
any, and a deadlock in this one is a deadlock in all. Each of these facts is checked at every step; the first that fails
is reported.
"""

from __future__ import annotations

from wspec.check import code as c
from wspec.check.buffers import Buffers
from wspec.check.conditions import Always, Both, Choice, Condition, Either, Extents, Not, Reached, Threshold
from wspec.check.findings import Finding, Found
from wspec.check.names import Names
from wspec.check.state import FAR, Barrier, Clock, NamedBarrier, State, Task, joined
from wspec.ir.core import Operation


Progress = tuple[int, ...]  # iterations of the loops a task is in


class NeedsChoice(Exception):
    """A condition that nothing has decided yet."""

    def __init__(self, condition: Threshold | Choice, key: tuple[int, tuple[int, ...]], at: int, op: Operation) -> None:
        super().__init__(condition)
        self.condition, self.key, self.at, self.op = condition, key, at, op


def decide(state: State, need: NeedsChoice, value: bool, before: tuple[int, int] | None) -> None:
    """Settle a choice; `before`: what is known of the extent anyway."""
    if isinstance(need.condition, Choice):
        state.choices[need.key] = value
        text = "the condition holds" if value else "the condition does not hold"
    else:
        low, high = state.extents.get(need.key) or before or (-FAR, FAR)
        state.extents[need.key] = (max(low, need.at + 1), high) if value else (low, min(high, need.at))
        text = "the loop goes on" if value else "the loop ends"
    state.taken = (*state.taken, (need.op, text))


class Engine:
    """The semantics of the steps."""

    def __init__(self, program: c.Program, names: Names, extents: Extents) -> None:
        self.program, self.names, self.extents = program, names, extents
        self.buffers = Buffers(names)
        self.events = 0
        self.signalled = False
        # Those who fill buffers come last: the less they run ahead, the fewer states there are.
        fills = [any(isinstance(step, c.Copy | c.CopyElements) for step in code.steps) for code in program.codes]
        self.order = sorted(range(len(fills)), key=lambda index: (fills[index], index))

    def start(self) -> State:
        tasks = [Task(registers=[None] * code.registers) for code in self.program.codes]
        tasks[0].active = True
        return State(tasks)

    # ---- running

    def run(self, state: State) -> None:
        """Run until all is done. Raises Found or NeedsChoice; the task that needs a choice has not taken its step."""
        while not state.tasks[0].done:
            needs: list[tuple[Progress, NeedsChoice]] = []
            if any(self._runs(state, index, needs) for index in self.order):
                continue
            if not needs:
                raise Found(self.names.deadlock(state))
            raise min(needs, key=lambda pair: pair[0])[1]

    def _runs(self, state: State, index: int, needs: list[tuple[Progress, NeedsChoice]]) -> bool:
        """Run a task until it has to wait, needs a choice, or has let another one go on; False when it cannot move.

        A choice is put off until nobody can move without one, and then made for the task that is furthest behind.
        """
        task = state.tasks[index]
        moved, self.signalled = False, False
        try:
            while task.active and not task.done and not self.signalled and self._step(state, index, task):
                moved = True
        except NeedsChoice as need:
            needs.append((tuple(k for _, k in task.loops), need))
        return moved

    def _step(self, state: State, index: int, task: Task) -> bool:
        """One step; False when the task has to wait."""
        step = self.program.codes[index].steps[task.pc]
        handler = _SCALAR.get(type(step))
        if handler is not None:
            handler(self, task, step)
            return True
        self.events += 1
        return bool(_EVENTS[type(step)](self, state, index, task, step))

    # ---- conditions

    def _holds(self, state: State, task: Task, register: int | None, condition: Condition, op: Operation) -> bool:
        known = task.registers[register] if register is not None else None
        return bool(known) if isinstance(known, int) else self._decided(state, task, condition, op)

    def _decided(self, state: State, task: Task, condition: Condition, op: Operation) -> bool:
        match condition:
            case Always(value=value):
                return value
            case Not(inner=inner):
                return not self._decided(state, task, inner, op)
            case Both(left=left, right=right):
                return self._decided(state, task, left, op) and self._decided(state, task, right, op)
            case Either(left=left, right=right):
                return self._decided(state, task, left, op) or self._decided(state, task, right, op)
            case Threshold():
                return self._above(state, task, condition, op)
            case Reached(space=space, above=above):
                return next(k for one, k in task.loops if one == space) > above
        key = (condition.number, tuple(k for _, k in task.loops[: len(condition.chain)]))
        known = state.choices.get(key)
        if known is None:
            raise NeedsChoice(condition, key, 0, op)
        return known

    def _above(self, state: State, task: Task, asked: Threshold, op: Operation) -> bool:
        depth = len(self.extents.extents[asked.extent].chain)
        key = (asked.extent, tuple(k for _, k in task.loops[:depth]))
        at = asked.above
        if asked.space is not None:
            at += next(k for space, k in task.loops if space == asked.space)
        low, high = state.extents.get(key) or self.extents.initially(asked.extent) or (-FAR, FAR)
        if low > at:
            return True
        if high <= at:
            return False
        raise NeedsChoice(asked, key, at, op)

    def _predicated(self, state: State, task: Task, step: c.Barriered) -> bool:
        if step.predicate is None:
            return True
        return self._holds(state, task, step.predicate.register, step.predicate.condition, step.op)

    # ---- scalars

    def _compute(self, task: Task, step: c.Compute) -> None:
        values = [task.registers[source] for source in step.sources]
        ready = [value for value in values if isinstance(value, int)]
        task.registers[step.dst] = step.function(*ready) if len(ready) == len(values) else None
        task.pc += 1

    def _constant(self, task: Task, step: c.Constant) -> None:
        task.registers[step.dst] = step.value
        task.pc += 1

    def _select(self, state: State, index: int, task: Task, step: c.Select) -> bool:
        then, other = task.registers[step.then], task.registers[step.other]
        if then != other and not self._holds(state, task, step.register, step.condition, step.op):
            then = other
        task.registers[step.dst] = then
        task.pc += 1
        return True

    def _decide(self, state: State, index: int, task: Task, step: c.Decide) -> bool:
        holds = self._holds(state, task, step.register, step.condition, step.op)
        task.registers[step.dst] = step.value if holds else 0
        task.pc += 1
        return True

    def _move(self, task: Task, step: c.Move) -> None:
        values = [task.registers[source] for _, source in step.pairs]
        for (target, _), value in zip(step.pairs, values, strict=True):
            task.registers[target] = value
        task.pc += 1

    def _part(self, task: Task, step: c.Part) -> None:
        view = task.registers[step.source]
        if isinstance(view, c.View):
            if not step.kept:
                view = c.View(view.root, view.path, (), True)
            elif step.box is not None and not view.whole:
                starts = view.box or tuple((0, 0) for _ in step.box)
                view = c.View(view.root, view.path, tuple((s + o, n) for (s, _), (o, n) in zip(starts, step.box, strict=True)))
            elif step.box is None and view.box:
                view = c.View(view.root, view.path)
        task.registers[step.dst] = view
        task.pc += 1

    def _jump(self, task: Task, step: c.Jump) -> None:
        task.pc = step.target

    def _enter(self, task: Task, step: c.Enter) -> None:
        task.loops = (*task.loops, (step.space, 0))
        if step.position is not None and step.lower is not None:
            task.registers[step.position] = task.registers[step.lower]
        task.pc += 1

    def _next(self, task: Task, step: c.Next) -> None:
        space, k = task.loops[-1]
        task.loops = (*task.loops[:-1], (space, k + 1))
        if step.position is not None:
            position = task.registers[step.position]
            known = isinstance(position, int) and step.by is not None
            task.registers[step.position] = position + step.by if known else None  # type: ignore[operator]
        task.pc = step.target

    def _leave(self, task: Task, step: c.Leave) -> None:
        task.loops = task.loops[:-1]
        task.pc += 1

    # ---- control that may need a choice

    def _index(self, state: State, index: int, task: Task, step: c.Index) -> bool:
        view, number = task.registers[step.source], task.registers[step.index]
        if not isinstance(view, c.View) or view.whole:
            task.registers[step.dst] = view
        elif not isinstance(number, int):
            raise Found(Finding("undecided", "unknown-index", f"which buffer of {self.names.view(view)} this is cannot be followed", step.op.location))
        elif not 0 <= number < step.count:
            message = f"{self.names.task(index)} takes buffer {number} of {self.names.view(view)}, which has {step.count}"
            raise Found(Finding("error", "range", message, step.op.location, note="make the ring deeper or wrap the index earlier"))
        else:
            task.registers[step.dst] = c.View(view.root, (*view.path, number))
        task.pc += 1
        return True

    def _branch(self, state: State, index: int, task: Task, step: c.Branch) -> bool:
        holds = self._holds(state, task, step.register, step.condition, step.op)
        task.pc = task.pc + 1 if holds else step.target
        return True

    def _head(self, state: State, index: int, task: Task, step: c.Head) -> bool:
        if step.bounds is not None:
            lower, upper, by = step.bounds
            runs = lower + by * task.loops[-1][1] < upper
        else:
            assert step.runs is not None
            runs = self._above(state, task, step.runs, step.op)
        task.pc = task.pc + 1 if runs else step.target
        return True

    def _fork(self, state: State, index: int, task: Task, step: c.Fork) -> bool:
        for number, pairs in zip(step.tasks, step.captured, strict=True):
            other = state.tasks[number]
            other.active, other.done, other.pc, other.loops = True, False, 0, ()
            other.known, other.visible = joined(other.known, task.known), joined(other.visible, task.visible)
            for there, here in pairs:
                other.registers[there] = task.registers[here]
        task.pc += 1
        return True

    def _join(self, state: State, index: int, task: Task, step: c.Join) -> bool:
        if not all(state.tasks[number].done for number in step.tasks):
            return False
        for number in step.tasks:
            other = state.tasks[number]
            other.active = False
            task.known = joined(task.known, other.known)
            task.visible = joined(task.visible, other.visible)
        task.pc += 1
        return True

    def _done(self, state: State, index: int, task: Task, step: c.Done) -> bool:
        running = self.buffers.unfinished(state, index, task)
        if running is not None:
            raise Found(running)
        task.done = self.signalled = True
        return True

    def _stuck(self, state: State, index: int, task: Task, step: c.Stuck) -> bool:
        raise Found(Finding("undecided", step.code, step.message, step.op.location))

    # ---- barriers

    def _barrier(self, state: State, index: int, task: Task, step: c.Step, register: int) -> tuple[c.View, Barrier]:
        view = task.registers[register]
        if not isinstance(view, c.View):
            raise Found(Finding("undecided", "unknown-index", "which barrier this is cannot be followed", step.op.location))
        barrier = state.barriers.get(view) or state.barriers.get(_shorter(view))
        if barrier is None or not barrier.live:
            message = f"{self.names.task(index)} uses {self.names.view(view)}, which is not initialized"
            raise Found(Finding("error", "barrier-setup", message, step.op.location))
        view = view if view in state.barriers else _shorter(view)
        maker, event = barrier.maker
        if task.known.get(maker, 0) < event:
            message = f"{self.names.task(index)} may use {self.names.view(view)} before it is initialized"
            raise Found(Finding("error", "barrier-setup", message, step.op.location))
        barrier.users[index] = self.buffers.happened(index, task, view.root)[1]
        return view, barrier

    def _init(self, state: State, index: int, task: Task, step: c.Init) -> bool:
        view = task.registers[step.barrier]
        if not isinstance(view, c.View):
            raise Found(Finding("undecided", "unknown-index", "which barrier this is cannot be followed", step.op.location))
        old = state.barriers.get(view)
        if old is not None and old.live:
            message = f"{self.names.view(view)} is initialized again while it is in use"
            raise Found(Finding("error", "barrier-setup", message, step.op.location, note="invalidate it first"))
        if step.count < 1:
            message = f"{self.names.view(view)} is initialized for {step.count} arrivals"
            raise Found(Finding("error", "barrier-setup", message, step.op.location))
        barrier = Barrier(step.count, self.buffers.happened(index, task, view.root))
        if old is not None:
            barrier.completions = old.completions + old.completions % 2
            task.known = joined(task.known, {self.buffers.stream(("barrier", view)): barrier.completions})
        state.barriers[view] = barrier
        task.pc += 1
        return True

    def _invalidate(self, state: State, index: int, task: Task, step: c.Invalidate) -> bool:
        view, barrier = self._barrier(state, index, task, step, step.barrier)
        late = [t for t, event in barrier.users.items() if task.known.get(self.buffers.stream((t, view.root)), 0) < event]
        if late:
            message = f"{self.names.view(view)} is given up while {self.names.task(late[0])} may still use it"
            raise Found(Finding("error", "barrier-setup", message, step.op.location))
        barrier.live = False
        task.pc += 1
        return True

    def _arrival(self, state: State, index: int, task: Task, step: c.Step, view: c.View, barrier: Barrier) -> None:
        """An arrival, or bytes, must belong to the phase that is on now, whatever the others do."""
        stream = self.buffers.stream(("barrier", view))
        if task.known.get(stream, 0) < barrier.completions:
            raise Found(self.names.early_arrival(state, index, step.op, view, barrier))
        barrier.known = joined(barrier.known, task.known)
        barrier.visible = joined(barrier.visible, task.visible)
        barrier.arrivals = (*barrier.arrivals, (index, step.op))

    def _settle(self, state: State, view: c.View, barrier: Barrier, op: Operation) -> None:
        if barrier.arrived > barrier.count:
            raise Found(self.names.over_arrival(op, view, barrier))
        if barrier.arrived < barrier.count or barrier.bytes != 0:
            return
        for task, (waited, event, wait) in barrier.waits.items():
            if barrier.known.get(waited, 0) < event:
                raise Found(self.names.missed_phase(task, wait, view, barrier))
        barrier.completions += 1
        self.signalled = True
        stream = self.buffers.stream(("barrier", view))
        barrier.done_known = {**barrier.known, stream: barrier.completions}
        barrier.done_visible = barrier.visible
        barrier.known, barrier.visible, barrier.arrived, barrier.waits, barrier.arrivals = {}, {}, 0, {}, ()

    def _expect(self, state: State, index: int, task: Task, step: c.Expect) -> bool:
        if self._predicated(state, task, step):
            view, barrier = self._barrier(state, index, task, step, step.barrier)
            self._arrival(state, index, task, step, view, barrier)
            barrier.arrived += 1
            barrier.bytes += step.bytes
            self._settle(state, view, barrier, step.op)
        task.pc += 1
        return True

    def _arrive(self, state: State, index: int, task: Task, step: c.Arrive) -> bool:
        if self._predicated(state, task, step):
            view, barrier = self._barrier(state, index, task, step, step.barrier)
            self._arrival(state, index, task, step, view, barrier)
            barrier.arrived += step.count
            self._settle(state, view, barrier, step.op)
        task.pc += 1
        return True

    def _copy(self, state: State, index: int, task: Task, step: c.Copy) -> bool:
        if self._predicated(state, task, step):
            view, barrier = self._barrier(state, index, task, step, step.barrier)
            stream, event = self.buffers.tile(state, index, task, step)
            if step.bytes != step.room:
                raise Found(self.names.wrong_size(index, step.op, task.registers[step.view], step.bytes, step.room))
            self._arrival(state, index, task, step, view, barrier)
            barrier.known = joined(barrier.known, {stream: event})
            barrier.bytes -= step.bytes
            self._settle(state, view, barrier, step.op)
        task.pc += 1
        return True

    def _arrive_elements(self, state: State, index: int, task: Task, step: c.ArriveElements) -> bool:
        view, barrier = self._barrier(state, index, task, step, step.barrier)
        self._arrival(state, index, task, step, view, barrier)
        barrier.known = joined(barrier.known, self.buffers.all_elements(index, task))
        barrier.arrived += step.count
        self._settle(state, view, barrier, step.op)
        task.pc += 1
        return True

    def _wait(self, state: State, index: int, task: Task, step: c.Wait) -> bool:
        if not self._predicated(state, task, step):
            task.pc += 1
            return True
        phase = task.registers[step.phase]
        view, barrier = self._barrier(state, index, task, step, step.barrier)
        if not isinstance(phase, int):
            message = f"which phase of {self.names.view(view)} this waits for cannot be followed"
            raise Found(Finding("undecided", "unknown-index", message, step.op.location))
        if barrier.completions % 2 == phase & 1:
            return False
        stream = self.buffers.stream(("barrier", view))
        if barrier.completions >= 2 and task.known.get(stream, 0) < barrier.completions - 1:
            raise Found(self.names.early_wait(index, step.op, view, barrier))
        task.known = joined(task.known, barrier.done_known)
        task.visible = joined(task.visible, barrier.done_visible)
        barrier.waits[index] = (*self.buffers.happened(index, task, view.root), step.op)
        task.pc += 1
        return True

    def _named(self, state: State, index: int, task: Task, step: c.Named) -> bool:
        barrier = state.named.get(step.number)
        if barrier is None:
            barrier = state.named[step.number] = NamedBarrier(step.threads, step.op)
        stream = self.buffers.stream(("named", step.number))
        if task.named is None:
            self._arrive_named(index, task, step, barrier, stream)
            if step.waits:
                task.named = (step.number, barrier.completions)
            if barrier.arrived == barrier.threads:
                barrier.completions += 1
                self.signalled = True
                barrier.done_known = {**barrier.known, stream: barrier.completions}
                barrier.done_visible = barrier.visible
                barrier.known, barrier.visible, barrier.arrived = {}, {}, 0
        if step.waits:
            assert task.named is not None
            if barrier.completions == task.named[1]:
                return False
            task.known = joined(task.known, barrier.done_known)
            task.visible = joined(task.visible, barrier.done_visible)
            task.named = None
        task.pc += 1
        return True

    def _arrive_named(self, index: int, task: Task, step: c.Named, barrier: NamedBarrier, stream: int) -> None:
        name = f"named barrier {step.number}"
        if barrier.threads != step.threads:
            message = f"{name} is used for {step.threads} threads here and for {barrier.threads} elsewhere"
            raise Found(Finding("error", "named-barrier", message, step.op.location, (("elsewhere", barrier.op.location),)))
        if task.known.get(stream, 0) < barrier.completions:
            message = f"{self.names.task(index)} may arrive on {name} before the threads of its last use have left it"
            raise Found(Finding("error", "named-barrier", message, step.op.location, note="use another number"))
        barrier.known = joined(barrier.known, task.known)
        barrier.visible = joined(barrier.visible, task.visible)
        barrier.arrived += 32 * self.program.codes[index].warps
        if barrier.arrived > barrier.threads:
            message = f"more than {barrier.threads} threads arrive on {name}"
            raise Found(Finding("error", "named-barrier", message, step.op.location))

    # ---- memory: see buffers.py

    def _fence(self, state: State, index: int, task: Task, step: c.Fence) -> bool:
        task.visible = task.known
        task.pc += 1
        return True

    def _touch(self, state: State, index: int, task: Task, step: c.Step) -> bool:
        self.buffers.touch(state, index, task, step)
        task.pc += 1
        return True


def _shorter(view: c.View) -> c.View:
    """A barrier may be named with or without its last index, which is 0."""
    if view.path and view.path[-1] == 0:
        return c.View(view.root, view.path[:-1])
    return c.View(view.root, (*view.path, 0))


_SCALAR = {
    c.Compute: Engine._compute,
    c.Constant: Engine._constant,
    c.Move: Engine._move,
    c.Part: Engine._part,
    c.Jump: Engine._jump,
    c.Enter: Engine._enter,
    c.Next: Engine._next,
    c.Leave: Engine._leave,
}
_EVENTS = {
    c.Index: Engine._index,
    c.Select: Engine._select,
    c.Decide: Engine._decide,
    c.Branch: Engine._branch,
    c.Head: Engine._head,
    c.Fork: Engine._fork,
    c.Join: Engine._join,
    c.Done: Engine._done,
    c.Stuck: Engine._stuck,
    c.Init: Engine._init,
    c.Invalidate: Engine._invalidate,
    c.Expect: Engine._expect,
    c.Arrive: Engine._arrive,
    c.Copy: Engine._copy,
    c.ArriveElements: Engine._arrive_elements,
    c.Wait: Engine._wait,
    c.Named: Engine._named,
    c.Fence: Engine._fence,
    **dict.fromkeys(
        (c.Allocate, c.Access, c.StoreTile, c.WaitStores, c.CopyElements, c.CommitElements, c.WaitElements, c.Dot,
         c.WaitDots, c.Use),
        Engine._touch,
    ),
}  # fmt: skip
