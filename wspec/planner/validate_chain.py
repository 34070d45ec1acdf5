"""Check the chain of a plan from outside: one helper, and values that go one way between it and the consumer.

Each task's copy of the kernel is cut as the plan says and asked again what it reads and how it is sliced. Raises
Declined("plan-mismatch") with the field at fault. Whether the tasks can hang is the checker's to say.
"""

from __future__ import annotations

from wspec.diagnostics import Declined, Remark
from wspec.ir.core import Operation
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS
from wspec.ir.types import ScalarType, TensorType
from wspec.passes.data_partition.choice import slicing_for
from wspec.passes.data_partition.slicing import Conflict
from wspec.plan.partition import Site
from wspec.plan.plan import WARP_GROUP, Channel, Plan, Task
from wspec.plan.values import buffer_for, buffer_size
from wspec.planner.chain import WIDE_HELPERS, Part, project, schedules, scratch


def check_chain(plan: Plan, function: Operation, sites: dict[int, Site]) -> int:
    """Bytes of scratch memory of the tasks. Raises Declined where the plan cannot be followed."""
    if len(plan.helpers) != 1 or not plan.values:
        raise _mismatch("tasks", "a chain has one helper, and a channel of values", function)
    for channel in plan.values:
        _value(plan, channel, function)
    if len({(channel.source, channel.readers) for channel in plan.values}) > 1:
        raise _mismatch("channels", "all values of a chain go from one task to one other", function)
    tasks = (plan.consumer, plan.helpers[0])
    parts = [project(function, plan, task, list(sites.values())) for task in tasks]
    _helper(plan, plan.helpers[0], parts[1], function)
    _readers(plan, dict(zip((task.name for task in tasks), parts, strict=True)), function)
    sliced = {k: v for task, part in zip(tasks, parts, strict=True) for k, v in _sliced(task, part, function).items()}
    for channel in plan.channels:
        expected = sliced.get(channel.loads[0], -1)
        if channel.sliced_dim != expected:
            raise _mismatch(f"channels.{channel.name}.sliced_dim", f"must be {expected} here", function)
    flying = {s.loop for s in schedules(list(_loops(function, plan)), parts[0], plan.channels, True) if s.in_flight}
    if any(schedule.in_flight and schedule.loop not in flying for schedule in plan.loops):
        raise _mismatch("loops.in_flight", "only dots that do nothing but accumulate can run on", function)
    return sum(scratch(part, task) for part, task in zip(parts, tasks, strict=True))


def _mismatch(field: str, message: str, function: Operation) -> Declined:
    note = "edit the plan or make it anew"
    return Declined(Remark("plan-mismatch", f"plan: {field}: {message}", function.location, note=note))


def _loops(function: Operation, plan: Plan) -> list[Operation]:
    numbers = {schedule.loop for schedule in plan.loops}
    return [op for op in function.walk() if op.name == "scf.for" and id_of(op) in numbers]


def _value(plan: Plan, channel: Channel, function: Operation) -> None:
    field = f"channels.{channel.name}"
    op = next((op for op in function.walk() if id_of(op) == channel.loads[0]), None) if channel.loads else None
    if op is None or len(channel.loads) != 1 or not 0 <= channel.result < len(op.results):
        raise _mismatch(f"{field}.loads", "a value is one result of one operation", function)
    type = op.results[channel.result].type
    if not isinstance(type, TensorType) or not isinstance(type.element, ScalarType) or type.element.bits < 8:
        raise _mismatch(f"{field}.loads", f"values of type {type} cannot be sent", function)
    size = buffer_size(buffer_for(function.regions[0].block, op.results[channel.result]))
    if channel.buffer_bytes != size:
        raise _mismatch(f"{field}.buffer_bytes", f"the value has {size}", function)
    ends = {channel.source, *(task.name for task in plan.readers(channel))}
    if channel.stays:
        raise _mismatch(f"{field}.stays", "must be false: a value is read once", function)
    if ends != {plan.consumer.name, plan.helpers[0].name} or not channel.reused:
        raise _mismatch(f"{field}.readers", "a value goes between consumer and helper, and is released", function)


def _helper(plan: Plan, helper: Task, part: Part, function: Operation) -> None:
    """Warps and replicas that the helper's copy of the kernel can have."""
    stores = all(channel.source == plan.consumer.name for channel in plan.values)
    shared = any(channel.sliced for channel in plan.values)
    if stores:
        allowed = [(1, 1)]
    elif shared:
        allowed = [(WARP_GROUP, plan.consumer.replicas)]
    else:
        fixed = any(op.name in DOTS for op in part.function.walk())
        allowed = [(plan.source_warps, 1)] + ([] if fixed else [(warps, 1) for warps in WIDE_HELPERS])
    if (helper.warps, helper.replicas) not in allowed:
        words = " or ".join(f"{replicas} of {warps} warps" for warps, replicas in allowed)
        raise _mismatch("tasks.warps", f"a helper is {words} here", function)
    if helper.registers % 8 or not 24 <= helper.registers <= 256:
        raise _mismatch("tasks.registers", f"{helper.registers} is not a multiple of 8 in 24..256", function)


def _readers(plan: Plan, parts: dict[str, Part], function: Operation) -> None:
    """Every tile that a task reads must come from a channel that says so."""
    for name, part in parts.items():
        reads = {id_of(site.load) for site in part.sites}
        for channel in (channel for channel in plan.channels if not channel.is_computed):
            named = name in [task.name for task in plan.readers(channel)]
            if named != bool(reads & set(channel.loads)):
                verb = "does not read" if named else "reads"
                raise _mismatch(f"channels.{channel.name}.readers", f"task {name!r} {verb} it", function)


def _sliced(task: Task, part: Part, function: Operation) -> dict[int, int]:
    if task.replicas == 1:
        return {}
    found = slicing_for(part.function, part.sites, task.replicas)
    if isinstance(found, Conflict):
        raise _mismatch("tasks.replicas", f"the tile cannot be shared: {found.why}", function)
    return found
