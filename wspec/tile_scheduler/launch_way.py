"""How long a launch is expected to take one way or another: what chooses between binaries of one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wspec.tile_scheduler.costs import Grid, TileCost, fields, whole, wrong
from wspec.tile_scheduler.sampled import Sampler

_SIMPSON = (1 / 8, 3 / 8, 3 / 8, 1 / 8)  # of four tiles at even distances; exact where costs grow evenly


@dataclass(frozen=True)
class LaunchWay:
    """A binary of a kernel, by the options that make it, and what a tile takes there. `to_data`, `from_data`: inverse.

    Blocks walk through tiles, `coarsening` neighbours along `axis` at a time. A tile's cost is cycles of an SM that has
    as many of them under way as fit.
    """

    name: str
    change: Mapping[str, int]  # options, beside those of the kernel; none: the kernel as it is compiled first
    cost: TileCost
    coarsening: int = 1
    axis: int = 0

    @cached_property
    def _sampler(self) -> Sampler:
        return Sampler(self.cost)

    def cycles(self, grid: Grid, values: Mapping[int, int], sms: int) -> float | None:
        """Of a launch on so many SMs; None where trip counts cannot be told.

        Tiles of one cost are spread evenly, but for one; others so that all SMs are busy about as long. A group of
        neighbours takes as long as the dearest of them.
        """
        found = self._sampler.four(grid, values)
        if found is None:
            return None
        costs, along = found
        units = 1
        for axis, size in enumerate(grid):
            units *= -(-size // self.coarsening) if axis == self.axis else size
        dearest, mean = max(costs), sum(part * cost for part, cost in zip(_SIMPSON, costs, strict=True))
        if along == self.axis:
            slope = (dearest - min(costs)) / max(1, grid[along] - 1)
            mean = min(dearest, mean + slope * (self.coarsening - 1) / 2)
        busiest = -(-units // sms) * dearest if dearest == min(costs) else max(units / sms * mean, dearest)
        return self.coarsening * busiest

    def to_data(self) -> dict[str, Any]:
        """As numbers, texts and lists, for a file."""
        names = ("name", "coarsening", "axis")
        return {
            **{name: getattr(self, name) for name in names},
            "change": dict(self.change),
            "cost": self.cost.to_data(),
        }

    @staticmethod
    def from_data(data: Any) -> LaunchWay:
        """Read `to_data`'s form. Raises ValueError saying what is wrong with it."""
        row = fields(data, ("name", "change", "cost", "coarsening", "axis"), "the top level")
        if not isinstance(row["name"], str) or not isinstance(row["change"], dict):
            raise wrong("change", row["change"])
        change = {str(name): whole(value, "change") for name, value in row["change"].items()}
        numbers = [whole(row[name], name) for name in ("coarsening", "axis")]
        return LaunchWay(row["name"], change, TileCost.from_data(row["cost"]), *numbers)


def fastest(ways: tuple[LaunchWay, ...], grid: Grid, values: Mapping[int, int], sms: int) -> list[tuple[float, int]]:
    """(cycles, number) of the ways, the fastest first, of equals the first; empty where that cannot be told."""
    found = [(way.cycles(grid, values, sms), at) for at, way in enumerate(ways)]
    known = [(cycles, at) for cycles, at in found if cycles is not None]
    return sorted(known) if len(known) == len(ways) else []
