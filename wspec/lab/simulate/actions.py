"""What a warp group does, as the engine plays it: stretches of arithmetic, and what it issues or waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from wspec.ir.core import Operation


class Kind(IntEnum):
    """What an action does; `a` and `b` are its numbers."""

    WORK = 0  # arithmetic: pieces
    DOT = 1  # issue a dot: flow
    DOT_WAIT = 2  # until at most `a` dots run
    WAIT = 3  # for phase `b` of mbarrier `a`
    INIT = 4  # mbarrier `a` completes with `b` arrivals
    ARRIVE = 5  # at mbarrier `a`, `b` times
    EXPECT = 6  # arrive at mbarrier `a`, which now waits for `b` bytes more
    COPY = 7  # TMA load of `b` bytes, reported to mbarrier `a`: flow
    STORE = 8  # TMA store of `b` bytes: flow
    STORE_WAIT = 9  # until at most `a` stores still read their tiles
    SYNC = 10  # named barrier `a` of `b` threads
    NAMED_ARRIVE = 11
    TASK_SYNC = 12  # all warp groups of the task
    CP = 13  # cp.async of `b` bytes: flow
    CP_COMMIT = 14
    CP_WAIT = 15  # until at most `a` groups run
    CP_ARRIVE = 16  # at mbarrier `a` when this warp group's cp.async are done
    FORK = 17  # start the other tasks
    JOIN = 18  # wait for them
    MARK = 19  # an iteration of a loop begins


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """Something that takes time on units: alone `cycles`, keeping unit u busy for `busy` of them."""

    cycles: float
    busy: tuple[tuple[int, float], ...]  # (unit, cycles), only those above zero

    @staticmethod
    def of(busy: dict[int, float], at_least: float = 0.0) -> Flow:
        """A flow as long as its busiest unit is busy."""
        used = tuple(sorted((unit, cycles) for unit, cycles in busy.items() if cycles > 0))
        return Flow(max([at_least, *(cycles for _, cycles in used)]), used)


Piece = Flow | float
"""A stretch of arithmetic is a sequence of flows and of latencies that nothing hides, in cycles."""


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """One step of a warp group; the same step of another iteration is the same object."""

    kind: Kind
    op: Operation
    a: int = 0
    b: int = 0
    pieces: tuple[Piece, ...] = ()
    flow: Flow | None = None
    after: float = 0.0  # cycles from the end of a dot's flow to its result
    held: tuple[float, float] | None = None  # instructions of a dot, cycles that issuing each takes; None: till it ends
    gaps: bool = False  # in a dot whose instructions wait for each other: others multiply meanwhile
    early: bool = False  # a wait is tried before the arithmetic in front of it
    ops: tuple[Operation, ...] = ()  # of a stretch of arithmetic
    scalar: bool = False  # dependent instructions that compete for issue slots with those of other warp groups
    cycles: float = field(default=0.0)  # of the pieces, alone


@dataclass(frozen=True, slots=True)
class Walked:
    """All actions of one task of one thread block; each of its warp groups does all of them on its share."""

    name: str
    warps: int
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """One thread block."""

    tasks: tuple[Walked, ...]  # the first is the one that starts the others
