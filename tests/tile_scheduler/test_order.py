"""The order of tiles in closed form: every tile once, dearest first in a window, equal work; and what says which."""

from __future__ import annotations

import heapq
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.host_tables import busy_times
from wspec.tile_scheduler import LoopCost, Order, Sampler, TileCost, make_table, ordered_table
from wspec.tile_scheduler.costs import Trips
from wspec.tile_scheduler.order import Array
from wspec.tile_scheduler.sampled import compiled, four_lines
from wspec.tile_scheduler.scalars import Scalar

sizes = st.tuples(st.integers(1, 40), st.integers(1, 9), st.integers(1, 4))
orders = st.builds(
    Order, sizes, st.integers(1, 30), st.sampled_from([None, 0, 1, 2]), st.booleans(), st.booleans(), st.none()
)


def numbers(order: Order, found: Array) -> Array:
    """Of tiles at these coordinates."""
    along, second, third = order.dimensions
    number: Array = (found[third] * order.sizes[second] + found[second]) * order.sizes[along] + found[along]
    return number


@settings(max_examples=300, deadline=None)
@given(orders)
def test_every_tile_once_and_rows_dealt_out(order: Order) -> None:
    row, block, found = order.places()
    assert {tuple(tile) for tile in found.T} == {tuple(tile) for tile in np.ndindex(order.sizes)}
    assert found.shape[1] == order.tiles and row.max() + 1 == order.rows
    assert (np.bincount(block, minlength=order.blocks) == order.counts()).all()
    assert len(set(zip(row.tolist(), block.tolist(), strict=True))) == order.tiles
    assert all((np.diff(row[block == one]) == 1).all() for one in range(order.blocks)), "no holes"


@settings(max_examples=200, deadline=None)
@given(orders)
def test_windows_are_neighbours_and_dearest_first(order: Order) -> None:
    """In those that are no pairs of rows."""
    found = order.coordinates(np.arange(order.tiles))
    along = order.dimensions[0]
    number = numbers(order, found)
    if order.axis is None:
        assert (number == np.arange(order.tiles)).all()
        return
    size, count = order.window
    for window in range(count):
        part = slice(window * size, order.tiles if window == count - 1 else (window + 1) * size)
        assert sorted(number[part]) == list(range(order.tiles))[part]
        if order.goes_by_lines and window < count - 1:
            continue
        steps = np.diff(found[along][part])
        assert ((steps <= 0) if order.rising else (steps >= 0)).all()


paired = orders.map(lambda one: one._replace(blocks=max(one.blocks, one.sizes[one.axis or 0]), shared=True))


@settings(max_examples=200, deadline=None)
@given(paired.filter(lambda one: one.axis is not None and one.window[1] > 1))
def test_tiles_of_a_line_lie_side_by_side(order: Order) -> None:
    """In the first row of each pair, and the second evens it out: who had the dearest gets the cheapest."""
    row, block, found = order.places()
    number, at = numbers(order, found), found[order.dimensions[0]]
    assert order.goes_by_lines
    for window in range(order.window[1] - 1):
        first, second = row == 2 * window, row == 2 * window + 1
        there = number[first][np.argsort(block[first])]
        one = order.blocks - 1 if window % 2 else 1
        assert (np.diff(there) % order.blocks == one).all(), "blocks in turn have neighbours, or backwards, in a ring"
        mine, theirs = at[first][np.argsort(block[first])], at[second][np.argsort(block[second])]
        assert (np.diff(theirs[np.lexsort((-theirs, mine))]) <= 0).all()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("blocks", [132, 264])
@pytest.mark.parametrize("heads", [4, 16, 64])
@pytest.mark.parametrize("tiles", [16, 32, 63, 125, 128, 300, 512, 1000])
def test_causal_tiles_are_spread_as_well_as_by_list_scheduling(
    blocks: int, heads: int, tiles: int, shared: bool
) -> None:
    costs = np.broadcast_to((1500 + 2048 * np.arange(tiles, 0, -1)).astype(np.float32), (1, heads, tiles)).copy()
    blocks = min(blocks, costs.size)
    _, block, (x, _, _) = Order((tiles, heads, 1), blocks, 0, shared=shared).places()
    busiest = np.bincount(block, costs[0, 0, x]).max()
    assert busiest <= 1.04 * busy_times(costs, make_table(costs, blocks)).max()


