"""What else could have been decided: the options that would have the planner make another plan, and their names.

Search plays these plans on the simulator, and `tune=N` times some of them on the card.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from wspec.decision import NOT_ASKED, Decision
from wspec.options import Options
from wspec.plan.plan import Plan, Prediction
from wspec.planner.tile_loops import WHOLE
from wspec.target.hopper import WARP_GROUP
from wspec.tile_scheduler import StreamK

RULE = "the planner's"  # name of its own plan among others
Change = Mapping[str, Any]  # option -> value
DEFAULTS = Options()
DECISIONS = frozenset(("persistent", "ping_pong", "overlap", "coarsening", "consumers", "blocks", "depth", "staging"))
DECISIONS |= {"chain", "shared_barriers"}
"""The options that are varied. What the planner decides by a rule of its own, such as held waits, is not."""


def pinned(options: Options, plan: Plan) -> Options:
    """The options under which the planner makes this plan again, with less to find out."""
    decided: dict[str, Any] = {"persistent": plan.persistent, "gate": "off"}
    if not plan.helpers:
        decided["chain"] = "off"
    return options.replace(**decided)


def variations(options: Options, plan: Plan) -> Iterator[Change]:
    """Changes of one decision each, those that matter most first. What a person has decided stays."""
    for change in _all(plan):
        if all(getattr(options, name) == getattr(DEFAULTS, name) for name in change):
            yield change


def _all(plan: Plan) -> Iterator[Change]:
    late = any(loop.stage1 for loop in plan.loops)
    turns = any(loop.ping_pong for loop in plan.loops)
    yield {"persistent": not plan.persistent}
    if late and plan.consumer.replicas > 1:
        yield {"ping_pong": not turns}
    if late:
        yield {"overlap": False}
    if plan.persistent and plan.source_warps == WARP_GROUP:
        yield from ({"coarsening": count} for count in (3, 2) if count != plan.coarsening)
    yield from ({"consumers": count} for count in (1, 2, 3) if count != plan.consumer.replicas)
    yield from ({"blocks": count} for count in (1, 2, 3) if count != plan.blocks_per_sm)
    depths = [c.depth for c in plan.channels if c.reused and not c.stays and not c.is_computed]
    if depths:
        yield from ({"depth": depth} for depth in (max(depths) - 1, max(depths) + 1) if 1 <= depth <= 8)
    used = {kind for _, _, kind in plan.staging}
    yield from ({"staging": kind} for kind in ("own", "subtiles", "buffer", "ring") if kind not in used)
    if plan.shared_barriers:
        yield {"shared_barriers": False}
    if plan.helpers or plan.prediction.chain_cycles:
        yield {"chain": "off" if plan.helpers else "on"}


def together(first: Change, second: Change) -> Change | None:
    """Both changes; None where they are about the same decision."""
    return None if set(first) & set(second) else {**first, **second}


def in_words(change: Change) -> str:
    """`no turns and 2 blocks an SM`."""
    return " and ".join(_word(name, value) for name, value in change.items())


def _word(name: str, value: Any) -> str:
    words = {
        ("persistent", True): "blocks walk through tiles",
        ("persistent", False): "one block a tile",
        ("ping_pong", True): "in turns",
        ("ping_pong", False): "no turns",
        ("overlap", False): "nothing late",
        ("chain", "on"): "with a third task",
        ("chain", "off"): "no third task",
        ("shared_barriers", False): "a barrier for each tile",
    }
    if (name, value) in words:
        return words[name, value]
    if name == "coarsening":
        return f"a team of {value}"
    if name == "consumers":
        return f"{value} consumer warp group{'s' if value > 1 else ''}"
    if name == "blocks":
        return f"{value} block{'s' if value > 1 else ''} an SM"
    if name == "depth":
        return f"rings of {value}"
    if name == "staging":
        return _STAGED[str(value)]
    return f"{name}={value}"


_STAGED = {
    "own": "stores through a buffer of their own",
    "subtiles": "stores in halves through half a buffer",
    "buffer": "stores through an operand's buffer",
    "ring": "stores through a ring",
}


def same(first: Plan, second: Plan) -> bool:
    """Do two plans emit the same kernel? What was expected of them may differ."""
    return emitted(first) == emitted(second)


def emitted(plan: Plan) -> Plan:
    """The plan without what it says about itself: costs, expectations and reasons."""
    tiles = plan.tile_loop
    if tiles is not None:
        divided = Decision(StreamK(0, 0.0, 1)) if tiles.stream_k else NOT_ASKED
        tiles = replace(tiles, cost=WHOLE.cost, stream_k=divided)
    overlap, subtiling = Decision(plan.epilogue_overlap.value), Decision(plan.subtiling.value)
    held = plan.hold_waits and any(loop.stage1 for loop in plan.loops)  # else there is nothing to hold
    plain = replace(plan, prediction=Prediction(), hold_waits=held, shared_barriers=NOT_ASKED)
    return replace(plain, tile_loop=tiles, epilogue_overlap=overlap, subtiling=subtiling, ping_pong=NOT_ASKED)
