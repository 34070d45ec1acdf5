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

import math
import time
from collections.abc import Callable
from typing import Any

from wspec.check import code as c
from wspec.check import registers
from wspec.check.barriers import Barriers
from wspec.check.buffers import Buffers
from wspec.check.conditions import (
    FAR,
    Always,
    Both,
    Choice,
    Condition,
    Divergent,
    Either,
    Extents,
    Not,
    Reached,
    Threshold,
)
from wspec.check.findings import Finding, Found
from wspec.check.memory import Memory
from wspec.check.names import Names
from wspec.check.same_choices import same_choices
from wspec.check.state import Interval, State, Task, joined
from wspec.check.witness import Asked
from wspec.ir.core import Operation

Progress = tuple[int, ...]  # iterations of the loops a task is in


class NeedsChoice(Exception):
    """A condition that nothing has decided yet."""

    def __init__(self, condition: Threshold | Choice, key: tuple[int, tuple[int, ...]], at: int, op: Operation) -> None:
        super().__init__(condition)
        self.condition, self.key, self.at, self.op = condition, key, at, op


class TimeIsOver(Exception):
    """The search has taken as long as it may; where it was."""

    def __init__(self, op: Operation) -> None:
        super().__init__(op)
        self.op = op


STEPS_BETWEEN_LOOKS = 500  # at the clock: a millisecond or two


