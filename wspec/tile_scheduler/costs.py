"""What one tile costs, as a function of its program ids and the launch's scalar arguments.

A tile costs a fixed number of cycles, and for each loop the cycles of an iteration times its trip count. The trip
counts come from the integers that loop bounds are computed from: constants, arguments, program ids and arithmetic on
them (`wspec.tile_scheduler.scalars`). A loop whose trip count is not of that kind counts as one iteration, the same
for every tile; `TileCost.unknown` says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from wspec.ir.core import Operation
from wspec.ir.numbering import id_of
from wspec.tile_scheduler.integers import Array, product, trips
from wspec.tile_scheduler.scalars import Scalar, Slice, Unknown, evaluate, parameters_of

Grid = tuple[int, int, int]
Costs = npt.NDArray[np.float32]
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Trips:
    """A loop's bounds, as positions in `TileCost.scalars`."""

    lower: int
    upper: int
    step: int
    unsigned: bool = False


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch that the loop stands in: it runs when the scalar at `condition` is `taken`."""

    condition: int
    taken: bool


@dataclass(frozen=True, slots=True)
class LoopCost:
    """The loop `loop`: how often it runs is the product of its factors, its own bounds and those of what is around."""

    loop: int
    cycles: float
    factors: tuple[Trips | Branch, ...] = ()
    unknown: str = ""  # why the trip count is not known; it counts as 1 then


@dataclass(frozen=True)
class TileCost:
    """What a tile costs. `to_data` and `from_data` are inverse."""

    fixed: float
    loops: tuple[LoopCost, ...] = ()
    scalars: tuple[Scalar, ...] = ()

    @cached_property
    def _hash(self) -> int:
        return hash((self.fixed, self.loops, self.scalars))

    def __hash__(self) -> int:
        """Launches look up what was made for a cost: it is computed once."""
        return self._hash

    @cached_property
    def parameters(self) -> tuple[int, ...]:
        """The positions of the function's arguments whose values are needed, ascending."""
        return parameters_of(self.scalars)

    @cached_property
    def uniform(self) -> bool:
        """No trip count that is known depends on a program id."""
        return not any(scalar.name == "program_id" for scalar in self.scalars)

    @property
    def unknown(self) -> dict[int, str]:
        """The loops whose trip count is not known, with the reason."""
        return {loop.loop: loop.unknown for loop in self.loops if loop.unknown}

    def evaluate(self, grid: Grid, values: Mapping[int, int]) -> Costs:
        """The cost of every tile, [gz, gy, gx]; `values`: the arguments in `parameters`, by position.

        Raises ValueError for a grid that is none and for values that are missing.
        """
        total: npt.NDArray[np.float64] = np.full((1, 1, 1), self.fixed)
        counts = self._counts(grid, values)
        for loop in self.loops:
            total = total + (loop.cycles if loop.unknown else loop.cycles * counts[loop.loop])
        return np.array(np.broadcast_to(np.minimum(total, _LARGEST).astype(np.float32), grid[::-1]))

    def trips(self, grid: Grid, values: Mapping[int, int]) -> dict[int, Array]:
        """The iterations of each loop in every tile, [gz, gy, gx], those of loops around it multiplied in.

        Loops whose trip count is not known are left out.
        """
        counts = self._counts(grid, values)
        return {loop: np.array(np.broadcast_to(count, grid[::-1])) for loop, count in counts.items()}

    def _counts(self, grid: Grid, values: Mapping[int, int]) -> dict[int, Array]:
        """As `trips`, with dimensions of size 1 where nothing depends on them."""
        if len(grid) != 3 or min(grid) < 0:
            raise ValueError(f"a grid has three sizes, none negative; got {grid}")
        if missing := [index for index in self.parameters if index not in values]:
            raise ValueError(f"the value of argument {missing[0]} is needed")
        arrays = evaluate(self.scalars, grid, values)
        return {loop.loop: self._count(loop, arrays) for loop in self.loops if not loop.unknown}

    def _count(self, loop: LoopCost, arrays: list[Array]) -> Array:
        count: Array = np.ones((1, 1, 1), np.int64)
        for factor in loop.factors:
            if isinstance(factor, Branch):
                count = np.where((arrays[factor.condition] != 0) == factor.taken, count, 0)
            else:
                lower, upper, step = (arrays[at] for at in (factor.lower, factor.upper, factor.step))
                bits = self.scalars[factor.lower].bits
                count = product(count, trips(lower, upper, step, bits, factor.unsigned))
        return count

    def to_data(self) -> dict[str, Any]:
        """As numbers, texts and lists, for a file."""
        loops = [
            {"loop": x.loop, "cycles": x.cycles, "factors": [_factor_row(f) for f in x.factors], "unknown": x.unknown}
            for x in self.loops
        ]
        return {"fixed": self.fixed, "loops": loops, "scalars": scalar_rows(self.scalars)}

    @staticmethod
    def from_data(data: Any) -> TileCost:
        """Read `to_data`'s form. Raises ValueError saying what is wrong with it."""
        top = fields(data, ("fixed", "loops", "scalars"), "the top level")
        scalars = scalars_from(top["scalars"])
        loops = [_loop(x, f"loops[{i}]", len(scalars)) for i, x in enumerate(_list(top["loops"], "loops"))]
        if len({loop.loop for loop in loops}) != len(loops):
            raise ValueError("a tile's cost: a loop occurs twice")
        return TileCost(number(top["fixed"], "fixed"), tuple(loops), scalars)


# ------------------------------------------------------------------------------------------ from a function


