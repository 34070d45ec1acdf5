"""Chains: plans in which more tasks compute than the one that multiplies, before it or behind it.

A kernel is divided at one cut (cuts.py) or at several, in dataflow order, provisionally; each task's own copy is asked
what it reads, how it can be sliced and how many registers it takes. The task with the last dots is the one that
multiplies; what the others do says what they are called. What the plan then costs an iteration says `chain_cost.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from wspec.diagnostics import Declined
from wspec.ir.core import Operation, Value
from wspec.ir.loc import Location, value_name
from wspec.ir.numbering import fingerprint, id_of
from wspec.ir.shapes import DOTS
from wspec.ir.shared_memory import size_bytes
from wspec.ir.types import TensorType
from wspec.model.machine import Machine
from wspec.options import Options
from wspec.passes.data_partition.choice import choose_replicas, slicing_for
from wspec.passes.data_partition.slicing import Conflict
from wspec.passes.software_pipelining.stages import accumulators
from wspec.plan.fill import Fill
from wspec.plan.graph import Dataflow
from wspec.plan.partition import Site, decline, hot_loops
from wspec.plan.plan import Channel, LoopSchedule, Plan, Task, source_warps
from wspec.plan.registers import check_registers
from wspec.plan.values import buffer_for, cut_values, value_buffer
from wspec.planner.chain_cost import memory_wait, predict_chain
from wspec.planner.chain_registers import choose_registers
from wspec.planner.cuts import Cut
from wspec.planner.occupancy import candidates
from wspec.planner.rings import make_channels, scratch_bytes, unique
from wspec.target.hopper import LEAST_REGISTERS, WARP_GROUP

MULTIPLY = "mma"
CONVERT, LEAD, STORE = "convert", "lead", "store"  # before all dots; with the first of them; behind all
VALUES = {CONVERT: "operand", LEAD: "sent", STORE: "out"}  # of what has no name in the source
VALUE_DEPTH = 2  # buffers of a value that is sent in every iteration

STORE_DEPTH = 3
CLOSE = 0.9  # of the bound
WIDE_HELPERS = (WARP_GROUP, 2 * WARP_GROUP, 4 * WARP_GROUP)  # warps of a helper that serves all replicas


@dataclass(frozen=True, slots=True)
class Part:
    """One task's copy of the kernel."""

    function: Operation
    loops: list[Operation]
    sites: list[Site]


Cuts = tuple[Cut, ...]  # in dataflow order, each beyond those before it


def bounding(plan: Plan) -> str:
    """The task that bounds an iteration; empty where it is what all share."""
    bound = plan.prediction.bound
    return MULTIPLY if bound == "multiplying" else bound if bound in [task.name for task in plan.tasks] else ""


def has_converter(plan: Plan) -> bool:
    """Does a task of the plan compute operands for the one that multiplies?"""
    return any(task.name == CONVERT for task in plan.helpers)


def plan_chain(
    flow: Dataflow, loops: list[Operation], sites: list[Site], cuts: Cuts, machine: Machine, options: Options
) -> Plan:
    """The plan with the rings of values that the model prefers, as deep as they are useful among equals: what they
    take of shared memory the tiles from memory and other blocks cannot have. Raises Declined."""
    found: list[Plan] = []
    inner = not all(cut.stores for cut in cuts)
    depths = [options.value_depth] if options.value_depth or not inner else range(VALUE_DEPTH, 0, -1)
    for depth in depths:
        try:
            found.append(_plan(flow, loops, sites, cuts, depth, machine, options))
        except Declined as declined:
            if not found and (declined.remark.code != "shared-memory" or depth == depths[-1]):
                raise
        if depth == VALUE_DEPTH and found and not any(cut.converts for cut in cuts):
            break  # one buffer is for want of room
    return min(found, key=lambda plan: _rank(plan, machine))


def _rank(plan: Plan, machine: Machine) -> tuple[bool, float, int, bool]:
    """Less is better: rings of one buffer are for want of room, and a wait for memory about as long as what bounds an
    iteration adds to it."""
    expected = plan.prediction.iteration_cycles
    shallow = any(ring.depth == 1 for ring in plan.channels if not ring.stays and not ring.is_computed)
    waits = memory_wait(plan, 1, 0.0, machine) > CLOSE * expected
    return shallow, expected, -plan.blocks_per_sm, waits


