"""Which block works on which tiles when fewer blocks are launched than there are tiles."""

from wspec.tiles.costs import LoopCost, TileCost, tile_cost
from wspec.tiles.launch import TABLE, even_table, launch_table, team_costs
from wspec.tiles.table import Makespan, make_table, predicted_waves

__all__ = [
    "TABLE",
    "LoopCost",
    "Makespan",
    "TileCost",
    "even_table",
    "launch_table",
    "make_table",
    "predicted_waves",
    "team_costs",
    "tile_cost",
]
