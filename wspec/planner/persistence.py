"""Whether blocks walk through tiles, and what a tile costs them."""

from __future__ import annotations

from dataclasses import replace

from wspec.diagnostics import Declined, Remark
from wspec.ir.core import Operation
from wspec.ir.numbering import id_of
from wspec.model.machine import Machine
from wspec.model.operations import loop_work
from wspec.passes.stream_k.choice import hindrance, sums_of_a_tile
from wspec.plan.partition import hot_loops
from wspec.plan.plan import Plan
from wspec.tile_scheduler import TileCost, tile_cost


def pays(function: Operation) -> bool:
    """Is there something to gain from a loop over tiles: does the kernel not have one already?

    The next tile's operands arrive while this one is finished, its result is stored while the next one is computed,
    and tiles of unequal cost are spread evenly. The loops that multiply must stand in the kernel's body, not in a loop.
    """
    return all(not any(op.name == "scf.for" for op in loop.ancestors()) for loop in hot_loops(function))


def check_division(function: Operation, machine: Machine, plan: Plan) -> None:
    """A plan that is given must say of divided tiles what the kernel is, before it has a loop over tiles.

    Blocks write into memory that others read by what it says. Raises Declined.
    """
    wrong = _wrong_division(function, machine, plan)
    if wrong:
        note = "edit the plan or make it anew"
        raise Declined(Remark("plan-mismatch", f"plan: divided: {wrong}", function.location, note=note))


def _wrong_division(function: Operation, machine: Machine, plan: Plan) -> str:
    try:
        cost = TileCost.from_text(plan.tiles) if plan.tiles else TileCost(0.0)
    except ValueError as error:
        return str(error)
    if not plan.divided:
        return "tiles says that they are divided" if cost.divides >= 0 else ""
    if not plan.persistent or plan.team > 1 or plan.helpers or plan.blocks_per_sm > 1:
        return "blocks of one team, one to an SM and without a third task, must walk through tiles"
    if (found := hindrance(function)) is not None:
        return found[0]
    right = cost_of_tiles(function, machine, plan, divided=True)
    if _what_is_divided(cost) != _what_is_divided(right):
        return f"tiles must say so too: loop {right.divides}, its trip count, and that {right.slot} sums go on"
    return ""


def _what_is_divided(cost: TileCost) -> tuple[object, ...]:
    """What of a cost is no estimate."""
    return cost.divides, cost.slot, cost.scalars, [(loop.loop, loop.factors, loop.unknown) for loop in cost.loops]


def cost_of_tiles(
    function: Operation, machine: Machine, plan: Plan, *, divided: bool = False, at_any_cost: bool = False
) -> TileCost:
    """What the tiles of a kernel, before it has a loop over them, cost under a plan: cycles of one SM.

    With `divided`, also what a block loses that hands sums on and takes others up: nothing, `at_any_cost`.
    """
    cycles = {}
    for loop in hot_loops(function):
        work = loop_work(loop, machine)
        heaviest = max(work.mma, work.compute, work.tma)
        cycles[id_of(loop)] = max(heaviest, 1.0)
    cost = tile_cost(function, cycles, plan.prediction.overhead_cycles)
    if not divided:
        return cost
    (loop,) = hot_loops(function)
    words = sums_of_a_tile(loop)
    handing = 0.0 if at_any_cost else plan.prediction.overhead_cycles + 4 * words / machine.hand_on_rate
    return replace(cost, divides=id_of(loop), handing=handing, slot=words)
