"""Raster order: every tile once, neighbours share the larger operand, and grids are understood or left alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wspec.tile_scheduler.raster import KEPT, Numbering, Raster, Reader

Grid = tuple[int, int, int]
WHOLE = {"shared": 0, "kept": 1, "loop": 3, "shared_bytes": 16, "kept_bytes": 8, "l2_bytes": 99, "larger": True}
PLACE = ["program_id", 32, 0, []]


@st.composite
def numberings(draw: st.DrawFn) -> Numbering:
    shared, kept, down = draw(st.integers(1, 40)), draw(st.integers(1, 40)), draw(st.booleans())
    return Numbering(shared, kept, draw(st.integers(1, shared if down else kept)), down)


def tiles(found: Numbering) -> dict[int, tuple[int, int]]:
    """The coordinates of each number."""
    return {found.number(*one): one for one in itertools.product(range(found.shared), range(found.kept))}


@settings(max_examples=200, deadline=None)
@given(numberings(), st.integers(1, 3))
def test_every_tile_has_one_turn(found: Numbering, planes: int) -> None:
    size = found.shared * found.kept
    assert sorted(tiles(found)) == list(range(size))
    turns = found.numbers(np.arange(planes * size))
    assert sorted(turns.tolist()) == list(range(planes * size))
    assert (turns // size == np.arange(planes * size) // size).all(), "plane by plane"


@settings(max_examples=200, deadline=None)
@given(numberings())
def test_neighbours_share_one_coordinate_and_keep_to_a_few_of_the_other(found: Numbering) -> None:
    place = tiles(found)
    turns = [place[number] for number in found.numbers(np.arange(found.shared * found.kept)).tolist()]
    chunk = found.shared * KEPT
    for at in range(0, len(turns), chunk):
        part = turns[at : at + chunk]
        width = len({kept for _, kept in part})
        assert width <= KEPT
        for first in range(0, len(part), width):
            assert len({shared for shared, _ in part[first : first + width]}) == 1


def reader(coordinates: Callable[[int, Grid], tuple[int, int]]) -> Reader:
    """Of tiles by their number and the grid."""

    def sample(x: int, y: int, z: int, gx: int, gy: int, gz: int, values: Any) -> tuple[int, int]:
        return coordinates(x + gx * (y + gy * z), (gx, gy, gz))

    return Reader(sample)


def places(found: Numbering) -> Reader:
    where, size = tiles(found), found.shared * found.kept
    return reader(lambda number, _: (where[number % size][0] * 128, 7 + where[number % size][1] * 64))


@settings(max_examples=200, deadline=None)
@given(numberings(), st.integers(1, 2))
def test_what_is_read_is_how_tiles_are_numbered(found: Numbering, planes: int) -> None:
    """Or nothing is: a few tiles tell it, and some grids of few tiles look like another one."""
    got = places(found).numbering((found.shared * found.kept, planes, 1), ())
    assert got is None or tiles(got) == tiles(found)


@pytest.mark.parametrize("group", [1, 5, 8, 64])
@pytest.mark.parametrize(("shared", "kept"), [(64, 128), (63, 40), (17, 9)])
def test_neighbours_that_share_the_smaller_operand(shared: int, kept: int, group: int) -> None:
    """Grouped as in Triton's tutorials, and without a group: all of one column, then of the next."""
    numbering = Numbering(shared, kept, min(group, shared), True)
    got = places(numbering).numbering((shared * kept, 1, 1), ())
    if group == 1:  # from left to right, as far as it goes
        numbering = Numbering(shared, kept, kept, False)
    assert got == numbering


GROUPS = [(2, False), (4, True), (8, True), (32, True), (33, False), (90, False)]


@pytest.mark.parametrize(("group", "good"), GROUPS)
def test_an_order_that_is_good_is_left_alone(group: int, good: bool) -> None:
    """Groups in which neighbours share the larger operand, and any where neither is larger."""
    larger, neither = (Raster.from_data({**WHOLE, "larger": one, "scalars": [PLACE, PLACE]}) for one in (True, False))
    down, across = Numbering(90, 100, group, True), Numbering(50, 100, group, False)
    assert larger.is_good(across) == neither.is_good(across) == neither.is_good(down) == good
    assert not larger.is_good(down)
    assert larger.is_good(Numbering(50, 3, 3, False)), "there are no more than that"


def test_grids_of_two_axes() -> None:
    """Rows on the first, columns on the second, and what is on the third is a batch."""
    found = reader(lambda number, grid: (number % grid[0], number // grid[0] % grid[1]))
    assert found.numbering((30, 20, 3), ()) == Numbering(30, 20, 30, True)
    assert found.numbering((30, 20, 1), ()) == Numbering(30, 20, 30, True)


@pytest.mark.parametrize("grid", [(0, 1, 1), (1, 1, 1), (3, 1, 1), (64, 1, 1)])
@pytest.mark.parametrize(
    "coordinates",
    [
        lambda number, _: (number, number),
        lambda number, _: (0, 0),
        lambda number, _: (number * number % 13, number // 5),
    ],
)
def test_what_is_not_understood(grid: Grid, coordinates: Any) -> None:
    assert reader(coordinates).numbering(grid, ()) is None


def test_a_tile_that_cannot_be_asked() -> None:
    assert reader(lambda number, _: (number % 0, 0)).numbering((64, 1, 1), ()) is None


def test_a_group_that_another_launch_had_is_tried_first() -> None:
    asked: list[int] = []
    numbering = Numbering(64, 64, 16, True)
    where = tiles(numbering)

    def coordinates(number: int, _: Grid) -> tuple[int, int]:
        asked.append(number)
        return where[number]

    one = reader(coordinates)
    assert one.numbering((4096, 1, 1), ()) == numbering
    first = len(asked)
    asked.clear()
    assert one.numbering((4096, 1, 1), ()) == numbering and len(asked) < first


def test_what_l2_has_room_for() -> None:
    found = Raster.from_data({**WHOLE, "scalars": [PLACE, PLACE]})
    assert Raster.from_data(found.to_data()) == found
    assert found.stays(Numbering(2, 2, 1, False), 2) and not found.stays(Numbering(2, 2, 1, False), 3)
    assert not found.stays(Numbering(2, 2, 1, True), 2), "neighbours share the smaller one"


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        {**WHOLE, "scalars": []},
        {**WHOLE, "kept": True, "scalars": [PLACE]},
        {**WHOLE, "scalars": [["x"]]},
        {**WHOLE, "larger": 1, "scalars": [PLACE, PLACE]},
    ],
)
def test_a_text_that_is_wrong(data: Any) -> None:
    with pytest.raises(ValueError, match="a tile's cost"):
        Raster.from_data(data)
