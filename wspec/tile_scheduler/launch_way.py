"""How long a launch is expected to take one way or another: what chooses between binaries of one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wspec.tile_scheduler.costs import Grid, TileCost, fields, whole, wrong
from wspec.tile_scheduler.sampled import Sampler


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

    def prepare(self) -> None:
        """Make, in some 100 us, what `cycles` needs the first time."""
        _ = self._sampler

    def cycles(self, grid: Grid, values: Mapping[int, int], sms: int) -> float | None:
        """Of a launch on so many SMs; None where trip counts cannot be told.

        Tiles of one cost are spread evenly, but for one; others so that all SMs are busy about as long. A group of
        neighbours takes as long as the dearest of them.
        """
        costs = self._sampler.four(grid, values)
        if costs is None:
            return None
        size, along = grid[self.axis], self._sampler.along
        units = grid[0] * grid[1] * grid[2] // size * -(-size // self.coarsening)
        dearest, cheapest = max(costs), min(costs)
        if dearest == cheapest:
            return self.coarsening * -(-units // sms) * dearest
        mean = (costs[0] + 3 * costs[1] + 3 * costs[2] + costs[3]) / 8  # Simpson's: exact where costs grow evenly
        if along == self.axis:
            slope = (dearest - cheapest) / max(1, size - 1)
            mean = min(dearest, mean + slope * (self.coarsening - 1) / 2)
        busiest = max(units / sms * mean, dearest)
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
    found = []
    for at, way in enumerate(ways):
        cycles = way.cycles(grid, values, sms)
        if cycles is None:
            return []
        found.append((cycles, at))
    found.sort()
    return found
