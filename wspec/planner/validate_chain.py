"""Check the chain of a plan from outside: values that go one way through the tasks, to the one that makes the stores.

Each task's copy of the kernel is cut as the plan says and asked again what it reads and how it is sliced. Raises
Declined("plan-mismatch") with the field at fault. Whether the tasks can hang is the checker's to say.
"""

from __future__ import annotations

from wspec.diagnostics import Declined, Remark
from wspec.ir.core import Operation
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS
from wspec.ir.shared_memory import size_bytes
from wspec.ir.types import ScalarType, TensorType
from wspec.passes.data_partition.choice import slicing_for
from wspec.passes.data_partition.slicing import Conflict
from wspec.plan.partition import Site
from wspec.plan.plan import Channel, Plan, PlanError, Task
from wspec.plan.values import buffer_for
from wspec.planner.chain import WIDE_HELPERS, Part, project, schedules, scratch
from wspec.planner.chain_cost import scheduled
from wspec.target.hopper import LEAST_REGISTERS, WARP_GROUP


def check_chain(plan: Plan, function: Operation, sites: dict[int, Site]) -> int:
    """Bytes of scratch memory of the tasks. Raises Declined where the plan cannot be followed."""
    if not plan.helpers or not plan.values:
        raise mismatch("tasks", "a chain has more tasks than load and multiply, and channels of values", function)
    for channel in plan.values:
        _value(plan, channel, function)
    tasks = _in_order(plan, function)
    parts = {task.name: project(function, plan, task, list(sites.values())) for task in tasks}
    for helper in plan.helpers:
        _helper(plan, helper, parts[helper.name], function)
    _readers(plan, parts, function)
    sliced = {load: dim for task in tasks for load, dim in _sliced(task, parts[task.name], function).items()}
    for channel in plan.channels:
        expected = sliced.get(channel.loads[0], -1)
        if channel.sliced_dim != expected:
            raise mismatch(f"channels.{channel.name}.sliced_dim", f"must be {expected} here", function)
    possible = schedules(scheduled(function, plan), parts[plan.consumer.name], plan.channels, True)
    flying = {schedule.loop for schedule in possible if schedule.in_flight}
    if any(schedule.in_flight and schedule.loop not in flying for schedule in plan.loops):
        raise mismatch("loops.in_flight", "only dots that do nothing but accumulate can run on", function)
    return sum(scratch(parts[task.name], task) for task in tasks)


def _in_order(plan: Plan, function: Operation) -> tuple[Task, ...]:
    """The tasks that compute, in dataflow order: values go one way, and one task alone sends none."""
    try:
        tasks = plan.computing
    except PlanError as error:
        raise mismatch("channels", str(error), function) from None
    last = [task.name for task in tasks if plan.does_effects(task)]
    if len(last) != 1:
        raise mismatch("channels", f"one task makes the stores, {' and '.join(last)} send nothing", function)
    return tasks


def mismatch(field: str, message: str, function: Operation) -> Declined:
    note = "edit the plan or make it anew"
    return Declined(Remark("plan-mismatch", f"plan: {field}: {message}", function.location, note=note))


def check_task_registers(task: Task, function: Operation) -> None:
    """A number that setmaxnreg takes. Raises Declined."""
    if task.registers % 8 or not LEAST_REGISTERS <= task.registers <= 256:
        raise mismatch(
            "tasks.registers", f"{task.registers} is not a multiple of 8 in {LEAST_REGISTERS}..256", function
        )


def _value(plan: Plan, channel: Channel, function: Operation) -> None:
    field = f"channels.{channel.name}"
    op = next((op for op in function.walk() if id_of(op) == channel.loads[0]), None) if channel.loads else None
    if op is None or len(channel.loads) != 1 or not 0 <= channel.result < len(op.results):
        raise mismatch(f"{field}.loads", "a value is one result of one operation", function)
    type = op.results[channel.result].type
    if not isinstance(type, TensorType) or not isinstance(type.element, ScalarType) or type.element.bits < 8:
        raise mismatch(f"{field}.loads", f"values of type {type} cannot be sent", function)
    size = size_bytes(buffer_for(function.regions[0].block, op.results[channel.result]))
    if channel.buffer_bytes != size:
        raise mismatch(f"{field}.buffer_bytes", f"the value has {size}", function)
    readers = [task.name for task in plan.readers(channel)]
    computing = {task.name for task in plan.tasks if task != plan.producer}
    if channel.stays:
        raise mismatch(f"{field}.stays", "must be false: a value is read once", function)
    if not {channel.source, *readers} <= computing or channel.source in readers or not channel.reused:
        raise mismatch(
            f"{field}.readers", "a value goes from one task that computes to others, and is released", function
        )


def _helper(plan: Plan, helper: Task, part: Part, function: Operation) -> None:
    """Warps and replicas that the helper's copy of the kernel can have."""
    own = [channel for channel in plan.values if helper.name == channel.source or helper in plan.readers(channel)]
    shared = any(channel.sliced for channel in own)
    if plan.does_effects(helper):
        allowed = [(1, 1)]
    elif shared:
        allowed = [(WARP_GROUP, plan.consumer.replicas)]
    else:
        fixed = any(op.name in DOTS for op in part.function.walk())
        allowed = [(plan.source_warps, 1)] + ([] if fixed else [(warps, 1) for warps in WIDE_HELPERS])
    if (helper.warps, helper.replicas) not in allowed:
        words = " or ".join(f"{replicas} of {warps} warps" for warps, replicas in allowed)
        raise mismatch("tasks.warps", f"a helper is {words} here", function)
    check_task_registers(helper, function)


def _readers(plan: Plan, parts: dict[str, Part], function: Operation) -> None:
    """Every tile that a task reads must come from a channel that says so."""
    for name, part in parts.items():
        reads = {id_of(site.load) for site in part.sites}
        for channel in (channel for channel in plan.channels if not channel.is_computed):
            named = name in [task.name for task in plan.readers(channel)]
            if named != bool(reads & set(channel.loads)):
                verb = "does not read" if named else "reads"
                raise mismatch(f"channels.{channel.name}.readers", f"task {name!r} {verb} it", function)


def _sliced(task: Task, part: Part, function: Operation) -> dict[int, int]:
    if task.replicas == 1:
        return {}
    found = slicing_for(part.function, part.sites, task.replicas)
    if isinstance(found, Conflict):
        raise mismatch("tasks.replicas", f"the tile cannot be shared: {found.why}", function)
    return found
