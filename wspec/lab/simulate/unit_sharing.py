"""How things that run at the same time share the units.

A flow that has its units for itself runs at speed 1, and keeps unit u busy for a share of the time. Dots come first. Of
arithmetic what has run longest comes first, as schedulers prefer the older warp, but for a tenth of every unit; that
tenth is shared: speeds are raised together until a unit is busy all the time, those that use it stay there, the others
go on (max-min fairness). Without the preference blocks that begin together would stay in step for ever. Beside
stores tiles get their part of the way into shared memory first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wspec.lab.simulate.actions import Flow
from wspec.lab.simulate.costs import FILL, ISSUE, LOAD, SMEM, TENSOR, UNITS

Speeds = tuple[tuple[float, ...], tuple[float, ...]]  # of each flow; how busy each unit is, 0 to 1
_EPSILON = 1e-9
_LEAST = 0.1
"""Of every unit, for arithmetic that others come before."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the units can do beside each other."""

    issue_one: float = 1.0  # of its issue slots that a warp group gets beside a busy tensor core
    issue_all: float = 1.0  # that all of them get together
    beside_one: Mapping[int, float] = field(default_factory=dict)  # of other units that a warp group gets then
    beside_all: Mapping[int, float] = field(default_factory=dict)
    dots_beside_copies: float = 1.0  # their speed
    smem_left: float = 0.0  # of shared memory's bandwidth, whatever dots read
    copies_beside_stores: float = 1.0  # the speed of copies on the way into it
    in_step: bool = False  # arithmetic that came earlier has no precedence


NO_LIMITS = Limits()


class Sharing:
    """Remembers the speeds of every combination of flows it has met."""

    def __init__(self, limits: Limits = NO_LIMITS) -> None:
        self._limits = limits
        self._known: dict[tuple[Flow, ...], Speeds] = {}

    def speeds(self, flows: tuple[Flow, ...]) -> Speeds:
        found = self._known.get(flows)
        if found is None:
            found = self._known[flows] = share(flows, self._limits)
        return found


def share(flows: tuple[Flow, ...], limits: Limits = NO_LIMITS) -> Speeds:
    """The speeds of flows that run together. A flow without cycles is not one.

    The tensor core takes what it wants of shared memory and of the registers' ports; the others share what is left, and
    beside a busy tensor core warps get a part of their issue slots only.
    """
    shares = [{unit: cycles / flow.cycles for unit, cycles in flow.busy} for flow in flows]
    speeds = [0.0] * len(flows)
    free = [1.0] * len(UNITS)
    dots = [number for number, one in enumerate(shares) if TENSOR in one]
    others = [number for number, one in enumerate(shares) if TENSOR not in one]
    copies = [one for one in others if LOAD in shares[one] and ISSUE not in shares[one]]
    _raise(dots, shares, speeds, free, {}, limits.dots_beside_copies if copies else 1.0)
    free[SMEM] = max(free[SMEM], limits.smem_left)
    tensor = 1.0 - free[TENSOR]
    together = {ISSUE: limits.issue_all, **limits.beside_all}
    lost = {unit: max(0.0, free[unit] - 1 + (1 - part) * tensor) for unit, part in together.items()}
    for unit, part in lost.items():
        free[unit] -= part
    least = [max(_LEAST * left, 0.0) for left in free]
    free = [left - kept for left, kept in zip(free, least, strict=True)]
    alone = {ISSUE: limits.issue_one, **limits.beside_one}
    most = {unit: 1 - (1 - part) * tensor for unit, part in alone.items()}
    working = [one for one in others if ISSUE in shares[one]]
    storing = [one for one in working if FILL in shares[one]]
    meeting = copies if storing else []
    if meeting:
        part = _meet(storing, meeting, shares, limits.copies_beside_stores)
        _raise(meeting, shares, speeds, free, {LOAD: part})
    for one in working:
        if LOAD in shares[one] or limits.in_step:
            continue
        _raise([one], shares, speeds, free, most)
    free = [left + kept for left, kept in zip(free, least, strict=True)]
    _raise([one for one in others if one not in meeting], shares, speeds, free, most)
    _raise(meeting, shares, speeds, free, {})
    for unit, part in lost.items():
        free[unit] += part
    return tuple(speeds), tuple(1.0 - left for left in free)


def _meet(storing: list[int], copies: list[int], shares: list[dict[int, float]], copied: float) -> float:
    """Tiles that arrive and stores both get the part of the way into shared memory that is returned, of what each of
    them would take alone. A store that meets a tile is tried again. `copied`: the speed of tiles on the way then."""
    for one in copies:
        shares[one][FILL] = shares[one].get(FILL, 0.0) / copied
    arriving = sum(shares[one][FILL] for one in copies) / max(1.0, sum(shares[one][LOAD] for one in copies))
    part = 1 / max(1.0, arriving + min(1.0, sum(shares[one][FILL] for one in storing)))
    for one in storing:
        again = arriving * part / (1 - arriving * part)
        shares[one][SMEM] = shares[one].get(SMEM, 0.0) + shares[one][FILL] * again
    return part


def _raise(
    some: list[int],
    shares: list[dict[int, float]],
    speeds: list[float],
    free: list[float],
    parts: Mapping[int, float],
    top: float = 1.0,
) -> None:
    """Raise the speeds of some flows together, each up to `top` and these parts of the units, within what is free."""
    most = {
        one: min([top, *(part / share for unit, part in parts.items() if (share := shares[one].get(unit, 0.0)) > part)])
        for one in some
    }
    rising = set(some)
    while rising:
        loads = [sum(shares[one].get(unit, 0.0) for one in rising) for unit in range(len(UNITS))]
        step = min([*(most[one] - speeds[one] for one in rising),
                    *(free[u] / load for u, load in enumerate(loads) if load > _EPSILON)])  # fmt: skip
        for one in rising:
            speeds[one] += step
        for unit, load in enumerate(loads):
            free[unit] = max(0.0, free[unit] - step * load)
        full = {unit for unit, load in enumerate(loads) if load > _EPSILON and free[unit] <= _EPSILON}
        stay = {one for one in rising if speeds[one] >= most[one] - _EPSILON or full & shares[one].keys()}
        rising -= stay or rising
