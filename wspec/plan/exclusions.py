"""Which optimizations cannot be had together, and why: one table, for the planner and for plans from outside.

A new optimization is a row of `OPTIMIZATIONS`, and a row of `EXCLUDED` for each other one that it cannot stand beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

from wspec.diagnostics import Declined, Remark
from wspec.ir.core import Operation
from wspec.options import Options
from wspec.plan.plan import Plan
from wspec.plan.stores import SUBTILES


@dataclass(frozen=True, slots=True)
class Optimization:
    """How a plan says that it has one, and how a person asks for it."""

    used: Callable[[Plan], bool]
    asked: Mapping[str, object]  # options


COARSENING, THIRD_TASK, STREAM_K = "tile coarsening", "a third task", "stream-K"
OVERLAP, SUBTILING, SHARED_SM = "epilogue overlap", "epilogue subtiling", "several blocks an SM"
PING_PONG, PIPELINING, STAGING = "ping-pong", "software pipelining", "a place for stores"
BARRIERS, RASTER = "barrier sharing", "raster order"

OPTIMIZATIONS: Mapping[str, Optimization] = {
    COARSENING: Optimization(lambda plan: plan.coarsening > 1, {"coarsening": 2}),
    THIRD_TASK: Optimization(lambda plan: bool(plan.helpers), {"chain": "on"}),
    STREAM_K: Optimization(lambda plan: bool(plan.stream_k), {"stream_k": True}),
    OVERLAP: Optimization(lambda plan: bool(plan.epilogue_overlap), {"epilogue_overlap": True}),
    SUBTILING: Optimization(lambda plan: any(kind == SUBTILES for _, _, kind in plan.staging), {"staging": "subtiles"}),
    SHARED_SM: Optimization(lambda plan: plan.blocks_per_sm > 1, {"blocks": 2}),
    PING_PONG: Optimization(lambda plan: any(loop.ping_pong for loop in plan.loops), {"ping_pong": True}),
    PIPELINING: Optimization(lambda plan: any(loop.stage1 for loop in plan.loops), {}),
    STAGING: Optimization(lambda plan: bool(plan.staging), {"staging": "buffer"}),
    BARRIERS: Optimization(lambda plan: bool(plan.shared_barriers), {"shared_barriers": True}),
    RASTER: Optimization(lambda plan: bool(plan.raster), {"raster": True}),
}

EXCLUDED: Mapping[frozenset[str], str] = {
    frozenset(pair): why
    for *pair, why in (
        (COARSENING, THIRD_TASK, "a third task serves one tile, and a block has several"),
        (COARSENING, STREAM_K, "a block has several tiles, whose loops end at different times"),
        (COARSENING, SUBTILING, "each group of a block has a tile of its own"),
        (COARSENING, RASTER, "a block works on neighbouring tiles, which share what they stream"),
        (STREAM_K, THIRD_TASK, "a third task works on it"),
        (STREAM_K, SHARED_SM, "several of them share an SM, which is busy as long as one of them is"),
        (STREAM_K, OVERLAP, "what a part of a tile hands on cannot wait for the next tile"),
        (SUBTILING, OVERLAP, "both put the end of a tile beside the next one's first products"),
        (SUBTILING, SHARED_SM, "blocks share the SM"),
        (SUBTILING, THIRD_TASK, "a third task works on the tile"),
        (OVERLAP, THIRD_TASK, "a third task works on the tile"),
        (STAGING, THIRD_TASK, "stores of a chain of tasks go through the ring of what is stored, or through none"),
        (PIPELINING, THIRD_TASK, "tasks of a chain overlap each other's products"),
        (PING_PONG, THIRD_TASK, "tasks of a chain wait for each other's values"),
    )
}


def why_not(name: str, plan: Plan) -> str:
    """What of a plan keeps an optimization out; empty where nothing does."""
    found = (why for pair, why in EXCLUDED.items() if name in pair and _others(pair, name, plan))
    return next(found, "")


def _others(pair: frozenset[str], name: str, plan: Plan) -> bool:
    return all(OPTIMIZATIONS[other].used(plan) for other in pair - {name})


def both_used(plan: Plan) -> tuple[str, str, str] | None:
    """Two optimizations of a plan that exclude each other, and why; None where there are none."""
    used = [name for name, one in OPTIMIZATIONS.items() if one.used(plan)]
    return next(
        ((a, b, EXCLUDED[pair]) for a, b in combinations(used, 2) if (pair := frozenset((a, b))) in EXCLUDED), None
    )


def check_asked(options: Options, function: Operation) -> None:
    """Raises Declined where a person asks for two optimizations that exclude each other."""
    asked = [name for name, one in OPTIMIZATIONS.items() if one.asked and _is_asked(options, one.asked)]
    for a, b in combinations(asked, 2):
        if (why := EXCLUDED.get(frozenset((a, b)))) is not None:
            message, note = f"{a} and {b} were asked for and exclude each other: {why}", "ask for one of them"
            raise Declined(Remark("excluded", message, function.location, note=note))


def _is_asked(options: Options, asked: Mapping[str, object]) -> bool:
    """An amount is asked for by more than one, anything else by its own value."""
    return all(_is_more(getattr(options, name), value) for name, value in asked.items())


def _is_more(value: object, wanted: object) -> bool:
    amount = isinstance(value, int) and not isinstance(value, bool)
    return value > 1 if amount and isinstance(value, int) else value == wanted
