"""make_plan: decide tasks, channels, depths, schedules and registers for one kernel, from its graph.

The order of the decisions: which loads are streamed (partition.py), how many consumer warp groups share the tile
(replicas.py), what runs late in a consumer (schedule.py) and how many blocks share an SM (occupancy.py), how deep the
rings are (rings.py), whether it all pays (gate.py), and whether a third task would be faster still (chain_choice.py).
Every refusal is a `Declined` with a place.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import networkx as nx

from wspec.diagnostics import Declined
from wspec.ir.core import Operation
from wspec.options import Options
from wspec.plan.byte_fields import packed_tiles, with_packed
from wspec.plan.chain_choice import choose as choose_chain
from wspec.plan.costs import Iteration
from wspec.plan.exponentials import move_exponentials, with_share
from wspec.plan.gate import check_pays, predict
from wspec.plan.machine import Machine
from wspec.plan.occupancy import choose_occupancy, keep_in_flight, take_turns
from wspec.plan.partition import (
    Site,
    check_addresses,
    check_effects,
    check_memory,
    check_understood,
    find_loops,
    find_streams,
)
from wspec.plan.plan import WARP_GROUP, LoopSchedule, Plan, Task, fingerprint, id_of, is_shallow, source_warps
from wspec.plan.ptx_edits import with_ptx_edits
from wspec.plan.registers import available, check_registers
from wspec.plan.replicas import choose_replicas
from wspec.plan.rings import make_channels, private_loads
from wspec.plan.staging import BUFFER, OWN, RING, choose, fits, named, own_bytes, staging_options
from wspec.plan.team import size_of


def make_plan(graph: nx.MultiDiGraph, machine: Machine, options: Options) -> Plan:
    """The plan for the function whose graph this is. Raises Declined when it is to be left alone."""
    function = next(op for _, op in graph.nodes(data="op") if op.name == "tt.func")
    check_understood(function)
    check_effects(function)
    loops = find_loops(function)
    sites = find_streams(function, loops)
    for site in sites:
        check_addresses(function, site)
    check_memory(function, sites)
    single = partial(_without_chain, function, loops, sites, machine)
    off = options.chain == "off"
    plan = single(options) if off else choose_chain(function, loops, sites, machine, options, single)
    warps = max(task.warps * task.replicas for task in plan.tasks)
    plan = replace(plan, packed=packed_tiles(function, warps) if options.pack else ())
    return with_ptx_edits(plan, loops, machine, options)


def _without_chain(
    function: Operation, loops: list[Operation], sites: list[Site], machine: Machine, options: Options
) -> Plan:
    """Loading and multiplying, no third task."""
    warps = source_warps(function)
    replicas, sliced = choose_replicas(function, loops, sites, warps, options)
    consumer_warps = WARP_GROUP if replicas > 1 else warps
    mine = sliced | {id_of(load): -1 for load in private_loads(function, sites)}
    options_of = staging_options(function, sites, mine, replicas)
    for kinds in _PLACES if options.staging is None else ((options.staging,), *_PLACES):
        staging = choose(options_of, kinds)
        if options.staging in kinds and len(kinds) == 1 and not staging:
            continue  # what is asked for cannot be had
        own = own_bytes(function, staging)
        if OWN in kinds and not own:
            continue
        memory = partial(make_channels, function, sites, sliced, replicas, frozenset(staging), own, machine, options)
        try:
            blocks, schedules = choose_occupancy(
                loops, sites, replicas * consumer_warps, memory, machine, options, size_of(function)
            )
            channels, smem = memory(blocks)
        except Declined:
            if own:
                continue
            raise
        if fits(function, staging, channels) and not (own and is_shallow(channels)):
            break
    schedules = keep_in_flight(loops, sites, schedules, channels, options)
    if size_of(function) > 1:
        schedules = _first_pipelined(schedules)
    schedules = take_turns(loops, schedules, replicas, machine, options)
    tile_warps = replicas * consumer_warps // size_of(function)
    schedules = move_exponentials(loops, schedules, tile_warps, machine, options)
    tasks = _tasks(replicas, consumer_warps, blocks, machine, options)
    groups = blocks * replicas * consumer_warps // WARP_GROUP
    shares = {one.loop: one.exp2_on_fma for one in schedules}

    def ours(loop: Operation, work: Iteration) -> Iteration:
        packed = replace(with_packed(work, loop, machine), tma=work.tma / size_of(function))
        return with_share(packed, loop, shares[id_of(loop)], tile_warps, machine)

    late = any(schedule.late for schedule in schedules)
    prediction = predict(loops, machine, late, groups, warps, ours, blocks)
    plan = Plan(
        function.str_attr("sym_name") or "kernel", fingerprint(function), warps, tasks, channels, schedules,
        named(staging, channels), smem, blocks, prediction, team=size_of(function),
    )  # fmt: skip
    check_registers(plan, function, loops, machine)
    if options.gate == "model":
        check_pays(plan, loops, options.depth)
    return plan


def _first_pipelined(schedules: tuple[LoopSchedule, ...]) -> tuple[LoopSchedule, ...]:
    """Only the first loop pipelined: three groups leave no registers for what two pipelined loops hand over."""
    late = [schedule for schedule in schedules if schedule.late]
    return tuple(schedule if schedule in late[:1] else replace(schedule, late=()) for schedule in schedules)


_PLACES: tuple[tuple[str, ...], ...] = ((OWN, BUFFER, RING), (BUFFER, RING), (BUFFER,))
"""Where stores may be staged, what is tried first in front."""


def _tasks(replicas: int, consumer_warps: int, blocks: int, machine: Machine, options: Options) -> tuple[Task, ...]:
    registers = options.consumer_registers or available(
        machine, blocks, replicas * consumer_warps, options.producer_registers
    )
    return (
        Task("mma", "consumer", consumer_warps, registers, replicas),
        Task("load", "producer", options.producer_warps, options.producer_registers),
    )
