"""How flows share units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wspec.simulate.actions import Flow
from wspec.simulate.costs import ALU, FMA, ISSUE, MUFU, TENSOR, UNITS
from wspec.simulate.fluid import share


def test_a_flow_alone_runs_at_speed_one() -> None:
    speeds, busy = share((Flow.of({TENSOR: 100.0, ISSUE: 25.0}),))
    assert speeds == (1.0,)
    assert (busy[TENSOR], busy[ISSUE], busy[FMA]) == (1.0, 0.25, 0.0)


def test_two_of_a_kind_take_turns() -> None:
    flow = Flow.of({MUFU: 80.0, ISSUE: 20.0})
    speeds, busy = share((flow, flow))
    assert speeds == (0.5, 0.5)
    assert busy[MUFU] == 1.0 and busy[ISSUE] == pytest.approx(0.25)


def test_what_shares_no_unit_does_not_slow() -> None:
    assert share((Flow.of({TENSOR: 10.0}), Flow.of({FMA: 10.0})))[0] == (1.0, 1.0)


def test_who_needs_little_is_not_held_back_by_who_needs_much() -> None:
    """The two on the exponential unit get half each; the third has its own unit."""
    exponentials, sums = Flow.of({MUFU: 10.0, ISSUE: 1.0}), Flow.of({FMA: 10.0, ISSUE: 5.0})
    speeds, _ = share((exponentials, exponentials, sums))
    assert speeds == (0.5, 0.5, 1.0)


def test_a_flow_may_be_longer_than_its_units_are_busy() -> None:
    chain = Flow.of({ALU: 10.0}, at_least=40.0)
    assert share((chain,) * 4)[0] == (1.0,) * 4
    assert share((chain,) * 8)[0] == pytest.approx((0.5,) * 8)


_FLOW = st.dictionaries(st.integers(0, len(UNITS) - 1), st.floats(0.5, 1000.0), min_size=1).map(Flow.of)
_FLOWS = st.lists(_FLOW, min_size=1, max_size=6)


@given(_FLOWS)
def test_fair_and_nothing_left_over(flows: list[Flow]) -> None:
    speeds, busy = share(tuple(flows))
    assert all(0 < speed <= 1 + 1e-9 for speed in speeds)
    for unit in range(len(UNITS)):
        used = sum(
            speed * dict(flow.busy).get(unit, 0.0) / flow.cycles for speed, flow in zip(speeds, flows, strict=True)
        )
        assert used == pytest.approx(busy[unit], abs=1e-6) and used <= 1 + 1e-6
    for speed, flow in zip(speeds, flows, strict=True):  # each is as fast as it can be, or held back by a full unit
        assert speed > 1 - 1e-6 or any(busy[unit] > 1 - 1e-6 for unit, _ in flow.busy)


@given(_FLOWS)
def test_order_does_not_matter(flows: list[Flow]) -> None:
    assert sorted(share(tuple(flows))[0]) == pytest.approx(sorted(share(tuple(reversed(flows)))[0]))
