"""What single tiles cost, in a few microseconds: for a launch that has to decide something about all of them at once.

`TileCost.evaluate` computes every tile's cost in arrays, which takes some 100 us whatever their size. Here the same
scalars become one Python function. It leaves out that integers of a card are cut off at their width: what depends on
that is in which order tiles are worked on, not which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from wspec.tile_scheduler.costs import Branch, Grid, TileCost
from wspec.tile_scheduler.order import Order
from wspec.tile_scheduler.scalars import Scalar

Sample = Callable[[int, int, int, int, int, int, Mapping[int, int]], float]
"""Of the tile x, y, z of a grid of three sizes, with the arguments that decide."""

_QUOTIENT = "({0} // {1} if {0} >= 0 else -(-{0} // {1}))"
_OPERATIONS = {
    "addi": "{0} + {1}",
    "subi": "{0} - {1}",
    "muli": "{0} * {1}",
    "divsi": _QUOTIENT,
    "divui": _QUOTIENT,
    "remsi": "{0} - {1} * " + _QUOTIENT,
    "remui": "{0} % {1}",
    "ceildivsi": "-(-{0} // {1})",
    "ceildivui": "-(-{0} // {1})",
    "floordivsi": "{0} // {1}",
    "minsi": "{0} if {0} < {1} else {1}",
    "maxsi": "{0} if {0} > {1} else {1}",
    "minui": "{0} if {0} < {1} else {1}",
    "maxui": "{0} if {0} > {1} else {1}",
    "andi": "{0} & {1}",
    "ori": "{0} | {1}",
    "xori": "{0} ^ {1}",
    "shli": "{0} << {1}",
    "shrsi": "{0} >> {1}",
    "shrui": "{0} >> {1}",
    "select": "{1} if {0} else {2}",
    "cast": "{0}",
    "cast_unsigned": "{0}",
}
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")


def sampler(cost: TileCost) -> Sample:
    """The function. It raises ArithmeticError or ValueError where a division or a shift has no result."""
    lines = [f"s{at} = {_text(scalar)}" for at, scalar in enumerate(cost.scalars)]
    total = [repr(float(cost.fixed))]
    for number, loop in enumerate(cost.loops):
        factors = []
        for part, factor in enumerate(loop.factors if not loop.unknown else ()):
            if isinstance(factor, Branch):
                factors.append(f"(s{factor.condition} {'!=' if factor.taken else '=='} 0)")
                continue
            name = f"n{number}_{part}"
            lines.append(
                f"{name} = -((s{factor.lower} - s{factor.upper}) // s{factor.step}) if s{factor.step} > 0 else 0"
            )
            factors.append(f"({name} if {name} > 0 else 0)")
        total.append(" * ".join([repr(float(loop.cycles)), *factors]))
    body = "\n    ".join([*lines, "return " + " + ".join(total)])
    space: dict[str, Sample] = {}
    exec(compile(f"def sample(x, y, z, gx, gy, gz, values):\n    {body}\n", "<wspec tile cost>", "exec"), space)
    return space["sample"]


def _text(scalar: Scalar) -> str:
    match scalar.name:
        case "constant":
            return repr(scalar.value)
        case "argument":
            return f"values[{scalar.value}]"
        case "program_id":
            return "xyz"[scalar.value]
        case "num_programs":
            return "g" + "xyz"[scalar.value]
        case "cmpi":
            return f"-(s{scalar.operands[0]} {_COMPARISONS[scalar.value]} s{scalar.operands[1]})"
    return _OPERATIONS[scalar.name].format(*(f"s{at}" for at in scalar.operands))


class Sampler:
    """What a kernel's tiles cost, asked again and again."""

    def __init__(self, cost: TileCost) -> None:
        self.cost = cost
        self.axes = sorted({scalar.value for scalar in cost.scalars if scalar.name == "program_id"})
        self.at = sampler(cost)

    def order(
        self, grid: Grid, values: Mapping[int, int], blocks: int, coarsening: int = 1, axis: int = 0
    ) -> Order | None:
        """In which the tiles of a launch go, `coarsening` neighbours on an axis at a time.

        None where a formula does not say: costs depend on several axes, or rise and fall. That is told by four tiles.
        """
        x, y, z = (-(-size // coarsening) if at == axis else size for at, size in enumerate(grid))
        sizes = x, y, z
        if not self.axes:
            return Order(sizes, blocks)
        four = self.four(grid, values)
        if four is None:
            return None
        found, along = four
        if min(found) == max(found):
            return Order(sizes, blocks)
        rises = all(one <= other for one, other in pairwise(found))
        falls = all(one >= other for one, other in pairwise(found))
        return Order(sizes, blocks, along, rises) if rises or falls else None

    def four(self, grid: Grid, values: Mapping[int, int]) -> tuple[list[float], int] | None:
        """What four tiles cost, at even distances along the axis on which costs depend, and that axis.

        None where they depend on several, or where a division has no result.
        """
        if len(self.axes) > 1 or min(grid) < 1:
            return None
        along = self.axes[0] if self.axes else 0
        try:
            return [self._cost(along, place, grid, values) for place in _places(grid[along])], along
        except (ArithmeticError, ValueError):
            return None

    def _cost(self, along: int, place: int, grid: Grid, values: Mapping[int, int]) -> float:
        x, y, z = (place if axis == along else 0 for axis in range(3))
        return self.at(x, y, z, *grid, values)


def _places(size: int) -> tuple[int, int, int, int]:
    return 0, size // 3, 2 * size // 3, size - 1


@lru_cache(maxsize=256)
def _samplers(cost: TileCost, loop: int) -> tuple[Sample, Sample] | None:
    """Of a tile's cost, and of how often it goes round the loop; None where tiles differ or that is not known."""
    known = [one for one in cost.loops if one.loop == loop and not one.unknown]
    if not known or not cost.uniform:
        return None
    return sampler(cost), sampler(TileCost(0.0, (replace(known[0], cycles=1.0),), cost.scalars))


def even_tiles(cost: TileCost, loop: int, grid: Grid, values: Mapping[int, int]) -> tuple[float, int] | None:
    """(cost, iterations of the loop) of tiles that are all alike; None where they are not, or it cannot be told."""
    samples = _samplers(cost, loop)
    if samples is None:
        return None
    try:
        found, trips = (sample(0, 0, 0, *grid, values) for sample in samples)
    except (ArithmeticError, ValueError):
        return None
    return found, int(trips)
