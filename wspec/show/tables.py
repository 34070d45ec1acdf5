"""Plans as tables a person can read. Everything here returns rich renderables; nobody prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wspec.diagnostics import place_text
from wspec.ir.core import Operation
from wspec.ir.loc import value_name
from wspec.model.machine import Machine
from wspec.plan.fill import Fill
from wspec.plan.plan import Channel, LoopSchedule, Plan, Task

Operations = Mapping[int, Operation]  # number, as plans use it -> operation


def plan_view(plan: Plan, operations: Operations, machine: Machine) -> RenderableType:
    """Tasks, channels, loops, and what the model expects."""
    parts: list[RenderableType] = [_tasks(plan), _channels(plan, operations)]
    if plan.loops:
        parts.append(_loops(plan, operations))
    parts.append(_totals(plan, operations, machine))
    return Group(*_spaced(parts))


def _spaced(parts: Sequence[RenderableType]) -> list[RenderableType]:
    """With an empty line between each two."""
    return [thing for at, part in enumerate(parts) for thing in ((Text(""), part) if at else (part,))]


def table(title: str, *columns: str, right: Iterable[str] = ()) -> Table:
    """An empty table in the house's style; columns named in `right` hold numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


# -------------------------------------------------------------------------------------------------- plans


def _tasks(plan: Plan) -> Table:
    numbers = ("groups", "warps", "registers")
    made = table("tasks", "task", "kind", "groups", "warps", "registers", "does", right=numbers)
    for task in plan.tasks:
        made.add_row(*_task(task, plan))
    return made


def _task(task: Task, plan: Plan) -> tuple[str, ...]:
    if task.kind == "producer":
        does = f"fills {', '.join(channel.name for channel in plan.channels if not channel.is_computed)}"
    elif task.kind == "helper" and plan.does_effects(task):
        does = f"stores {', '.join(channel.name for channel in plan.values if task in plan.readers(channel))}"
    else:
        sent = [channel.name for channel in plan.values if channel.source == task.name]
        does = "computes" + (f" {', '.join(sent)}" if sent else "")
        if task.replicas > 1:
            does += ", each a tile" if plan.coarsening > 1 else f", 1/{task.replicas} of the tile each"
    return task.name, task.kind, str(task.replicas), str(task.warps), str(task.registers), does


def _channels(plan: Plan, operations: Operations) -> Table:
    numbers = ("depth", "buffer", "ring")
    made = table("channels", "channel", "depth", "buffer", "ring", "tile", "lives", "loaded at", right=numbers)
    for channel in plan.channels:
        made.add_row(*_channel(channel, plan, operations))
    return made


def _channel(channel: Channel, plan: Plan, operations: Operations) -> tuple[str, ...]:
    share = f"sliced, dim {channel.sliced_dim}" if channel.sliced else "each its own" if channel.private else "whole"
    lives = "filled once" if not channel.reused else "for a tile" if channel.stays else "reused"
    stored = [number for number, name, _ in plan.staging if name == channel.name]
    if stored:
        lives += f", then stages the store at {places(stored, operations)}"
    ring = kib(channel.depth * channel.buffer_bytes)
    where = places(channel.loads, operations)
    where += f" by {channel.fill}" if channel.fill is Fill.CP_ASYNC else ""
    return channel.name, str(channel.depth), kib(channel.buffer_bytes), ring, share, lives, where


def _loops(plan: Plan, operations: Operations) -> Table:
    made = table(
        "loops", "loop at", "operations", "stage1", "what runs an iteration late", right=("operations", "stage1")
    )
    for schedule in plan.loops:
        made.add_row(*_loop(schedule, operations))
    return made


def _loop(schedule: LoopSchedule, operations: Operations) -> tuple[str, ...]:
    loop = operations.get(schedule.loop)
    size = str(len(loop.regions[0].block.ops) - 1) if loop is not None and loop.regions else "-"
    return _place(loop, schedule.loop), size, str(len(schedule.stage1)), _late(schedule, operations)


_HEAVY = ("ttng.warp_group_dot", "tt.descriptor_load", "tt.load")


def late_names(schedule: LoopSchedule, operations: Operations) -> str:
    """`v = descriptor_load, acc = warp_group_dot`: the heavy ones of the late operations."""
    late = [operations[number] for number in schedule.stage1 if number in operations]
    names = (f"{value_name(op.location) or '_'} = {op.name.partition('.')[2]}" for op in late if op.name in _HEAVY)
    return ", ".join(dict.fromkeys(names))


def _late(schedule: LoopSchedule, operations: Operations) -> str:
    """With the source lines; without late operations, whether dots stay in flight from one iteration to the next."""
    if schedule.stage1:
        heavy = [n for n in schedule.stage1 if n in operations and operations[n].name in _HEAVY]
        return f"{late_names(schedule, operations)} ({places(heavy, operations)})"
    return "nothing; dots stay in flight across iterations" if schedule.in_flight else "nothing"


def places(numbers: Iterable[int], operations: Operations) -> str:
    """The source lines of operations: `attention.py:116, :121`."""
    found = dict.fromkeys(_place(operations.get(number), number) for number in numbers)
    shown: list[str] = []
    last = ""
    for place in filter(None, found):
        file, _, line = place.rpartition(":")
        shown.append(f":{line}" if file and file == last else place)
        last = file
    return ", ".join(shown) or "-"


def _place(op: Operation | None, number: int) -> str:
    """The file's name is enough here: remarks have the whole path."""
    return place_text(op.location).rpartition("/")[2] if op is not None else f"operation {number}"


def _totals(plan: Plan, operations: Operations, machine: Machine) -> Text:
    expected = plan.prediction
    lines = [
        f"warps     {plan.total_warps} in all (whole groups of 4), the kernel had {plan.source_warps}",
        f"shared    {plan.smem_bytes} bytes of {machine.smem_bytes}; {plan.blocks_per_sm} "
        f"block{'s' if plan.blocks_per_sm > 1 else ''} an SM",
    ]
    if plan.persistent:
        order = ", in raster order where the grid's own is worse" if plan.raster else ""
        lines.append(f"tiles     as many blocks as fit on the GPU walk through those of the grid{order}")
    for kind, what in (("own", "a buffer of its own"), ("subtiles", "half a buffer of its own, in halves")):
        if stores := [store for store, _, how in plan.staging if how == kind]:
            lines.append(f"stores    through {what}: {places(stores, operations)}")
    if expected.iteration_cycles:
        ratio = expected.plain_iteration_cycles / expected.iteration_cycles
        lines.append(
            f"predicted {expected.iteration_cycles:.0f} cycles an iteration, bound: {expected.bound}; "
            f"plain {expected.plain_iteration_cycles:.0f} ({ratio:.2f} x); {expected.overhead_cycles:.0f} to set up"
        )
    return Text("\n".join(lines))


def kib(count: int) -> str:
    """Bytes in KiB: `32 KiB`."""
    return f"{count} B" if count < 1024 else f"{count / 1024:.4g} KiB"
