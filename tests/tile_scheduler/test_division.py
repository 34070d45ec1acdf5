"""Tables that divide tiles: every iteration once, in order, by blocks that nobody waits for in vain, in equal parts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wspec.decision import Decision
from wspec.tile_scheduler import StreamK, TileCost, TileLoop, divided_launch, launch_table, make_table
from wspec.tile_scheduler.costs import LoopCost, Trips
from wspec.tile_scheduler.division import FIELDS, SHORTEST, WHOLE, Table, divided_table
from wspec.tile_scheduler.scalars import Scalar

Work = tuple[tuple[int, int, int], tuple[int, int, int, int]]  # place, part


def work_of(table: Table, block: int) -> list[Work]:
    """What a block does, in order."""
    rows = table[: table[0, block, 3], block].tolist()
    return [((x, y, z), (first, end, taken, to)) for x, y, z, _, first, end, taken, to in rows]


def length(part: tuple[int, int, int, int], trips: int) -> int:
    return trips if part == WHOLE else part[1] - part[0]


def assert_right(table: Table, grid: tuple[int, int, int], trips: int, blocks: int) -> None:
    """Each tile once, whole or in two parts that fit together, the sums through a slot of their own."""
    assert table.dtype == np.int32 and table.shape[1:] == (blocks, FIELDS)
    parts: dict[tuple[int, int, int], list[tuple[int, int, int, int]]] = {}
    for block in range(blocks):
        for place, part in work_of(table, block):
            parts.setdefault(place, []).append((0, trips, -1, -1) if part == WHOLE else part)
    assert sorted(parts) == sorted(itertools.product(*map(range, grid)))
    slots = []
    for found in parts.values():
        found.sort()
        assert found[0][0] == 0 and found[0][2] == -1 and found[-1][1] == trips and found[-1][3] == -1
        for before, behind in itertools.pairwise(found):
            assert before[1] == behind[0] and before[3] == behind[2] >= 0
            slots.append(before[3])
        assert len(found) <= 2 and all(end - first >= SHORTEST for first, end, *_ in found)
    assert len(slots) == len(set(slots)) and all(slot < blocks for slot in slots)


def waits(table: Table, blocks: int, trips: int) -> int:
    """Iterations that blocks which all begin at once stand still, waiting for sums. Fails where somebody does for ever.

    Blocks are taken in their order, as the card starts them.
    """
    ready: dict[int, int] = {}
    waited = 0
    for block in range(blocks):
        time = 0
        for _, part in work_of(table, block):
            if part[2] >= 0:
                assert part[2] in ready, "it waits for a block of a higher number, or for itself"
                waited += max(0, ready[part[2]] - time)
                time = max(time, ready[part[2]])
            time += length(part, trips)
            if part[3] >= 0:
                ready[part[3]] = time
    return waited


SIZES = st.tuples(st.integers(1, 40), st.integers(1, 6), st.integers(1, 3))


@settings(deadline=None)
@given(grid=SIZES, trips=st.integers(1, 200), blocks=st.integers(1, 140))
def test_any_grid(grid: tuple[int, int, int], trips: int, blocks: int) -> None:
    tiles = grid[0] * grid[1] * grid[2]
    table = divided_table(grid[::-1], trips, blocks)
    if table is None:
        assert tiles % blocks == 0 or tiles < blocks or trips < 2 * SHORTEST
        return
    assert_right(table, grid, trips, blocks)
    loads = [sum(length(part, trips) for _, part in work_of(table, block)) for block in range(blocks)]
    assert max(loads) <= tiles * trips / blocks + 2 * SHORTEST  # both ends of a share may have moved
    assert waits(table, blocks, trips) <= blocks * SHORTEST


def test_parts_of_one_iteration() -> None:
    table = divided_table((1, 1, 5), 2, 4, shortest=1)
    assert table is not None
    parts = [part for block in range(4) for _, part in work_of(table, block) if part != WHOLE]
    assert parts and all(end - first == 1 for first, end, *_ in parts)
    assert divided_table((1, 1, 5), 2, 4) is None


@pytest.mark.parametrize(
    ("tiles", "trips", "waves"), [(2048, 128, 15.516), (512, 64, 3.879), (288, 64, 2.182), (133, 100, 1.0076)]
)
def test_blocks_of_an_h200_have_equal_work(tiles: int, trips: int, waves: float) -> None:
    table = divided_table((1, 1, tiles), trips, 132)
    assert table is not None
    loads = [sum(length(part, trips) for _, part in work_of(table, block)) / trips for block in range(132)]
    assert max(loads) == pytest.approx(waves, abs=SHORTEST / trips)
    assert waits(table, 132, trips) == 0


def test_whole_tiles_come_first_and_as_they_do_where_nothing_is_divided() -> None:
    table, whole = divided_table((1, 1, 2048), 128, 132), make_table(np.ones((1, 1, 2048), np.float32), 132)
    assert table is not None
    assert (table[:14, :, :3] == whole[:14, :, :3]).all()


def test_tiles_begun_at_the_same_time_are_neighbours() -> None:
    """In the order of their numbers the whole tiles of the shares begin one after the other."""
    table = divided_table((1, 1, 1024), 128, 132)
    assert table is not None
    begun = {}
    for block in range(132):
        time = 0
        for (x, _, _), part in work_of(table, block):
            if part == WHOLE and x >= 6 * 132:
                begun[x] = time
            time += length(part, 128)
    times = [begun[x] for x in sorted(begun)]
    assert times == sorted(times) and sorted(begun) == list(range(6 * 132, 6 * 132 + len(begun)))


# ------------------------------------------------------------------------------------------- what a launch does


def tile_loop(fix_up_cycles: float, apart_cycles: float = 0.0) -> TileLoop:
    """100 cycles an iteration, as many of them as argument 0 says."""
    scalars = (Scalar("constant", 32, (), 0), Scalar("argument", 32, (), 0), Scalar("constant", 32, (), 1))
    cost = TileCost(50.0, (LoopCost(7, 100.0, (Trips(0, 1, 2),)),), scalars)
    return TileLoop(cost, stream_k=Decision(StreamK(7, fix_up_cycles, 10, apart_cycles)))


UNDIVIDED = replace(tile_loop(0.0), stream_k=Decision(None, "it cannot"))


def test_tiles_are_divided_where_idle_blocks_lose_more_than_sums_on_their_way() -> None:
    """5 tiles of 3250 cycles for 4 blocks: undivided the last wave is three quarters empty."""
    idle = 3250 * 0.75
    assert divided_launch(tile_loop(idle - 1), (5, 1, 1), {0: 32}, 4) is not None
    assert divided_launch(tile_loop(idle + 1), (5, 1, 1), {0: 32}, 4) is None
    assert divided_launch(tile_loop(idle + 1), (5, 1, 1), {0: 32}, 4, must=True) is not None


def test_tiles_stay_whole_where_blocks_out_of_step_lose_more() -> None:
    """A wave and a quarter are shared, so that a block does 40 iterations beside others that want other tiles."""
    left = 3250 * 0.75 - 100
    assert divided_launch(tile_loop(100, left / 40 - 0.1), (5, 1, 1), {0: 32}, 4) is not None
    assert divided_launch(tile_loop(100, left / 40 + 0.1), (5, 1, 1), {0: 32}, 4) is None
    assert divided_launch(tile_loop(100, left), (5, 1, 1), {0: 32}, 4, must=True) is not None
    assert divided_launch(tile_loop(0, left), (5, 1, 1), {0: 32}, 4) is not None, "whatever it costs"


def test_what_an_older_plan_says_of_divided_tiles_is_read() -> None:
    data = tile_loop(12.5, 3.0).to_data()
    assert TileLoop.from_data(data) == tile_loop(12.5, 3.0)
    del data["stream_k"]["apart_cycles"]
    assert TileLoop.from_data(data) == tile_loop(12.5)


@pytest.mark.parametrize("grid", [(4, 1, 1), (8, 1, 1), (3, 1, 1), (0, 1, 1)])
def test_nothing_is_divided_where_blocks_have_equal_work_or_one_tile_at_most(grid: tuple[int, int, int]) -> None:
    assert divided_launch(tile_loop(0.0), grid, {0: 32}, 4, must=True) is None


def test_nothing_is_divided_in_a_kernel_that_cannot() -> None:
    assert divided_launch(UNDIVIDED, (5, 1, 1), {0: 32}, 4, must=True) is None


def test_the_table_of_a_divided_launch_has_the_form_of_any_other() -> None:
    blocks, table = divided_launch(tile_loop(0.0), (5, 1, 1), {0: 32}, 4) or (0, np.zeros(0))
    other = launch_table(tile_loop(0.0), (5, 1, 1), {0: 32}, 4)
    assert blocks == other[0] == 4 and table[1:4].tolist() == other[1][1:4].tolist() == [5, 1, 1]
    assert len(table) == FIELDS * (1 + 4 * table[0]) and len(other[1]) == FIELDS * (1 + 4 * other[1][0])
    entries = other[1][FIELDS:].reshape(4, -1, FIELDS)
    assert (entries[:, :, 4:] == WHOLE).all()


# ------------------------------------------------------------------------------------------------- its data


@pytest.mark.parametrize(
    "made",
    [
        tile_loop(12.5),
        UNDIVIDED,
        replace(UNDIVIDED, stream_k=Decision()),
        TileLoop(tile_loop(0.0).cost, coarsening=3, axis=1),
    ],
)
def test_data_keep_what_is_decided(made: TileLoop) -> None:
    data = made.to_data()
    assert TileLoop.from_data(data) == made
    assert ("stream_k" in data) == (made.stream_k != Decision()) and ("coarsening" in data) == (made.coarsening > 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data["stream_k"].update(loop=8), "stream_k.loop"),
        (lambda data: data["stream_k"].update(sums=0), "stream_k.sums"),
        (lambda data: data["stream_k"].update(sums=True), "stream_k.sums"),
        (lambda data: data["stream_k"].update(fix_up_cycles=-1.0), "stream_k.fix_up_cycles"),
        (lambda data: data["stream_k"].pop("sums"), "stream_k must have the fields loop, fix_up_cycles, sums"),
        (lambda data: data.update(stream_k={"why_not": 3}), "stream_k must have the fields"),
        (lambda data: data.update(stream_k=3), "stream_k must have the fields"),
        (lambda data: data.update(coarsening=2, axis=0), "stream_k.loop"),  # tiles are divided or joined, not both
        (lambda data: data.update(coarsening=0), "coarsening"),
        (lambda data: data.update(axis=3), "axis"),
        (lambda data: data.update(more=3), "the top level"),
        (lambda data: data.pop("cost"), "the top level"),
    ],
)
def test_data_that_are_wrong(change: Callable[[dict[str, Any]], object], said: str) -> None:
    data = tile_loop(12.5).to_data()
    change(data)
    with pytest.raises(ValueError, match=said):
        TileLoop.from_data(data)
