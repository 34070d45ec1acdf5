"""The state of an SM while it is played: warp groups and barriers of the blocks on it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from wspec.lab.simulate.actions import Action, Block
from wspec.lab.simulate.clock import Running


@dataclass(eq=False, slots=True)
class Mbarrier:
    """Completes when all arrivals and all bytes have come, and begins again."""

    count: int = 1
    missing: int = 1
    bytes: int = 0
    phase: int = 0
    gets_bytes: bool = False
    waiters: list[tuple[Group, int]] = field(default_factory=list)  # and the phase each waits for


@dataclass(eq=False, slots=True)
class Named:
    """bar.sync and bar.arrive of one number; also the meeting of the warps of a task."""

    threads: int = 0
    waiters: list[Group] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Group:
    """One warp group of a task, or a task of fewer warps."""

    instance: Instance
    key: tuple[int, int]  # slot, position among the warp groups of its block
    task: int
    track: str
    warps: int
    is_first: bool  # of its task: it does what one thread does for all
    actions: tuple[Action, ...]
    at: int = 0  # the action that is being done
    piece: int = 0  # of a stretch of arithmetic
    since: float = 0.0  # when it began that action
    done: bool = False
    pending: dict[str, deque[Running]] = field(default_factory=dict)  # dots, stores; issued and not known to be done
    copies: list[Running] = field(default_factory=list)  # cp.async since the last commit
    groups: deque[list[Running]] = field(default_factory=deque)  # committed
    arrivals: list[tuple[list[Running], Action]] = field(default_factory=list)  # to be made when these copies are done
    limit: tuple[str, int] | None = None  # what it waits for, and how many of them may still run
    waits: dict[str, float] = field(default_factory=dict)  # cause -> cycles

    def unfinished(self, what: str) -> int:
        """How many are not done, of those issued; they end in the order of their issue."""
        if what == "copies":
            while self.groups and all(one.done for one in self.groups[0]):
                self.groups.popleft()
            return len(self.groups)
        queue = self.pending.setdefault(what, deque())
        while queue and queue[0].done:
            queue.popleft()
        return len(queue)


@dataclass(eq=False, slots=True)
class Instance:
    """One block on the SM."""

    block: Block
    slot: int
    start: float
    groups: list[Group] = field(default_factory=list)
    barriers: dict[int, Mbarrier] = field(default_factory=dict)
    named: dict[int, Named] = field(default_factory=dict)  # those of a task have negative numbers
    left: int = 0  # warp groups that are not done
    joining: Group | None = None
    begun: set[int] = field(default_factory=set)  # tasks that were started