def _plan(
    flow: Dataflow,
    loops: list[Operation],
    sites: list[Site],
    cuts: Cuts,
    depth: int | None,
    machine: Machine,
    options: Options,
) -> Plan:
    """`depth`: of the rings of values that are sent in every iteration."""
    function = flow.function
    draft = _draft(function, cuts, depth, options)
    _check_order(flow, cuts)
    parts = {name: project(function, draft, draft.task(name), sites) for name in names_of(cuts)}
    _check_divided(list(parts.values()), cuts)
    if STORE in parts:
        _check_stores(parts[STORE])
    consumer = parts[MULTIPLY]
    warps = source_warps(function)
    replicas, sliced = choose_replicas(consumer.function, consumer.loops, consumer.sites, warps, options)
    tasks = _tasks(draft, cuts, parts, replicas, sliced, options)
    values = tuple(replace(channel, sliced_dim=sliced.get(channel.loads[0], -1)) for channel in draft.values)
    used = [site for site in sites if any(_reads(part, site) for part in parts.values())]
    reserved = sum(channel.depth * channel.buffer_bytes for channel in values)
    beside = sum(scratch(parts[task.name], task) for task in tasks if task.name in parts)
    functions = {name: part.function for name, part in parts.items()}
    readers = {site.load: tuple(name for name, part in parts.items() if _reads(part, site)) for site in used}
    declined: list[Declined] = []
    for blocks in candidates(loops, options, [2, 1]):
        try:
            given = choose_registers(tasks, consumer.loops, functions, blocks, machine, options)
            rings, smem = make_channels(
                function, used, sliced, replicas, frozenset(), reserved, machine, options, blocks, beside, readers
            )
        except Declined as found:
            declined.append(found)
            continue
        if blocks > 1 and options.blocks is None and any(ring.depth < 3 for ring in rings if not ring.stays):
            continue
        if cuts[-1].stores and options.depth is None:
            rings, smem = _shallower(rings, smem)
        taken = {ring.name for ring in rings}
        named = tuple(replace(channel, name=unique(channel.name, taken)) for channel in values)
        channels = (*(_with_readers(ring, parts, used) for ring in rings), *named)
        plan = Plan(
            function.str_attr("sym_name") or "kernel", fingerprint(function), warps, given, channels,
            schedules(loops, consumer, channels, options.overlap), (), smem, blocks,
        )  # fmt: skip
        check_registers(plan, function, consumer.loops or loops, machine)
        return replace(plan, prediction=predict_chain(plan, functions, machine))
    raise declined[-1]


# --------------------------------------------------------------------------------------------------- tasks


def names_of(cuts: Cuts) -> tuple[str, ...]:
    """The tasks that compute, in dataflow order, called after what they do. The last one with dots multiplies."""
    taken = {MULTIPLY}
    before = cuts[:-1] if cuts[-1].stores else cuts
    names = [unique(CONVERT if cut.converts else LEAD, taken) for cut in before]
    return (*names, MULTIPLY, STORE) if cuts[-1].stores else (*names, MULTIPLY)


def _draft(function: Operation, cuts: Cuts, depth: int | None, options: Options) -> Plan:
    """A plan that says which values are cut, and little else."""
    tasks = names_of(cuts)
    warps = source_warps(function)
    helpers = tuple(Task(name, "helper", warps, LEAST_REGISTERS) for name in tasks if name != MULTIPLY)
    consumer = Task(MULTIPLY, "consumer", warps, LEAST_REGISTERS)
    producer = Task("load", "producer", 1, LEAST_REGISTERS)
    return Plan("", "", warps, (consumer, *helpers, producer), _sent(function, cuts, tasks, depth, options))


