"""make_plan: decide tasks, channels, depths, schedules and registers for one kernel, from its graph.

The order of the decisions: which loads are streamed (partition.py), how many consumer warp groups share the tile
(tile.py), what runs late in a consumer (schedule.py), how deep the rings are (what shared memory allows, up to what
latency asks for), registers, and whether it all pays (the gate). Every refusal is a `Declined` with a place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import networkx as nx

from wspec.diagnostics import Declined
from wspec.ir.core import Operation, Value
from wspec.ir.types import IntegerAttr, Layout, TensorType
from wspec.options import Options
from wspec.plan.costs import byte_size, iteration
from wspec.plan.machine import Machine
from wspec.plan.partition import (
    Site,
    check_addresses,
    check_effects,
    check_memory,
    check_understood,
    decline,
    find_sites,
    hot_loops,
)
from wspec.plan.plan import Channel, LoopSchedule, Plan, Prediction, Task, fingerprint, id_of
from wspec.plan.registers import available, consumer_need, instruction_need, launch_registers
from wspec.plan.schedule import accumulators, schedule_loop
from wspec.plan.tile import DOTS, Conflict, privatize_leaves, shape_of, slice_rows

WARP_GROUP = 4
WGMMA_ROWS = 64
MAX_DEPTH = 4
MAX_CONSUMER_WARPS = 16  # of all blocks on one SM together; more compete for the tensor core without hiding more
BARRIER_BYTES = 16  # one full and one empty barrier of a stage


def make_plan(graph: nx.MultiDiGraph, machine: Machine, options: Options) -> Plan:
    """The plan for the function whose graph this is. Raises Declined when it is to be left alone."""
    function = next(op for _, op in graph.nodes(data="op") if op.name == "tt.func")
    check_understood(function)
    check_effects(function)
    loops = _loops(function)
    sites = _sites(function, loops)
    warps = source_warps(function)
    replicas, sliced = _replicas(function, loops, sites, warps, options)
    consumer_warps = WARP_GROUP if replicas > 1 else warps
    staging = _staging(function, sites, sliced, replicas)
    memory = partial(_channels, function, sites, sliced, frozenset(staging), machine, options)
    blocks, schedules = _occupancy(loops, sites, replicas * consumer_warps, memory, machine, options)
    channels, smem = memory(blocks)
    schedules = _keep_in_flight(loops, schedules, channels, options)
    tasks = _tasks(replicas, consumer_warps, blocks, machine, options)
    prediction = predict(loops, machine, bool(schedules and any(s.late for s in schedules)))
    plan = Plan(
        _name(function), fingerprint(function), warps, tasks, channels, schedules,
        _staged_channels(staging, channels), smem, blocks, prediction,
    )  # fmt: skip
    if options.gate == "model":
        _gate(plan, loops)
    return plan


def _name(function: Operation) -> str:
    return function.str_attr("sym_name") or "kernel"


def source_warps(function: Operation) -> int:
    """num_warps the kernel was compiled with."""
    module = function.parent_op
    value = module.int_attr("ttg.num-warps") if module is not None else None
    return value if value is not None else WARP_GROUP


# --------------------------------------------------------------------------------------------- what to do


def _loops(function: Operation) -> list[Operation]:
    every = [op for op in function.walk() if op.name in ("scf.for", "scf.while")]
    if not every:
        raise decline(
            "no-loop", "the kernel has no loop, so no warps could run ahead of others", function.location,
            "nothing: such a kernel gains nothing from warp specialization",
        )  # fmt: skip
    loops = hot_loops(function)
    if not loops:
        raise decline(
            "no-dot-loop", "no loop multiplies matrices, so tiles need not be staged for the tensor cores",
            every[0].location, "nothing: such a kernel gains nothing from warp specialization",
        )  # fmt: skip
    for loop in loops:
        for dot in (op for op in loop.walk() if op.name == "tt.dot"):
            raise decline(
                "not-partitionable", "this dot does not run on Hopper's asynchronous tensor core operations",
                dot.location, "use 4 or 8 warps, tiles of at least 64 rows, and 16-bit or 8-bit operands",
            )  # fmt: skip
    return loops


def _sites(function: Operation, loops: list[Operation]) -> list[Site]:
    sites = find_sites(function, loops)
    if not any(site.hot for site in sites):
        load = next((op for loop in loops for op in loop.walk() if op.name == "tt.load"), loops[0])
        raise decline(
            "no-descriptor-load", "the loop loads its tiles through pointers, which wspec cannot stream yet",
            load.location, "load the tiles of the dot through tensor descriptors",
        )  # fmt: skip
    for site in sites:
        check_addresses(function, site)
    check_memory(function, sites)
    return sites


def _schedules(loops: list[Operation], sites: list[Site], overlap: bool) -> tuple[LoopSchedule, ...]:
    if not overlap:
        return tuple(LoopSchedule(id_of(loop)) for loop in loops)
    loads = {site.load for site in sites}
    return tuple(schedule_loop(loop, lambda op: op in loads) for loop in loops)


def _keep_in_flight(
    loops: list[Operation], schedules: tuple[LoopSchedule, ...], channels: tuple[Channel, ...], options: Options
) -> tuple[LoopSchedule, ...]:
    """Let loops that only accumulate run their dots on into the next iteration.

    Their buffers are then released an iteration later, which takes rings of two or more.
    """
    deep = all(channel.depth >= 2 for channel in channels if channel.reused)
    if not options.overlap or not deep:
        return schedules
    return tuple(
        replace(schedule, in_flight=True) if accumulators(loop.regions[0].block) else schedule
        for loop, schedule in zip(loops, schedules, strict=True)
    )


def _occupancy(
    loops: list[Operation],
    sites: list[Site],
    consumer_warps: int,
    memory: Callable[[int], tuple[tuple[Channel, ...], int]],
    machine: Machine,
    options: Options,
) -> tuple[int, tuple[LoopSchedule, ...]]:
    """How many blocks share an SM, and whether the loops are pipelined.

    More blocks hide each other's start and end and each other's softmax; pipelining hides the softmax of one. As many
    blocks as registers and two stages of rings allow, pipelined if that still fits.
    """
    wanted = [options.blocks] if options.blocks else [b for b in (3, 2, 1) if b * consumer_warps <= MAX_CONSUMER_WARPS]
    for blocks in wanted or [1]:
        if launch_registers(machine, blocks, consumer_warps) < instruction_need(loops):
            continue
        for overlap in (True, False) if options.overlap else (False,):
            schedules = _schedules(loops, sites, overlap)
            need = consumer_need(loops, schedules, 32 * consumer_warps)
            fits = need <= (options.consumer_registers or _available(machine, blocks, consumer_warps, options))
            if fits and (blocks == 1 or _rings_fit(memory, blocks, 2 if overlap else 1)):
                return blocks, schedules
    blocks = wanted[-1] if wanted else 1
    if options.gate == "model":
        need = consumer_need(loops, _schedules(loops, sites, False), 32 * consumer_warps)
        raise decline(
            "registers",
            f"a consumer would need about {need} registers a thread, "
            f"{_available(machine, blocks, consumer_warps, options)} can be had",
            loops[0].location,
            "use smaller tiles, or more warps",
        )
    return blocks, _schedules(loops, sites, False)


def _available(machine: Machine, blocks: int, consumer_warps: int, options: Options) -> int:
    return available(machine, blocks, consumer_warps, options.producer_registers)


def _rings_fit(memory: Callable[[int], tuple[tuple[Channel, ...], int]], blocks: int, depth: int) -> bool:
    """Room for rings of `depth`? One buffer will do where the other block computes while this one waits for its tile."""
    try:
        channels, _ = memory(blocks)
    except Declined:
        return False
    return all(channel.depth >= depth for channel in channels if channel.reused)


# ---------------------------------------------------------------------------------------------- replicas


def _replicas(
    function: Operation, loops: list[Operation], sites: list[Site], warps: int, options: Options
) -> tuple[int, dict[int, int]]:
    """How many warp groups share the tile, and the sliced dimension of each load that is sliced."""
    rows = min(shape_of(dot.result.type)[0] for loop in loops for dot in loop.walk() if dot.name in DOTS)
    wanted = options.consumers if options.consumers is not None else max(1, min(rows // WGMMA_ROWS, 2))
    first: Conflict | None = None
    for replicas in range(wanted, 0, -1):
        if replicas == 1:
            break
        outcome = _try_slicing(function, sites, replicas)
        if not isinstance(outcome, Conflict):
            return replicas, outcome
        first = first or outcome
    if first is not None and options.consumers is not None:
        raise decline(
            "not-partitionable", f"{options.consumers} consumers cannot share the tile: {first.why}", first.op.location,
            "ask for fewer consumers, or make the tile higher",
        )  # fmt: skip
    if warps > 2 * WARP_GROUP or warps % WARP_GROUP:
        raise decline(
            "not-partitionable", f"a consumer of {warps} warps is not supported", function.location,
            "use num_warps=4 or num_warps=8",
        )  # fmt: skip
    return 1, {}


def _try_slicing(function: Operation, sites: list[Site], replicas: int) -> dict[int, int] | Conflict:
    if replicas == 3:
        dot = next(op for op in function.walk() if op.name in DOTS)
        return Conflict(dot, "Triton's tiles are powers of two, which three do not divide")
    copy = function.clone({})
    body = copy.regions[0].block
    privatize_leaves(body)
    dots = [op for op in copy.walk() if op.name in DOTS]
    slicing = slice_rows(body, dots, replicas, WGMMA_ROWS)
    if isinstance(slicing, Conflict):
        return slicing
    factor = max(1, source_warps(function) // WARP_GROUP)
    if (problem := _layout_problem(copy, slicing.dims, replicas, factor)) is not None:
        return problem
    wanted = {id_of(site.load) for site in sites}
    found: dict[int, int] = {}
    for op in copy.walk():
        if id_of(op) in wanted and op.name == "tt.descriptor_load":
            dim = slicing.dim(op.result)
            if dim is not None:
                found[id_of(op)] = [d for d, size in enumerate(shape_of(op.result.type)) if size != 1].index(dim)
    return found


def _layout_problem(function: Operation, dims: dict, replicas: int, factor: int) -> Conflict | None:  # type: ignore[type-arg]
    """Try every layout before the plan is made, so that slicing itself cannot fail."""
    from wspec.plan.layouts import LayoutError, shrink_type

    for op in function.walk():
        for value in op.results:
            try:
                shrink_type(value.type, dims.get(value), replicas, factor)
            except LayoutError as error:
                return Conflict(op, str(error))
    return None


# ---------------------------------------------------------------------------------------------- channels


def _channels(
    function: Operation,
    sites: list[Site],
    sliced: dict[int, int],
    staged: frozenset[int],
    machine: Machine,
    options: Options,
    blocks: int,
) -> tuple[tuple[Channel, ...], int]:
    groups = _group(sites)
    fixed = sum(byte_size(g[0].load.result.type) for g in groups if g[0].loop is None)
    per_stage = sum(byte_size(g[0].load.result.type) for g in groups if g[0].loop is not None)
    scratch = scratch_bytes(function, staged)
    budget = block_smem(machine, blocks)
    room = budget - fixed - scratch - 1024
    stages = sum(1 for g in groups if g[0].loop is not None)
    depth = min(MAX_DEPTH, int(room // (per_stage + stages * BARRIER_BYTES))) if per_stage else 1
    if options.depth is not None:
        depth = options.depth
    if depth < 1 or fixed + depth * per_stage + scratch > budget:
        raise decline(
            "shared-memory",
            f"the tiles in flight need {fixed + max(depth, 1) * per_stage + scratch} bytes of shared memory, "
            f"a block may use {budget}",
            groups[0][0].load.location,
            "use smaller tiles" if options.depth is None else "ask for less depth",
        )
    names: set[str] = set()
    channels = tuple(_channel(group, depth, sliced, names) for group in groups)
    return channels, fixed + depth * per_stage + scratch


def block_smem(machine: Machine, blocks: int) -> int:
    """Shared memory each of `blocks` thread blocks on one SM may use; the hardware keeps 1 KiB of each for itself."""
    return min(machine.smem_bytes, (machine.smem_bytes + 1024) // blocks - 1024)


def _group(sites: list[Site]) -> list[list[Site]]:
    """Loads of the same tiles in loops that follow each other share a ring; loads of one loop never do."""
    groups: list[list[Site]] = []
    for site in sites:
        group = next((g for g in groups if _can_share(g, site)), None)
        if group is None:
            groups.append([site])
        else:
            group.append(site)
    return groups


def _can_share(group: list[Site], site: Site) -> bool:
    first = group[0]
    if site.loop is None or first.loop is None or any(site.loop is other.loop for other in group):
        return False
    nested = any(site.loop.is_inside(g.loop) or g.loop.is_inside(site.loop) for g in group if g.loop is not None)
    same = site.load.operands[0] is first.load.operands[0] and site.load.result.type == first.load.result.type
    return same and not nested


def _channel(group: list[Site], depth: int, sliced: dict[int, int], names: set[str]) -> Channel:
    load = group[0].load
    looped = group[0].loop is not None
    name = _unique(_source_name(load), names)
    return Channel(
        name,
        tuple(id_of(site.load) for site in group),
        depth if looped else 1,
        byte_size(load.result.type),
        sliced.get(id_of(load), -1),
        looped or any(True for _ in _outer_loops(load)),
    )


def _outer_loops(load: Operation) -> list[Operation]:
    return [op for op in load.ancestors() if op.name == "scf.for"]


def _source_name(load: Operation) -> str:
    from wspec.ir.loc import value_name

    return value_name(load.location) or "tile"


def _unique(name: str, taken: set[str]) -> str:
    name = name.replace(".", "_")
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{name}{count}"
    taken.add(candidate)
    return candidate


def scratch_bytes(function: Operation, staged: frozenset[int] = frozenset()) -> int:
    """Shared memory that layout conversions and descriptor stores take beside the rings: the largest of them."""
    largest = 0
    dead = {v.op for store in function.walk() if id_of(store) in staged for v in _rank_changes(store.operands[1])}
    for op in function.walk():
        if op in dead:
            continue
        if op.name == "tt.descriptor_store":
            if id_of(op) in staged:
                continue
            largest = max(largest, byte_size(op.operands[1].type))
        elif op.name == "ttg.convert_layout" and isinstance(op.result.type, TensorType):
            layout = op.result.type.encoding
            free = isinstance(layout, Layout) and layout.name == "ttg.dot_op"
            largest = max(largest, 0 if free else byte_size(op.result.type))
    return largest


# ----------------------------------------------------------------------------------------------- staging


def _rank_changes(tile: Value) -> list[Value]:
    """The stored tile and what it was before reshapes and conversions, outermost first."""
    chain = [tile]
    while (op := chain[-1].op) is not None and op.name in ("ttg.convert_layout", "tt.reshape"):
        chain.append(op.operands[0])
    return chain[:-1]


def _staging(function: Operation, sites: list[Site], sliced: dict[int, int], replicas: int) -> dict[int, int]:
    """Descriptor stores that can go through the buffer of a tile read before: store id -> load id."""
    found: dict[int, int] = {}
    for store in function.walk():
        if store.name != "tt.descriptor_store":
            continue
        for site in sites:
            free = not site.hot and id_of(site.load) not in found.values()
            if free and _fits_buffer(store, site.load) and (replicas == 1 or id_of(site.load) in sliced):
                found[id_of(store)] = id_of(site.load)
                break
    return found


def _fits_buffer(store: Operation, load: Operation) -> bool:
    """Same box, same layout, and the store stands after every reader, in the block of the load."""
    out, into = store.operands[0].type, load.operands[0].type
    if store.parent is not load.parent or out != into or load.parent is None:
        return False
    tiles = [store.operands[1], *_rank_changes(store.operands[1])]
    sources = tiles + [v for t in tiles if t.op is not None for v in t.op.operands[:1]]
    if not any(shape_of(v.type) == shape_of(load.result.type) for v in sources):
        return False
    block = load.parent
    position = block.ops.index(store)
    reads = [i for i, op in enumerate(block.ops) if any(_reads(inner, load.result) for inner in op.walk())]
    return all(i < position for i in reads)


def _reads(op: Operation, tile: Value) -> bool:
    """Does the operation use the tile, or a buffer or view made of it?"""
    work = list(op.operands)
    while work:
        value = work.pop()
        if value is tile:
            return True
        if value.op is not None and value.op.name in ("ttg.local_alloc", "ttg.memdesc_trans", "ttg.memdesc_subslice"):
            work += value.op.operands[:1]
    return False


def _staged_channels(staging: dict[int, int], channels: tuple[Channel, ...]) -> tuple[tuple[int, str], ...]:
    return tuple((store, next(c.name for c in channels if load in c.loads)) for store, load in staging.items())


# ------------------------------------------------------------------------------------- registers and gate


def _tasks(replicas: int, consumer_warps: int, blocks: int, machine: Machine, options: Options) -> tuple[Task, ...]:
    registers = options.consumer_registers or _available(machine, blocks, replicas * consumer_warps, options)
    return (
        Task("mma", "consumer", consumer_warps, registers, replicas),
        Task("load", "producer", options.producer_warps, options.producer_registers),
    )


def predict(loops: list[Operation], machine: Machine, overlap: bool) -> Prediction:
    """First figures: one iteration of the heaviest loop, specialized and not.

    Specialized with overlap, the tensor core and the CUDA cores work side by side and the longer one bounds; without
    overlap two consumer groups still interleave, with part of the shorter one exposed. The plain kernel exposes it all
    but for what its two blocks or warp groups hide of each other.
    """
    bodies = [iteration(loop.regions[0].block.ops, machine) for loop in loops]
    heaviest = max(bodies, key=lambda b: b.mma)
    longer, shorter = max(heaviest.mma, heaviest.compute), min(heaviest.mma, heaviest.compute)
    exposed = 0.15 if overlap else 0.35
    cycles = max(longer + exposed * shorter, heaviest.tma)
    plain = max(longer + 0.5 * shorter, heaviest.tma) + machine.mbarrier_latency
    bounds = {"tensor core": heaviest.mma, "exponential and arithmetic": heaviest.compute, "memory": heaviest.tma}
    return Prediction(round(cycles, 1), round(plain, 1), machine.setup_latency, max(bounds, key=lambda b: bounds[b]))


def constant_trips(loop: Operation) -> int | None:
    """The trip count when it is a compile-time constant."""
    values = [v.op.attr("value") if v.op is not None and v.op.name == "arith.constant" else None for v in loop.operands[:3]]
    if not all(isinstance(v, IntegerAttr) for v in values):
        return None
    low, high, step = (v.value for v in values if isinstance(v, IntegerAttr))
    return max(0, math.ceil((high - low) / step)) if step > 0 else None


def _gate(plan: Plan, loops: list[Operation]) -> None:
    """Leave kernels alone whose trip counts are known to be too small. Raises Declined."""
    trips = [constant_trips(loop) for loop in loops]
    if any(count is None for count in trips):
        return
    total = sum(count for count in trips if count is not None)
    saved = total * (plan.prediction.plain_iteration_cycles - plan.prediction.iteration_cycles)
    outer = any(op.name == "scf.for" for op in loops[0].ancestors())
    if saved < plan.prediction.overhead_cycles and not outer:
        raise decline(
            "short-loop",
            f"{total} iterations would save {saved:.0f} cycles, setting up costs {plan.prediction.overhead_cycles:.0f}",
            loops[0].location,
            "specializing pays on longer loops; gate=off specializes anyway",
        )


def with_depth(plan: Plan, depth: int) -> Plan:
    """The same plan with another ring depth in every loop channel."""
    channels = tuple(replace(c, depth=depth) if c.reused else c for c in plan.channels)
    return replace(plan, channels=channels)
