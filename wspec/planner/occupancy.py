"""How many thread blocks share an SM, and which loops are pipelined: what registers and shared memory allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wspec.diagnostics import Declined
from wspec.ir.core import Operation
from wspec.ir.numbering import id_of
from wspec.model import estimate
from wspec.model.estimate import is_clearly_less
from wspec.model.machine import Machine
from wspec.model.operations import heaviest, loop_work
from wspec.options import Options
from wspec.passes.software_pipelining.stages import accumulators, choose_late
from wspec.plan.buffers import readers_of
from wspec.plan.graph import loops_around
from wspec.plan.partition import Site, decline, walks_by_programs
from wspec.plan.plan import Channel, LoopSchedule, is_shallow
from wspec.plan.registers import available, consumer_need, instruction_need, launch_registers
from wspec.target.hopper import WARP_GROUP

MAX_CONSUMER_WARPS = 16  # of all blocks on one SM together; a guess, more was not tried


def _flat(loops: list[Operation]) -> tuple[LoopSchedule, ...]:
    return tuple(LoopSchedule(id_of(loop)) for loop in loops)


def _pipelined(loops: list[Operation], sites: list[Site], machine: Machine) -> tuple[LoopSchedule, ...]:
    loads = {site.load for site in sites}
    return tuple(choose_late(loop, loads.__contains__, machine) for loop in loops)


def _would_block(loops: list[Operation], sites: list[Site], schedules: tuple[LoopSchedule, ...]) -> bool:
    """Does a loop need a later tile of the next iteration before it gives back an earlier one of this iteration?

    Then the producer, which fills rings in program order, needs a second buffer for the earlier tile.
    """
    loads = {site.load for site in sites}
    for loop, schedule in zip(loops, schedules, strict=True):
        late = set(schedule.stage1)
        block = loop.regions[0].block
        tiles = [readers_of(block, op) for op in block.ops if op in loads]
        for at, readers in enumerate(tiles):
            if readers & late and any(other - late for other in tiles[at + 1 :]):
                return True
    return False


def keep_in_flight(
    loops: list[Operation],
    sites: list[Site],
    schedules: tuple[LoopSchedule, ...],
    channels: tuple[Channel, ...],
    options: Options,
) -> tuple[LoopSchedule, ...]:
    """Let loops that only accumulate run their dots on into the next iteration.

    Their buffers are then released an iteration later, which takes rings of two or more.
    """
    if not options.overlap or is_shallow(channels):
        return schedules
    loads = {site.load for site in sites}
    return tuple(
        replace(schedule, in_flight=True) if accumulators(loop.regions[0].block, loads.__contains__) else schedule
        for loop, schedule in zip(loops, schedules, strict=True)
    )


def choose_occupancy(
    function: Operation,
    loops: list[Operation],
    sites: list[Site],
    consumer_warps: int,
    memory: Callable[[int], tuple[tuple[Channel, ...], int]],
    machine: Machine,
    options: Options,
    coarsening: int = 1,
) -> tuple[int, tuple[LoopSchedule, ...]]:
    """How many blocks share an SM, and whether the loops are pipelined; `coarsening` groups of warps each have a tile.

    More blocks hide each other's start and end and each other's softmax; pipelining hides the softmax of one. As many
    blocks as registers and two stages of rings allow, pipelined if that still fits. Where products only accumulate,
    there is nothing to hide but what the producer and a tile's ends take: as few as that is hidden with.
    """
    threads = 32 * consumer_warps // coarsening
    wanted = candidates(loops, options, [b for b in (3, 2, 1) if b * consumer_warps <= MAX_CONSUMER_WARPS])
    least = instruction_need(function)

    def schedules_of(blocks: int) -> tuple[LoopSchedule, ...] | None:
        tried: tuple[LoopSchedule, ...] = ()
        for overlap in (True, False) if options.overlap else (False,):
            schedules = _pipelined(loops, sites, machine) if overlap else _flat(loops)
            if blocks > 1 and not overlap and tried and not any(one.stage1 for one in tried):
                continue  # the same kernel as with overlap, for which there was no room
            tried = schedules
            need = consumer_need(loops, schedules, threads)
            if need > (options.consumer_registers or _available(machine, blocks, consumer_warps, options)):
                continue
            if _would_block(loops, sites, schedules) and not _rings_fit(memory, blocks, 2):
                continue
            if blocks == 1 or _rings_fit(memory, blocks, 2 if overlap else 1):
                return schedules
        return None

    able = [blocks for blocks in wanted or [1] if launch_registers(machine, blocks, consumer_warps) >= least]
    possible = [(blocks, found) for blocks in able if (found := schedules_of(blocks)) is not None]
    if len(possible) > 1 and (expected := _expected(loops, sites, consumer_warps // WARP_GROUP, memory, machine)):
        cycles = {blocks: expected(blocks) for blocks, _ in possible}
        possible = [one for one in possible if not is_clearly_less(min(cycles.values()), cycles[one[0]])][-1:]
    if possible:
        return possible[0]
    blocks = wanted[-1] if wanted else 1
    start = launch_registers(machine, blocks, consumer_warps)
    if start < least:
        raise decline(
            "registers",
            f"a dot needs {least} registers a thread when the kernel starts, {blocks} blocks an SM leave {start}",
            loops[0].location,
            "use smaller tiles, or fewer blocks",
        )
    need = consumer_need(loops, _flat(loops), threads)
    room = options.consumer_registers or _available(machine, blocks, consumer_warps, options)
    if options.gate == "model" and need > room:
        have = "can be had" if options.consumer_registers is None else "are asked for"
        raise decline(
            "registers",
            f"a consumer would need about {need} registers a thread, {room} {have}",
            loops[0].location,
            "use smaller tiles, or more warps",
        )
    return blocks, _flat(loops)


def candidates(loops: list[Operation], options: Options, most_first: list[int]) -> list[int]:
    """How many blocks may share an SM, of these. A kernel that walks over tiles by itself, in steps of its programs, is
    launched with one for each SM."""
    if options.blocks is not None:
        return [options.blocks]
    return [1] if walks_by_programs(loops[0]) else most_first


def _available(machine: Machine, blocks: int, consumer_warps: int, options: Options) -> int:
    return available(machine, blocks, consumer_warps, options.producer_registers)


def _expected(
    loops: list[Operation],
    sites: list[Site],
    groups: int,
    memory: Callable[[int], tuple[tuple[Channel, ...], int]],
    machine: Machine,
) -> Callable[[int], float] | None:
    """Cycles of an iteration by how many blocks share an SM, each with so many warp groups; a tile's start is spread
    over its iterations where blocks do not walk. None of loops that do more than accumulate."""
    loads = {site.load for site in sites}
    loop = heaviest(loops, machine)
    if not accumulators(loop.regions[0].block, loads.__contains__):
        return None
    work = loop_work(loop, machine)
    walks = bool(loops_around(loop))
    start = 0.0 if walks else estimate.of_an_iteration(estimate.tile_cycles(0.0, walks, machine))

    def cycles(blocks: int) -> float:
        rings = [channel for channel in memory(blocks)[0] if channel.streams]
        size, ahead = sum(ring.buffer_bytes for ring in rings), min((ring.depth for ring in rings), default=1) - 1
        barriers = sum(not ring.barriers for ring in rings)
        delay = estimate.consumer_delay(barriers, 0, machine)
        arrives = estimate.round_trip(size, delay, work.mma, machine) / (blocks * max(1, ahead))
        least = max(estimate.producer_cycles(len(rings), barriers, blocks, machine), arrives)
        return estimate.cycles(estimate.Way(work, blocks * groups, groups, 2, delay, least)) + start / blocks

    return cycles


def _rings_fit(memory: Callable[[int], tuple[tuple[Channel, ...], int]], blocks: int, depth: int) -> bool:
    """Room for rings of `depth`? One buffer will do where another block computes while this one waits."""
    try:
        channels, _ = memory(blocks)
    except Declined:
        return False
    return all(channel.depth >= depth for channel in channels if channel.streams)
