"""One program of the grid: its tasks, its shared memory, and what goes on beside the tasks.

Tasks are generators. One runs until it gives others a turn (yields None) or has to wait (yields a `Wait`); then the
schedule says who is next: a task that can go on, or an effect that can happen. Only one thing happens at a time, so
every run is one interleaving, and the choices made are all it takes to repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from wspec.diagnostics import place_text
from wspec.execute.asynchrony import Copy, Dot, Store
from wspec.execute.barrier import NamedBarrier
from wspec.execute.context import Context
from wspec.execute.effects import Effect
from wspec.execute.errors import ExecutionError
from wspec.execute.races import Known, Party, Races, SharedRaces
from wspec.execute.schedule import Actor, Chooser
from wspec.execute.shared import Buffer, View
from wspec.ir.core import Operation
from wspec.ir.loc import UNKNOWN, Location

Item = Any
"""A value: a tensor, a Python int, a `Descriptor`, a `View` of shared memory, a `Dot` nobody waited for, or None for a
token."""

THREADS_PER_WARP = 32


@dataclass(frozen=True, slots=True)
class Limits:
    """When to give a program up."""

    operations: int = 20_000_000  # executed by all tasks of one program of the grid


@dataclass(frozen=True, slots=True)
class Rules:
    """How strict to be.

    strict: what no correct kernel does is an error; without it readers get poison and the fault is noted.
    implied_fences: Triton's fence insertion pass has not run yet; the fences it puts before dots are assumed.
    """

    strict: bool = True
    implied_fences: bool = True
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Wait:
    """What a task waits for, and what to say of it when it never comes."""

    op: Operation
    ready: Callable[[], bool]
    describe: Callable[[], str]


Steps = Generator[Wait | None, None, None]


@dataclass(eq=False, slots=True)
class Task:
    """One of the concurrent processes of a program: the function's body and the default region, or a partition."""

    machine: Machine
    index: int
    name: str
    warps: int
    frame: list[Item]
    number: int = 0  # among all tasks of the program so far, from 1
    known: Known = field(default_factory=dict)  # of whom it comes after what (races.py)
    issued: int = 0  # copies and stores so far
    steps: Steps | None = None
    wait: Wait | None = None
    dots: list[Dot] = field(default_factory=list)  # issued, and no wait has covered them yet
    stores: list[Store] = field(default_factory=list)  # likewise; each is a group of its own
    copies: list[Copy] = field(default_factory=list)  # cp.async since the last commit
    groups: list[list[Copy]] = field(default_factory=list)  # committed, and no wait has covered them yet
    written: dict[View, Operation] = field(default_factory=dict)  # by ordinary stores since the last fence
    read: dict[View, Operation] = field(default_factory=dict)  # by ordinary loads since the last fence

    is_task = True
    site = -1

    @property
    def threads(self) -> int:
        return THREADS_PER_WARP * self.warps

    @property
    def context(self) -> Context:
        return self.machine.context

    @property
    def title(self) -> str:
        return self.name or "the kernel"

    def site_of(self, op: Operation) -> int:
        """The number of the operation in the program; -1 for one that is not numbered."""
        return self.machine.sites.get(op, -1)

    def can_go_on(self) -> bool:
        return self.wait is None or self.wait.ready()

    def error(self, message: str, op: Operation, note: str = "") -> ExecutionError:
        return ExecutionError(message, op.location, self.name, note)

    def fault(self, message: str, op: Operation, note: str = "") -> None:
        """What no correct kernel does: an error, or noted if the run is not strict."""
        error = self.error(message, op, note)
        if self.machine.rules.strict:
            raise error
        self.machine.faults.append(error)

    def issue(self, effect: Effect) -> None:
        self.issued += 1
        effect.number = self.issued
        effect.known = {**self.tell(), -self.number: self.issued}
        self.machine.effects.append(effect)

    def tell(self) -> Known:
        """What those know who learn of this moment."""
        told = dict(self.known)
        self.known[self.number] = told[self.number] + 1
        return told

    def touches(self, op: Operation) -> None:
        """It is about to touch global memory."""
        if self.machine.races is not None:
            self.machine.races.party = self.party(op)

    def party(self, op: Operation) -> Party:
        """It, at this moment."""
        return Party(self.number, self.known[self.number], self.known, self, op)

    def fence(self, view: View | None = None) -> None:
        """What it wrote and read by ordinary instructions so far, or of it what overlaps the view, is fenced."""
        for seen in (self.written, self.read):
            for other in [other for other in seen if view is None or other.overlaps(view)]:
                del seen[other]

    def tensor(self, slot: int, op: Operation) -> Item:
        """The tensor in a slot, for an operation that reads it. A fault if it is a dot's that nobody waited for."""
        item = self.frame[slot]
        if type(item) is not Dot:
            return item
        text = "reads the result of an asynchronous dot that no wait has covered (ttng.warp_group_dot_wait)"
        where = place_text(item.op.location)
        self.fault(f"{op.name} {text}", op, note=f"the dot is at {where}" if where else "")
        return item.poison()


