"""The launch of a kernel whose blocks walk through a table of tiles, as the simulator is given it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wspec.cli.errors import bad_input
from wspec.tiles import TABLE, TileCost, even_table, launch_table

Grid = tuple[int, int, int]
Arguments = Mapping[str, int | float | Sequence[int]]


def walked_launch(
    tiles: str, names: Sequence[str], arguments: Mapping[str, int | float], grid: Grid, slots: int
) -> tuple[Arguments, Grid]:
    """(arguments with the table of tiles, the grid that is launched) of a launch over `grid`.

    `tiles` is a plan's text of what a tile costs, "" for tiles of equal cost; `names` are those of the kernel's
    parameters; `slots` blocks run at a time. A kernel without a table is launched as it is. Raises WspecError for an
    argument that is needed and not given.
    """
    if TABLE not in names:
        return arguments, grid
    if not tiles:
        launched, even = even_table(grid, slots)
        return {**arguments, TABLE: even.tolist()}, launched
    cost = TileCost.from_text(tiles)
    decide = [names[position] for position in cost.parameters]
    if missing := [name for name in decide if name not in arguments]:
        raise bad_input(f"what a tile costs depends on {missing[0]}", f"give it, for example --set {missing[0]}=4096")
    values = {at: int(arguments[name]) for at, name in zip(cost.parameters, decide, strict=True)}
    count, table = launch_table(cost, grid, values, slots)
    return {**arguments, TABLE: table.tolist()}, (count, 1, 1)
