"""The schedule of a plan's loops, and the plans that lost, as tables and as JSON. Nobody prints here."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from wspec.diagnostics import place_text
from wspec.ir.core import Operation
from wspec.lab.search import Candidate, Search, SteadyState
from wspec.lab.search.search import RULE
from wspec.lab.search.timing import Timing
from wspec.plan.plan import Plan
from wspec.show.tables import table

SMALL = 0.02  # of the interval: operations that take less are not shown, but for dots and loads


def schedule_view(steady: SteadyState, registers: int) -> RenderableType:
    """One loop in steady state: what starts when, a line for each bound. Consumers have so many registers a thread."""
    numbers = ("cycles", "start", "behind")
    made = table(
        f"schedule of the loop at {_place(steady.loop)}", "value", "task", "unit", "cycles", "start", "behind", "at",
        right=numbers,
    )  # fmt: skip
    for row in steady.rows:
        if row.cycles >= SMALL * steady.interval:
            cells = (f"{row.cycles:.0f}", f"{row.start:.0f}", str(row.stage) if row.stage else "")
            made.add_row(row.name, row.task, row.unit, *cells, _place(row.op))
    proved = "the shortest there is" if steady.optimal else f"none is shorter than {steady.lower:.0f}"
    tasks = ", ".join(f"{task} {cycles:.0f}" for task, cycles in steady.tasks.items())
    lines = [
        f"interval   {steady.interval:.0f} cycles, bound: {steady.bound}; by {steady.solver}, {proved}",
        f"resources  {steady.resource:.0f}: {steady.unit}; busiest unit of each task: {tasks}",
        f"recurrence {steady.recurrence:.0f}" + (f": {steady.way}" if steady.way else ""),
        f"free       {steady.shortest:.0f} if any operation could run late, in any order",
        f"registers  about {steady.registers} a thread of {registers}",
    ]
    return Group(made, Text("\n".join(lines)))


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
    sure = "which search=1 would take" if found.chosen is found.best else "less than it errs by"
    return f"{used}; the simulator expects {ahead:.1f} % less time of another one, {sure}"


def _times(timings: tuple[Timing, ...], count: int) -> list[str]:
    return [f"{one.microseconds:.1f} us" for one in timings] if timings else ["-"] * count


def _ratio(one: Candidate) -> str:
    return f"{one.ratio:.3f}" if math.isfinite(one.ratio) else "-"


def _tiles(grid: tuple[int, int, int]) -> int:
    return grid[0] * grid[1] * grid[2]


def _place(op: Operation) -> str:
    return place_text(op.location).rpartition("/")[2]


# --------------------------------------------------------------------------------------------------- JSON


def plan_json(plan: Plan | None, schedules: tuple[SteadyState, ...], found: Search | None) -> dict[str, Any]:
    """All of it as values that `json` writes; times are microseconds, everything else cycles of an SM."""
    return {
        "plan": None if plan is None else asdict(plan),
        "schedules": [_schedule_json(one) for one in schedules],
        "search": None if found is None else _search_json(found),
    }


def _schedule_json(one: SteadyState) -> dict[str, Any]:
    rows = [
        {"value": row.name, "task": row.task, "unit": row.unit, "cycles": row.cycles, "start": row.start,
         "stage": row.stage, "at": place_text(row.op.location)}
        for row in one.rows
    ]  # fmt: skip
    return {
        "loop": place_text(one.loop.location),
        "interval": one.interval,
        "bound": one.bound,
        "resource": {"unit": one.unit, "cycles": one.resource},
        "recurrence": {"cycles": one.recurrence, "way": one.way},
        "lower": one.lower,
        "shortest": one.shortest,
        "solver": one.solver,
        "registers": one.registers,
        "tasks": dict(one.tasks),
        "rows": rows,
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
