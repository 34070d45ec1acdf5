"""How flows share units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wspec.lab.simulate.actions import Flow
from wspec.lab.simulate.costs import ALU, FILL, FMA, ISSUE, LOAD, MUFU, SMEM, TENSOR, UNITS, numbers
from wspec.lab.simulate.unit_sharing import Limits, share
from wspec.model.machine import load_machine


def test_a_flow_alone_runs_at_speed_one() -> None:
    speeds, busy = share((Flow.of({TENSOR: 100.0, ISSUE: 25.0}),))
    assert speeds == (1.0,)
    assert (busy[TENSOR], busy[ISSUE], busy[FMA]) == (1.0, 0.25, 0.0)


def test_of_two_of_a_kind_the_older_comes_first() -> None:
    """It has nine tenths of the unit, and half of the last."""
    flow = Flow.of({MUFU: 80.0, ISSUE: 20.0})
    speeds, busy = share((flow, flow))
    assert speeds == pytest.approx((0.95, 0.05))
    assert busy[MUFU] == pytest.approx(1.0) and busy[ISSUE] == pytest.approx(0.25)


def test_warp_groups_in_step_share_alike() -> None:
    flow = Flow.of({MUFU: 80.0, ISSUE: 20.0})
    assert share((flow, flow), Limits(in_step=True))[0] == pytest.approx((0.5, 0.5))


def test_transfers_take_turns() -> None:
    flow = Flow.of({LOAD: 80.0})
    assert share((flow, flow))[0] == (0.5, 0.5)


def test_beside_a_dot_arithmetic_gets_a_part_of_its_slots() -> None:
    limits = Limits(issue_one=0.25, issue_all=0.4)
    dot, work = Flow.of({TENSOR: 10.0}), Flow.of({FMA: 10.0, ISSUE: 10.0})
    assert share((dot, work), limits)[0] == pytest.approx((1.0, 0.25))
    assert sum(share((dot, work, work), limits)[0][1:]) == pytest.approx(0.4)
    half = Flow(20.0, ((TENSOR, 10.0),))  # of the tensor core
    assert share((half, work), limits)[0] == pytest.approx((1.0, 0.625))


def test_beside_a_dot_arithmetic_of_one_kind_gets_a_part_of_its_unit() -> None:
    limits = Limits(beside_one={FMA: 0.2}, beside_all={FMA: 0.3})
    dot, work, other = Flow.of({TENSOR: 10.0}), Flow.of({FMA: 10.0}), Flow.of({ALU: 10.0, ISSUE: 1.0})
    assert share((dot, work, other), limits)[0] == pytest.approx((1.0, 0.2, 1.0))
    half = Flow(20.0, ((TENSOR, 10.0),))  # of the tensor core
    speeds, busy = share((half, work, work), limits)
    assert sum(speeds[1:]) == pytest.approx(0.65) and busy[FMA] == pytest.approx(0.65)


def test_copies_slow_dots_a_little_and_get_their_part_of_shared_memory() -> None:
    limits = Limits(dots_beside_copies=0.96, smem_left=0.28)
    dot, copy, store = Flow.of({TENSOR: 10.0, SMEM: 10.0}), Flow.of({LOAD: 10.0}), Flow.of({SMEM: 10.0, ISSUE: 1.0})
    assert share((dot, copy), limits)[0] == pytest.approx((0.96, 1.0))
    assert share((dot, store), limits)[0] == pytest.approx((1.0, 0.28))


def test_warps_get_what_dots_leave_of_shared_memory_up_to_their_part() -> None:
    limits = Limits(beside_one={SMEM: 0.4}, beside_all={SMEM: 0.45}, smem_left=0.02)
    moved = Flow.of({SMEM: 10.0, ISSUE: 1.0})
    most, half = Flow.of({TENSOR: 10.0, SMEM: 7.5}), Flow.of({TENSOR: 10.0, SMEM: 5.0})
    assert share((most, moved), limits)[0] == pytest.approx((1.0, 0.25))
    assert share((half, moved), limits)[0] == pytest.approx((1.0, 0.4))
    assert sum(share((half, moved, moved), limits)[0][1:]) == pytest.approx(0.45)


STORE = Flow.of({SMEM: 10.0, FILL: 10.0, ISSUE: 1.0})
READ = Flow.of({SMEM: 10.0, ISSUE: 1.0})


def test_stores_and_copies_slow_each_other_in_like_measure() -> None:
    """A copy that keeps half of the way into shared memory busy; alone both run at their full speed."""
    copy = Flow(10.0, ((FILL, 5.0), (LOAD, 10.0)))
    (copied, stored), busy = share((copy, STORE))
    assert (copied, stored) == pytest.approx((2 / 3, 2 / 3)) and busy[FILL] == pytest.approx(1.0)
    assert busy[SMEM] == pytest.approx(1.0)  # a store that met a tile is tried again
    assert share((copy, READ))[0] == pytest.approx((1.0, 1.0))
    copied, older, younger = share((copy, STORE, STORE))[0]
    assert copied == pytest.approx(2 / 3) == pytest.approx(older + younger) and older > 5 * younger
    slower, stored = share((copy, STORE), Limits(copies_beside_stores=0.5))[0]
    assert slower == pytest.approx(stored) == pytest.approx(0.5)


def test_copies_take_what_stores_leave() -> None:
    """These stores cannot use their part, beside a product that reads half of shared memory."""
    copy, limits = Flow(10.0, ((FILL, 10.0), (LOAD, 10.0))), Limits(beside_one={SMEM: 0.1}, beside_all={SMEM: 0.1})
    dot = Flow.of({TENSOR: 10.0, SMEM: 5.0})
    (_, copied, stored), busy = share((dot, copy, STORE), limits)
    assert stored <= 0.1 and copied == pytest.approx(1.0 - stored) and busy[FILL] == pytest.approx(1.0)


def test_the_h200s_stores_and_copies_beside_each_other() -> None:
    """About as measured: 85 to 94 bytes a cycle stored, 22 to 28 of the 52 that come alone (docs/results)."""
    numbers_ = numbers(load_machine("h200"))
    alone = 1 / numbers_.load_most
    copy = Flow(alone, ((FILL, alone), (LOAD, 1 / 52)))
    for stores in ((STORE,), (STORE, STORE)):
        copied, *stored = share((copy, *stores), Limits(copies_beside_stores=numbers_.copies_beside_stores))[0]
        assert 75 < sum(stored) * numbers_.smem < 90 and 28 < copied / alone < 34


def test_what_shares_no_unit_does_not_slow() -> None:
    assert share((Flow.of({TENSOR: 10.0}), Flow.of({FMA: 10.0})))[0] == (1.0, 1.0)


def test_who_needs_little_is_not_held_back_by_who_needs_much() -> None:
    """Two share the exponential unit; the third has its own unit."""
    exponentials, sums = Flow.of({MUFU: 10.0, ISSUE: 1.0}), Flow.of({FMA: 10.0, ISSUE: 5.0})
    assert share((exponentials, exponentials, sums))[0][2] == pytest.approx(1.0)


def test_a_flow_may_be_longer_than_its_units_are_busy() -> None:
    chain = Flow.of({ALU: 10.0}, at_least=40.0)
    assert share((chain,) * 4)[0] == (1.0,) * 4
    assert share((chain,) * 8)[0] == pytest.approx((0.5,) * 8)


_UNITS = [unit for unit in range(len(UNITS)) if unit not in (TENSOR, FILL)]
_FLOW = st.dictionaries(st.sampled_from(_UNITS), st.floats(0.5, 1000.0), min_size=1).map(Flow.of)
_FLOWS = st.lists(_FLOW, min_size=1, max_size=6)


@given(_FLOWS)
def test_nothing_stands_still_and_nothing_is_left_over(flows: list[Flow]) -> None:
    speeds, busy = share(tuple(flows))
    assert all(0 < speed <= 1 + 1e-9 for speed in speeds)
    for unit in range(len(UNITS)):
        used = sum(
            speed * dict(flow.busy).get(unit, 0.0) / flow.cycles for speed, flow in zip(speeds, flows, strict=True)
        )
        assert used == pytest.approx(busy[unit], abs=1e-6) and used <= 1 + 1e-6
    for speed, flow in zip(speeds, flows, strict=True):  # each is as fast as it can be, or held back by a full unit
        assert speed > 1 - 1e-6 or any(busy[unit] > 1 - 1e-6 for unit, _ in flow.busy)
