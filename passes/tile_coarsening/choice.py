"""Which kernels can work on several neighbouring tiles at a time."""

from __future__ import annotations

from wspec.ir.core import Operation
from wspec.plan.graph import LOADS, STORES, may_alias
from wspec.plan.partition import hot_loops


def hindrance(function: Operation, tile: Operation) -> tuple[str, Operation] | None:
    """What keeps neighbouring tiles from being worked on by a team, whatever they share: (why, where), or None.

    A team's last member may have no tile of its own; it does its neighbour's once more, at the same time.
    """
    loads = [op for op in function.walk() if op.name in LOADS]
    for store in (op for op in function.walk() if op.name in STORES):
        for load in loads:
            if load.is_inside(tile) and may_alias(load, store):
                return "it reads memory that it may write, and a tile may be done twice", load
    if not hot_loops(function):
        return "it has no loop that multiplies", function
    return None
