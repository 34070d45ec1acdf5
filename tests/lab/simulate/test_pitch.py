"""What the pitch of a matrix does to the rate of its tiles, by the calibration."""

from __future__ import annotations

import math

import pytest

from wspec.lab.simulate.costs import LINE, LOAD, numbers, row_class
from wspec.lab.simulate.l2_reuse import Matrix, Source, arrival
from wspec.model.machine import load_machine

NUMBERS = numbers(load_machine("h200"))
TILE = 16 * 1024


H100 = numbers(load_machine("h100"))


def test_what_neighbours_want_comes_as_it_was_measured() -> None:
    """Between a rate of one's own and that of eight neighbours, by where rows begin and which way the loop goes."""
    for beyond, along, across in ((128, 58.92, 58.32), (16, 28.32, 26.91), (32, 40.83, 33.74), (64, 46.99, 38.81)):
        kind = row_class(128, 4096 + beyond)
        assert H100.load_rate(8.0, 1e9, kind) == along and H100.load_rate(132.0, 1e9, kind, False) == across
        assert H100.load_rate(1.0, 1e9, kind) == H100.load_own[kind] < H100.load_rate(2.0, 1e9, kind) < along
    assert H100.load_rate(8.0, 1e9, (64, 128)) == 36.98


def test_blocks_that_share_an_sm_part() -> None:
    """Neighbours gain less then; what nobody else wants comes as ever."""
    kind = row_class(128, 128)
    own, near = NUMBERS.load_own[kind], NUMBERS.load_rate(8.0, 1e9, kind)
    assert NUMBERS.load_rate(8.0, 1e9, kind, left=0.5) == pytest.approx((own + near) / 2)
    assert NUMBERS.load_rate(1.0, math.inf, kind, left=0.5) == pytest.approx(own, rel=0.01)


def cycles(pitch: int, sharers: float, row: int = LINE) -> float:
    of_l2 = Source(sharers, cold=0.0, memory=0.0, matrix=Matrix(pitch), neighbours=sharers)
    return dict(arrival(TILE, of_l2, NUMBERS, row=row).flow.busy)[LOAD]


def test_pitches_of_whole_lines_are_one_class() -> None:
    assert row_class(128, 4096) == row_class(256, 128) == (128, 128)
    assert row_class(64, 6000) == (64, 16)
    assert cycles(4096, 8.0) == cycles(128, 8.0)


def test_rows_that_straddle_lines_come_more_slowly() -> None:
    times = [cycles(pitch, 8.0) for pitch in (128, 64, 32, 16)]
    assert times == sorted(times) and times[3] > 1.9 * times[0]


def test_a_blocks_own_tiles_lose_little() -> None:
    assert cycles(6000, 1.0) == pytest.approx(cycles(128, 1.0), rel=0.4)


def test_half_a_line_is_more_than_half_a_request() -> None:
    """Of all SMs' own way through the same tiles, by calibration: 45 B/clk against 91."""
    assert 1.4 * cycles(128, 8.0) < cycles(128, 8.0, row=64) < 2.2 * cycles(128, 8.0)