@pytest.mark.parametrize("batch", [1, 8, 64])
def test_few_lines_are_begun_at_a_time(batch: int) -> None:
    """What a row begins is what two rows read: a launch that goes dearest first through all lines needs all at once."""
    order = Order((8, 16, batch), min(132, 128 * batch), 0)
    row, _, (_, y, z) = order.places()
    lines = [len({*zip(y[row == one].tolist(), z[row == one].tolist(), strict=True)}) for one in range(order.rows)]
    assert max(lines[:-4], default=0) <= 132 / 8 + 2
    assert max(lines) <= 4 * 132 / 8 + 1, "the last window is of less than four rows"


def read_from_memory(order: Order, kept: int, longer: int = 0) -> float:
    """How often the mean line's data are read from memory that a cache of so many of their parts does not keep.

    Tile x of n reads n - x parts of its line, one after the other, each of which takes ten ticks, and a tile of one
    part that many `longer`. Each block goes on by itself; what was used longest ago leaves first."""
    row, block, (x, y, z) = order.places()
    length = order.sizes[0]
    lists: list[list[tuple[int, int, int, int]]] = [[] for _ in range(order.blocks)]
    for at in np.argsort(row, kind="stable"):
        parts = length - x[at]
        ticks = 10 + longer if parts == 1 else 10
        lists[block[at]] += [(y[at], z[at], part, ticks) for part in range(parts)]
    cache: OrderedDict[tuple[int, int, int], None] = OrderedDict()
    read = 0
    ahead = [(0, one, 0) for one in range(order.blocks)]
    while ahead:
        time, one, at = heapq.heappop(ahead)
        if at < len(lists[one]):
            *part, ticks = lists[one][at]
            key = part[0], part[1], part[2]
            read += key not in cache
            cache[key] = None
            cache.move_to_end(key)
            if len(cache) > kept:
                cache.popitem(last=False)
            heapq.heappush(ahead, (time + ticks, one, at + 1))
    return read / order.tiles


@pytest.mark.parametrize(("length", "batch"), [(8, 8), (8, 16), (16, 4), (16, 8), (32, 2), (32, 4)])
def test_what_lines_share_stays_in_the_cache(length: int, batch: int) -> None:
    """Parts of 64 KiB, K and V of 128 keys of 128 elements, and 30 MiB of cache, of an H200. Windows of four rows,
    the last one of up to eight, read everything 2.5 to 3.9 times. In half of that, beside what is not shared, windows
    of two rows read it 1.14 to 1.19 times, and 1.22 to 1.46 times where a row holds four lines."""
    order = Order((length, 16, batch), 132, 0)
    assert read_from_memory(order, 480) <= 1.02
    assert read_from_memory(order, 240) <= (1.02 if length < 32 else 1.5)


