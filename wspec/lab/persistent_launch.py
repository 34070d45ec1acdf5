"""The launch of a kernel whose blocks walk through a table of tiles, as simulator and executor are given it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from wspec.diagnostics import bad_input
from wspec.execute.arguments import Parameter
from wspec.host_descriptors import Promotion
from wspec.plan.plan import Plan
from wspec.tile_scheduler import (
    PARTIALS,
    TABLE,
    TileLoop,
    coarse_costs,
    divided_launch,
    launch_table,
    make_table,
    partials_words,
)
from wspec.tile_scheduler.launch import flat

BLOCKS = 2  # that the executor runs
Grid = tuple[int, int, int]
Arguments = Mapping[str, int | float | Sequence[int]]


def chosen_launch(
    tiles: TileLoop, grid: Grid, values: Mapping[int, int], slots: int, *, shared: bool = False
) -> tuple[int, npt.NDArray[np.int32]]:
    """What is launched where there is memory for sums on their way: tiles divided where that pays, whole elsewhere."""
    return divided_launch(tiles, grid, values, slots) or launch_table(tiles, grid, values, slots, shared=shared)


def even_table(
    grid: tuple[int, ...], blocks: int = 2, coarsening: int = 1, axis: int = 0
) -> tuple[Grid, npt.NDArray[np.int32]]:
    """(grid to launch, flat table) for tiles of equal cost: what an executor needs to run a persistent kernel."""
    x, y, z = (*grid, 1, 1, 1)[:3]
    whole: Grid = (x, y, z)
    costs = coarse_costs(np.ones(whole[::-1], np.float32), coarsening, axis)
    blocks = max(1, min(blocks, costs.size))
    return (blocks, 1, 1), flat(whole, make_table(costs, blocks), coarsening, axis)


def even_launch(
    names: Collection[str], grid: tuple[int, ...], blocks: int = 2, coarsening: int = 1, axis: int = 0
) -> tuple[tuple[int, ...], dict[str, npt.NDArray[np.int32]]]:
    """(grid to launch, hidden arguments) for an executor of a kernel with these parameters, tiles of equal cost.

    Nothing is hidden from a kernel whose blocks do not walk through tiles. No tile is divided.
    """
    if TABLE not in names:
        return grid, {}
    launched, table = even_table(grid, blocks, coarsening, axis)
    return launched, {TABLE: table} | ({PARTIALS: np.zeros(1, np.int32)} if PARTIALS in names else {})


def walked_launch(
    tiles: TileLoop | None,
    names: Sequence[str],
    arguments: Mapping[str, int | float],
    grid: Grid,
    slots: int,
    *,
    shared: bool = False,
) -> tuple[Arguments, Grid]:
    """(arguments with the table of tiles, the grid that is launched) of a launch over `grid`.

    `tiles` is a plan's tile loop, None for tiles of equal cost; `names` are those of the kernel's parameters; `slots`
    blocks run at a time, several on an SM if `shared`. A kernel without a table is launched as it is. Raises WspecError
    for an argument that is needed and not given.
    """
    if TABLE not in names:
        return arguments, grid
    hidden: Arguments = {**arguments, PARTIALS: 0} if PARTIALS in names else arguments
    if tiles is None:
        launched, even = even_table(grid, slots)
        return {**hidden, TABLE: even.tolist()}, launched
    decide = [names[position] for position in tiles.parameters]
    if missing := [name for name in decide if name not in arguments]:
        raise bad_input(f"what a tile costs depends on {missing[0]}", f"give it, for example --set {missing[0]}=4096")
    values = {at: int(arguments[name]) for at, name in zip(tiles.parameters, decide, strict=True)}
    count, table = chosen_launch(tiles, grid, values, slots, shared=shared)
    return {**hidden, TABLE: table.tolist()}, (count, 1, 1)


def descriptors_of(
    promotion: Promotion | None, parameters: Sequence[Parameter], grid: Sequence[int], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """The descriptors that a launch makes of pointers, for the executor: like Triton's, of tensors of the CPU.

    Raises WspecError where the launch would run the plain kernel.
    """
    names = [parameter.name for parameter in parameters]
    if promotion is None or not all(one.name in names for one in promotion.descriptors):
        return {}
    given = {parameter.values[0].index: arguments.get(parameter.name) for parameter in parameters}
    x, y, z = (*grid, 1, 1, 1)[:3]
    made = promotion.of((x, y, z), {at: value for at, value in given.items() if isinstance(value, int)})
    if isinstance(made, str):
        raise bad_input(f"a launch with these arguments runs the plain kernel: {made}")
    found = {}
    for one, at in zip(promotion.descriptors, made, strict=True):
        found[one.name] = SimpleNamespace(
            base=given[one.argument], offset=at.offset, shape=at.shape, strides=at.strides, block_shape=one.block
        )
    return found


def executed_launch(
    plan: Plan | None, parameters: Sequence[Parameter], grid: Sequence[int], arguments: Mapping[str, Any]
) -> tuple[tuple[int, ...], dict[str, npt.NDArray[np.int32]]]:
    """(grid to launch, hidden arguments) for the executor: two blocks, with tiles divided where the plan has that."""
    tiles = plan.tile_loop if plan is not None else None
    coarsening, axis = (tiles.coarsening, tiles.axis) if tiles is not None else (1, 0)
    names = [parameter.name for parameter in parameters]
    if tiles is not None and (divided := tiles.stream_k.value) is not None and PARTIALS in names:
        by_position = {parameter.values[0].index: arguments.get(parameter.name) for parameter in parameters}
        values = {at: value for at in tiles.parameters if isinstance(value := by_position.get(at), int)}
        x, y, z = (*grid, 1, 1, 1)[:3]
        known = len(values) == len(tiles.parameters)
        if known and (found := divided_launch(tiles, (x, y, z), values, BLOCKS, must=True)) is not None:
            memory = np.zeros(partials_words(divided, BLOCKS), np.int32)
            return (found[0], 1, 1), {TABLE: found[1], PARTIALS: memory}
    return even_launch(names, tuple(grid), BLOCKS, coarsening, axis)
