"""Which block works on which tiles when fewer blocks are launched than there are tiles."""

from wspec.tile_scheduler.costs import LoopCost, TileCost, tile_cost
from wspec.tile_scheduler.division import Division
from wspec.tile_scheduler.launch import (
    blocks_of,
    coarse_costs,
    divided_launch,
    how_divided,
    launch_table,
    ordered_table,
    partials_words,
)
from wspec.tile_scheduler.launch_way import NEAR, LaunchWay, Ranking, fastest
from wspec.tile_scheduler.names import PARTIALS, SLOTS, TABLE
from wspec.tile_scheduler.order import Order
from wspec.tile_scheduler.raster import Numbering, Raster
from wspec.tile_scheduler.sampled import Direction, Sampler, coarse
from wspec.tile_scheduler.table import make_table
from wspec.tile_scheduler.tile_loop import StreamK, TileLoop

__all__ = [
    "NEAR",
    "PARTIALS",
    "SLOTS",
    "TABLE",
    "Direction",
    "Division",
    "LaunchWay",
    "LoopCost",
    "Numbering",
    "Order",
    "Ranking",
    "Raster",
    "Sampler",
    "StreamK",
    "TileCost",
    "TileLoop",
    "blocks_of",
    "coarse",
    "coarse_costs",
    "divided_launch",
    "fastest",
    "how_divided",
    "launch_table",
    "make_table",
    "ordered_table",
    "partials_words",
    "tile_cost",
]
