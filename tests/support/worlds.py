"""Compare what a specialized kernel stores with what the plain one stores, for several launches."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tests.support.simulate import Term, World, stores_of_plain, stores_of_tasks
from wspec.ir.core import Operation
from wspec.ir.loc import value_name
from wspec.lab.persistent_launch import even_table
from wspec.tile_scheduler import TABLE
from wspec.tile_scheduler.division import FIELDS

# Arguments by name: lengths in elements; tiles are 64 or 128. Loops that run not at all, once, and some times.
BASE = {
    "k": 0,
    "length": 0,
    "n": 0,
    "m": 0,
    "flag": 1,
    "seqlen_q": 0,
    "seqlen_k": 0,
    "tiles": 0,
    "heads": 4,
    "group": 2,
}
LAUNCHES: tuple[Mapping[str, int], ...] = (
    {},
    {"k": 64, "length": 128, "n": 64, "m": 128, "flag": 64, "seqlen_q": 1, "seqlen_k": 1, "tiles": 1},
    {"k": 320, "length": 640, "n": 320, "m": 640, "flag": 192, "seqlen_q": 129, "seqlen_k": 513, "tiles": 3},
    {"k": 640, "length": 384, "n": 256, "m": 384, "flag": 128, "seqlen_q": 640, "seqlen_k": 200, "tiles": 2},
)


def assert_same_stores(plain: Operation, specialized: Operation, seed: int) -> None:
    """In every launch, with tasks and copies in an order drawn from the seed.

    The first consumer works on the first rows of the tile, so its stores are those of the plain kernel. The others
    work on rows further down, so only the form of theirs is compared; what is not sliced only the first one stores.
    The producer stores nothing. A block that walks through tiles stores what the plain kernel stores for each of them.
    """
    draw = random.Random(seed)
    for launch in LAUNCHES:
        place = (draw.randrange(2), draw.randrange(2), 0)
        for blind in (False, True):
            world = World({**BASE, **launch}, place, (2, 2, 1), blind)
            tiles, world = walked(specialized, world, draw)
            expected = [stored for tile in tiles for stored in stores_of_plain(plain, tile)]
            first, *others, producer = stores_of_tasks(specialized, world, draw.randrange(1 << 30))
            assert first == expected
            assert producer == []
            if blind:
                assert all(_is_part(other, expected) for other in others)


def walked(module: Operation, world: World, draw: random.Random) -> tuple[list[World], World]:
    """(the places in the grid that one block of the module works on, in order, what that block is launched with)."""
    function = next(op for op in module.walk() if op.name == "tt.func")
    if all(value_name(arg.location) != TABLE for arg in function.regions[0].block.args):
        return [world], world
    grid, numbers = even_table(world.grid, blocks=draw.randint(1, 5))
    block = draw.randrange(grid[0])
    entries = int(numbers[0])
    mine = numbers[FIELDS:].reshape(-1, entries, FIELDS)[block].tolist()
    tiles = [replace(world, program=(x, y, z)) for x, y, z, *_ in mine[: mine[0][3]]]
    return tiles, replace(world, program=(block, 0, 0), grid=grid, table=tuple(numbers.tolist()))


def _is_part(some: list[Term], every: list[Term]) -> bool:
    """Are these some of them, in their order, and not none?"""
    rest: Iterator[Term] = iter(every)
    return all(one in rest for one in some) and (bool(some) or not every)
