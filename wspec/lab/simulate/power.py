"""The SM clock under the card's power limit.

What the SMs do in a cycle costs a part of the limit that grows with the clock, and faster than it, since the voltage
rises too; what memory sends costs a part for each byte. The clock is the one at which both together are the limit, or
the highest there is. On top, tensor cores that start and stop all the time stretch the clock, at any power. The costs
are those at which the clocks come out that were measured under sustained load (topic `power` of the machine
description; least squares), and the stretch is what was measured below the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from statistics import fmean

import numpy as np

from wspec.lab.measurements import Measured

Tables = Mapping[str, Mapping[int, Measured]]
_EXPONENTS = np.arange(1.0, 3.01, 0.05)  # that are tried
_LIMITED = 0.97  # of the highest clock: what runs faster is not at the limit
_SOFTMAX_PAIR = 10  # instructions
_ISSUED = 128  # lanes that the four schedulers issue for in a cycle


@dataclass(frozen=True, slots=True)
class Draw:
    """What an SM does, mean over all SMs and cycles."""

    tensor: float = 0.0  # the part of the time that its tensor core is busy
    issue: float = 0.0  # the part of its issue slots that are used
    moved: float = 0.0  # bytes a cycle between L2 and the SM
    read: float = 0.0  # bytes a cycle of L2: what several SMs get at once is read once
    memory: float = 0.0  # bytes a cycle between memory and L2


@dataclass(frozen=True)
class Power:
    """What each unit of a Draw costs at the highest clock, as a part of the limit."""

    light_mhz: float
    costs: Draw = Draw()
    exponent: float = 1.0
    stretched: Mapping[float, float] = field(default_factory=dict)
    """By the part of the time that tensor cores are busy, in pieces: the part of the clock that is left."""

    def mhz(self, draw: Draw) -> float:
        """The clock of a kernel. Its tensor cores always start and stop, if it has them work."""
        left = self.left(draw.tensor)
        return self.light_mhz * left * self.limited(draw, left)

    def shared_mhz(self, clocks: Sequence[float]) -> float:
        """Of kernels that take turns of the same length, each so short that the limit is on their mean, from the clocks
        that they have by themselves: these say how much of the limit each would take at one clock."""
        mean: float = fmean(mhz**-self.exponent for mhz in clocks) ** (-1 / self.exponent)
        return mean

    def parts(self, draw: Draw) -> Draw:
        """The part of the limit that each takes at the clock of the kernel; all of them together, where it holds the
        clock down."""
        left = self.left(draw.tensor)
        share = self.limited(draw, left)
        grown, costs = left * share**self.exponent, self.costs
        return Draw(
            costs.tensor * draw.tensor * grown,
            costs.issue * draw.issue * grown,
            costs.moved * draw.moved * grown,
            costs.read * draw.read * grown,
            costs.memory * draw.memory * left * share,
        )

    def left(self, tensor: float) -> float:
        """The part of the clock that is left where tensor cores start and stop."""
        shares = sorted(self.stretched)
        return float(np.interp(tensor, shares, [self.stretched[one] for one in shares])) if shares else 1.0

    def limited(self, draw: Draw, left: float) -> float:
        """The part of the highest clock that the limit allows, before it is stretched."""
        *parts, memory = (cost * much for cost, much in zip(astuple(self.costs), astuple(draw), strict=True))
        slow, fast = 0.0, 1.0
        if left * (sum(parts) + memory) <= 1.0:
            return 1.0
        for _ in range(30):
            middle = (slow + fast) / 2
            if left * (sum(parts) * middle**self.exponent + memory * middle) > 1.0:
                fast = middle
            else:
                slow = middle
        return slow


@dataclass(frozen=True)
class Load:
    """A load whose clock was measured at the limit."""

    name: str
    mhz: float
    draw: Draw
    left: float  # of the clock; 1 where nothing pauses


@dataclass(frozen=True)
class Fit:
    """Power, and how well it says what it was made of."""

    power: Power
    loads: tuple[Load, ...]

    @cached_property
    def errors(self) -> tuple[float, ...]:
        power = self.power
        return tuple(power.light_mhz * one.left * power.limited(one.draw, one.left) / one.mhz - 1 for one in self.loads)


def fit(tables: Tables, light_mhz: float, sm_count: int) -> Fit | None:
    """None where too little was measured."""
    alone = tables.get("power.mhz_alone", {})
    stretched = {
        tables["power.share_alone"][row].value / 100: mhz.value / light_mhz for row, mhz in alone.items() if row < 100
    }
    base = Power(light_mhz, stretched=stretched)
    loads = tuple(one for one in _loads(tables, base, sm_count) if one.mhz < _LIMITED * one.left * light_mhz)
    if len(loads) < len(astuple(Draw())) + 2:
        return None
    fits = [Fit(_at(float(exponent), loads, base), loads) for exponent in _EXPONENTS]
    return min(fits, key=lambda one: sum(error**2 for error in one.errors))


def _at(exponent: float, loads: Sequence[Load], base: Power) -> Power:
    rows = []
    for one in loads:
        *parts, memory = astuple(one.draw)
        share = one.mhz / one.left / base.light_mhz
        rows.append([one.left * part * share**exponent for part in parts] + [one.left * memory * share])
    costs = np.linalg.lstsq(np.array(rows), np.ones(len(rows)), rcond=None)[0]
    return Power(base.light_mhz, Draw(*(float(cost) for cost in costs)), exponent, base.stretched)


def _loads(tables: Tables, base: Power, sm_count: int) -> Iterator[Load]:
    """All that were measured (lab/calibrate/power.py): copies are of one tile for all SMs, from memory, or from L2."""
    for key, clocks in tables.items():
        topic, _, load = key.partition(".mhz_")
        if topic != "power":
            continue
        for row, mhz in clocks.items():
            share, pairs, copied = (
                tables[name][row].value if name in tables else 0.0
                for name in (f"power.{what}_{load}" for what in ("share", "pairs", "bytes"))
            )
            draw = Draw(
                share / 100,
                _SOFTMAX_PAIR * pairs / _ISSUED,
                copied,
                copied / sm_count if load == "same" else copied,
                copied if load == "memory" else 0.0,
            )
            yield Load(f"{load} {row}", mhz.value, draw, 1.0 if row == 100 else base.left(draw.tensor))
