"""Blocks to SMs: in order, each to the slot that is free first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

Cycles = Callable[[int, int], float]
"""How long a block of a class is on an SM when so many blocks are there."""


def dispatch(order: Sequence[int], sms: int, slots: int, cycles: Cycles) -> float:
    """When the last block ends. `order` has the class of each block; an SM has room for `slots` at a time.

    Each SM does its blocks at the speed of as many as are there.
    """
    left = list(reversed(order))
    machines = [_Sm(cycles) for _ in range(sms)]
    for _ in range(slots):
        for one in machines:
            if left:
                one.add(left.pop(), 0.0)
    events = [(one.next_end(), number) for number, one in enumerate(machines) if one.blocks]
    heapq.heapify(events)
    end = 0.0
    while events:
        end, number = heapq.heappop(events)
        one = machines[number]
        for _ in range(one.remove(end)):
            if left:
                one.add(left.pop(), end)
        if one.blocks:
            heapq.heappush(events, (one.next_end(), number))
    return end


class _Sm:
    """The blocks on one SM: the class of each, and what is left of it, as a share."""

    def __init__(self, cycles: Cycles) -> None:
        self.cycles = cycles
        self.blocks: list[tuple[int, float]] = []
        self.now = 0.0

    def _pass(self, to: float) -> None:
        passed, count = to - self.now, len(self.blocks)
        self.blocks = [(kind, share - passed / self.cycles(kind, count)) for kind, share in self.blocks]
        self.now = to

    def add(self, kind: int, at: float) -> None:
        self._pass(at)
        self.blocks.append((kind, 1.0))

    def next_end(self) -> float:
        return self.now + min(share * self.cycles(kind, len(self.blocks)) for kind, share in self.blocks)

    def remove(self, at: float) -> int:
        """Those that are done; how many."""
        self._pass(at)
        before = len(self.blocks)
        self.blocks = [one for one in self.blocks if one[1] > 1e-9]
        return before - len(self.blocks)
