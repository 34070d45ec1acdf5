"""Chains: plans in which a third task computes between loading and multiplying, or behind it.

For each cut of the kernel (cuts.py) the kernel is divided provisionally, and each task's own copy is asked what it
reads, how it can be sliced and how many registers it takes. What the plan then costs an iteration says `chain_cost.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from wspec.diagnostics import Declined
from wspec.ir.core import Operation
from wspec.ir.loc import Location, value_name
from wspec.ir.numbering import fingerprint, id_of
from wspec.ir.shapes import DOTS
from wspec.model.machine import Machine
from wspec.options import Options
from wspec.passes.data_partition.choice import choose_replicas, slicing_for
from wspec.passes.data_partition.slicing import Conflict
from wspec.passes.software_pipelining.stages import accumulators
from wspec.plan.fill import Fill
from wspec.plan.partition import Site, decline, hot_loops
from wspec.plan.plan import WARP_GROUP, Channel, LoopSchedule, Plan, Task, source_warps
from wspec.plan.registers import check_registers
from wspec.plan.values import buffer_for, buffer_size, cut_values, value_buffer
from wspec.planner.chain_cost import memory_wait, predict_chain
from wspec.planner.chain_registers import choose_registers
from wspec.planner.cuts import CHAIN, OPERANDS, PRODUCT, STORE, Cut, find_cuts
from wspec.planner.rings import make_channels, scratch_bytes, unique

MULTIPLY = "mma"
HELPERS = {OPERANDS: "convert", CHAIN: "lead", PRODUCT: "lead", STORE: "store"}
VALUES = {OPERANDS: "operand", CHAIN: "sent", PRODUCT: "sent", STORE: "out"}  # of what has no name in the source
VALUE_DEPTH = {OPERANDS: 2, CHAIN: 2, PRODUCT: 2, STORE: 1}

STORE_DEPTH = 3
CLOSE = 0.9  # of the bound
WIDE_HELPERS = (WARP_GROUP, 2 * WARP_GROUP, 4 * WARP_GROUP)  # warps of a helper that serves all replicas


@dataclass(frozen=True, slots=True)
class Part:
    """One task's copy of the kernel."""

    function: Operation
    loops: list[Operation]
    sites: list[Site]


def chain_plans(
    function: Operation, loops: list[Operation], sites: list[Site], machine: Machine, options: Options
) -> tuple[list[tuple[Plan, Cut]], list[Declined]]:
    """A plan for every cut that can be made, and why others cannot."""
    plans: list[tuple[Plan, Cut]] = []
    refused: list[Declined] = []
    for cut in find_cuts(function, loops, machine):
        try:
            plans.append((_deepest(function, loops, sites, cut, machine, options), cut))
        except Declined as declined:
            refused.append(declined)
    return plans, refused


def has_converter(plan: Plan) -> bool:
    """Does a task of the plan compute operands for the one that multiplies?"""
    return any(task.name == HELPERS[OPERANDS] for task in plan.helpers)


def _deepest(
    function: Operation, loops: list[Operation], sites: list[Site], cut: Cut, machine: Machine, options: Options
) -> Plan:
    """The plan with the rings of values that the model prefers, as deep as they are useful among equals: what they
    take of shared memory the tiles from memory and other blocks cannot have."""
    found: list[Plan] = []
    depths = [options.value_depth] if options.value_depth else range(VALUE_DEPTH[cut.kind], 0, -1)
    for depth in depths:
        try:
            found.append(_plan(function, loops, sites, cut, machine, options.replace(value_depth=depth)))
        except Declined as declined:
            if not found and (declined.remark.code != "shared-memory" or depth == depths[-1]):
                raise
        if depth == 2 and found and cut.kind != OPERANDS:
            break  # one buffer is for want of room
    return min(found, key=lambda plan: _rank(plan, machine))


def _rank(plan: Plan, machine: Machine) -> tuple[bool, float, int, bool]:
    """Less is better: rings of one buffer are for want of room, and a wait for memory about as long as what bounds an
    iteration adds to it."""
    expected = plan.prediction.iteration_cycles
    shallow = any(ring.depth == 1 for ring in plan.channels if not ring.stays and not ring.is_computed)
    waits = memory_wait(plan, 1, machine) > CLOSE * expected
    return shallow, expected, -plan.blocks_per_sm, waits


