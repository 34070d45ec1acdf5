"""Tiles that come in bursts: what an SM leaves of its share of the way from L2 it takes later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from wspec.lab.simulate.actions import Flow
from wspec.lab.simulate.asynchrony import TMA
from wspec.lab.simulate.clock import Clock, Running
from wspec.lab.simulate.costs import FILL, LOAD
from wspec.lab.simulate.unit_sharing import Limits, Sharing

ALONE, SHARE = 100.0, 250.0  # cycles of a tile at the SM's own speed, and at what all SMs get at once
TILE = Flow(ALONE, ((FILL, ALONE), (LOAD, SHARE)))
MOST = 6000.0


def _begin(clock: Clock, done: Callable[[Running], None]) -> None:
    clock.start(TILE, "tile", done, TMA)


def _ends(starts: list[float], most: float = MOST) -> list[float]:
    """When tiles are there that are asked for at these times."""
    clock = Clock(sharing=Sharing(Limits(ahead=most)))
    ends: list[float] = []

    def done(one: Running) -> None:
        ends.append(clock.now)

    for number, at in enumerate(starts):
        clock.at(at, ("load", number), lambda: _begin(clock, done))
    while not clock.idle:
        clock.step()
    return ends


def test_all_sms_begin_at_once() -> None:
    assert _ends([0.0, 0.0]) == pytest.approx([SHARE, 2 * SHARE])


def test_a_tile_after_a_pause_comes_as_if_the_sm_were_alone() -> None:
    assert _ends([1000.0]) == pytest.approx([1000 + ALONE])
    assert _ends([1000.0], most=0.0) == pytest.approx([1000 + SHARE])


def test_a_pause_that_is_too_short_helps_as_long_as_it_can() -> None:
    """Of 90 cycles 60 go by while the tile comes at its own speed, of which it is 60 %."""
    assert _ends([90.0]) == pytest.approx([90 + 60 + 0.4 * SHARE])


@pytest.mark.parametrize("gap", [120.0, 200.0, 300.0, 600.0])
def test_in_the_long_run_an_sm_gets_its_share(gap: float) -> None:
    """A tile is asked for every so many cycles: they come in time, or as fast as all SMs can have them."""
    count = 200
    assert _ends([gap * (at + 1) for at in range(count)])[-1] == pytest.approx(
        max(gap * (count + 1), SHARE * count), rel=0.01
    )


def test_what_is_left_to_others_has_an_end() -> None:
    """The whole of a long pause is not had back: 600 cycles are used up by four tiles at 150 each."""
    ends = _ends([5000.0] * 6, most=600.0)
    assert ends == pytest.approx([5000 + at for at in (100, 200, 300, 400, 650, 900)])
