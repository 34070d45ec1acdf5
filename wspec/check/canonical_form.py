"""The normal form of a state: after equal forms the same can follow."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from wspec.check import code as c
from wspec.check.clock import timed
from wspec.check.conditions import FAR, Extent
from wspec.check.engine import Engine
from wspec.check.future_uses import Ahead, Reach
from wspec.check.happens_before import Bits, Lacks, Past
from wspec.check.liveness import live_registers
from wspec.check.rings import Rings, Turn
from wspec.check.state import Barrier, State, Task
from wspec.ir.core import Operation, Value

Path = tuple[int, ...]
NOBODY = FAR
MAX_VALUES = 48  # that a register may take


class Grows(Exception):
    """A value takes more and more values: the search would not end unless it is taken for unknown."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value


class Normal:
    """Computes normal forms for one program. `twice`: see `Past`."""

    def __init__(self, engine: Engine, twice: bool = False) -> None:
        self.engine, self.extents, self.twice = engine, engine.extents, twice
        self.codes = engine.program.codes
        self._values: dict[tuple[int, int], set[int]] = {}
        self._bits = Bits()
        self.rings = Rings(engine.program, engine.names)
        self.again = self.rings.again
        same = {number: one.number for number, one in engine.same.items()}
        self.reach = Reach(engine.program, engine.names, engine.memory, self.again, self.extents.chain_of_choice, same)
        self.users = any(isinstance(step, c.Invalidate) for code in self.codes for step in code.steps)
        self.few = [[loop for loop in code.loops if loop.extent is None] for code in self.codes]  # counted one by one
        self.live = [live_registers(code) for code in self.codes]
        self.spaces = self.extents.terms.spaces
        # per extent: the lowest threshold asked inside loops, relative to the iteration
        places = self.extents.places.items()
        self.margin = {number: min(-self.extents.whole(loop) for loop in loops) for number, loops in places}
        self.about = {number: list(loops) for number, loops in places}  # extent -> the loops that ask for it
        for (number, loop), above in self.extents.inside.items():
            self.about[number] += [loop] if loop not in self.about[number] else []
            self.margin[number] = min(self.margin[number], above)

    def form(self, state: State) -> tuple[Hashable, Lacks, Past]:
        """The form without what is known of the past; what is not known of it; and the past itself."""
        turn = self.rings.turn(state)
        ahead = self.reach.of(state)
        past = Past(self.engine, state, self.users, turn, self._bits, ahead, self.twice)
        lacks = past.form()
        bases: dict[tuple[int, Path], int] = {}
        shape = (
            tuple(self._task(state, index, task, bases, turn) for index, task in enumerate(state.tasks)),
            tuple(
                (key, _barrier(barrier, turn.parity(view, barrier.completions))) for key, view, barrier in past.barriers
            ),
            tuple((number, barrier.arrived) for number, barrier in sorted(state.named.items())),
            self._extents(state, bases),
            self._choices(state, bases, ahead),
        )
        return shape, lacks, past

    def _task(self, state: State, index: int, task: Task, bases: dict[tuple[int, Path], int], turn: Turn) -> Hashable:
        if not task.active or task.done:
            return (task.active, task.done)
        moduli = self.codes[index].moduli
        floor, turned, held = self.engine.program.floor, turn.registers(index, task), task.registers
        registers: list[Hashable] = []
        for register in self.live[index][task.pc]:
            content: Any = turned[register] if register in turned else held[register]
            if not isinstance(content, int) or content >= floor:
                content = _content(content, moduli[register], floor, task, turn)
            registers.append(content)
            if isinstance(content, int) and not -1 <= content <= 1:
                self._note(index, register, content)
        running = task.dots > task.dots_done
        passing = tuple(turn.key(view) for _, _, view in task.passing), tuple(sorted(task.touched))
        return (
            task.pc,
            tuple(registers),
            self._relative(state, index, bases),
            task.named and task.named[0],
            running,
            passing,
        )

    def _note(self, index: int, register: int, content: int) -> None:
        values = self._values.setdefault((index, register), set())
        values.add(content)
        if len(values) > MAX_VALUES:
            raise Grows(self.codes[index].values[register])

    # ---- iterations

    def _relative(self, state: State, index: int, bases: dict[tuple[int, Path], int]) -> Hashable:
        """The iterations a task is in, relative to the others; those that are asked for by number, themselves."""
        task = state.tasks[index]
        found: list[tuple[int, int, int | None]] = []
        path: Path = ()
        for space, k in task.loops:
            highest = self.extents.counted.get(space)
            number = None if highest is None else min(k, highest + 1)
            if any(one.space == space and one.first <= task.pc < one.last for one in self.few[index]):
                number = k
            found.append((space, k - self._base(state, space, path, bases), number))
            path = (*path, k)
        return tuple(found)

    def _base(self, state: State, space: int, path: Path, bases: dict[tuple[int, Path], int]) -> int:
        """The iteration of the task furthest behind in loops over `space`, inside the iterations `path` around it."""
        key = (space, path)
        if key not in bases:
            standing = (self._standing(index, task, space, path) for index, task in enumerate(state.tasks))
            bases[key] = min((position for position in standing if position != NOBODY), default=0)
        return bases[key]

    def _at(self, state: State, loop: Operation, path: Path) -> int:
        """Where the task of a loop stands in it."""
        for index, code in enumerate(self.codes):
            for one in code.loops:
                if one.op is loop:
                    return self._in_loop(state.tasks[index], one, path)[0]
        return NOBODY

    def _standing(self, index: int, task: Task, space: int, path: Path) -> int:
        """Where a task stands in loops over `space`: 0 before them, NOBODY behind them or without any."""
        found = [self._in_loop(task, one, path) for one in self.codes[index].loops if one.space == space]
        inside = [k for k, within in found if within]
        return min(inside) if inside else min((k for k, _ in found), default=NOBODY)

    def _in_loop(self, task: Task, loop: c.Loop, path: Path) -> tuple[int, bool]:
        """(iteration, whether inside) of a task in one loop, in the instance that `path` names."""
        if task.done:
            return (0, False) if self.again else (NOBODY, False)
        if not task.active or task.pc < 0:
            return 0, False
        chain = self.spaces[loop.space].chain
        around = task.loops[: len(chain)]
        here = tuple(k for _, k in around)
        if tuple(space for space, _ in around) == chain and here[: len(path)] != path:
            return (0, False) if here < path else (NOBODY, False)
        if len(path) < len(chain):  # it begins again in every iteration around it
            return (0, False) if task.pc < loop.last or around else (NOBODY, False)
        if loop.first <= task.pc < loop.last and len(task.loops) > len(chain):
            return task.loops[len(chain)][1], True
        return (0, False) if task.pc < loop.first else (NOBODY, False)

    def _extents(self, state: State, bases: dict[tuple[int, Path], int]) -> Hashable:
        found = []
        for (number, path), (low, high) in timed(list(state.extents.items())):
            if self._passed(state, self.extents.extents[number].chain, path):
                del state.extents[number, path]
                continue
            form = self._extent(state, self.extents.extents[number], path, low, high, bases)
            if form is not None:
                found.append((number, self._path(state, self.extents.extents[number].chain, path, bases), form))
        return frozenset(found)

    def _extent(
        self, state: State, extent: Extent, path: Path, low: int, high: int, bases: dict[tuple[int, Path], int]
    ) -> Hashable | None:
        """What may still be asked of an extent, or handed on to later loops of its kind: nothing from its cap on."""
        cap = self.extents.cap(extent.number)
        standing = self._askers(state, extent.number, path)
        if not standing:
            outside = self.extents.thresholds.get(extent.number, set())
            inherited = self._inherited(state, extent, path)
            if not outside and not inherited:
                return None
            lowest = -FAR if inherited else min(outside)
            return ("past", min(max(low, lowest), cap), max(min(high, cap), lowest))
        base = min(standing) + self.margin[extent.number]
        if low >= cap:
            spaces = {self.extents.terms.space(loop).number for loop in self.about[extent.number]}
            shifts = tuple(sorted((s, self._base(state, s, path, bases) - base) for s in spaces))
            return ("far", max(low - base, 0), high - base if high < FAR else FAR, shifts)
        return ("near", low, high, base)

    def _askers(self, state: State, number: int, path: Path) -> list[int]:
        """Where the tasks stand that may ask for an extent in a loop."""
        return [k for loop in self.about[number] if (k := self._at(state, loop, path)) != NOBODY]

    def _inherited(self, state: State, extent: Extent, path: Path) -> bool:
        """May an extent of the same kind of which nothing is known yet be asked for?"""
        return any(
            (other, path) not in state.extents
            and (self.extents.thresholds.get(other) or self._askers(state, other, path))
            for other in self.extents.siblings[extent.kind]
        )

    # ---- choices

    def _choices(self, state: State, bases: dict[tuple[int, Path], int], ahead: Ahead) -> Hashable:
        found = []
        for (number, path), value in timed(list(state.choices.items())):
            chain = self.extents.chain_of_choice[number]
            if not any(self._may_ask(state, index, number, chain, path) for index in ahead.askers(number)):
                del state.choices[number, path]
                continue
            found.append((number, self._path(state, chain, path, bases), value))
        return frozenset(found)

    def _may_ask(self, state: State, index: int, choice: int, chain: tuple[int, ...], path: Path) -> bool:
        """May a task, which asks for a choice, do so at the iterations `path`?"""
        task = state.tasks[index]
        if not path:
            return True
        known = len(path) == len(chain)  # of which iterations of each loop it is
        if known and task.active and not task.done and task.loops[: len(chain)] == tuple(zip(chain, path, strict=True)):
            return self.again or self.reach.soon(index, task, choice, chain)
        return not self._beyond(index, task, chain, path)

    def _path(self, state: State, chain: tuple[int, ...], path: Path, bases: dict[tuple[int, Path], int]) -> Path:
        return tuple(
            k - self._base(state, space, path[:depth], bases)
            for depth, (space, k) in enumerate(zip(chain, path, strict=False))
        )

    def _passed(self, state: State, chain: tuple[int, ...], path: Path) -> bool:
        """Is every task beyond the iterations `path` of the loops `chain`?"""
        if not path:
            return False
        return all(self._beyond(index, task, chain, path) for index, task in enumerate(state.tasks))

    def _beyond(self, index: int, task: Task, chain: tuple[int, ...], path: Path) -> bool:
        for depth, space in enumerate(chain[: len(path)]):
            position = self._standing(index, task, space, path[:depth])
            if position != path[depth]:
                return position > path[depth]
            inside = any(
                self._in_loop(task, one, path[:depth])[1] for one in self.codes[index].loops if one.space == space
            )
            if not inside:
                return False
        return False


def _barrier(barrier: Barrier, parity: int) -> Hashable:
    loose = tuple(task for task, _ in barrier.loose)
    return barrier.count, barrier.arrived, barrier.bytes, barrier.live, parity, loose


def _content(value: c.Content, modulus: int, floor: int, task: Task, turn: Turn) -> Hashable:
    if isinstance(value, int):
        return value if modulus == 0 or value < floor else (value % modulus, modulus)
    if isinstance(value, c.Running):
        return ("running", task.dots - value.epoch) if value.epoch > task.dots_done else "complete"
    return turn.key(value) if isinstance(value, c.View) else value
