"""make_plan: decide tasks, channels, depths, schedules and registers for one kernel, from its graph.

The order of the decisions: which loads are streamed (partition.py), how many consumer warp groups share the tile
(replicas.py), what runs late in a consumer (schedule.py) and how many blocks share an SM (occupancy.py), how deep the
rings are (rings.py), whether it all pays (gate.py), and whether a third task would be faster still (chain_choice.py).
Every refusal is a `Declined` with a place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from wspec.decision import Decision
from wspec.diagnostics import Declined
from wspec.ir.core import Operation
from wspec.ir.numbering import fingerprint, id_of
from wspec.model.machine import Machine
from wspec.model.operations import Iteration, byte_size, iteration
from wspec.options import Options
from wspec.passes.data_partition.choice import choose_replicas, repeated
from wspec.passes.packed_dequantization.choice import packed_tiles, with_packed
from wspec.passes.ping_pong.choice import choose_ping_pong
from wspec.passes.shared_barriers.choice import shares_barriers
from wspec.passes.software_pipelining.stages import accumulators
from wspec.passes.store_staging.choice import (
    choose,
    fits,
    has_subtiles,
    in_rings_that_hold,
    in_subtiles,
    named,
    own_bytes,
    staging_options,
    why_whole,
)
from wspec.plan.coarsening import size_of
from wspec.plan.exclusions import COARSENING, EXCLUDED, OVERLAP, PING_PONG, SHARED_SM, STAGING, SUBTILING, why_not
from wspec.plan.fill import Fill, filling_registers, filling_warps
from wspec.plan.graph import Dataflow
from wspec.plan.partition import (
    Site,
    check_addresses,
    check_effects,
    check_memory,
    check_understood,
    decline,
    find_loops,
    find_sites,
    find_streams,
    together,
)
from wspec.plan.plan import Channel, LoopSchedule, Plan, Task, is_shallow, source_warps
from wspec.plan.registers import available, check_registers
from wspec.plan.stores import BUFFER, OWN, RING, SUBTILES, Place, Staging
from wspec.planner.chain_choice import choose as choose_chain
from wspec.planner.gate import SpecializedLoops, check_pays, predict
from wspec.planner.occupancy import choose_occupancy, keep_in_flight
from wspec.planner.one_group import is_for_one
from wspec.planner.ptx_edits import with_ptx_edits
from wspec.planner.rings import make_channels, private_loads
from wspec.target.hopper import CONSUMER_REGISTERS, WARP_GROUP


def make_plan(flow: Dataflow, machine: Machine, options: Options) -> Plan:
    """The plan for the function whose graph this is. Raises Declined when it is to be left alone."""
    check_understood(flow.function)
    check_effects(flow)
    loops = find_loops(flow)
    sites = find_streams(flow, options.turned_tiles is not False)
    try:
        return _made(flow, loops, sites, machine, options)
    except Declined as declined:
        fewer = find_sites(flow, turned=False)
        if options.turned_tiles is not None or fewer == sites or not any(site.hot for site in fewer):
            raise
        try:
            return _made(flow, loops, fewer, machine, options)
        except Declined:
            raise declined from None


def _made(flow: Dataflow, loops: list[Operation], sites: list[Site], machine: Machine, options: Options) -> Plan:
    """With these channels. Raises Declined."""
    function = flow.function
    for site in sites:
        check_addresses(flow, site)
    check_memory(flow, sites)
    options = _in_one_task(flow, _with_filling(sites, options))
    single = partial(_that_fits, function, loops, sites, machine)
    off = options.chain == "off" or _has_no_chain(sites, options)
    plan = single(options) if off else choose_chain(flow, loops, sites, machine, options, single)
    warps = max(task.warps * task.replicas for task in plan.tasks)
    plan = replace(plan, packed=packed_tiles(function, warps) if options.packed_dequantization else ())
    plan = replace(_answered(plan, options), shared_barriers=shares_barriers(plan.channels, options))
    return with_ptx_edits(plan, loops, size_of(function), machine, options)


def _answered(plan: Plan, options: Options) -> Plan:
    """A chain of tasks says why it has not what the options ask for."""
    if not plan.helpers:
        return plan
    if options.ping_pong:
        plan = replace(plan, ping_pong=Decision(None, why_not(PING_PONG, plan)))
    if options.staging is not None:
        plan = replace(plan, subtiling=Decision(None, why_not(STAGING, plan)))
    return plan


def _in_one_task(flow: Dataflow, options: Options) -> Options:
    """With one consumer where one task must do what the producer does not. Raises Declined where more are asked for."""
    why = together(flow)
    if why is None:
        return options
    if options.consumers not in (None, 1) or size_of(flow.function) > 1 or options.chain in ("on", "all"):
        raise why
    return options.replace(consumers=1, chain="off", overlap=False, epilogue_overlap=False)


def _with_filling(sites: list[Site], options: Options) -> Options:
    """With the warps and registers that a producer needs to fill the channels. Raises Declined."""
    warps = filling_warps((site.fill for site in sites), options.producer_warps)
    copied = [site.load for site in sites if site.fill is Fill.CP_ASYNC]
    sizes = [byte_size(load.result.type) for load in copied]
    registers = filling_registers(sizes, warps, options.producer_registers)
    if copied and registers > CONSUMER_REGISTERS:
        raise decline(
            "registers",
            f"the producer would need {registers} registers a thread for the addresses of what it loads through "
            f"pointers, {sum(sizes) >> 10} KiB; {CONSUMER_REGISTERS} can be had",
            copied[0].location,
            "load the tiles through tensor descriptors",
        )
    return options.replace(producer_warps=warps, producer_registers=registers)


def _has_no_chain(sites: list[Site], options: Options) -> bool:
    """Is a third task out of the question? Raises Declined where one is asked for."""
    copied = next((site for site in sites if site.fill is Fill.CP_ASYNC), None)
    if copied is not None and options.chain == "on":
        raise decline(
            "no-chain", "the tasks of a chain read tiles that TMA brings, this one is loaded through pointers",
            copied.load.location, "chain=auto specializes without a third task",
        )  # fmt: skip
    return copied is not None


def _that_fits(
    function: Operation, loops: list[Operation], sites: list[Site], machine: Machine, options: Options
) -> Plan:
    """Without a third task; with one consumer where the buffers that each of two would have of its own do not fit."""
    try:
        return _without_chain(function, loops, sites, machine, options)
    except Declined as declined:
        if declined.remark.code != "shared-memory" or options.consumers is not None or size_of(function) > 1:
            raise
        try:
            return _without_chain(function, loops, sites, machine, options.replace(consumers=1))
        except Declined:
            raise declined from None


def _without_chain(
    function: Operation, loops: list[Operation], sites: list[Site], machine: Machine, options: Options
) -> Plan:
    """Loading and multiplying, no third task."""
    warps = source_warps(function)
    alone = options.consumers is None and size_of(function) == 1 and is_for_one(function, loops, warps, machine)
    replicas, sliced = choose_replicas(function, loops, sites, warps, options, 1 if alone else 2)
    consumer_warps = WARP_GROUP if replicas > 1 or alone else warps
    mine = sliced | {id_of(load): -1 for load in private_loads(function, sites)}
    options_of = staging_options(function, sites, mine, replicas)
    whole = partial(_whole, function, loops, sites, replicas * consumer_warps, machine, options)

    def rings(staging: Staging) -> Callable[[int], tuple[tuple[Channel, ...], int]]:
        own = own_bytes(function, staging)
        return partial(make_channels, function, sites, sliced, replicas, frozenset(staging), own, machine, options)

    for staging in _stagings(options_of, whole, options.staging):
        own, memory = own_bytes(function, staging), rings(staging)
        try:
            blocks, schedules = choose_occupancy(
                function, loops, sites, replicas * consumer_warps, memory, machine, options, size_of(function)
            )
            channels, smem = memory(blocks)
        except Declined:
            if own:
                continue
            raise
        staging = in_rings_that_hold(function, staging, options_of, channels)
        if (
            fits(function, staging, channels)
            and not (own and is_shallow(channels))
            and (blocks == 1 or not has_subtiles(staging))
        ):
            break
    if options.staging is None and blocks == 1 and not has_subtiles(staging) and not whole(staging):
        halves = in_subtiles(staging)
        deeper, smaller = rings(halves)(blocks)
        if sum(channel.depth for channel in deeper) > sum(channel.depth for channel in channels):
            staging, channels, smem = halves, deeper, smaller
    not_staged = _not_staged(staging, options_of, whole, blocks, options.staging)
    schedules = keep_in_flight(loops, sites, schedules, channels, options)
    if size_of(function) > 1:
        schedules = _first_pipelined(schedules)
    schedules, ping_pong = choose_ping_pong(loops, schedules, replicas, machine, options)
    tasks = _tasks(replicas, consumer_warps, blocks, machine, options)
    groups = blocks * replicas * consumer_warps // WARP_GROUP

    def ours(loop: Operation, work: Iteration) -> Iteration:
        return replace(with_packed(work, loop, machine), tma=work.tma / size_of(function))

    late = any(schedule.stage1 for schedule in schedules)
    copied = frozenset(site.load for site in sites if site.fill is Fill.CP_ASYNC)
    depth = min((one.depth for one in channels if one.streams), default=1)
    borrowing = frozenset(load for one in channels if one.barriers for load in one.loads)
    streamed = frozenset(load for one in channels for load in one.loads)

    def again(loop: Operation) -> float:
        others = replicas // size_of(function) - 1
        return others * iteration(repeated(loop, [site.load for site in sites], sliced), machine).compute

    arranged = SpecializedLoops(groups, blocks, late, depth, streamed, again, copied, borrowing)
    prediction = predict(loops, warps, arranged, ours, machine)
    subtiling = Decision(True if has_subtiles(staging) else None, not_staged)
    plan = Plan(
        function.str_attr("sym_name") or "kernel", fingerprint(function), warps, tasks, channels, schedules,
        named(staging, channels), smem, blocks, prediction, subtiling=subtiling, ping_pong=ping_pong,
    )  # fmt: skip
    check_registers(plan, function, loops, machine)
    if options.gate == "model":
        check_pays(plan, loops, options.depth, options.trials > 0 and not options.strict)
    return plan


def _first_pipelined(schedules: tuple[LoopSchedule, ...]) -> tuple[LoopSchedule, ...]:
    """Only the first loop pipelined: three groups leave no registers for what two pipelined loops hand over."""
    late = [schedule for schedule in schedules if schedule.stage1]
    return tuple(schedule if schedule in late[:1] else replace(schedule, stage1=()) for schedule in schedules)


_PLACES: tuple[tuple[str, ...], ...] = ((OWN, BUFFER, RING), (BUFFER, RING), (BUFFER,))
"""Where stores may be staged, what is tried first in front."""


def _stagings(
    options_of: dict[int, list[Place]], whole: Callable[[Staging], str], asked: str | None
) -> Iterator[Staging]:
    """What the stores may go through, what is tried first in front: what is asked for, if it can be had."""
    first = choose(options_of, _PLACES[0])
    if asked == SUBTILES and not whole(first):
        yield in_subtiles(first)
    elif asked not in (None, SUBTILES) and (staging := choose(options_of, (str(asked),))):
        yield staging
    for kinds in _PLACES:
        staging = choose(options_of, kinds)
        if OWN not in kinds:
            yield staging
        elif any(place.kind == OWN for place in staging.values()):
            yield staging
            if asked is None and not whole(staging):
                yield in_subtiles(staging)


def _whole(
    function: Operation, loops: list[Operation], sites: list[Site], warps: int, machine: Machine, options: Options,
    staging: Staging,
) -> str:  # fmt: skip
    """Why no store that has a buffer of its own is made in halves, where one block has the SM; empty where one can be.

    Its dots run on from one iteration to the next, so that the second half is stored beside them.
    """
    loads = {site.load for site in sites}
    if not options.overlap or not all(accumulators(loop.regions[0].block, loads.__contains__) for loop in loops):
        return "products do not run on from one iteration to the next"
    if size_of(function) > 1:
        return EXCLUDED[frozenset((COARSENING, SUBTILING))]
    if options.epilogue_overlap:
        return EXCLUDED[frozenset((SUBTILING, OVERLAP))]
    registers = options.consumer_registers or available(machine, 1, warps, options.producer_registers)
    return why_whole(function, staging, warps, registers)


def _not_staged(
    staging: Staging,
    options_of: dict[int, list[Place]],
    whole: Callable[[Staging], str],
    blocks: int,
    asked: str | None,
) -> str:
    """What a person is told of stores that do not go where they were asked to, or are not made in halves."""
    kinds = {place.kind for place in staging.values()}
    if not options_of or asked in kinds or not (asked or OWN in kinds):
        return ""
    if asked not in (None, SUBTILES):
        possible = any(place.kind == asked for places in options_of.values() for place in places)
        why = "shared memory has no room for it" if possible else "no store can have it"
        return f"staging={asked!r} was asked for, but {why}"
    why = whole(choose(options_of, _PLACES[0])) or (
        EXCLUDED[frozenset((SUBTILING, SHARED_SM))]
        if blocks > 1
        else "the rings would not be deeper"
        if asked is None
        else "nothing fits"
    )
    said = "stores are not made in halves" if asked is None else f"staging={asked!r} was asked for, but cannot be had"
    return f"{said}: {why}"


def _tasks(replicas: int, consumer_warps: int, blocks: int, machine: Machine, options: Options) -> tuple[Task, ...]:
    registers = options.consumer_registers or available(
        machine, blocks, replicas * consumer_warps, options.producer_registers
    )
    return (
        Task("mma", "consumer", consumer_warps, registers, replicas),
        Task("load", "producer", options.producer_warps, options.producer_registers),
    )
