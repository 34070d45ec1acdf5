"""Small kernels whose time can be worked out by hand."""

from __future__ import annotations

import math

import pytest

from tests.lab.simulate.playing import MACHINE, NUMBERS, after_start, play
from wspec.lab.simulate import SimulationError
from wspec.lab.simulate.costs import LOAD, TENSOR
from wspec.lab.simulate.l2_reuse import Source, arrival
from wspec.model.fitted import MEETING

DOT = 2 * 64 * 64 * 64 / NUMBERS.flop_16bit  # cycles of a dot of 64 x 64 x 64
LATENCY = NUMBERS.dot_latency[64]  # of its result
HANDSHAKE = MEETING + NUMBERS.mbarrier_latency  # the arriving warps meet, then the waiting ones see it
TILE = 64 * 64 * 2  # bytes
ALONE = NUMBERS.at(NUMBERS.measured_mhz, 1 / MACHINE.sm_count)  # where nobody else loads
ARRIVAL = arrival(TILE, Source(), ALONE)  # of a tile that nobody has loaded before
TRANSFER = TILE / NUMBERS.load
SETUP = NUMBERS.dot_setup

DOTS = """
def kernel(n):
    a, b = buffer(64, 64), buffer(64, 64)
    for i in range(0, n, 1):
        acc = dot(a, b, zeros(64, 64))
        one = dot_wait(0, acc)
"""


@pytest.mark.parametrize("n", (0, 1, 7))
def test_dots_that_are_waited_for_follow_each_other(n: int) -> None:
    assert after_start(play(DOTS, n=n)) == pytest.approx(n * (SETUP + DOT + LATENCY))


def test_dots_of_two_blocks_share_the_tensor_core() -> None:
    result = play(DOTS, together=2, n=10)
    assert after_start(result) == pytest.approx(SETUP + 20 * DOT + LATENCY)  # one after the other, without a gap
    assert result.busy[TENSOR] == pytest.approx(20 * DOT)


@pytest.mark.parametrize(("depth", "together", "held"), [(128, 1, [8]), (256, 1, [24]), (128, 2, [8, 24])])
def test_a_burst_of_instructions_is_queued_at_half_the_speed(depth: int, together: int, held: list[int]) -> None:
    """Of eight and sixteen instructions, and of eight of two warp groups each: the first eight of all are quick."""
    text = f"""
def kernel():
    a, b = buffer(64, {depth}), buffer({depth}, 64)
    one = dot(a, b, zeros(64, 64))
"""
    waits = sorted(one["dot"] for one in play(text, together).waits.values())
    assert waits == pytest.approx([count * NUMBERS.dot_issue[64] for count in held])


def test_dots_in_flight_wait_in_order() -> None:
    text = """
def kernel(n):
    a, b = buffer(64, 64), buffer(64, 64)
    one = dot(a, b, zeros(64, 64))
    two = dot(a, b, zeros(64, 64))
    first, = dot_wait(1, one)
    use(first)
    second = dot_wait(0, two)
"""
    result = play(text.replace("first, = dot_wait(1, one)", "first = dot_wait(1, one)").replace("    use(first)\n", ""))
    # the second is queued with its descriptors while the first one runs: its operands lie in shared memory
    assert 4 * NUMBERS.dot_issue[64] + SETUP < DOT
    assert after_start(result) == pytest.approx(SETUP + DOT + DOT + LATENCY)


def test_a_copy_takes_its_transfer_and_a_latency() -> None:
    text = """
def kernel(n):
    tile, full = buffer(1, 64, 64), barriers(1)
    expect(full[0], 8192)
    copy(tile[0], full[0])
    wait(full[0], 0)
"""
    result = play(text)
    meeting = MEETING  # one thread acts when its warps have met, here twice
    assert after_start(result) == pytest.approx(
        2 * meeting + TILE / ALONE.load_rate(1, math.inf, (128, 128)) + ARRIVAL.latency
    )
    assert result.busy[LOAD] == pytest.approx(TILE / ALONE.load_rate(1, math.inf, (128, 128)))


def test_copies_follow_each_other_and_their_latencies_overlap() -> None:
    text = """
def kernel(n):
    tile, full = buffer(4, 64, 64), barriers(1)
    expect(full[0], 32768)
    for i in range(0, 4, 1):
        copy(tile[i], full[0])
    wait(full[0], 0)
"""
    cycles = after_start(play(text))
    alone = TILE / ALONE.load_rate(1, math.inf, (128, 128))
    assert 4 * alone < cycles - ARRIVAL.latency < 4 * (alone + MEETING) + 50


