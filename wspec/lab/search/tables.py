"""The plans that lost, as a table and as JSON. Nobody prints here."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from wspec.lab.search import Candidate, Search
from wspec.lab.search.timing import Timing
from wspec.plan.plan import Plan
from wspec.show.tables import table
from wspec.tune.variations import RULE


def search_view(found: Search, is_used: bool, kept: int = 5) -> RenderableType:
    """The planner's plan among the candidates, fastest first, and what could not be had. `is_used`: not gated."""
    names = [f"length {launch.length}" for launch in found.launches]
    title = f"plans, predicted for {' and '.join(f'{one.length} ({_tiles(one.grid)} tiles)' for one in found.launches)}"
    made = table(title, "plan", *names, "x best", "bound", "why it lost", right=(*names, "x best"))
    shown = [one for at, one in enumerate(found.ranked) if at <= kept or one.name == RULE]
    for one in shown:
        name = f"{one.name} (used)" if one.name == RULE and is_used else one.name
        made.add_row(name, *_times(one.timings, len(names)), _ratio(one), one.bound, Text(one.why))
    if found.plain and found.best.timings:
        ratio = math.prod(
            mine.microseconds / best.microseconds for mine, best in zip(found.plain, found.best.timings, strict=True)
        )
        cells = f"{ratio ** (1 / len(names)):.3f}", found.plain[-1].bound
        made.add_row("the plain kernel", *_times(found.plain, len(names)), *cells, "")
    for one in found.refused:
        made.add_row(one.name, *("-" for _ in names), "-", one.bound, Text(one.why))
    lines = [f"{_verdict(found, is_used)} ({found.seconds:.1f} s)"]
    if len(found.ranked) > len(shown):
        lines.append(f"{len(found.ranked) - len(shown)} slower ones are not shown")
    if found.skipped:
        lines.append(f"not looked at, as the search had played enough: {', '.join(found.skipped)}")
    if found.note:
        lines.append(found.note)
    return Group(made, Text("\n".join(lines)))


def _verdict(found: Search, is_used: bool) -> str:
    used = "the planner's own plan is used"
    if not is_used:
        used = "the kernel is left as it was; under gate=off it would run by the planner's own plan"
    if found.best is found.own or not found.best.timings:
        return used
    ahead = 100 * (1 - found.best.ratio / found.own.ratio) if math.isfinite(found.own.ratio) else 100.0
    sure = "more than it errs by" if found.chosen is found.best else "less than it errs by"
    return f"{used}; the simulator expects {ahead:.1f} % less time of another one, {sure}"


def _times(timings: tuple[Timing, ...], count: int) -> list[str]:
    return [f"{one.microseconds:.1f} us" for one in timings] if timings else ["-"] * count


def _ratio(one: Candidate) -> str:
    return f"{one.ratio:.3f}" if math.isfinite(one.ratio) else "-"


def _tiles(grid: tuple[int, int, int]) -> int:
    return grid[0] * grid[1] * grid[2]


# --------------------------------------------------------------------------------------------------- JSON


def plan_json(plan: Plan | None, found: Search | None) -> dict[str, Any]:
    """All of it as values that `json` writes; times are microseconds, everything else cycles of an SM."""
    return {
        "plan": None if plan is None else asdict(plan),
        "search": None if found is None else _search_json(found),
    }


def _search_json(found: Search) -> dict[str, Any]:
    return {
        "launches": [{"length": one.length, "grid": list(one.grid)} for one in found.launches],
        "chosen": found.chosen.name,
        "plans": [_candidate_json(one) for one in found.ranked],
        "refused": [_candidate_json(one) for one in found.refused],
        "plain": [_timing_json(one) for one in found.plain],
        "skipped": list(found.skipped),
        "seconds": found.seconds,
        "note": found.note,
    }


def _candidate_json(one: Candidate) -> dict[str, Any]:
    return {
        "name": one.name,
        "ratio": one.ratio if math.isfinite(one.ratio) else None,
        "bound": one.bound,
        "why": one.why,
        "launches": [_timing_json(timing) for timing in one.timings],
        "plan": None if one.plan is None else one.plan.to_text(),
    }


def _timing_json(one: Timing) -> dict[str, Any]:
    return {
        "length": one.launch.length,
        "microseconds": one.microseconds,
        "tile_cycles": one.tile_cycles,
        "bound": one.bound,
        "utilization": dict(one.utilization),
        "waits": dict(one.waits),
    }
