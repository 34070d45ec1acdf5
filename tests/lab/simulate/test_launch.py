"""Whole launches: waves, classes of blocks, what shares an SM."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.check.script import kernel
from tests.lab.simulate.playing import MACHINE, NUMBERS
from wspec.ir.core import Operation
from wspec.lab.measurements import Measured
from wspec.lab.simulate import Simulator, l2_reuse
from wspec.lab.simulate.actions import Action, Flow, Kind, Walked
from wspec.lab.simulate.barrier_steps import COPIES as COPIES_OF_TILES
from wspec.lab.simulate.costs import FMA, ISSUE, LOAD, _later_of_two
from wspec.lab.simulate.l2_reuse import (
    Source,
    Sources,
    Tiles,
    Traffic,
    arrival,
    arrivals,
    cases,
    groups,
    loading,
    new_tiles,
    replaced,
    runs,
)
from wspec.lab.simulate.points import accuracy, rank_correlation
from wspec.lab.simulate.power_drawn import slots_between
from wspec.model.fitted import LOADED

EVEN = """
def kernel(n):
    a, b = buffer(64, 64), buffer(64, 64)
    for i in range(0, n, 1):
        one = dot_wait(0, dot(a, b, zeros(64, 64)))
"""
UNEVEN = EVEN.replace("range(0, n, 1)", "range(0, n - pid(0), 1)")
TURN = NUMBERS.dot_setup + 128 + NUMBERS.dot_latency[64]  # cycles of an iteration


def alone(n: int) -> float:
    return NUMBERS.block_start + n * TURN


@pytest.mark.parametrize(("blocks", "waves"), ((1, 1), (132, 1), (133, 2), (264, 2), (1000, 8)))
def test_whole_waves(blocks: int, waves: int) -> None:
    one = Simulator(kernel(EVEN), MACHINE).predict({"arg0": 10}, (blocks, 1, 1), together=1)
    assert one.cycles == pytest.approx(waves * alone(10) + NUMBERS.launch_gap)
    assert one.dot_flop == blocks * 10 * 2 * 64**3
    assert one.utilization["tensor"] == pytest.approx(blocks * 10 * 128 / (132 * one.cycles))


def test_blocks_that_share_an_sm() -> None:
    one = Simulator(kernel(EVEN), MACHINE).predict({"arg0": 10}, (264, 1, 1), together=2)
    assert one.cycles == pytest.approx(alone(1) + 18.5 * 128 + NUMBERS.launch_gap)  # the mean of both
    assert one.blocks_per_sm == 2 and one.waves == 1


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 12), st.integers(2, 3), st.integers(1, 6))
def test_blocks_of_later_waves_begin_one_after_the_other(n: int, together: int, more: int) -> None:
    """One computes while another waits: such a wave takes less than the first, and no less than its tensor cores."""
    simulator, grids = Simulator(kernel(WAITING), MACHINE), [(132 * together * waves, 1, 1) for waves in (2, 2 + more)]
    two, whole = (simulator.predict({"arg0": n}, grid, together, NUMBERS.measured_mhz) for grid in grids)
    wave = (whole.cycles - two.cycles) / more
    assert whole.cycles * whole.utilization["tensor"] / (2 + more) <= wave + 1e-6
    assert wave < two.cycles - NUMBERS.launch_gap - wave


def test_blocks_of_unequal_length_fill_up() -> None:
    """Longest first: with two blocks for each SM none waits longer than the mean and one block."""
    one = Simulator(kernel(UNEVEN), MACHINE).predict({"arg0": 300}, (264, 1, 1), together=1)
    mean = sum(alone(300 - x) for x in range(264)) / 132 + NUMBERS.launch_gap
    assert mean <= one.cycles <= mean + alone(300)
    assert one.dot_flop == pytest.approx(sum(300 - x for x in range(264)) * 2 * 64**3)  # interpolation is exact here


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 60), st.integers(1, 300), st.integers(1, 3))
def test_bounds(n: int, blocks: int, together: int) -> None:
    """No launch beats its tensor cores, and none is slower than one block after the other."""
    one = Simulator(kernel(UNEVEN), MACHINE).predict({"arg0": n}, (blocks, 1, 1), together=together)
    assert all(-1e-9 <= share <= 1 + 1e-6 for share in one.utilization.values())
    busy = one.cycles - NUMBERS.launch_gap
    assert busy >= alone(n)
    assert busy <= sum(alone(max(0, n - x)) + 20 for x in range(blocks))  # the script's subtraction


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(("flop_16bit", "smem", "load_most", "fma", "mufu")), st.floats(1.0, 4.0))
def test_a_faster_unit_never_slows(rate: str, factor: float) -> None:
    numbers = dataclasses.replace(NUMBERS, **{rate: getattr(NUMBERS, rate) * factor})
    base, faster = Simulator(kernel(EVEN), MACHINE), Simulator(kernel(EVEN), MACHINE)
    faster.numbers = numbers
    block, other = base.block({"arg0": 20}, (1, 1, 1)), faster.block({"arg0": 20}, (1, 1, 1))
    assert faster.play(other, 2).cycles <= base.play(block, 2).cycles + 1e-6


def test_the_clock_follows_from_what_the_launch_draws() -> None:
    one = Simulator(kernel(EVEN), MACHINE).predict({"arg0": 100}, (132, 1, 1), together=1)
    assert one.draw.tensor == one.utilization["tensor"] > 0 and one.draw.issue > one.utilization["issue"]
    assert one.clock_mhz == NUMBERS.power.mhz(one.draw)
    given = Simulator(kernel(EVEN), MACHINE).predict({"arg0": 100}, (132, 1, 1), together=1, clock_mhz=1000.0)
    assert given.microseconds == pytest.approx(given.cycles / 1000)


def test_instructions_that_hide_behind_others_are_counted() -> None:
    """Two waits, an arrival and three integers by 8 warps; arithmetic on the units is counted by its time."""
    op = next(kernel(EVEN).walk())
    integers = Action(Kind.WORK, op, pieces=(12.0,), ops=(op,) * 3)
    sums = Action(Kind.WORK, op, pieces=(Flow.of({FMA: 10.0, ISSUE: 10.0}),), ops=(op,))
    wait, arrive = Action(Kind.WAIT, op), Action(Kind.ARRIVE, op)
    assert slots_between(Walked("task", 8, (wait, integers, sums, wait, arrive))) == (2 * 4 + 2 + 3) * 8 / 4


def test_what_a_launch_draws_is_what_its_blocks_load() -> None:
    """8192 bytes a block, the same for all: memory sends them once, L2 once a wave, and every SM gets them."""
    one = Simulator(kernel(COPIES), MACHINE).predict({}, (264, 1, 1), together=1)
    per_cycle = 8192 * 2 / one.cycles
    assert one.draw.moved == pytest.approx(per_cycle)
    assert one.draw.read == pytest.approx(per_cycle / 132)
    assert one.draw.memory == pytest.approx(per_cycle / 264)


def test_accuracy() -> None:
    found = accuracy([(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)])
    assert found.mean_error == found.worst_error == 0.5 and found.factor == pytest.approx(0.5)
    assert found.mean_left == pytest.approx(0.0) and found.rank_correlation == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert rank_correlation([1, 1], [1, 2]) == 0.0


WAITING = """
def kernel(n):
    tile, full = buffer(64, 64), barriers(1)
    a = buffer(64, 64)
    for i in range(0, n, 1):
        expect(full[0], 8192)
        copy(tile, full[0])
        wait(full[0], i & 1)
        acc = dot(a, tile, zeros(64, 64))
        one = dot_wait(0, acc)
