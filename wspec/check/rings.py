"""Rings that can be turned: states that differ only in where they stand in a ring behave alike.

A ring of d buffers with its barriers is gone through by positions: pairs of a slot below d and a phase bit, which count
by 2d together. If all that the tasks may still do with the ring and with their positions in it is to step on, to take
the buffer or the barrier at a position and to wait for its phase, then a state in which every position is one further,
every buffer and barrier has moved on by a slot and a barrier that goes round has the other parity does the same as
before, one further. So the normal form turns every such ring until the first position stands at its start.

What is needed of each step is shown on its code, per group of rings that share positions: a step that does anything
else with them (it begins a ring anew, say, or branches on a slot) *holds* the group, and a group is turned only in
states from which no task can reach a step that holds it.
"""

from __future__ import annotations

from collections import Counter

from wspec.check import code as c
from wspec.check.names import Names
from wspec.check.positions import Positions, Standing
from wspec.check.state import State, Task

Key = tuple[int, tuple[int, ...], tuple[tuple[int, int], ...], bool, int]  # a view, in a form that can be sorted


class Rings:
    """The groups of rings of a program."""

    def __init__(self, program: c.Program, names: Names) -> None:
        positions = Positions(program, names)
        self.depths, self.group_of = positions.depths, positions.group_of
        self.again = any(
            op.name in ("scf.for", "scf.while")
            for code in program.codes
            for step in code.steps
            if isinstance(step, c.Fork)
            for op in step.op.ancestors()
        )
        self._keys: dict[tuple[c.View, int], Key] = {}
        self._held, self._standing = positions.held, positions.standing

    def turn(self, state: State) -> Turn:
        """How far each group is turned: until the first position of a task stands at its start."""
        if not self.depths:
            return Turn(self, ())
        held, found = 0, [0] * len(self.depths)
        first: dict[int, tuple[int, Standing]] = {}
        for index, task in enumerate(state.tasks):
            if task.done and not self.again:
                continue
            started = task.active and not task.done
            at = task.pc if started else 0
            held |= self._held[index][at]
            if started:
                for standing in self._standing[index][at]:
                    if not _is_sound(task, standing, self.depths[standing.group]):
                        held |= 1 << standing.group
                    elif standing.phases:
                        first.setdefault(standing.group, (index, standing))
        for group, (index, standing) in first.items():
            depth = self.depths[group]
            if not held >> group & 1 and (depth == 1 or self._is_whole(state, group)):
                found[group] = -_position(state.tasks[index], standing, depth) % (2 * depth)
        return Turn(self, tuple(found))

    def _is_whole(self, state: State, group: int) -> bool:
        """Are the barriers of a group there, each under its slot?"""
        views = [view for view in state.barriers if self.group_of.get(view.root) == group]
        counts = Counter(view.root for view in views)
        return all(len(view.path) == 1 for view in views) and set(counts.values()) <= {self.depths[group]}

    def registers(self, index: int, task: Task, by: tuple[int, ...]) -> dict[int, int]:
        """The registers of a task that turn with a ring, as they are afterwards."""
        found: dict[int, int] = {}
        for standing in self._standing[index][task.pc]:
            if turn := by[standing.group]:
                depth = self.depths[standing.group]
                for register in standing.slots:
                    slot = task.registers[register]
                    assert isinstance(slot, int)
                    found[register] = (slot + turn) % depth
                if standing.phases:
                    phase = (_position(task, standing, depth) + turn) // depth % 2
                    found.update(dict.fromkeys(standing.phases, phase))
        return found

    def key(self, view: c.View, turn: int) -> Key:
        """A view of a ring that is turned."""
        found = self._keys.get((view, turn))
        if found is None:
            path = view.path
            offset = -1 if view.offset is None else view.offset
            if turn and path:
                path = ((path[0] + turn) % self.depths[self.group_of[view.root]], *path[1:])
            found = self._keys[view, turn] = (view.root, path, view.box, view.whole, offset)
        return found


class Turn:
    """How far the rings are turned in one state."""

    def __init__(self, rings: Rings, by: tuple[int, ...]) -> None:
        self.rings, self.by = rings, by
        self._group_of, self._any = rings.group_of, any(by)

    def registers(self, index: int, task: Task) -> dict[int, int]:
        return self.rings.registers(index, task, self.by) if self._any else {}

    def key(self, view: c.View) -> Key:
        return self.rings.key(view, self._of(view.root))

    def parity(self, view: c.View, completions: int) -> int:
        """The phase that a barrier is in afterwards."""
        turn = self._of(view.root)
        if not turn:
            return completions % 2
        depth = self.rings.depths[self._group_of[view.root]]
        slot = view.path[0] if depth > 1 else 0
        return (completions + (slot + turn) // depth) % 2

    def _of(self, root: int) -> int:
        if not self._any:
            return 0
        group = self._group_of.get(root)
        return self.by[group] if group is not None else 0


def _position(task: Task, standing: Standing, depth: int) -> int:
    slot = task.registers[standing.slots[0]] if standing.slots else 0
    phase = task.registers[standing.phases[0]]
    assert isinstance(slot, int) and isinstance(phase, int)
    return phase * depth + slot


def _is_sound(task: Task, standing: Standing, depth: int) -> bool:
    """Do registers hold what they should?"""
    slots = {task.registers[register] for register in standing.slots}
    phases = {task.registers[register] for register in standing.phases}
    if len(slots) > 1 or len(phases) > 1:
        return False
    return all(isinstance(slot, int) and 0 <= slot < depth for slot in slots) and phases <= {0, 1}
