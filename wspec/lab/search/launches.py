"""The launches that plans are compared on.

What decides trip counts is not known when a kernel is compiled, so two lengths stand for all: every integer that
decides control flow gets the same value, once a short and once a long one. Others have none, so that no SM is taken to
want another one's tiles. The grid has whole waves, so that no plan wins by its tail alone, and more of short tiles, so
that none wins by how it begins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from wspec.ir.core import Operation
from wspec.ir.shapes import DOTS, shape_of
from wspec.lab.persistent_launch import chosen_launch
from wspec.lab.simulate import Simulator
from wspec.model.machine import Machine
from wspec.plan.plan import Plan
from wspec.tile_scheduler import TABLE

SHORT, LONG = 512, 2048
WAVES = {SHORT: 8, LONG: 4}  # of one block an SM
Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch that is representative for a length."""

    length: int  # of every integer that decides control flow
    grid: Grid  # tiles

    def __str__(self) -> str:
        x, y, z = self.grid
        return f"{self.length}, {x * y * z} tiles"


def launches(rows: int, axis: int, machine: Machine) -> tuple[Launch, ...]:
    """A short and a long one, of tiles with `rows` rows; along `axis` of the grid tiles differ, if they do at all."""
    found = []
    for length, waves in WAVES.items():
        along = max(1, -(-length // rows))
        wanted = waves * machine.sm_count
        others = wanted // math.gcd(along, wanted)
        while along * others > 2 * wanted and along > 1:  # an odd number of tiles along the axis: whole waves cost more
            along -= 1
            others = wanted // math.gcd(along, wanted)
        grid = [others, 1, 1] if axis else [1, others, 1]
        grid[axis] = along
        found.append(Launch(length, (grid[0], grid[1], grid[2])))
    return tuple(found)


def tile_rows(module: Operation) -> int:
    """Rows of the tile that a block computes: the largest of its dots."""
    return max((shape_of(op.results[0].type)[0] for op in module.walk() if op.name in DOTS), default=128)


def arguments_of(launch: Launch, simulator: Simulator, plan: Plan | None) -> tuple[dict[str, Any], Grid]:
    """(the integers by name, the grid to launch), with the table where the plan's blocks walk through tiles."""
    arguments: dict[str, Any] = {name: launch.length for name in simulator.missing({}) if name != TABLE}
    if plan is None or plan.tile_loop is None:
        return arguments, launch.grid
    values = dict.fromkeys(plan.tile_loop.parameters, launch.length)
    slots, shared = simulator.machine.sm_count * simulator.blocks_per_sm, simulator.blocks_per_sm > 1
    blocks, table = chosen_launch(plan.tile_loop, launch.grid, values, slots, shared=shared)
    return {**arguments, TABLE: table.tolist()}, (blocks, 1, 1)
