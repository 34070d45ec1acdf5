"""How things that run at the same time share the units: each as fast as the others, until a unit is full.

A flow that has its units for itself runs at speed 1, and keeps unit u busy for a share of the time. The speeds of flows
that run together are raised together until a unit is busy all the time; those that use it stay there, the others go on
(max-min fairness). This is what a scheduler that takes turns between warps comes to.
"""

from __future__ import annotations

from collections.abc import Mapping

from wspec.simulate.actions import Flow
from wspec.simulate.costs import UNITS

Speeds = tuple[tuple[float, ...], tuple[float, ...]]  # of each flow; how busy each unit is, 0 to 1
_EPSILON = 1e-9


class Sharing:
    """Remembers the speeds of every combination of flows it has met."""

    def __init__(self, capacity: Mapping[int, float] | None = None) -> None:
        """`capacity` of units that have more than 1."""
        self._capacity = tuple((capacity or {}).get(unit, 1.0) for unit in range(len(UNITS)))
        self._known: dict[tuple[Flow, ...], Speeds] = {}

    def speeds(self, flows: tuple[Flow, ...]) -> Speeds:
        found = self._known.get(flows)
        if found is None:
            found = self._known[flows] = share(flows, self._capacity)
        return found


def share(flows: tuple[Flow, ...], capacity: tuple[float, ...] = (1.0,) * len(UNITS)) -> Speeds:
    """The speeds of flows that run together. A flow without cycles is not one."""
    shares = [{unit: cycles / flow.cycles for unit, cycles in flow.busy} for flow in flows]
    speeds = [0.0] * len(flows)
    free = list(capacity)
    rising = set(range(len(flows)))
    while rising:
        loads = [sum(shares[one].get(unit, 0.0) for one in rising) for unit in range(len(UNITS))]
        step = min([1.0 - max(speeds[one] for one in rising),
                    *(free[u] / load for u, load in enumerate(loads) if load > _EPSILON)])  # fmt: skip
        for one in rising:
            speeds[one] += step
        for unit, load in enumerate(loads):
            free[unit] = max(0.0, free[unit] - step * load)
        full = {unit for unit, load in enumerate(loads) if load > _EPSILON and free[unit] <= _EPSILON}
        stay = {one for one in rising if speeds[one] >= 1 - _EPSILON or full & shares[one].keys()}
        rising -= stay or rising
    return tuple(speeds), tuple((most - left) / most for most, left in zip(capacity, free, strict=True))
