"""The points that the model is held against, and what is said of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from wspec.bench.model_plans import shapes
from wspec.bench.model_report import FEWEST, Row, choices, error_table, notes
from wspec.cli.walked import walked_launch
from wspec.simulate.points import Point
from wspec.tiles import TABLE

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
    arguments, grid = walked_launch("", names, {"n": 5}, (3, 2, 1), 4)
    assert grid == (4, 1, 1) and arguments["n"] == 5
    table = arguments[TABLE]
    assert not isinstance(table, int | float) and list(table[1:4]) == [3, 2, 1]
    assert walked_launch("", ["n"], {"n": 5}, (3, 2, 1), 4) == ({"n": 5}, (3, 2, 1))
