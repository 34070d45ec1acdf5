"""The normal form of a state: after equal forms the same can follow."""

from __future__ import annotations

from collections.abc import Hashable

from wspec.check import code as c
from wspec.check.conditions import Extent
from wspec.check.engine import Engine
from wspec.check.liveness import live_registers
from wspec.check.order import Past
from wspec.check.state import FAR, Barrier, State, Task
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
    """Computes normal forms for one program."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.extents = engine, engine.extents
        self.codes = engine.program.codes
        self._values: dict[tuple[int, int], set[int]] = {}
        forks = [step for code in self.codes for step in code.steps if isinstance(step, c.Fork)]
        self.again = any(op.name in ("scf.for", "scf.while") for fork in forks for op in fork.op.ancestors())
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

    def form(self, state: State) -> tuple[Hashable, int, Past]:
        """The form without what is known of the past, and that: as bits (more is better), and itself."""
        past = Past(self.engine, state, self.users)
        events, known = past.form()
        bases: dict[tuple[int, Path], int] = {}
        shape = (
            tuple(self._task(state, index, task, bases) for index, task in enumerate(state.tasks)),
            tuple((view, _barrier(barrier)) for view, barrier in state.barriers.items()),
            tuple((number, barrier.arrived) for number, barrier in state.named.items()),
            self._extents(state, bases),
            self._choices(state, bases),
            events,
        )
        return shape, known, past

    def _task(self, state: State, index: int, task: Task, bases: dict[tuple[int, Path], int]) -> Hashable:
        if not task.active or task.done:
            return (task.active, task.done)
        moduli = self.codes[index].moduli
        live = self.live[index][task.pc]
        floor = self.engine.program.floor
        registers = tuple(_content(task.registers[r], moduli[r], floor, task) for r in live)
        for register, content in zip(live, registers, strict=True):
            if isinstance(content, int) and content not in (-1, 0, 1):
                self._note(index, register, content)
        return (task.pc, registers, self._relative(state, index, bases), task.named and task.named[0])

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
            positions = [
                p for i, task in enumerate(state.tasks) if (p := self._standing(i, task, space, path)) != NOBODY
            ]
            bases[key] = min(positions, default=0)
        return bases[key]

    def _at(self, state: State, loop: Operation, path: Path) -> int:
        """Where the task of a loop stands in it."""
        for index, code in enumerate(self.codes):
            for one in code.loops:
                if one.op is loop:
                    return self._in_loop(state.tasks[index], one, path)[0]
        return NOBODY

    def _positions(self, state: State, space: int, path: Path) -> list[int]:
        found = (self._standing(index, task, space, path) for index, task in enumerate(state.tasks))
        return [position for position in found if position != NOBODY]

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
        for (number, path), (low, high) in list(state.extents.items()):
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
        outside = self.extents.thresholds.get(extent.number, set())
        highest = max(outside, default=-FAR)
        spaces = {self.extents.terms.space(loop).number for loop in self.about[extent.number]}
        standing = [k for loop in self.about[extent.number] if (k := self._at(state, loop, path)) != NOBODY]
        if not standing:
            if not outside:
                return None
            lowest = min(outside)
            return ("past", min(max(low, lowest), highest + 1), max(min(high, highest + 1), lowest))
        base = min(standing) + self.margin[extent.number]
        if low > highest:
            shifts = tuple(sorted((s, self._base(state, s, path, bases) - base) for s in spaces))
            return ("far", max(low - base, 0), high - base if high < FAR else FAR, shifts)
        return ("near", low, high, base)

    # ---- choices

    def _choices(self, state: State, bases: dict[tuple[int, Path], int]) -> Hashable:
        found = []
        for (number, path), value in list(state.choices.items()):
            chain = self.extents.chain_of_choice[number]
            if path and self._passed(state, chain, path):
                del state.choices[number, path]
                continue
            found.append((number, self._path(state, chain, path, bases), value))
        return frozenset(found)

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


def _barrier(barrier: Barrier) -> Hashable:
    loose = tuple(task for task, _ in barrier.loose)
    return barrier.arrived, barrier.bytes, barrier.live, min(barrier.completions, 2), barrier.completions % 2, loose


def _content(value: c.Content, modulus: int, floor: int, task: Task) -> Hashable:
    if isinstance(value, int):
        return value if modulus == 0 or value < floor else (value % modulus, modulus)
    if isinstance(value, c.Running):
        return ("running", task.dots - value.epoch) if value.epoch > task.dots_done else "complete"
    return value
