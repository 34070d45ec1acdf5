"""Check a plan that comes from outside against the kernel it is for.

A plan may be edited by hand. What it may say is bounded by the kernel: every rule here is one the passes rely on, and
breaking it would give a kernel that hangs, races or computes something else. Raises Declined("plan-mismatch") with the
field at fault.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from wspec.diagnostics import Declined
from wspec.ir.core import Operation
from wspec.ir.numbering import fingerprint, id_of
from wspec.ir.shapes import DOTS
from wspec.model.machine import Machine
from wspec.model.operations import byte_size
from wspec.options import Options
from wspec.passes.data_partition.choice import slicing_for
from wspec.passes.data_partition.slicing import Conflict
from wspec.passes.epilogue_overlap.choice import hindrance
from wspec.passes.packed_dequantization.choice import packed_tiles
from wspec.passes.shared_barriers.choice import share_barriers
from wspec.passes.software_pipelining.stages import accumulators, legal_late
from wspec.passes.store_staging.choice import own_bytes, ring_holds, staging_options, why_whole
from wspec.plan.coarsening import size_of
from wspec.plan.exclusions import both_used
from wspec.plan.fill import filling_warps
from wspec.plan.graph import Dataflow, loops_around
from wspec.plan.partition import (
    Site,
    check_addresses,
    check_effects,
    check_memory,
    check_understood,
    find_loops,
    find_streams,
    together,
)
from wspec.plan.plan import VERSION, Channel, Plan, is_shallow, source_warps
from wspec.plan.registers import check_registers
from wspec.plan.stores import BUFFER, OWN, SUBTILES, Place
from wspec.planner.rings import block_smem, can_share, private_loads, scratch_bytes
from wspec.planner.validate_chain import check_chain, check_task_registers, mismatch
from wspec.target.hopper import BLOCK_SHARED_BYTES, BLOCK_THREADS, LEAST_REGISTERS, WARP_GROUP

_MOST_WARPS = BLOCK_THREADS // 32


def validate(plan: Plan, function: Operation, machine: Machine) -> int:
    """The bytes of shared memory that a block of it takes. Raises Declined when the plan does not fit the function."""
    _fits_kernel(plan, function)
    check_understood(function)
    flow = Dataflow(function)
    check_effects(flow)
    loops = find_loops(flow)
    sites = {id_of(site.load): site for site in find_streams(flow)}
    if (both := both_used(plan)) is not None:
        raise mismatch("optimizations", f"{both[0]} and {both[1]} exclude each other: {both[2]}", function)
    if plan.coarsening != size_of(function):
        raise mismatch(
            "tile_loop.coarsening", f"says {plan.coarsening}, the kernel is made for {size_of(function)}", function
        )
    _tasks(plan, function, loops, machine)
    why = together(flow)
    late = any(schedule.stage1 for schedule in plan.loops)
    if why is not None and (plan.consumer.replicas > 1 or plan.helpers or late or plan.epilogue_overlap):
        raise why
    _channels(plan, flow, sites)
    scratch = None
    if plan.helpers or plan.values:
        scratch = check_chain(plan, function, sites)
    else:
        _staging(plan, function, sites, _slicing(plan, function, sites))
        _loops(plan, loops, sites)
        _halves(plan, function)
    _packed(plan, function)
    _deferred(plan, function, loops)
    memory = _memory(plan, function, sites, machine, scratch)
    _check_barriers(plan, function, sites)
    return memory


def check_numbers(plan: Plan, function: Operation) -> None:
    """Raises Declined for a number that no plan of any kernel has."""
    bounds: dict[str, tuple[float, float, float]] = {
        "source_warps": (plan.source_warps, 1, _MOST_WARPS),
        "smem_bytes": (plan.smem_bytes, 0, BLOCK_SHARED_BYTES),
        "blocks_per_sm": (plan.blocks_per_sm, 1, _MOST_WARPS),
        "version": (plan.version, 1, VERSION),
    }
    for at, task in enumerate(plan.tasks):
        bounds |= {
            f"tasks.warps@{at}": (task.warps, 1, _MOST_WARPS),
            f"tasks.replicas@{at}": (task.replicas, 1, _MOST_WARPS // WARP_GROUP),
            f"tasks.registers@{at}": (task.registers, LEAST_REGISTERS, 256),
        }
    for channel in plan.channels:
        bounds |= {
            f"channels.{channel.name}.depth": (channel.depth, 1, BLOCK_SHARED_BYTES),
            f"channels.{channel.name}.buffer_bytes": (channel.buffer_bytes, 1, BLOCK_SHARED_BYTES),
            f"channels.{channel.name}.sliced_dim": (channel.sliced_dim, -1, 4),
            f"channels.{channel.name}.result": (channel.result, 0, 1 << 10),
        }
    numbers = asdict(plan.prediction)
    bounds |= {f"prediction.{name}": (one, 0, 1e12) for name, one in numbers.items() if isinstance(one, int | float)}
    if (tiles := plan.tile_loop) is not None:
        bounds |= {f"tile_loop.cost.loops.{loop.loop}.cycles": (loop.cycles, 0, 1e12) for loop in tiles.cost.loops}
        bounds["tile_loop.cost.fixed"] = (tiles.cost.fixed, 0, 1e12)
        if tiles.stream_k.value is not None:
            bounds["tile_loop.stream_k.fix_up_cycles"] = (tiles.stream_k.value.fix_up_cycles, 0, 1e12)
            bounds["tile_loop.stream_k.apart_cycles"] = (tiles.stream_k.value.apart_cycles, 0, 1e12)
    for name, (found, low, high) in bounds.items():
        if not low <= found <= high:  # nor what is no number at all
            raise mismatch(name.partition("@")[0], f"{found} is not in {low}..{high:g}", function)


def _fits_kernel(plan: Plan, function: Operation) -> None:
    found = fingerprint(function)
    if plan.fingerprint != found:
        raise mismatch("fingerprint", f"made for kernel {plan.fingerprint}, this one is {found}", function)
    if plan.source_warps != source_warps(function):
        raise mismatch("source_warps", f"says {plan.source_warps}, the kernel has {source_warps(function)}", function)


def _tasks(plan: Plan, function: Operation, loops: list[Operation], machine: Machine) -> None:
    consumer, producer = plan.consumer, plan.producer
    allowed = (WARP_GROUP,) if consumer.replicas > 1 else (WARP_GROUP, plan.source_warps)
    if consumer.warps not in allowed:
        said = " or ".join(map(str, dict.fromkeys(allowed)))
        raise mismatch("tasks.warps", f"a consumer has {said} warps here, found {consumer.warps}", function)
    if producer.warps not in (1, 2, 4) or producer.replicas != 1:
        raise mismatch("tasks.warps", "the producer is one task of 1, 2 or 4 warps", function)
    for task in (consumer, producer):
        check_task_registers(task, function)
    if producer.warps < (least := filling_warps((channel.fill for channel in plan.channels), 1)):
        raise mismatch("tasks.warps", f"the producer needs {least} warps to fill its channels", function)
    if plan.blocks_per_sm < 1:
        raise mismatch("blocks_per_sm", "must be at least 1", function)
    try:
        check_registers(plan, function, loops, machine)
    except Declined as declined:
        raise mismatch("tasks.registers", declined.remark.message, function) from None


def _channels(plan: Plan, flow: Dataflow, sites: dict[int, Site]) -> None:
    function = flow.function
    seen: set[int] = set()
    for channel in plan.channels:
        field = f"channels.{channel.name}"
        if channel.is_computed:
            continue
        for load in channel.loads:
            if load not in sites or load in seen:
                raise mismatch(f"{field}.loads", f"operation {load} is not a load that can be streamed once", function)
            seen.add(load)
        _ring(plan, channel, field, function, [sites[load] for load in channel.loads])
    if not any(sites[load].hot for load in seen):
        raise mismatch("channels", "no tile of a loop is streamed", function)
    names = [channel.name for channel in plan.channels]
    if len(set(names)) != len(names) or any("." in name for name in names):
        raise mismatch("channels", "names must differ and have no dots", function)
    for site in (sites[load] for load in seen):
        check_addresses(flow, site)
    check_memory(flow, [sites[load] for load in seen])


def _check_barriers(plan: Plan, function: Operation, sites: dict[int, Site]) -> None:
    """Rings share barriers as the planner would have them, or have their own."""
    rings = [channel for channel in plan.channels if not channel.is_computed]
    own = [replace(channel, barriers="") for channel in rings]
    possible = share_barriers(own, [[sites[load].load for load in channel.loads] for channel in rings], Options())
    for channel, other in zip(rings, possible, strict=True):
        if channel.barriers not in ("", other.barriers):
            why = "rings that share barriers are of one depth, and filled one behind the other for the same products"
            raise mismatch(f"channels.{channel.name}.barriers", f"not those of {channel.barriers!r}: {why}", function)


def _ring(plan: Plan, channel: Channel, field: str, function: Operation, group: list[Site]) -> None:
    if not group:
        raise mismatch(f"{field}.loads", "no load fills the ring", function)
    if channel.fill is not group[0].fill:
        raise mismatch(f"{field}.fill", f"must be {str(group[0].fill)!r} here", function)
    for position in range(1, len(group)):
        if not can_share(group[:position], group[position]):
            raise mismatch(f"{field}.loads", "these loads cannot share a ring", function)
    if not channel.reused and (len(group) > 1 or loops_around(group[0].load)):
        raise mismatch(f"{field}.reused", "a ring that is filled more than once must be released", function)
    if channel.stays == group[0].hot:
        raise mismatch(f"{field}.stays", f"must be {str(not group[0].hot).lower()} here", function)
    if channel.private != any(site.load in private_loads(function, group) for site in group):
        raise mismatch(f"{field}.private", f"must be {str(not channel.private).lower()} here", function)
    size = byte_size(group[0].load.result.type) * (plan.coarsening if channel.private else 1)
    if channel.buffer_bytes != size:
        raise mismatch(f"{field}.buffer_bytes", f"the tile has {size}", function)


def _slicing(plan: Plan, function: Operation, sites: dict[int, Site]) -> dict[int, int]:
    """How replicas share loads and stores."""
    if plan.coarsening > 1 and plan.consumer.replicas != plan.coarsening:
        raise mismatch("tasks.replicas", f"a team of {plan.coarsening} has as many consumers", function)
    if plan.consumer.replicas == 1 or plan.coarsening > 1:
        expected: dict[int, int] | Conflict = {}
    else:
        expected = slicing_for(function, list(sites.values()), plan.consumer.replicas)
    if isinstance(expected, Conflict):
        raise mismatch("tasks.replicas", f"the tile cannot be shared: {expected.why}", function)
    for channel in plan.channels:
        for load in channel.loads:
            if channel.sliced_dim != expected.get(load, -1):
                raise mismatch(
                    f"channels.{channel.name}.sliced_dim", f"must be {expected.get(load, -1)} here", function
                )
    return expected


def _staging(plan: Plan, function: Operation, sites: dict[int, Site], expected: dict[int, int]) -> None:
    sliced = {load: channel.sliced_dim for channel in plan.channels if channel.apart for load in channel.loads}
    allowed = staging_options(function, list(sites.values()), expected | sliced, plan.consumer.replicas)
    for store, name, kind in plan.staging:
        channel = next((channel for channel in plan.channels if channel.name == name), None)
        places = [place for place in allowed.get(store, []) if channel is not None and place.load in channel.loads]
        if kind in (OWN, SUBTILES) and any(place.kind == OWN for place in allowed.get(store, [])):
            continue
        holds = channel is not None and bool(places) and (kind == BUFFER or ring_holds(function, store, channel))
        if not holds or kind not in [place.kind for place in places]:
            raise mismatch("staging", f"store {store} cannot go through channel {name!r}", function)


def _halves(plan: Plan, function: Operation) -> None:
    """What is stored in halves can be, and stands beside products that run on."""
    halves = [store for store, _, kind in plan.staging if kind == SUBTILES]
    if not halves:
        return
    whole = {store: Place(-1, OWN) for store, _, kind in plan.staging if kind in (OWN, SUBTILES)}
    warps = plan.consumer.warps * plan.consumer.replicas
    run_on = all(schedule.in_flight for schedule in plan.loops)
    if not run_on or why_whole(function, whole, warps, plan.consumer.registers):
        raise mismatch("staging", f"store {halves[0]} cannot be made in halves", function)


def _loops(plan: Plan, loops: list[Operation], sites: dict[int, Site]) -> None:
    by_id = {id_of(loop): loop for loop in loops}
    loads = {site.load for site in sites.values()}
    for schedule in plan.loops:
        loop = by_id.get(schedule.loop)
        if loop is None:
            raise mismatch("loops.loop", f"operation {schedule.loop} is not a loop that multiplies", loops[0])
        body = loop.regions[0].block
        if schedule.stage1 and not legal_late(loop, frozenset(schedule.stage1), lambda op: op in loads):
            raise mismatch("loops.stage1", "these operations cannot run an iteration late together", loop)
        if schedule.in_flight and (schedule.stage1 or not accumulators(body, loads.__contains__)):
            raise mismatch("loops.in_flight", "only dots that do nothing but accumulate can run on", loop)
        if schedule.ping_pong and not any(op.name in DOTS for op in body.ops):
            raise mismatch("loops.ping_pong", "the body of the loop has no dot of its own", loop)
        shallow = [c.name for c in plan.channels if is_shallow([c])]
        if schedule.in_flight and shallow:
            raise mismatch("loops.in_flight", f"rings must be at least 2 deep, {shallow[0]} is not", loop)


def _packed(plan: Plan, function: Operation) -> None:
    known = set(packed_tiles(function, 1))
    for number in plan.packed:
        if number not in known:
            raise mismatch("packed", f"operation {number} makes no tile of bits of bytes", function)


def _deferred(plan: Plan, function: Operation, loops: list[Operation]) -> None:
    if not plan.epilogue_overlap:
        return
    if not plan.persistent:
        raise mismatch("epilogue_overlap", "blocks do not walk through tiles", function)
    if (found := hindrance(loops, plan)) is not None:
        raise mismatch("epilogue_overlap", found[0], found[1])


def _memory(plan: Plan, function: Operation, sites: dict[int, Site], machine: Machine, scratch: int | None) -> int:
    """What is taken in all. `scratch`: what the tasks of a chain take beside the rings; None: to be found out."""
    rings = sum(channel.depth * channel.buffer_bytes for channel in plan.channels)
    if scratch is None:
        loads = [sites[load].load for channel in plan.channels for load in channel.loads]
        staged = frozenset(store for store, *_ in plan.staging)
        replicas = 1 if plan.coarsening > 1 else plan.consumer.replicas
        scratch = scratch_bytes(function, loads, replicas, staged) * plan.coarsening
    own = own_bytes(function, {store: Place(-1, kind) for store, _, kind in plan.staging}) * plan.coarsening
    need = rings + own + scratch
    budget = block_smem(machine, plan.blocks_per_sm)
    if need > budget:
        raise mismatch("channels.depth", f"the rings need {need} bytes of shared memory of {budget}", function)
    return need
