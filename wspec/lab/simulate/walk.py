"""All actions of one thread block, with concrete numbers: trip counts, conditions, positions in rings.

Numbers do not depend on time, so a block is walked before it is played.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wspec.ir.core import Operation, Value
from wspec.ir.types import ScalarType
from wspec.lab.simulate import steps as s
from wspec.lab.simulate.actions import Action, Block, Flow, Kind, Walked
from wspec.lab.simulate.barrier_steps import coordinates
from wspec.lab.simulate.errors import SimulationError
from wspec.lab.simulate.program import Compiler, View

LIMIT = 5_000_000  # actions of one task
OUTER = 32  # rounds of a loop around others that a brief walk goes


@dataclass(frozen=True, slots=True)
class Pointer:
    """A place in an array of integers."""

    array: Sequence[int]
    at: int


Item = int | View | Pointer
Arguments = Mapping[str, int | float | Sequence[int]]
"""Integers, and arrays that integers are loaded from, by the names of the kernel's parameters."""
Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a tile comes: the way to the SM, and cycles from its end until the waiting warp goes on."""

    flow: Flow
    latency: float


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How the tiles of one load come, and how after so many of them."""

    after: Sequence[float]  # ascending, the first is 0
    ways: Sequence[Arrival]


@dataclass(slots=True)
class _Task:
    name: str
    warps: int
    actions: list[Action] = field(default_factory=list)


def _too_many(task: _Task) -> SimulationError:
    return SimulationError(f"{task.name} has more than {LIMIT} steps")


