"""Why a plan lost to another one, in a sentence."""

from __future__ import annotations

from wspec.diagnostics import Remark
from wspec.lab.search.timing import Timing
from wspec.lab.simulate.costs import NAMES

_WAITS = {
    "tile": "tiles that TMA brings",
    "buffer": "another task",
    "dot": "the tensor core",
    "named barrier": "their turn",
    "warps of the task": "the other warps of their task",
    "store": "stores that read their tile",
    "copies": "copies",
    "units": "busy units",
    "latency": "results of their own arithmetic",
    "start": "the start of blocks and tasks",
}
TIE = 0.002  # of the time


def why_slower(timings: tuple[Timing, ...], best: tuple[Timing, ...], ratio: float) -> str:
    """`2.1 % slower: ...`, and the largest difference in the launch that differs most: a wait, or a unit's work."""
    if not timings or not best:
        return "the simulator cannot play it"
    pairs = list(zip(timings, best, strict=True))
    mine, theirs = max(pairs, key=lambda pair: pair[0].tile_cycles / pair[1].tile_cycles)
    lost = mine.tile_cycles - theirs.tile_cycles
    if lost < TIE * theirs.tile_cycles or ratio < 1 + TIE / 2:
        return "the same time"
    return f"{100 * (ratio - 1):.1f} % slower: {_difference(mine, theirs, lost)}"


def _difference(mine: Timing, theirs: Timing, lost: float) -> str:
    causes = {cause: mine.waits.get(cause, 0.0) - theirs.waits.get(cause, 0.0) for cause in _WAITS}
    cause = max(causes, key=lambda one: causes[one])
    busy = {unit: _busy(mine, unit) - _busy(theirs, unit) for unit in mine.utilization}
    unit = max(busy, key=lambda one: busy[one])
    at = f"at length {mine.launch.length}"
    if mine.blocks_per_sm < theirs.blocks_per_sm:
        at += f", with {mine.blocks_per_sm} instead of {theirs.blocks_per_sm} blocks an SM"
    if busy[unit] > max(0.5 * lost, causes[cause]):
        return f"{at}, {NAMES.get(unit, unit)} {busy[unit]:.0f} cycles a tile more"
    if causes[cause] > 0.1 * lost:
        return f"{at}, warps wait {causes[cause]:.0f} cycles a tile longer for {_WAITS[cause]}"
    name, share = NAMES.get(mine.busiest, mine.busiest), 100 * mine.utilization[mine.busiest]
    return f"{at}, {lost:.0f} cycles a tile more; {name} busy {share:.0f} % of the time"


def _busy(timing: Timing, unit: str) -> float:
    """Cycles a tile."""
    return timing.utilization[unit] * timing.tile_cycles


def why_declined(remark: Remark | None) -> str:
    """Why there is no such plan."""
    return "" if remark is None else f"{remark.message} [{remark.code}]"
