"""The state of a block of threads: where its tasks stand, its barriers, who touched which buffer and what is ordered.

Order is kept in vector clocks. What a task does with one allocation, what each of its asynchronous units does with it
(tensor cores, tile stores, cp.async), the TMA writes of each buffer and the completions of each barrier are *streams*
of events that follow each other; a clock says up to which event of each stream everything has happened before. Clocks
are dicts that are never changed, only replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from wspec.check.code import Content, View
from wspec.check.witness import Asked
from wspec.ir.core import Operation

Clock = dict[int, int]  # stream -> its last event that is known to be done


def joined(left: Clock, right: Clock) -> Clock:
    """What both know together."""
    if not right or left is right:
        return left
    if not left:
        return right
    changed = None
    for stream, epoch in right.items():
        if left.get(stream, 0) < epoch:
            if changed is None:
                changed = dict(left)
            changed[stream] = epoch
    return left if changed is None else changed


Passing = tuple[int, int, View]  # a wait: its stream, the event of that before it, the barrier


@dataclass(slots=True)
class Task:
    """One task at work."""

    pc: int = 0
    active: bool = False
    done: bool = False
    registers: list[Content] = field(default_factory=list)
    loops: tuple[tuple[int, int], ...] = ()  # (space, iteration), outermost first
    now: int = 1  # events of its own so far
    known: Clock = field(default_factory=dict)  # what has happened before its next step
    visible: Clock = field(default_factory=dict)  # of that, what asynchronous operations see of ordinary accesses
    dots: int = 0  # tensor core operations issued
    dots_done: int = 0  # of them, how many are waited for
    stores: int = 0
    elements: int = 0  # groups of cp.async committed
    named: tuple[int, int] | None = None  # named barrier it has arrived on and waits for, and its generation
    fenced: Clock = field(default_factory=dict)  # what had happened before its last fence; for words only
    passing: tuple[Passing, ...] = ()  # waits that some of its warps may still be in
    touched: frozenset[int] = frozenset()  # allocations of barriers used since the first of these

    def copy(self) -> Task:
        return Task(self.pc, self.active, self.done, self.registers.copy(), self.loops, self.now, self.known,
                    self.visible, self.dots, self.dots_done, self.stores, self.elements, self.named,
                    self.fenced, self.passing, self.touched)  # fmt: skip

    def one_warp_knows(self) -> Clock:
        """What has happened before a step of one of its warps: waits that others may still be in are not over."""
        if not self.passing:
            return self.known
        known = dict(self.known)
        for stream, before, _ in reversed(self.passing):
            known[stream] = before
        return known

    def gather(self) -> None:
        """All warps are here."""
        self.passing, self.touched = (), frozenset()


@dataclass(slots=True)
class Barrier:
    """One mbarrier."""

    count: int
    maker: tuple[int, int]  # stream and event of its initialization
    arrived: int = 0  # in this phase
    bytes: int = 0  # expected less come, in this phase
    completions: int = 0
    live: bool = True
    known: Clock = field(default_factory=dict)  # what happened before the arrivals of this phase
    visible: Clock = field(default_factory=dict)
    done_known: Clock = field(default_factory=dict)  # what happened before the last completion
    done_visible: Clock = field(default_factory=dict)
    waits: dict[int, tuple[int, int, Operation]] = field(default_factory=dict)  # task -> its wait that saw the last one
    users: dict[int, int] = field(default_factory=dict)  # task -> its last event on the barrier
    arrivals: tuple[tuple[int, Operation], ...] = ()  # of this phase: task, operation
    loose: tuple[tuple[int, Operation], ...] = ()  # arrivals that nothing counts, until the same task arrives again

    def copy(self) -> Barrier:
        return Barrier(self.count, self.maker, self.arrived, self.bytes, self.completions, self.live, self.known,
                       self.visible, self.done_known, self.done_visible, self.waits.copy(), self.users.copy(),
                       self.arrivals, self.loose)  # fmt: skip


@dataclass(slots=True)
class NamedBarrier:
    """One of the sixteen hardware barriers."""

    threads: int
    op: Operation
    arrived: int = 0
    completions: int = 0
    known: Clock = field(default_factory=dict)
    visible: Clock = field(default_factory=dict)
    done_known: Clock = field(default_factory=dict)
    done_visible: Clock = field(default_factory=dict)

    def copy(self) -> NamedBarrier:
        return NamedBarrier(self.threads, self.op, self.arrived, self.completions, self.known, self.visible,
                            self.done_known, self.done_visible)  # fmt: skip


Unit = Literal["threads", "dots", "stores", "elements", "tile"]


class Touch(NamedTuple):
    """An access to a buffer that may matter to later ones."""

    stream: int
    epoch: int
    task: int
    op: Operation
    unit: Unit  # what of the task does it

    @property
    def fenced(self) -> bool:
        """Do asynchronous units see it only behind a proxy fence?"""
        return self.unit in ("threads", "elements")


@dataclass(slots=True)
class History:
    """Of one part of a buffer: the last write, and the reads since."""

    write: Touch | None = None
    reads: dict[int, Touch] = field(default_factory=dict)  # by stream
    maybe: bool = False  # the write may never have been

    def copy(self) -> History:
        return History(self.write, self.reads.copy(), self.maybe)


Interval = tuple[int, int]  # of an extent: it is at least the first and at most the second


@dataclass(slots=True)
class State:
    """All of it."""

    tasks: list[Task]
    barriers: dict[View, Barrier] = field(default_factory=dict)
    named: dict[int, NamedBarrier] = field(default_factory=dict)
    buffers: dict[int, dict[View, History]] = field(default_factory=dict)  # by allocation
    writes: dict[View, int] = field(default_factory=dict)  # TMA writes so far, by part
    extents: dict[tuple[int, tuple[int, ...]], Interval] = field(default_factory=dict)
    choices: dict[tuple[int, tuple[int, ...]], bool] = field(default_factory=dict)
    taken: tuple[tuple[Operation, str], ...] = ()  # the choices that led here, for people
    asked: tuple[Asked, ...] = ()  # of them, those about trip counts
    doubtful: bool = False  # among them are some that the kernel may never make

    def copy(self) -> State:
        return State(
            [task.copy() for task in self.tasks],
            {view: barrier.copy() for view, barrier in self.barriers.items()},
            {number: barrier.copy() for number, barrier in self.named.items()},
            {root: {v: h.copy() for v, h in parts.items()} for root, parts in self.buffers.items()},
            self.writes.copy(),
            self.extents.copy(),
            self.choices.copy(),
            self.taken,
            self.asked,
            self.doubtful,
        )