def _sent(
    function: Operation, cuts: Cuts, tasks: tuple[str, ...], depth: int | None, options: Options
) -> tuple[Channel, ...]:
    """A channel for each value, from the task before the first cut that it crosses to the one behind the last."""
    body = function.regions[0].block
    dots = {value_name(op.location) for op in function.walk() if op.name in DOTS}
    names: set[str] = set()
    channels: dict[Value, Channel] = {}
    for at, cut in enumerate(cuts):
        for value in cut.values:
            assert value.op is not None
            if value in channels:
                earlier = channels[value]
                channels[value] = replace(earlier, readers=(*earlier.readers, tasks[at + 1]))
                continue
            own = value_name(value.op.location)
            unnamed = VALUES[STORE if cut.stores else CONVERT if cut.converts else LEAD]
            title = unique(own if own is not None and own not in dots else unnamed, names)
            size = size_bytes(buffer_for(body, value))
            ring = options.value_depth or (1 if cut.stores or depth is None else depth)
            ends: dict[str, Any] = {
                "source": tasks[at],
                "readers": (tasks[at + 1],),
                "result": value.index,
                "fill": Fill.COMPUTED,
            }
            channels[value] = Channel(title, (id_of(value.op),), ring, size, **ends)
    return tuple(channels.values())


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
    return Part(copy, hot_loops(copy), [Site(load, hot[id_of(load)]) for load in loads])


def _check_order(flow: Dataflow, cuts: Cuts) -> None:
    """Each cut must lie beyond those before it, with work of its own between."""
    for at, cut in enumerate(cuts[1:], 1):
        reached = flow.reached(value.op for value in cut.values if value.op is not None)
        for earlier in cuts[:at]:
            new = [value for value in cut.values if value not in earlier.values]
            if not new or reached & set(earlier.values) - set(cut.values):
                raise decline("no-chain", "these cuts do not follow each other", _place(cut))


def _check_divided(parts: list[Part], cuts: Cuts) -> None:
    """No task may need what one on the other side of a cut does: a value that goes back, or a condition."""
    for at, cut in enumerate(cuts, 1):
        sides = [(part, cut.behind) for part in parts[:at]] + [(part, cut.before) for part in parts[at:]]
        for part, other in sides:
            for op in part.function.walk():
                if id_of(op) in other and not op.name.startswith("wspec."):
                    raise decline("no-chain", f"{op.name} would be needed on both sides of the cut", op.location)


def _check_stores(part: Part) -> None:
    """The task behind the last cut is one warp that hands finished tiles to TMA: nothing is left for it to compute."""
    for op in part.function.walk():
        if not op.name.startswith("wspec.") and any(isinstance(result.type, TensorType) for result in op.results):
            raise decline("no-chain", f"{op.name} would be left to the task that stores", op.location)


def _tasks(
    draft: Plan, cuts: Cuts, parts: dict[str, Part], replicas: int, sliced: dict[int, int], options: Options
) -> tuple[Task, ...]:
    """The tasks with their warps; `sliced` gains what replicas of other tasks than the one that multiplies share."""
    wide = WARP_GROUP if replicas > 1 else draft.source_warps
    order = names_of(cuts)
    found = {MULTIPLY: replace(draft.consumer, warps=wide, replicas=replicas)}
    for at in sorted(range(len(order)), key=lambda at: -at):  # a task hands on the slices of the one behind it
        if order[at] == MULTIPLY:
            continue
        cut = cuts[at - 1] if order[at] == STORE else cuts[at]
        found[order[at]] = _helper(draft.task(order[at]), cut, replicas, sliced, options)
        if order[at] != STORE:
            sliced |= _helper_slices(parts[order[at]], cut, found[order[at]].replicas)
    producer = replace(draft.producer, warps=options.producer_warps, registers=options.producer_registers)
    return (*(found.get(task.name, producer) for task in draft.tasks),)


def _helper(task: Task, cut: Cut, replicas: int, sliced: dict[int, int], options: Options) -> Task:
    shares = {id_of(value.op) in sliced for value in cut.values if value.op is not None}
    if len(shares) > 1:
        raise decline("no-chain", "replicas would share some values of the cut, and others not", _place(cut))
    if cut.stores:
        return replace(task, warps=1)
    if shares == {True}:
        return replace(task, warps=WARP_GROUP, replicas=replicas)
    if cut.converts and options.helper_warps:  # one that has no dots can have others than the kernel
        return replace(task, warps=options.helper_warps)
    return task


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
    return channel.streams and channel.source != MULTIPLY