def _plan(
    function: Operation, loops: list[Operation], sites: list[Site], cut: Cut, machine: Machine, options: Options
) -> Plan:
    draft = _draft(function, cut, options)
    consumer, helper = (project(function, draft, task, sites) for task in (draft.consumer, draft.helpers[0]))
    _check_divided(function, *((consumer, helper) if cut.kind == STORE else (helper, consumer)), cut)
    warps = source_warps(function)
    replicas, sliced = choose_replicas(consumer.function, consumer.loops, consumer.sites, warps, options)
    tasks = _tasks(draft, cut, replicas, sliced, options)
    sliced |= _helper_slices(helper, cut, tasks[1].replicas)
    values = tuple(replace(channel, sliced_dim=sliced.get(channel.loads[0], -1)) for channel in draft.values)
    parts = dict(zip((task.name for task in tasks), (consumer, helper), strict=False))
    used = [site for site in sites if any(_reads(part, site) for part in parts.values())]
    reserved = sum(channel.depth * channel.buffer_bytes for channel in values)
    beside = sum(scratch(part, task) for part, task in zip(parts.values(), tasks, strict=False))
    declined: list[Declined] = []
    for blocks in [options.blocks] if options.blocks else [2, 1]:
        try:
            given = choose_registers(tasks, consumer.loops, helper.function, blocks, machine, options)
            rings, smem = make_channels(
                function, used, sliced, replicas, frozenset(), reserved, machine, options, blocks, beside
            )
        except Declined as found:
            declined.append(found)
            continue
        if blocks > 1 and options.blocks is None and any(ring.depth < 3 for ring in rings if not ring.stays):
            continue
        if cut.kind == STORE and options.depth is None:
            rings, smem = _shallower(rings, smem)
        taken = {ring.name for ring in rings}
        named = tuple(replace(channel, name=unique(channel.name, taken)) for channel in values)
        channels = (*(_with_readers(ring, parts, used) for ring in rings), *named)
        plan = Plan(
            function.str_attr("sym_name") or "kernel", fingerprint(function), warps, given, channels,
            schedules(loops, consumer, channels, options.overlap), (), smem, blocks,
        )  # fmt: skip
        check_registers(plan, function, consumer.loops or loops, machine)
        parts_of = (consumer.function, helper.function)
        return replace(plan, prediction=predict_chain(plan, cut, *parts_of, machine))
    raise declined[-1]


# --------------------------------------------------------------------------------------------------- tasks


def _draft(function: Operation, cut: Cut, options: Options) -> Plan:
    """A plan that says which values are cut, and little else."""
    name, body = HELPERS[cut.kind], function.regions[0].block
    source, reader = (MULTIPLY, name) if cut.kind == STORE else (name, MULTIPLY)
    taken = {value_name(op.location) for op in function.walk() if op.name in DOTS}
    names: set[str] = set()
    channels = []
    for value in cut.values:
        assert value.op is not None
        own = value_name(value.op.location)
        title = unique(own if own is not None and own not in taken else VALUES[cut.kind], names)
        size = buffer_size(buffer_for(body, value))
        depth = options.value_depth or 1
        ends: dict[str, Any] = {"source": source, "readers": (reader,), "result": value.index, "fill": Fill.COMPUTED}
        channels.append(Channel(title, (id_of(value.op),), depth, size, **ends))
    warps = source_warps(function)
    consumer, helper = Task(MULTIPLY, "consumer", warps, 24), Task(name, "helper", warps, 24)
    return Plan("", "", warps, (consumer, helper, Task("load", "producer", 1, 24)), tuple(channels))


def project(function: Operation, plan: Plan, task: Task, sites: list[Site]) -> Part:
    """The kernel as `task` alone would have it; loads are still loads."""
    body = function.regions[0].block
    buffers = {channel.name: value_buffer(body, channel) for channel in plan.values}
    copy = function.clone({})
    copy.parent = function.parent
    region = copy.regions[0]
    region.parent = None  # as in a task, whose block is nobody's body yet
    cut_values(region.block, plan, task, 0, buffers)
    region.parent = copy
    hot = {id_of(site.load): site.hot for site in sites}
    loads = [op for op in copy.walk() if op.name == "tt.descriptor_load" and id_of(op) in hot]
    around = {load: next((op for op in load.ancestors() if op.name == "scf.for"), None) for load in loads}
    return Part(copy, hot_loops(copy), [Site(load, around[load], hot[id_of(load)]) for load in loads])