@pytest.mark.parametrize("length", [3, 4, 5, 8, 11, 16])
@pytest.mark.parametrize("blocks", [132, 264, 396])
def test_all_blocks_get_the_ends_of_lines(blocks: int, length: int) -> None:
    """Where a tile's time is not quite what its place says, who always gets the same ones gets ahead of the others."""
    order = Order((length, 16, 100 * blocks // (16 * length)), blocks, 0, shared=True)
    row, block, (x, _, _) = order.places()
    windows = order.window[1] - 1
    ends = (row < 2 * windows) & ((x == 0) | (x == length - 1))
    counts = np.bincount(block[ends], minlength=blocks)
    assert counts.min() > windows / length and counts.max() < 8 * windows / length, "four each window of `length`"


class Still(Order):
    """Whose blocks do not move on."""

    def _rows_moved(self, row: Array) -> Array:
        return 0 * row


@pytest.mark.parametrize("length", [3, 4, 5, 8])
def test_a_tile_that_takes_longer_makes_nobody_read_again(length: int) -> None:
    """A tile of one part takes three ticks more here, and the cache keeps what one and a half rows begin with."""
    order = Order((length, 16, 330 // length), 132, 0, shared=True)
    assert read_from_memory(order, 198, 3) <= 1.04
    in_rows = order._replace(shared=False)
    assert read_from_memory(in_rows, 198, 3) <= 1.04
    assert read_from_memory(Still(*in_rows), 198, 3) >= 1.15, "blocks that always get the same places part"


def test_a_window_holds_a_line() -> None:
    assert Order((17, 16, 4), 132, 0).window == (264, 4) and Order((128, 16, 1), 132, 0).window == (264, 7)
    assert Order((8, 16, 8), 132, 0).window == (132, 7), "232 tiles are left, nearly two rows: they are the last window"
    assert Order((8, 16, 6), 132, 0).window == (132, 5), "240 are left"
    assert Order((4, 66, 2), 132, 0).window == (132, 3), "nothing is left: the last window has two rows"
    assert Order((16, 33, 1), 132, 0).window == (132, 3) and Order((7, 16, 1), 112, 0).window == (112, 1)
    assert Order((264, 4, 1), 132, 0).window == (264, 4) and Order((265, 4, 1), 132, 0).window == (528, 2)
    assert Order((2000, 1, 1), 132, 0).window == (2112, 1)


def causal(*, rising: bool = False) -> TileCost:
    """A loop of argument 0 minus, or plus, the program's number, each of 10 cycles."""
    scalars = (
        Scalar("constant", 32, (), 0), Scalar("argument", 32, (), 0), Scalar("program_id", 32, (), 1),
        Scalar("addi" if rising else "subi", 32, (1, 2)), Scalar("constant", 32, (), 1),
    )  # fmt: skip
    return TileCost(5.0, (LoopCost(7, 10.0, (Trips(0, 3, 4),)),), scalars)


def test_samples_say_which_order() -> None:
    grid = (4, 20, 2)
    assert Sampler(causal()).order(grid, {0: 100}, 8) == Order(grid, 8, 1, rising=False)
    assert Sampler(causal(rising=True)).order(grid, {0: 100}, 8) == Order(grid, 8, 1, rising=True)
    assert Sampler(causal()).order(grid, {0: -5}, 8) == Order(grid, 8), "no tile has an iteration"
    assert Sampler(TileCost(5.0)).order(grid, {}, 8) == Order(grid, 8)
    assert Sampler(causal()).order(grid, {0: 100}, 8, 3, 1) == Order((4, 7, 2), 8, 1, rising=False)


@given(st.integers(-50, 200), st.booleans())
def test_a_sample_is_the_cost(value: int, rising: bool) -> None:
    grid, cost = (2, 30, 1), causal(rising=rising)
    expected = cost.evaluate(grid, {0: value})
    four = compiled("gx, gy, gz, values", [*four_lines((cost,), 1), "return t0_0, t0_1, t0_2, t0_3"])
    assert list(four(*grid, [value])) == [expected[0, y, 0] for y in (0, 10, 20, 29)]


@pytest.mark.parametrize("rising", [False, True])
@pytest.mark.parametrize("value", [100, 5000, 131072])
def test_what_a_tile_costs_on_average(value: int, rising: bool) -> None:
    """By four of them; 0 where it cannot be told."""
    cost, grid = causal(rising=rising), (2, value // 13, 3)
    assert Sampler(cost).mean(grid, [value]) == pytest.approx(cost.evaluate(grid, {0: value}).mean(), rel=0.1)
    assert Sampler(TileCost(5.0)).mean(grid, []) == 5.0 and Sampler(cost).mean((0, 1, 1), [value]) == 0.0


def test_what_four_tiles_do_not_sort() -> None:
    two = TileCost(5.0, (), (Scalar("program_id", 32, (), 0), Scalar("program_id", 32, (), 1)))
    assert Sampler(two).order((4, 4, 1), {}, 8) is None
    zero = (Scalar("program_id", 32, (), 0), Scalar("constant", 32, (), 0), Scalar("divsi", 32, (0, 1)))
    divided = TileCost(5.0, (LoopCost(7, 10.0, (Trips(1, 2, 0),)),), zero)
    assert Sampler(divided).order((4, 4, 1), {}, 8) is None


def test_the_table_of_an_order() -> None:
    """Tiles 5 4 3 2 1 over two blocks, to and fro: 5 and 2 and 1, 4 and 3."""
    table = ordered_table(Order((5, 1, 1), 2, 0), (5, 1, 1), 1, 0)
    assert table[:8].tolist() == [4, 5, 1, 1, 0, 0, 0, 0]
    entries = table[8:].reshape(2, 4, 8)
    assert entries[0, :, 0].tolist() == [0, 3, 4, 0] and entries[1, :, 0].tolist() == [1, 2, 0, 0]
    assert entries[:, 0, 3].tolist() == [3, 2] and (entries[:, :, 4:] == [0, 0, -1, -1]).all()
