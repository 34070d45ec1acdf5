"""The gate: does specializing pay? First figures from the machine description."""

from __future__ import annotations

import math
from collections.abc import Callable

from wspec.diagnostics import Declined
from wspec.ir.core import Operation, Value
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS
from wspec.ir.types import IntegerAttr, Layout, MemDescType
from wspec.model.machine import Machine
from wspec.model.operations import Iteration, loop_work
from wspec.plan.buffers import VIEWS
from wspec.plan.fill import Fill, fill_of
from wspec.plan.partition import decline
from wspec.plan.plan import Plan, Prediction, is_shallow
from wspec.plan.registers import consumer_need
from wspec.planner.converting import converting_cycles, converts
from wspec.target.hopper import WARP_GROUP


def predict(
    loops: list[Operation],
    machine: Machine,
    plan_overlaps: bool,
    groups: int,
    warps: int,
    specialized: Callable[[Operation, Iteration], Iteration] = lambda loop, work: work,
    blocks: int = 1,
    copied: frozenset[Operation] = frozenset(),
) -> Prediction:
    """First figures: one iteration of the heaviest loop, specialized and not.

    In a chain of dots the tensor core and the CUDA cores work side by side when the loop is pipelined, and the longer
    one bounds; otherwise two consumer groups still interleave, with part of the shorter one exposed. The plain kernel
    exposes half of it: Triton's pipeliner waits for every dot of a chain. More than two groups on an SM hide more.
    A loop that only accumulates has nothing to expose, and Triton's pipeliner keeps its dots in flight as ours does;
    there a measured ratio decides. Where a group makes an operand of its own products, see converting.py. Where the
    producer's threads copy tiles themselves, those of the loads that are `copied`, a measured ratio says how much
    longer an iteration takes than the plain kernel's, in which all threads copy.

    `groups` warp groups compute on an SM when specialized; `warps` is the plain kernel's num_warps. `specialized` gives
    the work of an iteration of the specialized loop from that of the plain one, `blocks` share an SM.
    """
    heaviest = max(loops, key=lambda loop: loop_work(loop, machine).mma)
    work = loop_work(heaviest, machine)
    longer, shorter = max(work.mma, work.compute), min(work.mma, work.compute)
    ours = specialized(heaviest, work)
    our_longer, our_shorter = max(ours.mma, ours.compute), min(ours.mma, ours.compute)
    before = plain_groups(loops, machine, warps)
    cycles = max(our_longer + (0.15 if plan_overlaps else 0.35) * our_shorter * 2 / max(groups, 2), work.tma)
    plain = max(longer + (0.5 * shorter + machine.mbarrier_latency) * 2 / max(before, 2), work.tma)
    if _accumulates_only(heaviest, copied):
        fewer = groups < before
        walks = any(op.name == "scf.for" for op in heaviest.ancestors())
        ratio = machine.plain_walking if walks and not fewer else machine.plain_mn_major
        plain = cycles * (machine.plain_k_major if _b_is_k_major(heaviest) and not fewer else ratio)
    bounds = {"tensor core": work.mma, "exponential and arithmetic": ours.compute, "memory": work.tma}
    if converts(heaviest):
        cycles, plain = converting_cycles(heaviest, work, blocks, max(1, groups // blocks), machine)
        bounds["converting operands"] = cycles
    if any(load.is_inside(loop) for load in copied for loop in loops):
        cycles = max(cycles, plain / machine.plain_copied)
        bounds["copies by threads"] = cycles
    return Prediction(round(cycles, 1), round(plain, 1), machine.setup_latency, max(bounds, key=lambda b: bounds[b]))


def plain_groups(loops: list[Operation], machine: Machine, warps: int) -> int:
    """Warp groups of the plain kernel that registers let share an SM."""
    need = consumer_need(loops, (), 32 * warps)
    return machine.registers // (32 * warps * need) * warps // WARP_GROUP


def _dots(loop: Operation) -> list[Operation]:
    return [op for top in loop.regions[0].block.ops for op in top.walk() if op.name in DOTS]


def _accumulates_only(loop: Operation, copied: frozenset[Operation]) -> bool:
    """Tiles go from memory to the tensor core and nowhere else."""
    body = loop.regions[0].block
    dots = _dots(loop)
    streams = all(_from_memory(value, copied) for dot in dots for value in dot.operands[:2])
    return streams and all(dot.operands[2].owner is body for dot in dots)


def _from_memory(value: Value, copied: frozenset[Operation]) -> bool:
    while (op := value.op) is not None and (op.name in VIEWS or op.name == "ttg.local_alloc"):
        if not op.operands:
            return False
        value = op.operands[0]
    return value.op is not None and (fill_of(value.op) is Fill.TMA or value.op in copied)


def _b_is_k_major(loop: Operation) -> bool:
    """Does every dot read B as it lies in memory when B is stored [N, K]?"""
    types = [dot.operands[1].type for dot in _dots(loop)]
    layouts = [type.encoding for type in types if isinstance(type, MemDescType)]
    return all(isinstance(layout, Layout) and layout.get("transposed") is True for layout in layouts)


def constant_trips(loop: Operation) -> int | None:
    """The trip count when it is a compile-time constant."""
    owners = [v.op for v in loop.operands[:3]]
    values = [op.attr("value") if op is not None and op.name == "arith.constant" else None for op in owners]
    if not all(isinstance(v, IntegerAttr) for v in values):
        return None
    low, high, step = (v.value for v in values if isinstance(v, IntegerAttr))
    return max(0, math.ceil((high - low) / step)) if step > 0 else None


def check_pays(plan: Plan, loops: list[Operation], depth_asked: int | None = None) -> None:
    """Leave kernels alone where specializing is not expected to pay. Raises Declined."""
    _check_trips(plan, loops)
    if plan.prediction.plain_iteration_cycles <= plan.prediction.iteration_cycles:
        raise _slower(plan, loops)
    if plan.blocks_per_sm == 1 and is_shallow(plan.channels):
        room = "shared memory has room for one buffer of each tile only"
        why = room if depth_asked is None else "depth=1 was asked for"
        raise decline(
            "shared-memory",
            f"{why}, so the producer could not run ahead",
            loops[0].location,
            "use smaller tiles; gate=off specializes anyway",
        )


def _slower(plan: Plan, loops: list[Operation]) -> Declined:
    ours, plain = plan.prediction.iteration_cycles, plan.prediction.plain_iteration_cycles
    copied = [channel for channel in plan.channels if channel.fill is Fill.CP_ASYNC]
    if not copied:
        said = f"an iteration is expected to take {ours:.0f} cycles specialized and {plain:.0f} as it is"
        return decline("gate-slower", said, loops[0].location, "gate=off specializes anyway")
    load = next(op for loop in loops for op in loop.walk() if id_of(op) in copied[0].loads)
    return decline(
        "gate-slower",
        f"the loop loads {' and '.join(channel.name for channel in copied)} through pointers; with cp.async by a task "
        f"of its own an iteration is expected to take {ours:.0f} cycles, and {plain:.0f} as it is",
        load.location,
        "load the tiles of the dot through tensor descriptors; gate=off specializes anyway",
    )


def _check_trips(plan: Plan, loops: list[Operation]) -> None:
    """Constant trip counts must earn the set-up; inside another loop they are set up once for many rounds."""
    trips = [constant_trips(loop) for loop in loops]
    if any(count is None for count in trips) or any(op.name == "scf.for" for op in loops[0].ancestors()):
        return
    total = sum(count for count in trips if count is not None)
    saved = total * max(0.0, plan.prediction.plain_iteration_cycles - plan.prediction.iteration_cycles)
    if saved < plan.prediction.overhead_cycles:
        raise decline(
            "short-loop",
            f"{total} iterations would save {saved:.0f} cycles, setting up costs {plan.prediction.overhead_cycles:.0f}",
            loops[0].location,
            "specializing pays on longer loops; gate=off specializes anyway",
        )
