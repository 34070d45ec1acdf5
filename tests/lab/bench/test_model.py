"""The points that the model is held against, and what is said of them."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from wspec.lab.bench import simulator
from wspec.lab.bench.model_changes import CHANGES, compiler_options, distinct, in_words, tiles
from wspec.lab.bench.model_measure import at_one_clock
from wspec.lab.bench.model_plans import shapes
from wspec.lab.bench.model_report import FEWEST, Row, choices, comparisons, error_table, in_turns, notes
from wspec.lab.persistent_launch import walked_launch
from wspec.lab.simulate import Prediction
from wspec.lab.simulate.points import Point
from wspec.lab.simulate.power import Draw, Power
from wspec.tile_scheduler import TABLE

POINT = Point("", "k.py:one", "plain", {}, {}, {}, {}, (1, 1, 1), 1.0)


def row(shape: str, plan: str, measured: float, predicted: float) -> Row:
    point = replace(POINT, name=f"{shape} {plan}", shape=shape, ms=measured)
    return Row(point, predicted, predicted, 2 * predicted)


def test_the_choice_is_the_plan_that_was_predicted_fastest() -> None:
    rows = [
        row("a", "one", 1.0, 2.0),
        row("a", "two", 1.1, 1.0),
        row("a", "three", 3.0, 3.0),
        row("a", "four", 4.0, 4.0),
    ]
    (one,) = choices(rows)
    assert (one.chosen, one.plans) == ("two", 4)
    assert one.regret == pytest.approx(0.1)
    assert one.correlation == pytest.approx(0.8)
    assert "on 0 of 1 shapes; at worst 10.0 % slower" in notes(rows, [one])[1]
    assert "fastest of all is on 0; at worst 10.0 % slower" in notes(rows, [one])[2]


@pytest.mark.parametrize(("expected", "taken"), [(0.96, "own"), (0.94, "forced")])
def test_the_compiler_leaves_the_planners_plan_for_more_than_the_model_errs(expected: float, taken: str) -> None:
    forced = row("a", "forced", 1.0, expected)
    forced = replace(forced, point=replace(forced.point, options={"depth": 3}, forced="depth=3"))
    (one,) = choices([row("a", "own", 1.0, 1.0), forced, row("a", "x", 2.0, 2.0), row("a", "y", 3.0, 3.0)])
    assert (one.chosen, one.taken) == ("forced", taken)


def test_a_plan_that_no_search_looks_at_is_not_taken() -> None:
    forced = row("a", "forced", 1.0, 0.5)
    held = replace(forced, point=replace(forced.point, options={"hold_waits": True}, forced="hold_waits=1"))
    (one,) = choices([row("a", "own", 1.0, 1.0), held, row("a", "x", 2.0, 2.0), row("a", "y", 3.0, 3.0)])
    assert (one.chosen, one.taken) == ("forced", "own")


def test_forced_plans_are_compared_with_the_planners_own_at_their_tile() -> None:
    """One foretold 10 % slower than the other tile's own is 20 % slower than that of its tile."""

    def plan(tile: str, forced: str, measured: float, predicted: float) -> Row:
        made = row("a", f"{tile} {forced}".strip(), measured, predicted)
        return replace(made, point=replace(made.point, kind="specialized", forced=forced))

    rows = [
        plan("64x64", "", 1.0, 2.0),
        plan("64x64", "depth=3", 1.0, 2.2),
        plan("128x64", "", 2.0, 1.0),
        plan("128x64", "depth=3", 2.0, 0.8),
        plan("128x64", "hold_waits=1", 2.0, 8.0),  # which no search looks at
        plan("64x32", "depth=3", 1.0, 1.0),  # whose own plan was not measured
        row("a", "plain", 1.0, 5.0),
    ]
    assert comparisons(rows) == pytest.approx([0.1, 0.25])
    assert any("2 plans over the planner's own at their tile: off by 17.5 %" in one for one in notes(rows, []))


def test_what_the_margin_is_from_is_not_what_it_is_tested_on() -> None:
    tested, others = ({str(one) for one in shapes(others=which)} for which in (False, True))
    assert len(tested) == 29 and len(others) == 20 and not tested & others


def test_a_shape_of_few_plans_is_not_ranked_but_counted() -> None:
    rows = [row("a", str(at), 1.0 + at, 1.5 + at) for at in range(FEWEST - 1)]
    assert choices(rows) == []
    table = error_table(rows)
    assert [cells[:4] for cells in table.rows][-1] == ("all", "3", "30.6 %", "50.0 %")


def test_there_are_enough_points_and_no_two_alike() -> None:
    every = [point for shape in shapes() for point in shape.points()]
    assert len(every) >= 80 and len({point.name for point in every}) == len(every)
    assert len({(point.compiled, str(point.arguments), point.grid) for point in every}) == len(every)
    plans = Counter(point.shape for point in every)
    assert min(plans.values()) >= FEWEST and all(point.shape in point.name for point in every)
    assert {point.kind for point in every} == {"plain", "specialized"}


