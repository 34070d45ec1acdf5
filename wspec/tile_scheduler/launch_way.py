"""How long a launch is expected to take one way or another: what chooses between binaries of one kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wspec.tile_scheduler.costs import Grid, TileCost, fields, whole, wrong
from wspec.tile_scheduler.sampled import Costs, Sampler, differ_in_cycles, four_sampler


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
        costs = self._sampler.four(grid, values)
        return None if costs is None else self.of(costs, self._sampler.along, grid, sms)

    def of(self, costs: Costs, along: int, grid: Grid, sms: int) -> float:
        """The same, by what four tiles cost along an axis."""
        size, threes = grid[self.axis], self.coarsening
        units = grid[0] * grid[1] * grid[2] // size * -(-size // threes)
        one, two, three, four = costs
        if one == two == three == four:
            return threes * -(-units // sms) * one
        dearest, cheapest = max(costs), min(costs)
        mean = (one + 3 * two + 3 * three + four) / 8  # Simpson's: exact where costs grow evenly
        if along == self.axis and size > 1:
            slope = (dearest - cheapest) / (size - 1)
            mean = min(dearest, mean + slope * (threes - 1) / 2)
        busiest = units / sms * mean
        return threes * (busiest if busiest > dearest else dearest)

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


class Ranking:
    """What `fastest` says of the same ways, in a few microseconds; it takes some 100 to make."""

    def __init__(self, ways: tuple[LaunchWay, ...]) -> None:
        self.ways = ways
        samplers = [Sampler(way.cost) for way in ways]
        self._along = samplers[0].along
        self._of = [way.of for way in ways]
        shared = differ_in_cycles([way.cost for way in ways]) and len(samplers[0].axes) < 2
        self._four = four_sampler([way.cost for way in ways], self._along) if shared else None

    def fastest(self, grid: Grid, values: Mapping[int, int], sms: int) -> Sequence[int]:
        """The ways' numbers in turn; values are `near` the launch's."""
        if self._four is None:
            return [at for _, at in fastest(self.ways, grid, values, sms)]
        if grid[0] < 1 or grid[1] < 1 or grid[2] < 1:
            return ()
        try:
            costs = self._four(*grid, values)
        except (ArithmeticError, ValueError):
            return ()
        along = self._along
        cycles = [of(each, along, grid, sms) for of, each in zip(self._of, costs)]  # noqa: B905  # every call counts
        if len(cycles) == 2:
            return (0, 1) if cycles[0] <= cycles[1] else (1, 0)
        return sorted(range(len(cycles)), key=cycles.__getitem__)


NEAR = "({0} if -256 < {1} < 256 else (({0} - 1) | 31) + 1)"
"""`near` of a name as text, for functions that are written for a kernel; the second is read first."""

near: Callable[[int], int] = eval(f"lambda value: {NEAR.format('value', 'value')}")
"""What stands for a number that decides between ways or orders: there, sizes between two multiples of 32 are alike.

Numbers of less than 256, which need not be sizes, stand for themselves."""


def fastest(ways: tuple[LaunchWay, ...], grid: Grid, values: Mapping[int, int], sms: int) -> list[tuple[float, int]]:
    """(cycles, number) of the ways, the fastest first, of equals the first; empty where that cannot be told."""
    found = []
    values = {index: near(value) for index, value in values.items()}
    for at, way in enumerate(ways):
        cycles = way.cycles(grid, values, sms)
        if cycles is None:
            return []
        found.append((cycles, at))
    found.sort()
    return found