class Engine:
    """The semantics of the steps."""

    def __init__(self, program: c.Program, names: Names, extents: Extents) -> None:
        self.program, self.names, self.extents = program, names, extents
        self.same = same_choices(extents)
        self.memory = Memory(program, names)
        self.buffers = Buffers(names, self.memory)
        self.barriers = Barriers(names, self.buffers, [code.warps for code in program.codes])
        self.events = 0
        self.deadline = math.inf  # of time.thread_time()
        self._steps = 0
        # Those who fill buffers come last: the less they run ahead, the fewer states there are.
        fills = [any(isinstance(step, c.Copy | c.CopyElements) for step in code.steps) for code in program.codes]
        self.order = sorted(range(len(fills)), key=lambda index: (fills[index], index))
        self._control: dict[type[c.Step], Callable[[State, int, Task, Any], bool]] = {
            c.Index: self._index,
            c.Select: self._select,
            c.Decide: self._decide,
            c.Branch: self._branch,
            c.Head: self._head,
            c.Fork: self._fork,
            c.Join: self._join,
            c.Done: self._done,
            c.Stuck: self._stuck,
        }

    def start(self) -> State:
        tasks = [Task(registers=[None] * code.registers) for code in self.program.codes]
        tasks[0].active = True
        return State(tasks)

    # ---- running

    def run(self, state: State) -> None:
        """Run until all is done. Raises Found or NeedsChoice; the task that needs a choice has not taken its step.

        Raises TimeIsOver when that is so.
        """
        while not state.tasks[0].done:
            needs: list[tuple[Progress, NeedsChoice]] = []
            if any(self._runs(state, index, needs) for index in self.order):
                continue
            if not needs:
                raise Found(self.names.deadlock(state, self.memory.barrier))
            raise min(needs, key=lambda pair: pair[0])[1]

    def _runs(self, state: State, index: int, needs: list[tuple[Progress, NeedsChoice]]) -> bool:
        """Run a task until it has to wait, needs a choice, or has let another one go on; False when it cannot move.

        A choice is put off until nobody can move without one, and then made for the task that is furthest behind.
        """
        task = state.tasks[index]
        moved, self.barriers.completed = False, False
        try:
            while task.active and not task.done and not self.barriers.completed and self._step(state, index, task):
                moved = True
        except NeedsChoice as need:
            needs.append((tuple(k for _, k in task.loops), need))
        return moved

    def _step(self, state: State, index: int, task: Task) -> bool:
        """One step; False when the task has to wait."""
        step = self.program.codes[index].steps[task.pc]
        self._steps += 1
        if self._steps % STEPS_BETWEEN_LOOKS == 0 and time.thread_time() > self.deadline:
            raise TimeIsOver(step.op)
        own = registers.STEPS.get(type(step))
        if own is not None:
            own(task, step)
            return True
        self.events += 1
        control = self._control.get(type(step))
        if control is not None:
            return control(state, index, task, step)
        if isinstance(step, c.Barriered) and step.predicate is not None:
            wanted = step.predicate
            if not self._holds(state, task, wanted.register, wanted.condition, step.op):
                task.pc += 1
                return True
        barrier = self.barriers.steps.get(type(step))
        if barrier is None:
            self.buffers.touch(state, index, task, step)
        elif not barrier(state, index, task, step):
            return False
        task.pc += 1
        return True

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
            case Divergent():
                message = "which way this goes differs from thread to thread"
                raise Found(Finding("undecided", "unknown-control-flow", message, op.location))
            case Reached(space=space, above=above):
                return next(k for one, k in task.loops if one == space) > above
        key = self._of_choice(task, condition)
        known = state.choices.get(key)
        if known is None:
            raise NeedsChoice(condition, key, 0, op)
        return known

    def _of_choice(self, task: Task, asked: Choice) -> tuple[int, tuple[int, ...]]:
        """Its number, and the iterations that it is about."""
        number, chain = asked.number, asked.chain
        same = self.same.get(number)
        if same is not None:
            whole = self.extents.chain_of_choice[same.number]
            around = whole if same.is_further else whole[:-1]
            inside = tuple(space for space, _ in task.loops)
            if inside[: len(around)] == around and (same.is_further or len(inside) == len(around)):
                path = tuple(k for _, k in task.loops[: len(around)])
                further = path[-1] + same.iteration if same.is_further else same.iteration
                return same.number, (*path[: len(whole) - 1], further)
        return number, tuple(k for _, k in task.loops[: len(chain)])

    def _above(self, state: State, task: Task, asked: Threshold, op: Operation) -> bool:
        depth = len(self.extents.extents[asked.extent].chain)
        key = (asked.extent, tuple(k for _, k in task.loops[:depth]))
        at = asked.above
        if asked.space is not None:
            at += next(k for space, k in task.loops if space == asked.space)
        low, high = self._interval(state, asked.extent, key[1])
        if low > -FAR or high < FAR:
            state.extents[key] = (low, high)  # what is known from the start belongs to the state too
        if low > at:
            return True
        if high <= at:
            return False
        raise NeedsChoice(asked, key, at, op)

    def _interval(self, state: State, number: int, path: tuple[int, ...]) -> Interval:
        """What is known of an extent."""
        found = state.extents.get((number, path))
        if found is not None:
            return found
        low, high = self.extents.initially(number) or (-FAR, FAR)
        cap = self.extents.cap(number)
        for sibling in self.extents.siblings[self.extents.extents[number].kind]:
            least, most = state.extents.get((sibling, path), (-FAR, FAR))
            low, high = max(low, min(least, cap)), min(high, most if most < cap else FAR)
        return low, high

    def decide(self, state: State, need: NeedsChoice, value: bool) -> None:
        """Settle a choice."""
        if isinstance(need.condition, Choice):
            state.choices[need.key] = value
            state.asked = (*state.asked, Asked(*need.key, None, value))
            state.doubtful |= need.condition.number in self.extents.computed
            text = "the condition holds" if value else "the condition does not hold"
        else:
            state.doubtful |= self.extents.is_vague(need.key[0])
            state.asked = (*state.asked, Asked(*need.key, need.at, value))
            low, high = self._interval(state, *need.key)
            state.extents[need.key] = (max(low, need.at + 1), high) if value else (low, min(high, need.at))
            text = "the loop goes on" if value else "the loop ends"
        state.taken = (*state.taken, (need.op, text))

    # ---- control that may need a choice

    def _index(self, state: State, index: int, task: Task, step: c.Index) -> bool:
        view, number = task.registers[step.source], task.registers[step.index]
        if not isinstance(view, c.View):
            task.registers[step.dst] = view
        elif view.whole and (not step.bytes or not isinstance(number, int)):
            unknown = c.View(view.root, view.path, (), True, None)
            task.registers[step.dst] = unknown if step.bytes else view
        elif not isinstance(number, int):
            raise Found(
                Finding(
                    "undecided",
                    "unknown-index",
                    f"which buffer of {self.names.view(view)} this is cannot be followed",
                    step.op.location,
                )
            )
        elif not 0 <= number < step.count:
            message = (
                f"{self.names.task(index)} takes buffer {number} of {self.names.view(view)}, which has {step.count}"
            )
            raise Found(
                Finding(
                    "error", "range", message, step.op.location, note="make the ring deeper or wrap the index earlier"
                )
            )
        elif view.whole:
            offset = view.offset + number * step.bytes if view.offset is not None else None
            task.registers[step.dst] = c.View(view.root, view.path, (), True, offset)
        elif view.box:
            (first, _), rest = view.box[0], view.box[1:]
            task.registers[step.dst] = c.View(view.root, (*view.path, first + number), rest)
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
        task.gather()
        for number, pairs in zip(step.tasks, step.captured, strict=True):
            other = state.tasks[number]
            other.active, other.done, other.pc, other.loops = True, False, 0, task.loops
            other.known, other.visible = joined(other.known, task.known), joined(other.visible, task.visible)
            for there, here in pairs:
                other.registers[there] = task.registers[here]
        task.pc += 1
        return True

    def _join(self, state: State, index: int, task: Task, step: c.Join) -> bool:
        if not all(state.tasks[number].done for number in step.tasks):
            return False
        task.gather()
        for number in step.tasks:
            other = state.tasks[number]
            other.active = False
            other.gather()
            task.known = joined(task.known, other.known)
            task.visible = joined(task.visible, other.visible)
        task.pc += 1
        return True

    def _done(self, state: State, index: int, task: Task, step: c.Done) -> bool:
        running = self.buffers.unfinished(state, index, task)
        if running is not None:
            raise Found(running)
        task.done = self.barriers.completed = True
        return True

    def _stuck(self, state: State, index: int, task: Task, step: c.Stuck) -> bool:
        raise Found(Finding(step.kind, step.code, step.message, step.op.location))

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
