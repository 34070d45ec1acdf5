"""The table of tiles: every tile once, in a good order, quickly."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.support.host_tables import busy_times
from wspec.tile_scheduler import make_table

Costs = npt.NDArray[np.float32]
Table = npt.NDArray[np.int32]


def costs_of(rows: Any) -> Costs:
    """[1, 1, gx]."""
    return np.array(rows, np.float32).reshape(1, 1, -1)


def tiles_of(table: Table, block: int) -> list[tuple[int, int, int]]:
    return [(int(x), int(y), int(z)) for x, y, z, _ in table[: table[0, block, 3], block]]


def assert_whole(table: Table, grid: tuple[int, int, int], blocks: int) -> None:
    """Every tile once, zeros elsewhere, no row too many."""
    assert table.dtype == np.int32 and table.shape[1:] == (blocks, 4) and table.flags.c_contiguous
    found = [tile for block in range(blocks) for tile in tiles_of(table, block)]
    assert sorted(found) == sorted(itertools.product(*map(range, grid)))
    counts = table[0, :, 3]
    assert table.shape[0] == counts.max() + 1
    empty = np.arange(table.shape[0])[:, None] >= counts
    assert not table[empty][:, :3].any() and not table[1:, :, 3].any()


def free_first(costs: list[float], blocks: int) -> list[int]:
    """The block each in turn goes to, worked out by looking at all of them."""
    busy, owners = [0.0] * blocks, []
    for cost in costs:
        owners.append(busy.index(min(busy)))
        busy[owners[-1]] += cost
    return owners


grids = st.tuples(*[st.integers(0, 7)] * 3)
some_costs = grids.flatmap(
    lambda grid: arrays(np.float32, grid[::-1], elements=st.integers(0, 5) | st.floats(0, 2.0**127, width=32))
)
block_counts = st.integers(1, 9) | st.sampled_from([132, 400])


@settings(max_examples=300, deadline=None)
@given(some_costs, block_counts, st.floats(0.01, 20.0))
def test_every_tile_once(costs: Costs, blocks: int, waves: float) -> None:
    gz, gy, gx = costs.shape
    table = make_table(costs, blocks, waves=waves)
    assert_whole(table, (gx, gy, gz), blocks)
    assert (make_table(costs, blocks, waves=waves) == table).all()


@given(grids, block_counts, st.sampled_from([0.0, 1.0, 3e38, 1e-45]))
def test_equal_tiles_go_around(grid: tuple[int, int, int], blocks: int, cost: float) -> None:
    table = make_table(np.full(grid[::-1], cost, np.float32), blocks)
    assert_whole(table, grid, blocks)
    in_order = [(x, y, z) for z, y, x in np.ndindex(grid[::-1])]
    assert [tiles_of(table, block) for block in range(blocks)] == [in_order[block::blocks] for block in range(blocks)]


@settings(deadline=None)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=60), st.integers(1, 7))
def test_one_window_is_dearest_first(rows: list[int], blocks: int) -> None:
    """As a simulation that looks at every block says, ties by number, equal tiles in their order."""
    table = make_table(costs_of(rows), blocks, waves=1000.0)
    order = sorted(range(len(rows)), key=lambda tile: -rows[tile])
    if min(rows) == max(rows):
        owners = [index % blocks for index in range(len(rows))]
    else:
        owners = free_first([rows[tile] for tile in order], blocks)
    for block in range(blocks):
        expected = [tile for tile, owner in zip(order, owners, strict=True) if owner == block]
        assert [x for x, _, _ in tiles_of(table, block)] == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=7), st.integers(1, 3))
def test_one_window_is_near_the_best(rows: list[int], blocks: int) -> None:
    """Dearest first takes at most 4/3 - 1/(3 blocks) of the shortest time there is."""
    best = min(
        max(sum(cost for cost, owner in zip(rows, owners, strict=True) if owner == block) for block in range(blocks))
        for owners in itertools.product(range(blocks), repeat=len(rows))
    )
    busy = busy_times(costs_of(rows), make_table(costs_of(rows), blocks, waves=1000.0))
    assert busy.max() <= best * (4 / 3 - 1 / (3 * blocks)) + 1e-9


def test_windows_keep_the_order_of_the_launch() -> None:
    """Tiles of a window start before those of the next one, on every block; the windows are of one size."""
    costs = np.random.default_rng(0).uniform(1, 2, (1, 1, 4 * 8 * 5 + 3)).astype(np.float32)
    table = make_table(costs, 8)
    edges = [0, 33, 66, 98, 131, 163]  # 163 tiles in 5 windows
    for block in range(8):
        windows = np.searchsorted(edges, [x for x, _, _ in tiles_of(table, block)], side="right")
        assert (np.diff(windows) >= 0).all()


def test_coordinates_of_a_small_launch() -> None:
    """Costs 3 2 1 / 1 1 1 over two blocks: dearest first, then in order."""
    table = make_table(np.array([[[3, 2, 1], [1, 1, 1]]], np.float32), 2)
    assert tiles_of(table, 0) == [(0, 0, 0), (0, 1, 0), (2, 1, 0)]
    assert tiles_of(table, 1) == [(1, 0, 0), (2, 0, 0), (1, 1, 0)]
    assert table[0, :, 3].tolist() == [3, 3] and table.shape == (4, 2, 4)


def test_more_blocks_than_tiles() -> None:
    table = make_table(costs_of([1, 5, 2]), 5)
    assert table[0, :, 3].tolist() == [1, 1, 1, 0, 0] and table.shape == (2, 5, 4)


def test_tiles_that_cost_nothing_are_spread() -> None:
    """No block gets them all, which would make the table as long as there are tiles."""
    table = make_table(costs_of([1] + [0] * 9999), 100)
    assert table.shape[0] < 400


def test_causal_tiles_are_balanced() -> None:
    """64 query tiles of 32 heads, dear to cheap, over 132 blocks."""
    costs = np.broadcast_to(np.arange(64, 0, -1, dtype=np.float32) * 1000 + 2000, (1, 32, 64))
    busy = busy_times(costs, make_table(costs, 132))
    assert busy.mean() > 0.98 * busy.max()


def test_nothing_to_do() -> None:
    costs = np.zeros((2, 0, 3), np.float32)
    table = make_table(costs, 4)
    assert table.shape == (1, 4, 4) and not table.any()


@pytest.mark.parametrize(
    ("costs", "blocks", "waves", "message"),
    [
        (costs_of([1, -1]), 1, 1.0, "negative"),
        (costs_of([1, np.nan]), 1, 1.0, "finite"),
        (costs_of([1, np.inf]), 1, 1.0, "finite"),
        (costs_of([1, 2]), 0, 1.0, "blocks"),
        (costs_of([1, 2]), 1, 0.0, "waves"),
        (costs_of([1, 2]), 1, float("nan"), "waves"),
        (costs_of([1, 2])[0], 1, 1.0, "dimensions"),
    ],
)
def test_what_is_refused(costs: Costs, blocks: int, waves: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_table(costs, blocks, waves=waves)


@pytest.mark.parametrize("blocks", [132, 528])
def test_many_tiles_are_fast(blocks: int) -> None:
    costs = np.random.default_rng(0).uniform(1, 200, (32, 16, 64)).astype(np.float32)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        make_table(costs, blocks)
        times.append(time.perf_counter() - begin)
    assert min(times) < 120e-3  # 25 to 40 ms