class Machine:
    """One program of the grid while it runs."""

    def __init__(self, context: Context, rules: Rules, chooser: Chooser, sites: dict[Operation, int]) -> None:
        self.context = context
        self.sites = sites  # of the module's copies into shared memory, numbered
        self.rules = rules
        self.chooser = chooser
        self.tasks: list[Task] = []  # that have not ended
        self.everyone: list[Task] = []  # those that have ended too
        self.effects: list[Effect] = []  # that have not happened, oldest first
        self.allocated: dict[Operation, View] = {}
        self.placed: list[Buffer] = []  # what has a place that Triton gave it: they may lie over each other
        self.named: dict[int, NamedBarrier] = {}
        self.choices: list[int] = []
        self.faults: list[ExecutionError] = []
        self.first_named = 0  # hardware barriers below are Triton's
        self.races: Races | None = None  # of a kernel of several tasks, on global memory
        self.shared_races: SharedRaces[View] | None = None  # and on shared memory
        self.operations = 0
        self.left = rules.limits.operations

    # ---- running

    def run(self, task: Task) -> None:
        """Everything, from the first task on. Raises ExecutionError."""
        self.start(task)
        last = task
        while self.tasks:
            actors = self._actors(last)
            if not actors:
                raise self._deadlock()
            actor = actors[0]
            if len(actors) > 1:
                choice = self.chooser(actors)
                self.choices.append(choice)
                actor = actors[choice]
            if isinstance(actor, Task):
                last = actor
                self._resume(actor)
            else:
                assert isinstance(actor, Effect)
                self.happen(actor)
        self._check_end()

    def start(self, task: Task) -> None:
        """From now on it can go on."""
        self.tasks.append(task)
        self.everyone.append(task)
        task.number = len(self.everyone)
        task.known[task.number] = 1

    def _actors(self, last: Task) -> list[Actor]:
        """Who can go on: the task that went last first, so that choice 0 means to stay with it."""
        found: list[Actor] = [task for task in self.tasks if task is not last and task.can_go_on()]
        if last.can_go_on() and last in self.tasks:
            found.insert(0, last)
        found += [effect for effect in self.effects if effect.can_happen()]
        return found

    def _resume(self, task: Task) -> None:
        assert task.steps is not None
        task.wait = None
        try:
            task.wait = next(task.steps)
        except StopIteration:
            self._check_task(task)
            self.tasks.remove(task)
        except ExecutionError as error:
            raise error.placed(UNKNOWN, task.name) from error.__cause__

    def happen(self, effect: Effect) -> None:
        """Let an effect happen now."""
        self.effects.remove(effect)
        if self.races is not None:
            owner = self.everyone[0] if not isinstance(effect.task, Task) else effect.task
            self.races.party = Party(-owner.number, effect.number, effect.known, owner, effect.op)
        try:
            effect.happen()
        except ExecutionError as error:
            raise error.placed(effect.op.location, effect.task.name) from error.__cause__

    def place(self, buffer: Buffer, offset: int) -> None:
        """Put a buffer where Triton has put it, in bytes."""
        buffer.base_bytes, buffer.group = offset, self.placed
        self.placed.append(buffer)

    def spend(self, operations: int) -> None:
        """Count operations. Raises ExecutionError past the limit."""
        self.operations += operations
        if self.operations > self.left:
            raise ExecutionError(
                f"more than {self.left} operations in one program of the grid: a loop that does not end?",
                note="raise Limits.operations if it is to run this long",
            )

    # ---- endings

    def _deadlock(self) -> ExecutionError:
        """Nobody can go on: what each task waits for."""
        stuck: list[str] = []
        location: Location = UNKNOWN
        for task in reversed(self.tasks):  # the default region, which may only wait for the others to end, comes last
            assert task.wait is not None
            location = task.wait.op.location if location == UNKNOWN else location
            place = place_text(task.wait.op.location)
            where = f", at {place}" if place else ""
            stuck.append(f"{task.title} waits for {task.wait.describe()}{where}")
        return ExecutionError("deadlock: no task can go on; " + "; ".join(stuck), location)

    def _check_task(self, task: Task) -> None:
        """A task must not end with something under way that only it can wait for."""
        for effect in (*task.dots, *task.stores):
            task.fault(f"the task ends while {effect.what} is under way that it never waited for", effect.op)

    def _check_end(self) -> None:
        """When all tasks have ended nothing is on its way, and no barrier counts bytes."""
        for effect in self.effects:
            effect.task.fault(f"the program ends while {effect.what} is on its way", effect.op)
        if self.effects:
            return
        for op, view in self.allocated.items():
            for barrier in view.buffer.barriers.values():
                if barrier.bytes:
                    text = f"at the end of the program a barrier is {barrier}"
                    self.everyone[0].fault(text, op)
