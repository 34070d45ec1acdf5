"""How blocks take tiles: one each, or walking through them; one after the other, several neighbours, or parts of one.

`walk_tiles` gives a kernel the loop over tiles that a plan's `TileLoop` says; everything else is planned for the kernel
that this gives.
"""

from __future__ import annotations

from dataclasses import replace

from wspec.decision import Decision
from wspec.diagnostics import Declined, Remark
from wspec.ir.core import Operation, functions
from wspec.ir.numbering import id_of, number
from wspec.model.machine import Machine
from wspec.model.operations import loop_work
from wspec.passes.persistent.persist import persist
from wspec.passes.stream_k.choice import hindrance, sums_of_a_tile
from wspec.passes.stream_k.divide_tiles import divide_tiles
from wspec.passes.tile_coarsening.coarsen_tiles import coarsen_tiles
from wspec.plan.graph import loops_around
from wspec.plan.partition import hot_loops
from wspec.plan.plan import Plan
from wspec.planner.raster import choose_raster
from wspec.tile_scheduler import StreamK, TileCost, TileLoop, tile_cost

WHOLE = TileLoop(TileCost(0.0))
"""Tile by tile, before anything is known of what one costs."""


def walk_tiles(module: Operation, tiles: TileLoop | None) -> Operation:
    """The module with the loop over tiles, and its operations numbered anew, in place. Raises CannotCoarsen."""
    if tiles is None:
        return module
    persist(module, parts=bool(tiles.stream_k))
    if tiles.stream_k:
        divide_tiles(module)
    if tiles.coarsening > 1:
        coarsen_tiles(module, tiles.coarsening, tiles.axis)
    number(functions(module)[0])
    return module


def has_no_tile_loop(function: Operation) -> bool:
    """Is there something to gain from a loop over tiles: does the kernel not have one already?

    The next tile's operands arrive while this one is finished, its result is stored while the next one is computed,
    and tiles of unequal cost are spread evenly. The loops that multiply must stand in the kernel's body, not in a loop.
    """
    return not any(map(loops_around, hot_loops(function)))


def with_costs(
    function: Operation, machine: Machine, plan: Plan, *, at_any_cost: bool = False, raster: bool | None = None
) -> Plan:
    """The plan with what a tile costs, and in which order tiles go, as `choose_raster` takes `raster`.

    `function`: the kernel without the loop. `at_any_cost`: dividing is free.
    """
    assert plan.tile_loop is not None
    tiles = replace(plan.tile_loop, cost=cost_of_tiles(function, machine, plan))
    if tiles.stream_k:
        tiles = replace(tiles, stream_k=Decision(_fix_up(function, machine, plan, at_any_cost)))
    return replace(plan, tile_loop=replace(tiles, raster=choose_raster(function, tiles, machine, raster)))


def cost_of_tiles(function: Operation, machine: Machine, plan: Plan) -> TileCost:
    """What the tiles of a kernel, before it has a loop over them, cost under a plan: cycles of one SM."""
    cycles = {id_of(loop): max(loop_work(loop, machine).busiest, 1.0) for loop in hot_loops(function)}
    return tile_cost(function, cycles, plan.prediction.overhead_cycles)


def _fix_up(function: Operation, machine: Machine, plan: Plan, at_any_cost: bool = False) -> StreamK:
    """What a block loses where tiles are divided: it hands sums on and takes others up, and is out of step with those
    that want the same tiles."""
    (loop,) = hot_loops(function)
    words, work = sums_of_a_tile(loop), loop_work(loop, machine)
    if at_any_cost:
        return StreamK(id_of(loop), 0.0, words)
    cycles = plan.prediction.overhead_cycles + 4 * words / machine.hand_on_rate
    apart = work.tma * machine.tma_rate / machine.apart_tma_rate
    return StreamK(id_of(loop), cycles, words, max(0.0, apart - work.busiest))


def check_tile_loop(function: Operation, machine: Machine, plan: Plan) -> None:
    """A plan that is given must say of divided tiles, and of places, what the kernel is, before it has a loop over
    tiles.

    Blocks write into memory that others read by what it says. Raises Declined.
    """
    for field, wrong in (
        ("stream_k", _wrong_division(function, machine, plan)),
        ("raster", _wrong_raster(function, machine, plan)),
    ):
        if wrong:
            note = "edit the plan or make it anew"
            raise Declined(Remark("plan-mismatch", f"plan: tile_loop.{field}: {wrong}", function.location, note=note))


def _wrong_raster(function: Operation, machine: Machine, plan: Plan) -> str:
    if plan.tile_loop is None or (said := plan.raster.value) is None or plan.coarsening > 1:
        return ""  # a team's is refused for what excludes what
    right = choose_raster(function, plan.tile_loop, machine, True)
    if right.value is None:
        return right.why_not
    return "" if right.value.scalars == said.scalars else "must have the scalars that its tiles' places come from"


def _wrong_division(function: Operation, machine: Machine, plan: Plan) -> str:
    if plan.tile_loop is None or (said := plan.stream_k.value) is None:
        return ""
    if (found := hindrance(function)) is not None:
        return found[0]
    right, cost = _fix_up(function, machine, plan), cost_of_tiles(function, machine, plan)
    if (said.loop, said.sums) != (right.loop, right.sums) or _trips(plan.tile_loop.cost) != _trips(cost):
        return f"must say loop {right.loop}, its trip count in tile_loop.cost, and that {right.sums} sums go on"
    return ""


def _trips(cost: TileCost) -> tuple[object, ...]:
    """What of a cost is no estimate."""
    return cost.scalars, [(loop.loop, loop.factors, loop.unknown) for loop in cost.loops]