def test_a_kernel_that_walks_is_launched_with_its_table() -> None:
    names = ["n", TABLE]
    arguments, grid = walked_launch(None, names, {"n": 5}, (3, 2, 1), 4)
    assert grid == (4, 1, 1) and arguments["n"] == 5
    table = arguments[TABLE]
    assert not isinstance(table, int | float) and list(table[1:4]) == [3, 2, 1]
    assert walked_launch(None, ["n"], {"n": 5}, (3, 2, 1), 4) == ({"n": 5}, (3, 2, 1))


def test_the_changes_are_the_same_at_every_tile() -> None:
    """Only what the compiler is told of the launch is not forced once more."""
    for tile in tiles([point for shape in shapes() for point in shape.points()]):
        told = compiler_options(tile[0])
        some = [change for change in CHANGES if not change or not change.items() <= told.items()]
        assert [compiler_options(point) for point in tile] == [{**told, **change} for change in some]
        assert [point.forced for point in tile] == [in_words(change) for change in some]
        assert told in ({}, {"blocks": 1, "persistent": False})


def test_a_plan_that_makes_the_same_kernel_counts_once() -> None:
    tile = tiles(shapes(quick=True)[0].points())[0]  # attention, D = 128, 128 x 128
    kept, why = distinct(tile)
    assert kept[0] == tile[0] and {len(tile)} == {len(kept) + len(why)}
    names = [point.name.removeprefix(tile[0].name).strip() for point in kept]
    assert {"persistent=0", "overlap=0", "depth=1"} <= set(names) and "persistent=1" not in names
    assert any("persistent=1: the kernel of" in one for one in why)
    assert any("blocks=2: no such plan, registers" in one for one in why)


def test_plans_that_take_turns_share_a_clock() -> None:
    points = [replace(POINT, name=name, shape="a", clock_mhz=mhz) for name, mhz in (("one", 1400.0), ("two", 0.0))]
    made = [Prediction(3000.0, clock, 1, 1, 1.0, {}, 0.0, Draw(), 1, 1) for clock in (1200.0, 1800.0)]
    one, two = in_turns(list(zip(points, made, strict=True)), Power(1980.0, exponent=2.0))
    shared = (2 / (1200**-2 + 1800**-2)) ** 0.5  # of twice the power at 1200 MHz, for half of the time
    assert one.ms == two.ms == pytest.approx(3 / shared)
    assert (one.ms_alone, two.ms_alone) == pytest.approx((0.0025, 3000 / 1.8e6))
    assert (one.ms_at_clock, two.ms_at_clock) == pytest.approx((3000 / 1.4e6, 3000 / 1.8e6))


@pytest.mark.parametrize("jobs", [1, 2])
def test_predictions_come_in_the_order_of_the_points(monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    """Launches of one kernel are predicted together, by one process; here by threads that say their numbers."""
    points = [replace(POINT, name=str(i), grid=(i, 1, 1), constexprs={"A": i % 2}) for i in range(5)]
    together: list[int] = []

    def predict(machine: str, some: list[Point]) -> list[Prediction]:
        together.append(len(some))
        return [Prediction(one.grid[0], 1.0, 1, 1, 1.0, {}, 0.0, Draw(), 1, 1) for one in some]

    monkeypatch.setattr(simulator, "_predict_some", predict)
    monkeypatch.setattr(simulator, "pool", ThreadPoolExecutor)
    assert [one.cycles for one in simulator.predict_all(points, "h200", jobs)] == [0, 1, 2, 3, 4]
    assert sorted(together) == [2, 3]


def test_plans_are_held_against_each_other_at_one_clock() -> None:
    """The second one takes as many cycles as the first, behind something hot in two rounds of three."""
    points = [replace(POINT, name=name) for name in ("one", "two", "three")]
    clocks = {"one": [1500.0, 1500.0, 1250.0], "two": [1250.0, 1500.0, 1250.0], "three": [1500.0] * 3}
    cycles = {"one": 1.5e6, "two": 1.5e6, "three": 3e6}
    samples = {name: [cycles[name] / mhz for mhz in each] for name, each in clocks.items()}
    one, two, three = at_one_clock(points, samples, clocks)
    shared = sum(sum(each) for each in clocks.values()) / 9
    assert one.ms == pytest.approx(two.ms) == pytest.approx(1500 / shared) == pytest.approx(three.ms / 2)
    assert {one.clock_mhz, two.clock_mhz} == {shared} and one.samples_us == tuple(samples["one"])
    assert at_one_clock([], {}, {}) == []
