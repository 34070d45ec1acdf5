"""How long a launch is expected to take one way or another: what chooses between binaries of one kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wspec.tile_scheduler.costs import Grid, TileCost, fields, whole, wrong
from wspec.tile_scheduler.sampled import compiled, differ_in_cycles, four_lines, told


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
    def _cycles(self) -> Cycles | None:
        return _cycles_of((self,), "c0")

    def cycles(self, grid: Grid, values: Mapping[int, int], sms: int) -> float | None:
        """Of a launch on so many SMs; None where trip counts cannot be told.

        Tiles of one cost are spread evenly, but for one; others so that all SMs are busy about as long. A group of
        neighbours takes as long as the dearest of them.
        """
        found: float | None = told(self._cycles, grid, [values[at] for at in self.cost.parameters], sms)
        return found

    def lines(self, which: int, along: int) -> list[str]:
        """Lines that compute the cycles as `c`, `which`: by what four tiles cost along an axis (`four_lines`)."""
        costs, threes, size = [f"t{which}_{at}" for at in range(4)], self.coarsening, "g" + "xyz"[self.axis]
        one, two, three, four = costs
        all_of = ", ".join(costs)
        lines = [
            f"units = gx * gy * gz // {size} * -(-{size} // {threes})" if threes > 1 else "units = gx * gy * gz",
            f"if {' == '.join(costs)}:",
            f"    c{which} = {threes} * -(-units // sms) * {one}",
            "else:",
            f"    dearest = max({all_of})",
            f"    mean = ({one} + 3 * {two} + 3 * {three} + {four}) / 8",  # Simpson's: exact where costs grow evenly
        ]
        if along == self.axis and threes > 1:
            slope = f"(dearest - min({all_of})) / ({size} - 1)"
            lines.append(f"    if {size} > 1: mean = min(dearest, mean + {slope} * {(threes - 1) / 2})")
        return [*lines, "    busiest = units / sms * mean", f"    c{which} = {threes} * max(busiest, dearest)"]

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


Cycles = Callable[[int, int, int, Sequence[int], int], Any]
"""Of a grid of three sizes, with the arguments that decide, in turn, on so many SMs."""


def _cycles_of(ways: Sequence[LaunchWay], found: str) -> Cycles | None:
    """What is made of the cycles, by names `c0` and so on, of ways whose costs differ in cycles only, and depend on one
    axis."""
    costs = [way.cost for way in ways]
    axes = {scalar.value for scalar in costs[0].scalars if scalar.name == "program_id"}
    if len(axes) > 1 or not differ_in_cycles(costs):
        return None
    along = min(axes, default=0)
    lines = [line for which, way in enumerate(ways) for line in way.lines(which, along)]
    made: Cycles = compiled("gx, gy, gz, values, sms", [*four_lines(costs, along), *lines, f"return {found}"])
    return made


class Ranking:
    """What `fastest` says of the same ways, in a few microseconds; it takes some 100 to make."""

    def __init__(self, ways: tuple[LaunchWay, ...]) -> None:
        self.ways = ways
        self.parameters = sorted({index for way in ways for index in way.cost.parameters})
        names = "".join(f"c{which}, " for which in range(len(ways)))
        turn = f"sorted(range({len(ways)}), key=({names}).__getitem__)"
        self._turn = _cycles_of(ways, "(0, 1) if c0 <= c1 else (1, 0)" if len(ways) == 2 else turn)

    def fastest(self, grid: Grid, values: Sequence[int], sms: int) -> Sequence[int]:
        """The ways' numbers in turn; values are `near` those of the launch's `parameters`."""
        if self._turn is None:
            return [at for _, at in fastest(self.ways, grid, dict(zip(self.parameters, values, strict=True)), sms)]
        return told(self._turn, grid, values, sms) or ()


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
