"""What an iteration of a loop takes on an SM that several warp groups share: one estimate, for everybody who decides.

The units of an SM serve whoever comes; a warp group asks one after the other, waits in between for what no unit does,
and starts anew. That is a closed queueing network: so many customers as iterations are under way at a time, a station
for each unit, a delay for handshakes and latencies. Mean value analysis (Reiser and Lavenberg 1980) gives its
throughput from busy cycles and latencies alone, with no share that somebody would have to set: with one customer all
that an iteration does comes one after the other, with many the busiest unit is all there is.

A unit takes as long as it takes and not a random time, so groups that keep in step wait less for each other than this
says; where dots are pipelined, two iterations of each group are under way. `docs/cost-model.md` has what came of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wspec.model.fitted import MARGIN, TILE_TRIPS
from wspec.model.machine import Machine
from wspec.model.operations import Iteration


@dataclass(frozen=True, slots=True)
class Way:
    """How a loop is run: specialized, or as Triton pipelines it."""

    work: Iteration  # of a block
    groups: int  # warp groups that compute, of all blocks on an SM
    block_groups: int  # of a block
    under_way: int  # iterations of a group at a time: 2 where dots run on, or part of an iteration is late
    delay: float  # cycles of an iteration of a group that no unit is busy for
    least: float = 0.0  # cycles of an SM for an iteration of a block that another task takes


def cycles(way: Way) -> float:
    """Cycles of one SM for each iteration of a block: at least what its tiles take to arrive."""
    share = max(1, way.block_groups)
    demands = (way.work.mma / share, way.work.compute / share)
    return max(share / throughput(demands, way.delay, max(1, way.groups) * way.under_way), way.work.tma, way.least)


def is_clearly_less(expected: float, other: float) -> bool:
    """Are these cycles fewer than the others by more than the model is wrong?"""
    return expected <= MARGIN * other


def round_trip(size: float, delay: float, used: float, machine: Machine) -> float:
    """Of the buffers of an iteration's tiles, `size` bytes in all: asked for, brought from memory, `used` for so many
    cycles. So many iterations ahead as a kernel asks for, it has under way in this time, and no more."""
    return machine.tma_dram_latency + size / machine.tma_alone_rate + delay + used


def producer_cycles(loads: int, barriers: int, blocks: int, machine: Machine) -> float:
    """Of an SM for each iteration: a producer waits for a place at so many barriers and issues its copies one after the
    other."""
    copies = loads * (machine.issue_latency - machine.ready_latency)
    return (copies + (barriers + 1) * machine.ready_latency) / max(1, blocks)


def throughput(demands: Sequence[float], delay: float, customers: int) -> float:
    """Rounds a cycle of so many customers, each of whom asks every station once a round and then waits `delay`."""
    queues, rate = [0.0] * len(demands), 0.0
    for present in range(1, customers + 1):
        times = [demand * (1 + queue) for demand, queue in zip(demands, queues, strict=True)]
        rate = present / (delay + sum(times))
        queues = [rate * time for time in times]
    return rate


def consumer_delay(barriers: int, awaited: int, machine: Machine) -> float:
    """Of a consumer: its tiles are there, which so many barriers say, and it waits for so many products."""
    return barriers * machine.ready_latency + awaited * machine.mma_latency


def plain_delay(loads: int, awaited: int, machine: Machine) -> float:
    """Of a warp group of the plain kernel, which also loads: its warps meet before a buffer is filled anew."""
    return consumer_delay(loads, awaited, machine) + loads * (machine.issue_latency + machine.meeting_latency)


def tile_cycles(stored_bytes: float, walks: bool, machine: Machine) -> float:
    """What a tile of the plain kernel takes beside its loop: a block starts, its first tiles come, its last one goes.

    Where a kernel `walks` over tiles its blocks start once. A specialized kernel that walks has none of it: the
    producer is with the next tile, and the store goes on beside it.
    """
    return (0.0 if walks else machine.block_start) + machine.tma_dram_latency + stored_bytes / machine.store_rate


def of_an_iteration(tile: float) -> float:
    """A tile's cycles, spread over its iterations."""
    return tile / TILE_TRIPS
