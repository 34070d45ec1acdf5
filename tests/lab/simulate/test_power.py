"""The clock under the power limit."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wspec.lab.measurements import Measured, load_measurements
from wspec.lab.simulate.costs import numbers
from wspec.lab.simulate.power import Draw, Power, fit
from wspec.model.machine import load_machine

LIGHT, SMS = 1980.0, 132
TRUE = Power(LIGHT, Draw(1.5, 0.4, 0.009, 0.005, 0.03), 2.0, {0.0: 1.0, 0.3: 0.9, 0.6: 0.91})
UNITS = ("tensor", "issue", "moved", "read", "memory")
draws = st.builds(
    Draw, st.floats(0, 1), st.floats(0, 1), st.floats(0, 90), st.floats(0, 90), st.floats(0, 40)
)  # fmt: skip


def tables(power: Power) -> dict[str, dict[int, Measured]]:
    """What `wspec calibrate` would find on a card of such power: its loads, by the tensor core's share."""
    loads = {"alone": (0, 0), "arithmetic": (5, 0), "same": (0, 50), "own": (0, 40), "memory": (0, 20), "all": (4, 35)}
    found: dict[str, dict[int, Measured]] = {}
    for load, (pairs, copied) in loads.items():
        for share in (0, 30, 60, 100):
            draw = Draw(
                share / 100, pairs * 10 / 128, copied, copied / SMS if load == "same" else copied,
                copied if load == "memory" else 0.0,
            )  # fmt: skip
            left = 1.0 if share == 100 else power.left(draw.tensor)
            mhz = LIGHT * left * power.limited(draw, left)
            parts = {"mhz": mhz, "share": share, "pairs": pairs, "bytes": copied}
            for what, value in parts.items():
                found.setdefault(f"power.{what}_{load}", {})[share] = Measured(value, value, value, "")
    return found


def test_a_fit_finds_what_clocks_were_made_of() -> None:
    found = fit(tables(TRUE), LIGHT, SMS)
    assert found is not None and max(map(abs, found.errors)) < 0.002
    assert astuple(found.power.costs) == pytest.approx(astuple(TRUE.costs), rel=0.02)
    assert found.power.exponent == pytest.approx(TRUE.exponent)
    assert all(one.mhz < LIGHT for one in found.loads) and "alone 0" not in {one.name for one in found.loads}


def test_without_measurements_there_is_no_limit() -> None:
    assert fit({}, LIGHT, SMS) is None
    assert Power(LIGHT).mhz(Draw(1.0, 1.0, 90, 90, 40)) == LIGHT


def test_at_the_clock_that_is_said_the_card_draws_what_it_may() -> None:
    draw = Draw(0.9, 0.2, 45, 20, 10)
    left = TRUE.left(draw.tensor)
    share = TRUE.limited(draw, left)
    *parts, memory = (cost * much for cost, much in zip(astuple(TRUE.costs), astuple(draw), strict=True))
    assert share < 1 and left * (sum(parts) * share**TRUE.exponent + memory * share) == pytest.approx(1.0)
    assert TRUE.mhz(draw) == pytest.approx(LIGHT * left * share)


def test_the_parts_of_the_limit() -> None:
    assert sum(astuple(TRUE.parts(Draw(0.9, 0.2, 45, 20, 10)))) == pytest.approx(1.0)
    assert astuple(TRUE.parts(Draw(issue=0.5))) == pytest.approx((0.0, 0.2, 0.0, 0.0, 0.0))


def test_below_the_limit_products_stretch_the_clock() -> None:
    assert TRUE.mhz(Draw()) == LIGHT and TRUE.mhz(Draw(issue=0.5)) == LIGHT
    assert TRUE.mhz(Draw(tensor=0.15)) == pytest.approx(0.95 * LIGHT)
    assert TRUE.mhz(Draw(tensor=0.3)) == pytest.approx(0.9 * LIGHT)


@given(draws, st.sampled_from(UNITS[1:]), st.floats(0, 20))
def test_more_work_is_never_a_faster_clock(draw: Draw, unit: str, more: float) -> None:
    heavier = replace(draw, **{unit: getattr(draw, unit) + more})
    assert TRUE.mhz(heavier) <= TRUE.mhz(draw) + 0.01


def test_the_h200_is_said_well() -> None:
    """Every unit costs something, and no clock is missed by more than 4 %."""
    found = fit(load_measurements("h200").tables, LIGHT, SMS)
    assert found is not None and numbers(load_machine("h200")).power == found.power
    assert all(cost > 0 for cost in astuple(found.power.costs)) and len(found.loads) >= 10
    assert max(map(abs, found.errors)) < 0.04
    assert found.power.costs.memory > found.power.costs.read + found.power.costs.moved
