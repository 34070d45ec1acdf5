"""What single tiles cost, in a few microseconds: for a launch that has to decide something about all of them at once.

`TileCost.evaluate` computes every tile's cost in arrays, which takes some 100 us whatever their size. Here the same
scalars become one Python function. It leaves out that integers of a card are cut off at their width: what depends on
that is in which order tiles are worked on, not which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from wspec.tile_scheduler.costs import Branch, Grid, TileCost
from wspec.tile_scheduler.order import Order
from wspec.tile_scheduler.raster import Numbering, Raster, Reader
from wspec.tile_scheduler.scalars import Scalar

Direction = tuple[int | None, bool, Numbering | None]
"""The axis on which costs depend, if there is one, whether they rise on it, and how tiles that go in raster order are
numbered."""
_EVEN: Direction = None, False, None

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
_NAMES: dict[str, Callable[[int], str]] = {
    "constant": "({})".format,
    "argument": "v{}".format,
    "program_id": "xyz".__getitem__,
    "num_programs": ("gx", "gy", "gz").__getitem__,
}
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")


def four_lines(costs: Sequence[TileCost], along: int) -> list[str]:
    """Lines that compute what four tiles cost at even distances on an axis, the only one that costs depend on.

    `values` are the arguments that decide, in turn. `t1_0` is what the first tile costs by the second of several costs,
    which differ in cycles only. What tiles or costs share is computed once.
    """
    cost = costs[0]
    differs: set[int] = set()
    for at, scalar in enumerate(cost.scalars):
        if scalar.name == "program_id" or differs.intersection(scalar.operands):
            differs.add(at)
    shared = [line for at in range(len(cost.scalars)) if at not in differs for line in _line(cost, at)]
    each = [line for at in sorted(differs) for line in _line(cost, at)]
    counts = _total(cost)[0]
    totals = [_total(one)[1] for one in costs]
    axis, size = "xyz"[along], "g" + "xyz"[along]
    lines = [*_taken(cost), *shared]
    for number, tile in enumerate(("0", f"{size} // 3", f"2 * {size} // 3", f"{size} - 1")):
        if number == 0 or differs:
            lines += [f"{axis} = {tile}", *each, *counts]
        lines += [f"t{which}_{number} = {total}" for which, total in enumerate(totals)]
    return lines


def _direction_sampler(cost: TileCost, along: int) -> Callable[[int, int, int, Sequence[int]], Direction | None]:
    """What an order says of costs; None where they rise and fall. That is told by four tiles."""
    lines = [
        "if t0_0 == t0_1 == t0_2 == t0_3: return None, False, None",
        f"if t0_0 <= t0_1 <= t0_2 <= t0_3: return {along}, True, None",
        f"return ({along}, False, None) if t0_0 >= t0_1 >= t0_2 >= t0_3 else None",
    ]
    made: Callable[[int, int, int, Sequence[int]], Direction | None]
    made = compiled("gx, gy, gz, values", [*four_lines((cost,), along), *lines])
    return made


@lru_cache(maxsize=256)
def _mean_sampler(cost: TileCost, along: int) -> Callable[[int, int, int, Sequence[int]], float]:
    """Of what tiles cost."""
    by_four = "return (t0_0 + 3 * t0_1 + 3 * t0_2 + t0_3) / 8"  # Simpson's: exact where costs grow evenly
    made: Callable[[int, int, int, Sequence[int]], float]
    made = compiled("gx, gy, gz, values", [*four_lines((cost,), along), by_four])
    return made


def differ_in_cycles(costs: Sequence[TileCost]) -> bool:
    """And in nothing else."""
    forms = {(cost.scalars, tuple((loop.factors, loop.unknown) for loop in cost.loops)) for cost in costs}
    return len(forms) == 1


def compiled(arguments: str, lines: Sequence[str]) -> Any:
    """A function of such lines."""
    space: dict[str, Any] = {}
    body = "\n    ".join(lines)
    exec(compile(f"def sample({arguments}):\n    {body}\n", "<wspec tile cost>", "exec"), space)
    return space["sample"]


def told(sample: Callable[..., Any] | None, grid: Grid, *more: Any) -> Any:
    """What such a function says of a grid; None without one, where there is no tile, and where it cannot be told."""
    x, y, z = grid
    if sample is None or x < 1 or y < 1 or z < 1:
        return None
    try:
        return sample(x, y, z, *more)
    except (ArithmeticError, ValueError):
        return None


def _taken(cost: TileCost | Raster) -> list[str]:
    """A line that takes the arguments that decide out of `values`, if there are any."""
    names = "".join(f"v{at}, " for at in cost.parameters)
    return [f"{names}= values"] if names else []


def _total(cost: TileCost) -> tuple[list[str], str]:
    """Lines that count iterations, and the sum that is a tile's cost."""
    lines, total = [], [repr(float(cost.fixed))]
    for number, loop in enumerate(cost.loops):
        factors = []
        for part, factor in enumerate(loop.factors if not loop.unknown else ()):
            if isinstance(factor, Branch):
                factors.append(f"({_name(cost, factor.condition)} {'!=' if factor.taken else '=='} 0)")
                continue
            lower, upper, step = (_name(cost, at) for at in (factor.lower, factor.upper, factor.step))
            name = f"n{number}_{part}"
            kind = cost.scalars[factor.step]
            rises = kind.name == "constant" and kind.value > 0
            lines.append(f"{name} = -(({lower} - {upper}) // {step})" + ("" if rises else f" if {step} > 0 else 0"))
            factors.append(f"({name} if {name} > 0 else 0)")
        total.append(" * ".join([repr(float(loop.cycles)), *factors]))
    return lines, " + ".join(total)


