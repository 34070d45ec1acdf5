"""Which block works on which tiles when fewer blocks are launched than there are tiles."""

from wspec.tile_scheduler.costs import LoopCost, TileCost, tile_cost
from wspec.tile_scheduler.launch import (
    chosen_launch,
    divided_launch,
    even_launch,
    even_table,
    launch_table,
    partials_words,
    team_costs,
)
from wspec.tile_scheduler.names import TABLE
from wspec.tile_scheduler.table import Makespan, make_table, predicted_waves
from wspec.tile_scheduler.workspace import PARTIALS

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