def _check_divided(function: Operation, first: Part, second: Part, cut: Cut) -> None:
    """Neither task may need what the other one does: a value that goes back, or a condition."""
    for part, other in ((first, cut.behind), (second, cut.before)):
        for op in part.function.walk():
            if id_of(op) in other and not op.name.startswith("wspec."):
                raise decline("no-chain", f"{op.name} would be needed on both sides of the cut", op.location)


def _tasks(draft: Plan, cut: Cut, replicas: int, sliced: dict[int, int], options: Options) -> tuple[Task, Task, Task]:
    consumer, helper, producer = draft.tasks
    wide = WARP_GROUP if replicas > 1 else draft.source_warps
    shares = {channel.loads[0] in sliced for channel in draft.values}
    if len(shares) > 1:
        raise decline("no-chain", "replicas would share some values of the cut, and others not", _place(cut))
    if cut.kind == STORE:
        helper = replace(helper, warps=1)
    elif shares == {True}:
        helper = replace(helper, warps=WARP_GROUP, replicas=replicas)
    elif cut.kind == OPERANDS and options.helper_warps:  # one that has no dots can have others than the kernel
        helper = replace(helper, warps=options.helper_warps)
    return (
        replace(consumer, warps=wide, replicas=replicas),
        helper,
        replace(producer, warps=options.producer_warps, registers=options.producer_registers),
    )


def _place(cut: Cut) -> Location:
    op = cut.values[0].op
    assert op is not None
    return op.location


def _helper_slices(helper: Part, cut: Cut, replicas: int) -> dict[int, int]:
    """The sliced dimension of what each replica of the helper reads its rows of."""
    if replicas == 1:
        return {}
    outcome = slicing_for(helper.function, helper.sites, replicas)
    if isinstance(outcome, Conflict):
        raise decline(
            "no-chain", f"{replicas} warp groups cannot share the values of the cut: {outcome.why}", _place(cut)
        )
    return outcome


# ------------------------------------------------------------------------------------------------ channels


def _reads(part: Part, site: Site) -> bool:
    return any(id_of(own.load) == id_of(site.load) for own in part.sites)


def _shallower(rings: tuple[Channel, ...], smem: int) -> tuple[tuple[Channel, ...], int]:
    """Loads do not stop between tiles, so that fewer buffers do; the checker's search grows with their number."""
    kept = tuple(replace(ring, depth=min(ring.depth, STORE_DEPTH)) for ring in rings)
    saved = sum(ring.buffer_bytes * (ring.depth - less.depth) for ring, less in zip(rings, kept, strict=True))
    return kept, smem - saved


def _with_readers(ring: Channel, parts: dict[str, Part], sites: list[Site]) -> Channel:
    group = [site for site in sites if id_of(site.load) in ring.loads]
    readers = tuple(name for name, part in parts.items() if any(_reads(part, site) for site in group))
    return ring if readers == (MULTIPLY,) else replace(ring, readers=readers)


def scratch(part: Part, task: Task) -> int:
    """Shared memory a task takes beside the rings, all replicas together."""
    return scratch_bytes(part.function, [site.load for site in part.sites], task.replicas)


def schedules(
    loops: list[Operation], consumer: Part, channels: tuple[Channel, ...], overlap: bool
) -> tuple[LoopSchedule, ...]:
    """Dots of loops that only accumulate run on into the next iteration, where rings are deep enough."""
    deep = overlap and all(channel.depth >= 2 for channel in channels if _is_operand(channel))
    loads = {site.load for site in consumer.sites}
    flying = {
        id_of(loop)
        for loop in consumer.loops
        if accumulators(loop.regions[0].block, lambda op: op in loads or op.name == "wspec.buffer")
    }
    return tuple(LoopSchedule(id_of(loop), (), deep and id_of(loop) in flying) for loop in loops)


def _is_operand(channel: Channel) -> bool:
    return channel.reused and not channel.stays and channel.source != MULTIPLY
