"""In which order variants take their turns."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from wspec.bench.timing import orders


@pytest.mark.parametrize("variants", [1, 2, 5, 30])
def test_every_round_times_every_variant_once(variants: int) -> None:
    for order in orders(variants, 15):
        assert sorted(order) == list(range(variants))


def test_no_variant_comes_behind_the_same_one_in_every_round() -> None:
    behind = Counter(pair for order in orders(6, 15) for pair in pairwise(order))
    assert max(behind.values()) < 15 / 2
    first = Counter(order[0] for order in orders(6, 15))
    assert max(first.values()) < 15 / 2


def test_a_run_can_be_repeated() -> None:
    assert orders(7, 9) == orders(7, 9)
