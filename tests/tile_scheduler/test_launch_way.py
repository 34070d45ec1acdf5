"""What a launch is expected to take, one way or another."""

from __future__ import annotations

import pytest

from wspec.tile_scheduler import LaunchWay, LoopCost, Ranking, TileCost, fastest
from wspec.tile_scheduler.costs import Trips
from wspec.tile_scheduler.scalars import Scalar

LOOP = (
    Scalar("constant", 32, (), 0), Scalar("argument", 32, (), 0), Scalar("constant", 32, (), 1),
)  # fmt: skip
FALLING = (*LOOP, Scalar("program_id", 32, (), 0), Scalar("subi", 32, (1, 3)))


def way(cycles: float, fixed: float = 0.0, coarsening: int = 1, *, falls: bool = False) -> LaunchWay:
    """Argument 0 iterations a tile, or as many fewer as its number is."""
    scalars = FALLING if falls else LOOP
    loop = LoopCost(7, cycles, (Trips(0, 4 if falls else 1, 2),))
    return LaunchWay(f"{coarsening} at a time", {}, TileCost(fixed, (loop,), scalars), coarsening)


def test_tiles_of_one_cost_are_spread_but_for_one() -> None:
    assert way(10.0, 5.0).cycles((9, 2, 1), {0: 3}, 4) == 5 * 35
    assert way(10.0, 5.0, 3).cycles((8, 2, 1), {0: 3}, 4) == 3 * 2 * 35, "six threes on four SMs"


def test_other_tiles_keep_all_busy_about_as_long() -> None:
    total = sum(10 * (100 - x) for x in range(40))
    assert way(10.0, falls=True).cycles((40, 3, 1), {0: 100}, 4) == pytest.approx(3 * total / 4)
    assert way(10.0, falls=True).cycles((4, 1, 1), {0: 100}, 132) == 1000, "the dearest alone"
    threes = way(10.0, coarsening=3, falls=True).cycles((39, 8, 1), {0: 100}, 4)
    dearest = sum(30 * (100 - x) for x in range(0, 39, 3))
    assert threes == pytest.approx(8 * dearest / 4, rel=0.01)


def test_the_fastest_comes_first() -> None:
    ways = way(10.0, 100.0), way(6.0, 150.0, 3)
    assert [at for _, at in fastest(ways, (30, 40, 1), {0: 10}, 132)] == [0, 1]
    assert [at for _, at in fastest(ways, (30, 40, 1), {0: 100}, 132)] == [1, 0]
    assert [at for _, at in fastest((ways[0], ways[0]), (30, 40, 1), {0: 10}, 132)] == [0, 1]
    assert fastest(ways, (0, 40, 1), {0: 10}, 132) == [], "nothing is launched"


@pytest.mark.parametrize("count", [2, 3])
def test_what_is_asked_often_is_the_same(count: int) -> None:
    """The function that is written for the ways of a kernel says what going through them does."""
    ways = (way(10.0, 100.0), way(6.0, 150.0, 4), way(6.2, 140.0, 3))[:count]
    turns = set()
    for iterations in (1, 10, 30, 100):
        for tiles in (8, 132, 300, 1200):
            grid = (tiles, 2, 1)
            found = list(Ranking(ways).fastest(grid, (iterations,), 132))
            assert found == [at for _, at in fastest(ways, grid, {0: iterations}, 132)]
            turns.add(tuple(found))
    assert len({turn[0] for turn in turns}) == count, "each of them is the fastest somewhere"


def test_a_file_has_it_all() -> None:
    made = LaunchWay("teams", {"coarsening": 3}, way(1.5, 2.5, falls=True).cost, 3, 1)
    assert LaunchWay.from_data(made.to_data()) == made
    for name, value in (("name", 1), ("change", []), ("change", {"a": "b"}), ("axis", "x"), ("cost", None)):
        with pytest.raises(ValueError, match="a tile's cost"):
            LaunchWay.from_data({**made.to_data(), name: value})