"""

COPIES = """
def kernel(n):
    tile, full = buffer(1, 64, 64), barriers(1)
    expect(full[0], 8192)
    copy(tile[0], full[0])
    wait(full[0], 0)
"""


def test_tiles_that_many_blocks_want_come_from_l2_once() -> None:
    """All blocks of the script load the same tile: the first wave finds it in memory, the next in L2."""
    module = kernel(COPIES)
    sources = Sources(module, MACHINE)
    (one,) = sources.of({}, (132, 1, 1), 132).values()
    assert (one.sharers, one.cold) == (132.0, 1.0)
    assert one.memory == pytest.approx(1 / 132)
    (two,) = sources.of({}, (264, 1, 1), 132).values()
    assert (two.sharers, two.cold) == (132.0, 0.0) and two.memory == pytest.approx(1 / 264)


LOOP = """
def kernel(n):
    tile, full = buffer(1, 64, 64), barriers(1)
    for i in range(0, n, 1):
        expect(full[0], 8192)
        copy(tile[0], full[0])
        wait(full[0], i % 2)
"""


@pytest.mark.parametrize(("over", "cold"), [(0, 0.0), (1, 1.0)])
def test_what_a_wave_loads_is_gone_for_the_next_one_if_it_is_more_than_l2_keeps(over: int, cold: float) -> None:
    sources = Sources(kernel(LOOP), MACHINE)
    rounds = int(MACHINE.l2_kept_bytes / 8192) + over
    (one,) = sources.of({"arg0": rounds}, (264, 1, 1), 132).values()
    assert one.cold == cold


def test_what_nobody_shares_is_slower_and_memory_slower_still() -> None:
    size = 32768
    alone, shared, cold, some = (
        arrival(size, source, NUMBERS)
        for source in (
            Source(1.0, 0.0, 0.0), Source(8.0, 0.0, 0.0, neighbours=8.0), Source(1.0, 1.0, 1.0), Source(1.0, 1.0, 0.1)
        )
    )  # fmt: skip
    way = [dict(one.flow.busy)[LOAD] for one in (alone, shared, cold, some)]
    assert way[0] > 1.5 * way[1]
    assert alone.latency == shared.latency == (1 + LOADED) * NUMBERS.tma_latency
    assert way[2] == size / NUMBERS.dram  # which all SMs share
    assert cold.latency == (1 + LOADED) * NUMBERS.dram_latency
    assert way[3] == way[0]  # of a tenth of the tiles: those come later, not at a lower rate
    assert some.latency == pytest.approx(cold.latency + size / NUMBERS.dram - way[0])


def test_blocks_that_share_nothing_are_not_in_step() -> None:
    """Of a product all are, over rows and columns; of heads those of each."""
    left, right = (next(op for op in kernel(COPIES).walk() if op.name in COPIES_OF_TILES) for _ in range(2))
    product: Tiles = {left: [at % 8 for at in range(32)], right: [at // 8 for at in range(32)]}
    assert groups(product) == 1 and groups({left: [at // 8 for at in range(32)]}) == 4
    own = Source(1.0, 0.0, 0.0, in_step=0.25)
    always, seldom = (
        dict(arrivals({left: own}, NUMBERS, Traffic(busy=busy))[left].ways[0].flow.busy)[LOAD] for busy in (1.0, 0.2)
    )
    assert seldom == pytest.approx((0.2 + 0.8 / 4) * always)


def test_how_far_apart_blocks_are_that_want_the_same_tile() -> None:
    """In the order of a product eight rows of tiles come before the next column."""
    left, right = [at % 8 for at in range(32)], [at // 8 for at in range(32)]
    assert runs(left) == (1.0, 8) and runs(right) == (8.0, math.inf)
    assert NUMBERS.load_rate(*runs(left), (128, 128)) < 0.6 * NUMBERS.load_rate(*runs(right), (128, 128))


def test_latency_grows_with_what_others_load() -> None:
    """And the rate is that of a full grid: those that want the same tiles load at the same moments."""
    own = Source(neighbours=1.0, cold=0.0)
    idle, full = (arrival(32768, own, NUMBERS, Traffic(busy=busy)) for busy in (0.0, 1.0))
    assert (idle.latency, full.latency) == pytest.approx((NUMBERS.tma_latency, (1 + LOADED) * NUMBERS.tma_latency))
    assert idle.flow.busy == full.flow.busy


def test_l2_sends_as_many_bytes_a_second_at_any_clock() -> None:
    slow = NUMBERS.at(NUMBERS.measured_mhz / 1.25)
    kinds = [(1.0, math.inf), (8.0, math.inf), (1.0, 12.0)]
    assert [slow.load_rate(*one, (128, 128)) for one in kinds] == pytest.approx(
        [1.25 * NUMBERS.load_rate(*one, (128, 128)) for one in kinds]
    )
    assert slow.most_rate((128, 128)) == NUMBERS.most_rate((128, 128)) and slow.dram == pytest.approx(
        1.25 * NUMBERS.dram
    )
    assert slow.tma_latency == pytest.approx(NUMBERS.tma_latency / 1.25)


def test_what_blocks_further_on_want_is_hardly_merged() -> None:
    """A of a step whose rates were measured where blocks begin one after the other (`tma_product.staggered_rate`)."""
    of_a = NUMBERS.load_rate(1.0, 8.0, (128, 128))
    assert NUMBERS.load < of_a < 1.1 * NUMBERS.load
    assert NUMBERS.load_rate(8.0, math.inf, (128, 128)) > 1.7 * of_a


def test_an_iteration_waits_for_the_later_of_its_tiles() -> None:
    """Of samples that lie between 600 and 1200, most of them near 700."""
    assert _later_of_two(Measured(700.0, 600.0, 1200.0, "cycles")) == pytest.approx(919.5)
    assert _later_of_two(Measured(700.0, 700.0, 700.0, "cycles")) == pytest.approx(700.0)
    assert NUMBERS.dram_latency > 900


def test_new_tiles_are_those_that_l2_no_longer_has() -> None:
    """Of 10 bytes each; what all waves want takes its place once."""
    loads = [one for one in kernel(LOOP).walk() if one.name == "ttng.async_tma_copy_global_to_local"]
    one, always = loads[0], Operation("other")
    tiles: list[list[object]] = [[1, 2], [2, 3], [1, 3], [4, 5]]
    waves: list[Tiles] = [{one: wanted} for wanted in tiles]
    sizes = {one: 10, always: 10}
    assert new_tiles(waves, sizes, 30)[one] == pytest.approx((0.5 + 0 + 1) / 3)
    assert new_tiles(waves, sizes, 20)[one] == pytest.approx((0.5 + 0.5 + 1) / 3)
    assert new_tiles(waves, sizes, 10)[one] == new_tiles(waves[:1], sizes, 90)[one] == 1.0
    both: list[Tiles] = [{one: wanted, always: [0, 0]} for wanted in tiles]
    assert new_tiles(both, sizes, 40) == pytest.approx({one: 0.5, always: 0.0})
    assert new_tiles(both, sizes, 30) == pytest.approx({one: 2 / 3, always: 0.0})


def test_what_is_stored_takes_the_place_of_tiles() -> None:
    """Tiles of 10 bytes: one is back after a wave, with two loaded meanwhile, and one after two, with three."""
    one = Operation("load")
    waves: list[Tiles] = [{one: wanted} for wanted in ([1, 2], [2, 3], [1, 3])]
    assert new_tiles(waves, {one: 10}, 40)[one] == pytest.approx((0.5 + 0) / 2)
    after_one, after_two = replaced(20 / 40, 10 / 40), replaced(30 / 40, 20 / 40)
    assert after_one == pytest.approx(1 - math.exp(-0.5)) and after_two == pytest.approx(1 - math.exp(-2))
    second = (1 + after_one) / 2  # one of its tiles is new, the other was wanted by the wave before
    third = (after_two + after_one) / 2
    assert new_tiles(waves, {one: 10}, 40, 10)[one] == pytest.approx((second + third) / 2)
    assert new_tiles(waves, {one: 10}, 20, 10)[one] == 1.0


def test_what_is_loaded_is_all_there_or_none_of_it() -> None:
    assert replaced(1.0, 0.0) == 0.0 and replaced(1.01, 0.0) == 1.0
    parts = [replaced(loaded, 0.1) for loaded in (0.0, 0.3, 0.6, 0.9, 1.0)]
    assert parts == sorted(parts) and parts[0] == pytest.approx(0.1, abs=0.01) and parts[-1] == 1.0


def test_a_block_waits_for_the_tile_that_comes_from_memory() -> None:
    """A third of A is new and nothing of B: for a third of the blocks all loads of A wait, for the others none."""
    a, b, same = Operation("a"), Operation("b"), Operation("same part of a")
    origins = {a: Source(cold=1 / 3), b: Source(cold=0.0), same: Source(cold=1 / 3)}
    (part, with_a), (rest, without) = cases(origins)
    assert (part, rest) == pytest.approx((1 / 3, 2 / 3))
    assert [one.cold for one in with_a.values()] == [1.0, 0.0, 1.0]
    assert [one.cold for one in without.values()] == [0.0, 0.0, 0.0]
    both = [
        (weight, [one.cold for one in made.values()])
        for weight, made in cases({a: Source(cold=0.5), b: Source(cold=0.25)})
    ]
    assert both == [(0.25, [1.0, 1.0]), (0.25, [1.0, 0.0]), (0.5, [0.0, 0.0])]
    few = cases({a: Source(cold=0.02), b: Source(cold=1.0)})
    assert [(weight, [one.cold for one in made.values()]) for weight, made in few] == [(1.0, [0.0, 1.0])]
    many = cases({Operation("one"): Source(cold=at / 40) for at in range(40)})
    assert sum(weight for weight, _ in many) == pytest.approx(1.0)


def test_blocks_whose_tiles_reach_past_the_end_are_played_apart() -> None:
    a, b = Operation("a"), Operation("b")
    (rest, whole), (part, cut) = cases({a: Source(cold=0.0, clipped=0.2, past=0.75), b: Source(cold=0.0)})
    assert (rest, part) == pytest.approx((0.8, 0.2))
    assert [one.clipped for one in whole.values()] == [0.0, 0.0] and [one.clipped for one in cut.values()] == [1.0, 0.0]
    four = cases({a: Source(cold=0.5, clipped=0.2, past=0.75), b: Source(cold=0.0)})
    assert [weight for weight, _ in four] == pytest.approx([0.4, 0.4, 0.1, 0.1])


def test_rows_past_the_end_come_at_their_own_rate() -> None:
    def way(row: int, **cut: float) -> float:
        one = Source(neighbours=8.0, memory=0.0, cold=0.0, **cut)
        return dict(arrival(32768, one, NUMBERS, row=row).flow.busy)[LOAD]

    for row in (64, 128):
        past = 32768 / NUMBERS.past_rate(row)
        assert way(row, clipped=1.0, past=0.75) == pytest.approx(0.25 * way(row) + 0.75 * past)
        assert way(row, clipped=0.0, past=0.75) == way(row) < past
    assert NUMBERS.past_rate(64) == NUMBERS.past_rate(128) / 2 == NUMBERS.past / 2
    alone = NUMBERS.at(NUMBERS.measured_mhz, 1 / 132)
    assert alone.past_rate(128) == NUMBERS.load_most


def test_what_is_written_takes_memorys_time() -> None:
    """Of loads that wait for memory, not of those that wait for L2."""
    streamed, reused = (Source(neighbours=1.0, memory=part, cold=0.0) for part in (1.0, 0.1))
    free, half = (
        [dict(arrival(32768, one, NUMBERS, Traffic(written=part)).flow.busy)[LOAD] for one in (streamed, reused)]
        for part in (0.0, 0.5)
    )
    assert half == pytest.approx([2 * free[0], free[1]])


def test_the_part_of_the_sms_that_still_loads() -> None:
    """Of 132 SMs 100 have three tiles of 10 loads, and 32 two; what changes by less than a tenth is no change."""
    assert loading([30.0] * 100 + [20.0] * 32, 132) == ((0.0, 1.0), (20.0, 100 / 132))
    assert loading([30.0] * 131 + [20.0], 132) == ((0.0, 1.0),)
    assert loading([30.0] * 66, 132) == ((0.0, 0.5),)  # a launch on half of the card
    assert loading([30.0] * 132 + [20.0] * 132, 132) == ((0.0, 1.0),)  # two blocks an SM, one of them goes on
    text = LOOP.replace("range(0, n, 1)", "range(0, n - pid(0), 1)")
    (one,) = Sources(kernel(text), MACHINE).of({"arg0": 200}, (132, 1, 1), 132).values()
    assert one.loading[:2] == ((0.0, 1.0), (82.0, 118 / 132))  # the last 14 are through with 69 to 82 loads
    (one,) = Sources(kernel(text), MACHINE).of({"arg0": 400}, (264, 1, 1), 132).values()
    assert one.loading == ((0.0, 1.0),)  # others come


def test_where_fewer_sms_load_each_gets_more() -> None:
    """Up to what one can take, and as late."""
    half, line = NUMBERS.at(NUMBERS.measured_mhz, 0.5), (128, 128)
    assert half.load_rate(1.0, math.inf, line) == pytest.approx(2 * NUMBERS.load_rate(1.0, math.inf, line))
    assert half.load_rate(8.0, math.inf, line) == half.most_rate(line) == NUMBERS.most_rate(line)
    assert half.dram == 2 * NUMBERS.dram and half.tma_latency == NUMBERS.tma_latency


def test_the_last_blocks_of_a_grid_have_what_l2_sends_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a loop that goes across the rows of what it loads, where all blocks load at the same moments."""
    monkeypatch.setattr(l2_reuse, "AT_ONCE", 1.0)
    simulator, mhz = Simulator(kernel(LOOP), MACHINE), NUMBERS.measured_mhz
    more, two = (simulator.predict({"arg0": 9}, (blocks, 1, 1), 1, mhz).cycles for blocks in (145, 264))
    faster = 8192 / NUMBERS.load_rate(132.0, math.inf, (128, 128), False) - 8192 / NUMBERS.most_rate((128, 128))
    assert two - more == pytest.approx(9 * faster)


def test_serialized_instructions_take_their_latency_each() -> None:
    module = kernel(EVEN)
    usual, serialized = Simulator(module, MACHINE), Simulator(module, MACHINE, serialized=True)
    times = [one.predict({"arg0": 10}, (1, 1, 1)).cycles for one in (usual, serialized)]
    assert times[1] - times[0] == pytest.approx(10 * 3 * NUMBERS.dot_latency[64])  # the last is waited for anyway
    # While those of one block wait for each other those of another one run.
    assert 4 * (32 + NUMBERS.dot_latency[64]) > 4 * 2 * 32
    assert serialized.predict({"arg0": 10}, (264, 1, 1), together=2).cycles == pytest.approx(times[1])