def _name(cost: TileCost | Raster, at: int) -> str:
    scalar = cost.scalars[at]
    return _NAMES[scalar.name](scalar.value) if scalar.name in _NAMES else f"s{at}"


def _line(cost: TileCost | Raster, at: int) -> list[str]:
    """What computes a scalar; nothing for what has a name."""
    scalar = cost.scalars[at]
    return [] if scalar.name in _NAMES else [f"s{at} = {_text(cost, scalar)}"]


def _text(cost: TileCost | Raster, scalar: Scalar) -> str:
    names = [_name(cost, at) for at in scalar.operands]
    if scalar.name == "cmpi":
        return f"-({names[0]} {_COMPARISONS[scalar.value]} {names[1]})"
    return _OPERATIONS[scalar.name].format(*names)


Picked = Callable[[Sequence[int]], Sequence[int]]


def _shared_parameters(cost: TileCost, raster: Raster | None) -> tuple[tuple[int, ...], Picked, Picked]:
    """Those of both, and what takes each one's values out of theirs."""
    theirs = () if raster is None else raster.parameters
    found = tuple(sorted({*cost.parameters, *theirs}))
    return found, _picking(found, cost.parameters), _picking(found, theirs)


def _picking(given: tuple[int, ...], wanted: tuple[int, ...]) -> Picked:
    if given == wanted:
        return lambda values: values
    places = [given.index(one) for one in wanted]
    return lambda values: [values[at] for at in places]


@lru_cache(maxsize=256)
def raster_reader(raster: Raster) -> Reader:
    """What reads off how a grid numbers its tiles."""
    lines = [*_taken(raster), *(line for at in range(len(raster.scalars)) for line in _line(raster, at))]
    found = f"return {_name(raster, raster.shared)}, {_name(raster, raster.kept)}"
    return Reader(compiled("x, y, z, gx, gy, gz, values", [*lines, found]))


