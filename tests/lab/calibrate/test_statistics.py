"""Medians, spreads, and costs as differences."""

from __future__ import annotations

import pytest

from wspec.lab.calibrate.statistics import Spread, percentile, slopes


def test_a_spread_of_samples() -> None:
    found = Spread.of([float(value) for value in range(100, -1, -1)])
    assert (found.value, found.low, found.high) == (50, 5, 95)


def test_one_sample_is_its_own_spread() -> None:
    assert Spread.of([7.0]) == Spread(7, 7, 7)


def test_an_outlier_moves_neither_median_nor_range() -> None:
    found = Spread.of([10.0] * 40 + [1e6])
    assert (found.value, found.low, found.high) == (10, 10, 10)


def test_percentiles_lie_between_neighbours() -> None:
    assert percentile([0.0, 10.0], 50) == 5
    assert percentile([0.0, 10.0, 20.0], 75) == 15
    assert percentile([3.0], 95) == 3


def test_no_samples_are_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        Spread.of([])


def test_slopes_leave_out_what_both_have() -> None:
    """7 cycles of overhead and 4 of each operation."""
    assert slopes([7 + 4 * 32.0], [7 + 4 * 96.0], 64) == [4.0]
    with pytest.raises(ValueError):
        slopes([1.0], [1.0, 2.0], 1)
