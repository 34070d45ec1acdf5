"""The steps that only concern a task's own registers and its place in its code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wspec.check import code as c
from wspec.check.scalars import kept
from wspec.check.state import Task


def _compute(task: Task, step: c.Compute) -> None:
    values = [task.registers[source] for source in step.sources]
    ready = [value for value in values if isinstance(value, int)]
    task.registers[step.dst] = kept(step.function(*ready)) if len(ready) == len(values) else None
    task.pc += 1


def _constant(task: Task, step: c.Constant) -> None:
    task.registers[step.dst] = step.value
    task.pc += 1


def _forget(task: Task, step: c.Forget) -> None:
    task.registers[step.dst] = None
    task.pc += 1


def _move(task: Task, step: c.Move) -> None:
    values = [task.registers[source] for _, source in step.pairs]
    for (target, _), value in zip(step.pairs, values, strict=True):
        task.registers[target] = value
    task.pc += 1


def _part(task: Task, step: c.Part) -> None:
    view = task.registers[step.source]
    if isinstance(view, c.View):
        if not step.kept:
            at_start = step.op.name != "ttg.memdesc_trans" and not any(start for start, _ in view.box)
            view = c.View(view.root, view.path, (), True, view.offset if at_start else None)
        elif step.box is not None and view.whole:
            if any(start for start, _ in step.box):
                view = c.View(view.root, view.path, (), True, None)
        elif step.box is not None:
            starts = [start for start, _ in view.box] or [0] * len(step.box)
            box = tuple((start + offset, size) for start, (offset, size) in zip(starts, step.box, strict=True))
            view = c.View(view.root, view.path, box)
    task.registers[step.dst] = view
    task.pc += 1


def _jump(task: Task, step: c.Jump) -> None:
    task.pc = step.target


def _enter(task: Task, step: c.Enter) -> None:
    task.loops = (*task.loops, (step.space, 0))
    if step.position is not None and step.lower is not None:
        task.registers[step.position] = task.registers[step.lower]
    task.pc += 1


def _next(task: Task, step: c.Next) -> None:
    space, k = task.loops[-1]
    task.loops = (*task.loops[:-1], (space, k + 1))
    if step.position is not None:
        position = task.registers[step.position]
        known = isinstance(position, int) and step.by is not None
        task.registers[step.position] = position + step.by if known else None  # type: ignore[operator]
    task.pc = step.target


def _leave(task: Task, step: c.Leave) -> None:
    task.loops = task.loops[:-1]
    task.pc += 1


STEPS: dict[type[c.Step], Callable[[Task, Any], None]] = {
    c.Compute: _compute,
    c.Constant: _constant,
    c.Forget: _forget,
    c.Move: _move,
    c.Part: _part,
    c.Jump: _jump,
    c.Enter: _enter,
    c.Next: _next,
    c.Leave: _leave,
}
