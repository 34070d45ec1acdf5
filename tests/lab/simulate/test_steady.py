"""Repetitions are jumped over, and nothing comes out differently."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lab.simulate.playing import play
from wspec.lab.simulate.costs import ISSUE, UNITS
from wspec.lab.simulate.timeline import SmResult

RINGS = """
def kernel(n):
    tile, full, empty = buffer({depth}, 64, 64), barriers({depth}), barriers({depth}, {consumers})
    a = buffer(64, 64)
    with specialize():
        with task(4):
            for i in range(0, n, 1):
                wait(full[i % {depth}], i // {depth} & 1)
                acc = dot(a, tile[i % {depth}], zeros(64, 64))
                one = dot_wait(0, acc)
                arrive(empty[i % {depth}])
{other}        with task(1):
            for i in range(0, n, 1):
                wait(empty[i % {depth}], i // {depth} + 1 & 1)
                expect(full[i % {depth}], 8192)
                copy(tile[i % {depth}], full[i % {depth}])
"""
OTHER = """        with task(4):
            for i in range(0, n, 1):
                wait(full[i % {depth}], i // {depth} & 1)
                acc = dot(a, tile[i % {depth}], zeros(64, 64))
                two = dot_wait(0, acc)
                if i > {late}:
                    use(two)
                arrive(empty[i % {depth}])
"""


def ring(depth: int, late: int | None = None) -> str:
    other = "" if late is None else OTHER.format(depth=depth, late=late)
    return RINGS.format(depth=depth, consumers=1 if late is None else 2, other=other)


def alike(one: SmResult, other: SmResult) -> None:
    assert one.cycles == pytest.approx(other.cycles, abs=1.0)
    assert one.busy == pytest.approx(other.busy, abs=1.0)
    for track, waits in one.waits.items():
        assert waits == pytest.approx(other.waits[track], abs=1.0)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(0, 60), st.none() | st.integers(0, 60), st.integers(1, 2))
def test_a_jump_changes_nothing(depth: int, n: int, late: int | None, together: int) -> None:
    text = ring(depth, late)
    alike(play(text, together, n=n), play(text, together, n=n, exact=True))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(8, 60), st.integers(2, 3), st.floats(100.0, 20_000.0))
def test_no_jump_goes_past_a_block_that_begins(depth: int, n: int, together: int, every: float) -> None:
    """Blocks that begin one after the other, each with two more behind it."""
    jumped, exact = (play(ring(depth), together, every=every, exact=exact, n=n) for exact in (False, True))
    assert len(jumped.blocks) == len(exact.blocks) == 3 * together
    alike(jumped, exact)


def test_long_loops_cost_little() -> None:
    short, long = play(ring(3), n=200), play(ring(3), n=20000)
    assert long.skipped > 0.9 * long.cycles
    assert long.steps < short.steps + 100
    assert long.cycles == pytest.approx(short.cycles * 100, rel=0.05)


def test_a_branch_that_goes_another_way_ends_the_repetition() -> None:
    """The late branch is played: its arithmetic is done."""
    early, never = play(ring(2, late=100), n=1000), play(ring(2, late=5000), n=1000)
    assert early.skipped > 0 and early.busy[ISSUE] > 1.5 * never.busy[ISSUE]


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.integers(1, 12), st.none() | st.integers(0, 12))
def test_no_unit_is_busy_longer_than_the_time(depth: int, n: int, late: int | None) -> None:
    result = play(ring(depth, late), n=n)
    assert all(cycles <= result.cycles + 1e-6 for cycles in result.busy) and len(result.busy) == len(UNITS)
    assert all(sum(waits.values()) <= result.cycles + 1e-6 for waits in result.waits.values())