class Walker:
    """Walks blocks of one kernel."""

    def __init__(
        self,
        program: Compiler,
        arguments: Arguments,
        grid: Grid,
        brief: bool = False,
        arrivals: Mapping[Operation, Arrivals] | None = None,
    ) -> None:
        """A `brief` walk does one iteration of innermost loops, some of others, and notes which tiles are loaded, in
        how many iterations of their loop, and how often each load is made in all.

        `arrivals`: of loads, where they are not those of the program.
        """
        self.program, self.grid, self.brief, self.arrivals = program, grid, brief, arrivals or {}
        self.touched: list[tuple[Operation, tuple[Item, ...] | None, int]] = []
        self.loads: dict[Operation, float] = {}  # how many of each so far
        self.rounds = 1  # of the innermost loop that a brief walk is in
        self.times = 1.0  # that a round of a brief walk stands for
        self.made: dict[tuple[s.AtBarrier, View, int, int], Action] = {}
        self.given: dict[Value, Item] = {}
        for name, argument in program.parameters.items():
            if argument not in program.needed or name not in arguments:
                continue
            value = arguments[name]
            if isinstance(argument.type, ScalarType) and isinstance(value, int | float):
                self.given[argument] = int(value)
            elif isinstance(value, Sequence):
                self.given[argument] = Pointer(value, 0)
        self.env: dict[Value, Item] = {}
        self.program_id = (0, 0, 0)
        self.tasks: list[_Task] = []

    def block(self, program_id: Grid) -> Block:
        """The actions of one block. Raises SimulationError."""
        self.env, self.program_id = dict(self.given), program_id
        self.touched = []
        self.loads.clear()
        main = self.program.main
        self.tasks = [_Task(main.name, main.warps)]
        self._run(main.steps, self.tasks[0])
        return Block(tuple(Walked(task.name, task.warps, tuple(task.actions)) for task in self.tasks))

    def _run(self, steps: list[s.Step], task: _Task) -> None:
        env, actions = self.env, task.actions
        if len(actions) > LIMIT:
            raise _too_many(task)
        for step in steps:
            match step:
                case s.Compute():
                    try:
                        env[step.target] = step.function(*[env[value] for value in step.operands])
                    except (KeyError, TypeError):
                        env.pop(step.target, None)
                case s.Emit():
                    actions.extend(step.actions)
                case s.AtBarrier():
                    self._at_barrier(step, actions)
                case s.Index():
                    self._index(step)
                case s.For():
                    self._for(step, task)
                case s.If():
                    arm = 0 if self._number(step.op.operands[0], step.op) else 1
                    self._run(step.arms[arm], task)
                    self._move(step.results[arm])
                case s.Program():
                    env[step.target] = (self.grid if step.count else self.program_id)[step.axis]
                case s.Root():
                    env[step.target] = (step.number,)
                case s.Offset():
                    at, more = env.get(step.pointer), env.get(step.more)
                    moved = (
                        Pointer(at.array, at.at + more) if isinstance(at, Pointer) and isinstance(more, int) else None
                    )
                    self._set(step.target, moved)
                case s.Load():
                    at = env.get(step.pointer)
                    inside = isinstance(at, Pointer) and 0 <= at.at < len(at.array)
                    self._set(step.target, at.array[at.at] if isinstance(at, Pointer) and inside else None)
                case s.While():
                    self._while(step, task)
                case s.Specialize():
                    self._specialize(step, task)

    @property
    def missing(self) -> list[str]:
        """The names of the arguments that decide what a block does, and were not given."""
        needed = self.program.needed
        return [name for name, one in self.program.parameters.items() if one in needed and one not in self.given]

    # ---- values

    def _number(self, value: Value, op: Operation) -> int:
        found = self.env.get(value)
        if isinstance(found, int):
            return found
        note = f"give {', '.join(self.missing)}" if self.missing else "it comes from memory or from floating point"
        raise SimulationError(f"{op.name} needs a number that is not known", op.location, note)

    def _index(self, step: s.Index) -> None:
        source = self.env.get(step.source)
        at = None if step.index is None else self.env.get(step.index)
        found = source if isinstance(source, tuple) else None
        if found is not None and step.index is not None:
            found = (*found, at) if isinstance(at, int) else None
        self._set(step.target, found)

    def _move(self, pairs: list[tuple[Value, Value]]) -> None:
        """All at once."""
        for (target, _), value in zip(pairs, [self.env.get(source) for _, source in pairs], strict=True):
            self._set(target, value)

    def _set(self, target: Value, value: Item | None) -> None:
        if value is None:
            self.env.pop(target, None)
        else:
            self.env[target] = value

    # ---- control

    def _for(self, step: s.For, task: _Task) -> None:
        lower, upper, by = (self._number(value, step.op) for value in step.op.operands[:3])
        if by <= 0:
            raise SimulationError(f"the step of a loop is {by}", step.op.location)
        position = step.op.regions[0].block.args[0]
        self._move([(argument, first) for argument, first, _, _ in step.carried])
        turn = [(argument, end) for argument, _, end, _ in step.carried]
        rounds, times = range(lower, upper, by), self.times
        if self.brief:
            done = rounds[: 1 if step.innermost else OUTER]
            self.rounds = len(rounds) if step.innermost else 1
            self.times, rounds = times * len(rounds) / max(1, len(done)), done
        if len(task.actions) + len(rounds) > LIMIT:
            raise _too_many(task)
        for at in rounds:
            self.env[position] = at
            task.actions.append(step.mark)
            self._run(step.body, task)
            self._move(turn)
        self.rounds, self.times = 1, times
        self._move([(result, argument) for argument, _, _, result in step.carried])

    def _while(self, step: s.While, task: _Task) -> None:
        before, after = step.op.regions[0].block, step.op.regions[1].block
        end = before.terminator
        self._move(list(zip(before.args, step.op.operands, strict=True)))
        while True:
            self._run(step.before, task)
            self._move(list(zip([*after.args, *step.op.results], [*end.operands[1:]] * 2, strict=True)))
            if not self._number(end.operands[0], step.op):
                return
            task.actions.append(step.mark)
            self._run(step.after, task)
            self._move(list(zip(before.args, after.terminator.operands, strict=True)))

    def _specialize(self, step: s.Specialize, task: _Task) -> None:
        task.actions.append(step.fork)
        for partition in step.partitions:
            other = _Task(partition.name, partition.warps)
            self.tasks.append(other)
            self._move(partition.captured)
            self._run(partition.steps, other)
        self._run(step.default, task)
        task.actions.append(step.join)

    # ---- barriers

    def _at_barrier(self, step: s.AtBarrier, actions: list[Action]) -> None:
        if step.predicate is not None and not self._number(step.predicate, step.op):
            return
        if self.brief:
            self._touch(step)
            return
        view = self.env.get(step.barrier)
        if not isinstance(view, tuple):
            raise SimulationError(f"{step.op.name}: which barrier this is cannot be followed", step.op.location)
        number = step.number if isinstance(step.number, int) else self._number(step.number, step.op)
        arrivals, stage = self.arrivals.get(step.op), 0
        if arrivals is not None:
            count = self.loads.get(step.op, 0)
            stage, self.loads[step.op] = bisect_right(arrivals.after, count) - 1, count + 1
        key = (step, view, number, stage)
        action = self.made.get(key)
        if action is None:
            known = self.program.barriers
            barrier = known.setdefault(view, len(known))
            way = None if arrivals is None else arrivals.ways[stage]
            flow, after = (step.flow, step.after) if way is None else (way.flow, way.latency)
            action = self.made[key] = Action(
                step.kind, step.op, barrier, number, flow=flow, after=after, early=step.early
            )
        actions.append(action)

    def _touch(self, step: s.AtBarrier) -> None:
        """Note the tile of a load: its coordinates, or None where they are not known."""
        if step.kind is Kind.COPY and isinstance(step.number, int):
            found = tuple(item for value in coordinates(step.op) if (item := self.env.get(value)) is not None)
            known = len(found) == len(coordinates(step.op))
            self.touched.append((step.op, found if known else None, self.rounds))
            self.loads[step.op] = self.loads.get(step.op, 0) + self.times
