"""Whole launches: waves, classes of blocks, what shares an SM."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.check.script import kernel
from tests.simulate.playing import MACHINE, NUMBERS
from wspec.simulate import Simulator
from wspec.simulate.points import accuracy, rank_correlation

EVEN = """
def kernel(n):
    a, b = buffer(64, 64), buffer(64, 64)
    for i in range(0, n, 1):
        one = dot_wait(0, dot(a, b, zeros(64, 64)))
"""
UNEVEN = EVEN.replace("range(0, n, 1)", "range(0, n - pid(0), 1)")
TURN = 128 + NUMBERS.dot_latency[64]  # cycles of an iteration


def alone(n: int) -> float:
    return NUMBERS.block_start + n * TURN


@pytest.mark.parametrize(("blocks", "waves"), ((1, 1), (132, 1), (133, 2), (264, 2), (1000, 8)))
def test_whole_waves(blocks: int, waves: int) -> None:
    one = Simulator(kernel(EVEN), MACHINE).predict({"arg0": 10}, (blocks, 1, 1), together=1)
    assert one.cycles == pytest.approx(waves * alone(10))
    assert one.dot_flop == blocks * 10 * 2 * 64**3
    assert one.utilization["tensor"] == pytest.approx(blocks * 10 * 128 / (132 * one.cycles))


def test_blocks_that_share_an_sm() -> None:
    one = Simulator(kernel(EVEN), MACHINE).predict({"arg0": 10}, (264, 1, 1), together=2)
    assert one.cycles == pytest.approx(NUMBERS.block_start + 10 * (256 + NUMBERS.dot_latency[64]))
    assert one.blocks_per_sm == 2 and one.waves == 1


def test_blocks_of_unequal_length_fill_up() -> None:
    """Longest first: with two blocks for each SM none waits longer than the mean and one block."""
    one = Simulator(kernel(UNEVEN), MACHINE).predict({"arg0": 300}, (264, 1, 1), together=1)
    mean = sum(alone(300 - x) for x in range(264)) / 132
    assert mean <= one.cycles <= mean + alone(300)
    assert one.dot_flop == pytest.approx(sum(300 - x for x in range(264)) * 2 * 64**3)  # interpolation is exact here


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 60), st.integers(1, 300), st.integers(1, 3))
def test_bounds(n: int, blocks: int, together: int) -> None:
    """No launch beats its tensor cores, and none is slower than one block after the other."""
    one = Simulator(kernel(UNEVEN), MACHINE).predict({"arg0": n}, (blocks, 1, 1), together=together)
    assert all(-1e-9 <= share <= 1 + 1e-6 for share in one.utilization.values())
    assert one.cycles >= alone(n)
    assert one.cycles <= sum(alone(max(0, n - x)) + 20 for x in range(blocks))  # the script's subtraction


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(("flop_16bit", "smem", "load", "fma", "mufu")), st.floats(1.0, 4.0))
def test_a_faster_unit_never_slows(rate: str, factor: float) -> None:
    numbers = dataclasses.replace(NUMBERS, **{rate: getattr(NUMBERS, rate) * factor})
    base, faster = Simulator(kernel(EVEN), MACHINE), Simulator(kernel(EVEN), MACHINE)
    faster.numbers = numbers
    block, other = base.block({"arg0": 20}, (1, 1, 1)), faster.block({"arg0": 20}, (1, 1, 1))
    assert faster.play(other, 2).cycles <= base.play(block, 2).cycles + 1e-6


def test_the_clock_is_between_those_that_were_measured() -> None:
    one = Simulator(kernel(EVEN), MACHINE).predict({"arg0": 100}, (132, 1, 1), together=1)
    assert NUMBERS.busy_mhz < one.clock_mhz < NUMBERS.light_mhz
    given = Simulator(kernel(EVEN), MACHINE).predict({"arg0": 100}, (132, 1, 1), together=1, clock_mhz=1000.0)
    assert given.microseconds == pytest.approx(given.cycles / 1000)


def test_accuracy() -> None:
    found = accuracy([(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)])
    assert found.mean_error == found.worst_error == 0.5 and found.factor == pytest.approx(0.5)
    assert found.mean_left == pytest.approx(0.0) and found.rank_correlation == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert rank_correlation([1, 1], [1, 2]) == 0.0
