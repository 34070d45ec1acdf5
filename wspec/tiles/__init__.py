"""Which block works on which tiles when fewer blocks are launched than there are tiles."""

from wspec.plan.division import PARTIALS
from wspec.tiles.costs import LoopCost, TileCost, tile_cost
from wspec.tiles.launch import (
    TABLE,
    chosen_launch,
    divided_launch,
    even_launch,
    even_table,
    launch_table,
    partials_words,
    team_costs,
)
from wspec.tiles.table import Makespan, make_table, predicted_waves

__all__ = [
    "PARTIALS",
    "TABLE",
    "LoopCost",
    "Makespan",
    "TileCost",
    "chosen_launch",
    "divided_launch",
    "even_launch",
    "even_table",
    "launch_table",
    "make_table",
    "partials_words",
    "predicted_waves",
    "team_costs",
    "tile_cost",
]
