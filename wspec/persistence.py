"""Whether blocks walk through tiles, and what a tile costs them."""

from __future__ import annotations

from wspec.ir.core import Operation
from wspec.plan.costs import loop_work
from wspec.plan.machine import Machine
from wspec.plan.partition import hot_loops
from wspec.plan.plan import Plan, id_of
from wspec.tiles import TileCost, tile_cost


def pays(function: Operation) -> bool:
    """Is there something to gain from a loop over tiles: does the kernel not have one already?

    The next tile's operands arrive while this one is finished, its result is stored while the next one is computed,
    and tiles of unequal cost are spread evenly. The loops that multiply must stand in the kernel's body, not in a loop.
    """
    return all(not any(op.name == "scf.for" for op in loop.ancestors()) for loop in hot_loops(function))


def cost_of_tiles(function: Operation, machine: Machine, plan: Plan) -> TileCost:
    """What the tiles of a kernel, before it has a loop over them, cost under a plan: cycles of one SM."""
    cycles = {}
    for loop in hot_loops(function):
        work = loop_work(loop, machine)
        heaviest = max(work.mma, work.compute, work.tma)
        cycles[id_of(loop)] = max(heaviest, 1.0)
    return tile_cost(function, cycles, plan.prediction.overhead_cycles)
