"""Which binaries of a kernel a launch may choose between, once its sizes are known.

Today: tiles one at a time, or by teams of four or three neighbours, as registers allow. A team's iterations are
shorter, its tiles take longer to start, and what is no multiple of its size is filled up.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from wspec.diagnostics import Declined
from wspec.ir.core import Operation
from wspec.model.fitted import ALONE, TEAM_START
from wspec.model.machine import Machine
from wspec.options import Options
from wspec.plan.plan import Plan
from wspec.planner.decide import decide
from wspec.target.hopper import WARP_GROUP
from wspec.tile_scheduler import LaunchWay

TEAMS = (4, 3)  # neighbours that may be worked on at a time; where two would be faster, a tile by itself is


def may_choose(plan: Plan, options: Options) -> bool:
    """Is another way of this kernel worth looking for? Not where somebody has said which."""
    asked = options.coarsening is not None or options.gate != "model" or options.persistent is False
    late = any(loop.stage1 for loop in plan.loops)
    return not asked and plan.persistent and not plan.helpers and plan.source_warps == WARP_GROUP and late


def launch_ways(module: Operation, plan: Plan, machine: Machine, options: Options) -> tuple[LaunchWay, ...]:
    """The kernel under `plan`, of which `may_choose` holds, and what else there is; () where there is nothing else.

    `module`: numbered, before it is specialized; it stays as it is.
    """
    ways = [_way("one tile at a time", {}, plan, ALONE, 0.0)]
    for size in TEAMS:
        with suppress(Declined):
            team = decide(module, machine, options.replace(coarsening=size))
            ways.append(_way(f"teams of {size} tiles", {"coarsening": size}, team, 1.0, TEAM_START))
    return tuple(ways) if len(ways) > 1 else ()


def _way(name: str, change: dict[str, int], plan: Plan, factor: float, start: float) -> LaunchWay:
    """With a plan's tiles, whose iterations take `factor` times what the plan predicts."""
    tiles = plan.tile_loop
    assert tiles is not None
    cheapest = min((loop.cycles for loop in tiles.cost.loops), default=1.0)  # the loop without a mask, if there is one
    scale = factor * plan.prediction.iteration_cycles / cheapest
    loops = tuple(replace(loop, cycles=loop.cycles * scale) for loop in tiles.cost.loops)
    cost = replace(tiles.cost, fixed=tiles.cost.fixed + start, loops=loops)
    return LaunchWay(name, change, cost, tiles.coarsening, tiles.axis)