class Sampler:
    """What a kernel's tiles cost, asked again and again."""

    def __init__(self, cost: TileCost, raster: Raster | None = None) -> None:
        """Where there is a `raster`, tiles that all cost the same go in its order."""
        self.cost = cost
        self.parameters, self.of_cost, self._of_raster = _shared_parameters(cost, raster)
        self._raster, self._reader = raster, None if raster is None else raster_reader(raster)
        self.axes = sorted({scalar.value for scalar in cost.scalars if scalar.name == "program_id"})
        self.along = self.axes[0] if self.axes else 0  # the axis on which costs depend, if there is one
        one = len(self.axes) < 2
        self._direction = _direction_sampler(cost, self.along) if one else None
        self._mean = _mean_sampler(cost, self.along) if one else None

    def order(
        self, grid: Grid, values: Mapping[int, int], blocks: int, coarsening: int = 1, axis: int = 0
    ) -> Order | None:
        """In which the tiles of a launch go, `coarsening` neighbours on an axis at a time.

        None where a formula does not say: costs depend on several axes, or rise and fall. That is told by four tiles.
        """
        found = self.direction(grid, [values[at] for at in self.parameters])
        if found is None:
            return None
        along, rising, numbering = found
        return Order(coarse(grid, coarsening, axis), blocks, along, rising, numbering=numbering)

    def direction(self, grid: Grid, values: Sequence[int]) -> Direction | None:
        """What an `Order` says of costs: on which axis they depend, if there is one, and whether they rise on it.

        values: the arguments that decide, in turn: `parameters`.
        """
        numbering = None if self._reader is None else self._reader.numbering(grid, self._of_raster(values))
        if numbering is not None and not self._is_good(numbering, grid, values):
            return None, False, numbering
        if not self.axes:
            return _EVEN
        found: Direction | None = told(self._direction, grid, self.of_cost(values))
        return found

    def _is_good(self, numbering: Numbering, grid: Grid, values: Sequence[int]) -> bool:
        """Had tiles better go in the order of the grid?"""
        raster = self._raster
        if raster is None or raster.is_good(numbering):
            return True
        found = even_tiles(self.cost, raster.loop, grid, self.of_cost(values))
        return found is not None and raster.stays(numbering, found[1])

    def mean(self, grid: Grid, values: Sequence[int]) -> float:
        """What a tile costs on average, about: by four tiles, where costs depend on one axis alone. 0 where it cannot
        be told."""
        return told(self._mean, grid, self.of_cost(values)) or 0.0


def coarse(grid: Grid, coarsening: int, axis: int) -> Grid:
    """How many groups of neighbours there are on each axis, the last of which may have fewer."""
    if coarsening == 1:
        return grid
    x, y, z = grid
    if axis == 0:
        return -(-x // coarsening), y, z
    return (x, -(-y // coarsening), z) if axis == 1 else (x, y, -(-z // coarsening))


@lru_cache(maxsize=256)
def _even_sampler(cost: TileCost, loop: int) -> Callable[..., tuple[float, float]] | None:
    """Of a tile's cost, and of how often it goes round the loop; None where tiles differ or that is not known."""
    known = [one for one in cost.loops if one.loop == loop and not one.unknown]
    if not known or not cost.uniform:
        return None
    lines = _taken(cost) + [line for at in range(len(cost.scalars)) for line in _line(cost, at)]
    counts, total = _total(cost)
    again, trips = _total(TileCost(0.0, (replace(known[0], cycles=1.0),), cost.scalars))
    made: Callable[..., tuple[float, float]]
    made = compiled("gx, gy, gz, values", [*lines, *counts, f"total = {total}", *again, f"return total, {trips}"])
    return made


def even_tiles(cost: TileCost, loop: int, grid: Grid, values: Sequence[int]) -> tuple[float, int] | None:
    """(cost, iterations of the loop) of tiles that are all alike; None where they are not, or it cannot be told.

    values: the arguments that decide, in turn.
    """
    found = told(_even_sampler(cost, loop), grid, values)
    return None if found is None else (found[0], int(found[1]))