PING_PONG = """
def kernel(n):
    there, back = barriers(1), barriers(1)
    with specialize():
        with task(4):
            for i in range(0, n, 1):
                arrive(there[0])
                wait(back[0], i & 1)
        with task(4):
            for i in range(0, n, 1):
                wait(there[0], i & 1)
                arrive(back[0])
"""


def test_a_handshake_each_way() -> None:
    rounds = [after_start(play(PING_PONG, n=n)) for n in (10, 20)]
    arithmetic = 2 * NUMBERS.arithmetic_latency  # `i & 1` on both sides, at most
    assert 10 * 2 * HANDSHAKE - 0.01 <= rounds[1] - rounds[0] <= 10 * (2 * HANDSHAKE + 2 * arithmetic)


def test_named_barriers_meet() -> None:
    text = """
def kernel(n):
    a, b = buffer(64, 64), buffer(64, 64)
    with specialize():
        with task(4):
            one = dot(a, b, zeros(64, 64))
            two = dot_wait(0, one)
            bar_sync(8, 256)
        with task(4):
            bar_sync(8, 256)
"""
    result = play(text)
    waits = result.waits["partition0"]
    meeting = NUMBERS.named_latency + NUMBERS.meeting_latency  # of two warp groups
    assert waits["named barrier"] == pytest.approx(SETUP + DOT + LATENCY + meeting)
    assert after_start(result) == pytest.approx(NUMBERS.fork + waits["named barrier"])


def test_arriving_does_not_wait() -> None:
    text = """
def kernel(n):
    a, b = buffer(64, 64), buffer(64, 64)
    with specialize():
        with task(4):
            one = dot(a, b, zeros(64, 64))
            two = dot_wait(0, one)
            bar_sync(8, 256)
        with task(4):
            bar_arrive(8, 256)
"""
    assert "named barrier" not in play(text).waits["partition0"]


def test_who_waits_for_nobody_is_named() -> None:
    text = """
def kernel(n):
    empty = barriers(1)
    wait(empty[0], 0)
"""
    with pytest.raises(SimulationError, match=r"nobody can go on: default waits in ttng\.wait_barrier"):
        play(text)


def test_a_store_is_waited_for_until_its_tile_was_read() -> None:
    text = """
def kernel(n):
    tile = buffer(64, 64)
    tma_store(tile)
    store_wait(0)
"""
    expected = MEETING + TILE / NUMBERS.store + NUMBERS.store_latency
    assert after_start(play(text)) == pytest.approx(expected)


def test_a_copy_behind_a_store_begins_when_that_has_been_read() -> None:
    """One engine takes both in their order; a store behind a copy need not wait for the tile."""
    text = """
def kernel(n):
    out, tile, full = buffer(64, 64), buffer(1, 64, 64), barriers(1)
    FIRST
    expect(full[0], 8192)
    copy(tile[0], full[0])
    SECOND
    wait(full[0], 0)
"""
    store = "tma_store(out)"
    alone, behind, before = (
        after_start(play(text.replace("FIRST", first).replace("SECOND", second)))
        for first, second in (("x = 0", "y = 0"), (store, "y = 0"), ("x = 0", store))
    )
    assert behind == pytest.approx(alone + TILE / NUMBERS.store, rel=0.1)
    assert before == pytest.approx(alone, rel=0.1)


def test_two_warp_groups_fill_each_others_gaps() -> None:
    """Eight warps: each half does 64 of 128 rows, and the tensor core always has a dot."""
    text = DOTS.replace("a, b = buffer(64, 64)", "a, b = buffer(128, 64)").replace("zeros(64, 64)", "zeros(128, 64)")
    assert after_start(play(text, warps=4, n=3)) == pytest.approx(3 * (SETUP + 2 * DOT + LATENCY))
    assert after_start(play(text, warps=8, n=3)) == pytest.approx(SETUP + 3 * 2 * DOT + LATENCY)


def test_cp_async_is_waited_for() -> None:
    text = """
def kernel(n):
    tile = buffer(64, 64)
    cp(tile)
    commit()
    cp_wait(0)
"""
    result = play(text)
    assert result.waits["default"]["copies"] == pytest.approx(TRANSFER + NUMBERS.load_latency)
