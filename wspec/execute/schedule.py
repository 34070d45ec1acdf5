"""Schedules: who goes next when several may.

Between two synchronizations of one program, the order of tasks and of asynchronous effects (a copy that lands, a dot
that reads its operands, a store that reads its tile) is the hardware's to choose. A schedule chooses for it: at random
from a seed, as unkindly as it can, or as a list of choices says that was recorded before.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Program = tuple[int, int, int]


class Actor(Protocol):
    """A task that can go on, or an effect that can happen."""

    @property
    def is_task(self) -> bool: ...

    @property
    def index(self) -> int:
        """Of the task, or of the task that the effect belongs to; the default task has 0."""
        ...

    @property
    def site(self) -> int:
        """Of a copy into shared memory: which of the module's operations it comes from; of anything else: -1."""
        ...


Chooser = Callable[[Sequence[Actor]], int]
"""The position of the one to go next. The first is the task that went last, if it can go on; then the other tasks in
their order; then effects, the oldest first. There are at least two."""


class Schedule(ABC):
    """A way to choose; each program of a grid gets a chooser of its own."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What reports call it; with the seed, if it has one."""

    @abstractmethod
    def chooser(self, program: Program) -> Chooser:
        """A fresh chooser for one program of the grid."""


@dataclass(frozen=True, slots=True)
class FirstReady(Schedule):
    """A task runs until it must wait, then the next one; effects happen when nobody can go on."""

    @property
    def name(self) -> str:
        return "first ready"

    def chooser(self, program: Program) -> Chooser:
        return lambda actors: 0


@dataclass(frozen=True, slots=True)
class Random(Schedule):
    """Anything that can happen is as likely as anything else."""

    seed: int

    @property
    def name(self) -> str:
        return f"random {self.seed}"

    def chooser(self, program: Program) -> Chooser:
        draw = _source(self.seed, program)
        return lambda actors: int(draw.random() * len(actors))


@dataclass(frozen=True, slots=True)
class Priorities(Schedule):
    """Tasks and operations that copy have priorities drawn from the seed, which change now and then.

    Whoever has the highest runs for as long as it can: orders that a fair draw at every step next to never gives
    (after Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", ASPLOS 2010).
    """

    seed: int
    every: int = 24  # choices between changes, on average

    @property
    def name(self) -> str:
        return f"priorities {self.seed}"

    def chooser(self, program: Program) -> Chooser:
        draw = _source(self.seed, program)
        ranks: dict[tuple[int, int], float] = {}

        def choose(actors: Sequence[Actor]) -> int:
            if draw.random() * self.every < 1:
                ranks.clear()
            best, found = 0, -1.0
            for at, actor in enumerate(actors):
                key = (actor.index if actor.is_task else -1, actor.site)
                rank = ranks.get(key, -1.0)
                if rank < 0:
                    rank = ranks[key] = draw.random()
                if rank > found:
                    best, found = at, rank
            return best

        return choose


Effects = Literal["late", "early", "reversed"]
"""When nothing else can go on; at once; or when nothing else can, the newest first."""


@dataclass(frozen=True, slots=True)
class Unfair(Schedule):
    """One task goes first whenever it can, or last; effects as late as can be, in order or not, or at once."""

    task: int
    starved: bool = False
    effects: Effects = "late"

    @property
    def name(self) -> str:
        return f"task {self.task} {'last' if self.starved else 'first'}, effects {self.effects}"

    def chooser(self, program: Program) -> Chooser:
        favoured, others, effects = (2, 1, 3) if self.starved else (1, 2, 3)
        if self.effects == "early":
            effects = 0
        newest = -1 if self.effects == "reversed" else 1

        def rank(at: int, actor: Actor) -> tuple[int, int]:
            if not actor.is_task:
                return effects, at * newest
            return (favoured if actor.index == self.task else others), at

        def choose(actors: Sequence[Actor]) -> int:
            return min(range(len(actors)), key=lambda at: rank(at, actors[at]))

        return choose


@dataclass(frozen=True, slots=True)
class Delayed(Schedule):
    """The copies of one operation land as late as they can, all other effects happen at once."""

    site: int

    @property
    def name(self) -> str:
        return f"copies of operation {self.site} late"

    def chooser(self, program: Program) -> Chooser:
        def rank(actor: Actor) -> int:
            return 1 if actor.is_task else 2 if actor.site == self.site else 0

        def choose(actors: Sequence[Actor]) -> int:
            return min(range(len(actors)), key=lambda at: rank(actors[at]))

        return choose


@dataclass(frozen=True, slots=True)
class Recorded(Schedule):
    """The choices that `program` made before, then the first that is ready; the other programs always take the first.

    A choice that is not there any more counts as 0.
    """

    choices: Sequence[int]
    program: Program = (0, 0, 0)

    @property
    def name(self) -> str:
        return f"{len(self.choices)} recorded choices"

    def chooser(self, program: Program) -> Chooser:
        if program != self.program:
            return FirstReady().chooser(program)
        rest = iter(self.choices)

        def choose(actors: Sequence[Actor]) -> int:
            choice = next(rest, 0)
            return choice if choice < len(actors) else 0

        return choose


def adversarial(tasks: int, sites: int = 0) -> tuple[Schedule, ...]:
    """Unkind schedules for a program of so many tasks and operations that copy.

    Each task ahead and each behind, with effects late, early and in reverse; and each operation's copies late alone.
    """
    starving = (False, True) if tasks > 2 else (False,)  # of two, one is ahead when the other is behind
    ways: tuple[Effects, ...] = ("late", "early", "reversed")
    unfair = (Unfair(task, starved, way) for way in ways for starved in starving for task in range(max(1, tasks)))
    return (*unfair, *(Delayed(site) for site in range(sites)))


def _source(seed: int, program: Program) -> random.Random:
    return random.Random(f"{seed} {program}")
