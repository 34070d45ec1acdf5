"""What became of one specialization of a kernel, as values and as a text for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from wspec import bridge, ir
from wspec.bridge import Group, KernelSource, Resources, Result
from wspec.diagnostics import Remark, place_text, render
from wspec.ir.loc import CallSiteLoc, Location, NameLoc
from wspec.plan.plan import Channel, Plan, Task


class Report:
    """One specialization: whether it was specialized, why or why not, the plan, the binary."""

    def __init__(self, source: KernelSource, result: Result, group: Group) -> None:
        self.source, self.result, self._group = source, result, group

    @property
    def specialized(self) -> bool:
        return self.result.specialized

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What was done or why not; the codes are those of `wspec.REASONS`."""
        return self.result.remarks

    @property
    def reason(self) -> Remark | None:
        """Why the kernel was left alone; None when it was specialized."""
        return self.result.reason

    @cached_property
    def plan(self) -> Plan | None:
        """The plan; None when the compiler made none."""
        return Plan.from_text(self.result.plan) if self.result.plan else None

    @cached_property
    def kernel(self) -> Any:
        """Triton's CompiledKernel: `.asm` has the text of each stage, `.metadata` what the launcher uses."""
        return bridge.load_kernel(self.source, self.result, self._group)

    @cached_property
    def resources(self) -> Resources:
        """Registers, spills, shared memory and instruction counts of the binary, specialized or not."""
        return bridge.kernel_resources(self.source, self.kernel, self.result.ptxas_log)

    def __str__(self) -> str:
        done = "specialized" if self.specialized else "left as it was"
        parts = [f"{self.source.describe()}: {done}", *(render(remark) for remark in self.remarks)]
        if self.plan is not None:
            locations = operation_locations(self.source)
            parts.append(plan_table(self.plan, locations))
        return "\n\n".join([*parts, f"binary: {self.resources}"])


def operation_locations(source: KernelSource) -> dict[int, Location]:
    """Operation number, as plans use it, -> its location: numbers count the walk of the kernel's function."""
    module = ir.read(bridge.ttgir(source))
    function = next(op for op in module.walk() if op.name == "tt.func")
    return {number: op.location for number, op in enumerate(function.walk())}


def plan_table(plan: Plan, locations: Mapping[int, Location]) -> str:
    """The plan as tables: tasks, channels with the source lines of their loads, what the model predicts."""
    tasks = [("task", "kind", "warps", "registers"), *(_task_row(task) for task in plan.tasks)]
    channels = [_CHANNEL_HEAD, *(_channel_row(channel, locations) for channel in plan.channels)]
    expected, what = plan.prediction, f"{plan.smem_bytes} bytes of shared memory"
    if plan.blocks_per_sm > 1:
        what += f", {plan.blocks_per_sm} blocks share an SM"
    model = (
        f"{expected.iteration_cycles:.0f} cycles an iteration expected, {expected.plain_iteration_cycles:.0f} plain; "
        f"{expected.overhead_cycles:.0f} to start; bound by {expected.bound or 'nothing known'}"
    )
    return "\n\n".join([_columns(tasks), _columns(channels), f"{what}\n{model}"])


_CHANNEL_HEAD: tuple[str, ...] = ("channel", "depth", "bytes", "use", "loaded at")


def _task_row(task: Task) -> tuple[str, ...]:
    warps = f"{task.replicas} x {task.warps}" if task.replicas > 1 else str(task.warps)
    return task.name, task.kind, warps, str(task.registers)


def _channel_row(channel: Channel, locations: Mapping[int, Location]) -> tuple[str, ...]:
    use = ["sliced" if channel.sliced else "shared", "ring" if channel.reused else "filled once"]
    places = dict.fromkeys(place_text(_written_at(locations[load])) for load in channel.loads if load in locations)
    bytes_text = f"{channel.depth} x {channel.buffer_bytes}"
    return channel.name, str(channel.depth), bytes_text, ", ".join(use), " ".join(places)


def _written_at(location: Location) -> Location:
    """Where a load is written: inside a helper that was inlined, not at the helper's call, which many loads share."""
    match location:
        case NameLoc(child=child) if child is not None:
            return _written_at(child)
        case CallSiteLoc(callee=callee):
            return _written_at(callee)
    return location


def _columns(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"  {line}".rstrip() for line in lines)