def tile_cost(function: Operation, cycles: Mapping[int, float], fixed: float) -> TileCost:
    """What a tile of the numbered `function` costs: `fixed` cycles and, for each loop in `cycles`, those an iteration.

    The cycles of a loop around another are those of its own operations: both loops' cycles are added up. Raises
    ValueError for an id that no operation has, or cycles that are not finite or negative.
    """
    found = {id_of(op): op for op in function.walk()}
    slice = Slice(function)
    loops: list[LoopCost] = []
    for loop, each in sorted(cycles.items()):
        if loop < 0 or loop not in found:
            raise ValueError(f"the function has no operation {loop}")
        each_cycles = number(each, f"cycles of {loop}")
        try:
            loops.append(LoopCost(loop, each_cycles, _factors(found[loop], function, slice)))
        except Unknown as reason:
            loops.append(LoopCost(loop, each_cycles, unknown=str(reason)))
    used = [at for loop in loops for factor in loop.factors for at in _positions(factor)]
    scalars, moved = slice.kept(used)
    moved_loops = [
        LoopCost(loop.loop, loop.cycles, tuple(_moved(factor, moved) for factor in loop.factors), loop.unknown)
        for loop in loops
    ]
    return TileCost(number(fixed, "fixed"), tuple(moved_loops), scalars)


def _factors(loop: Operation, function: Operation, slice: Slice) -> tuple[Trips | Branch, ...]:
    """What decides how often the loop runs, innermost first. Raises Unknown."""
    if loop.name != "scf.for":
        raise Unknown(f"{loop.name} is not a counted loop")
    factors: list[Trips | Branch] = []
    op = loop
    while op is not function:
        block, around = op.parent, op.parent_op
        assert block is not None and around is not None
        if op.name == "scf.for":
            lower, upper, step = (slice.position(value) for value in op.operands[:3])
            factors.append(
                Trips(lower, upper, step, op.attr("unsignedCmp") is not None and op.int_attr("unsignedCmp") != 0)
            )
        if around.name == "scf.if":
            factors.append(Branch(slice.position(around.operands[0]), block.parent is around.regions[0]))
        elif around.name != "scf.for" and (around is not function or block is not function.regions[0].blocks[0]):
            raise Unknown("it stands behind a branch" if around is function else f"it stands inside {around.name}")
        op = around
    return tuple(factors)


def _positions(factor: Trips | Branch) -> tuple[int, ...]:
    return (factor.condition,) if isinstance(factor, Branch) else (factor.lower, factor.upper, factor.step)


def _moved(factor: Trips | Branch, moved: Mapping[int, int]) -> Trips | Branch:
    if isinstance(factor, Branch):
        return Branch(moved[factor.condition], factor.taken)
    return Trips(moved[factor.lower], moved[factor.upper], moved[factor.step], factor.unsigned)


# ---------------------------------------------------------------------------------------------------- text


def _factor_row(factor: Trips | Branch) -> list[Any]:
    if isinstance(factor, Branch):
        return ["branch", factor.condition, factor.taken]
    return ["trips", factor.lower, factor.upper, factor.step, factor.unsigned]


def wrong(where: str, value: Any) -> ValueError:
    return ValueError(f"a tile's cost: {where}: {value!r:.80} cannot stand here")


def fields(data: Any, names: tuple[str, ...], where: str) -> dict[str, Any]:
    if not isinstance(data, dict) or set(data) != set(names):
        raise ValueError(f"a tile's cost: {where} must have the fields {', '.join(names)}")
    return data


def _list(data: Any, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise wrong(where, data)
    return data


def whole(data: Any, where: str) -> int:
    if type(data) is not int:
        raise wrong(where, data)
    return data


def number(data: Any, where: str) -> float:
    """Finite and not negative."""
    if type(data) not in (int, float) or not 0 <= data <= _LARGEST:
        raise wrong(where, data)
    return float(data)


def scalar_rows(scalars: Iterable[Scalar]) -> list[list[Any]]:
    """Scalars for a file."""
    return [[one.name, one.bits, one.value, list(one.operands)] for one in scalars]


def scalars_from(data: Any) -> tuple[Scalar, ...]:
    """Read the form of `scalar_rows`. Raises ValueError saying what is wrong with it."""
    scalars: list[Scalar] = []
    for at, row in enumerate(_list(data, "scalars")):
        scalars.append(_scalar(row, f"scalars[{at}]"))
        if problem := scalars[-1].problem(at):
            raise ValueError(f"a tile's cost: scalars[{at}]: {problem}")
    return tuple(scalars)


def truth(data: Any, where: str) -> bool:
    if type(data) is not bool:
        raise wrong(where, data)
    return data


def _scalar(data: Any, where: str) -> Scalar:
    row = _list(data, where)
    if len(row) != 4 or not isinstance(row[0], str):
        raise wrong(where, data)
    operands = tuple(whole(at, where) for at in _list(row[3], where))
    return Scalar(row[0], whole(row[1], where), operands, whole(row[2], where))


def _loop(data: Any, where: str, scalars: int) -> LoopCost:
    row = fields(data, ("loop", "cycles", "factors", "unknown"), where)
    factors = tuple(_factor(factor, where) for factor in _list(row["factors"], where))
    if not isinstance(row["unknown"], str) or bool(factors) == bool(row["unknown"]):
        raise wrong(f"{where}.unknown", row["unknown"])
    if any(not 0 <= at < scalars for factor in factors for at in _positions(factor)):
        raise ValueError(f"a tile's cost: {where}: a scalar that does not exist")
    return LoopCost(whole(row["loop"], where), number(row["cycles"], where), factors, row["unknown"])


def _factor(data: Any, where: str) -> Trips | Branch:
    match _list(data, where):
        case ["trips", lower, upper, step, unsigned]:
            return Trips(whole(lower, where), whole(upper, where), whole(step, where), truth(unsigned, where))
        case ["branch", condition, taken]:
            return Branch(whole(condition, where), truth(taken, where))
    raise wrong(where, data)
