"""Whether one warp group has all rows of a tile that two could share (docs/results/warp-groups.md)."""

from __future__ import annotations

from wspec.ir.core import Operation
from wspec.ir.shapes import DOTS, shape_of
from wspec.model.machine import Machine
from wspec.passes.data_partition.choice import can_be_narrowed, lowest
from wspec.planner.gate import accumulates_only
from wspec.planner.rings import steps_on_the_way
from wspec.target.hopper import WARP_GROUP, WGMMA_ROWS

NARROW = 64
"""Columns of a product: a warp group that has all 128 rows has 64 accumulators a thread."""
FEW_STEPS = 3
"""Steps on their way, so few that one which two groups hold for each other is missed."""


def is_for_one(function: Operation, loops: list[Operation], warps: int, machine: Machine) -> bool:
    """Would two warp groups have nothing to share but narrow products, in long steps?

    The tensor core multiplies for one as fast; of two, each holds a buffer until the slower one is done with it.
    """
    if steps_on_the_way(loops, 1, machine) >= FEW_STEPS:
        return False
    narrow = all(accumulates_only(loop) and _columns(loop) <= NARROW for loop in loops)
    rows, factor = lowest(loops), warps // WARP_GROUP
    return narrow and rows == 2 * WGMMA_ROWS and factor in (1, 2) and can_be_narrowed(function, factor)


def _columns(loop: Operation) -> int:
    """Of all tiles that the loop adds products to."""
    return sum(shape_of(dot.result.type)[1] for dot in loop.walk() if dot.name in DOTS)
