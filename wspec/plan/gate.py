"""The gate: does specializing pay? First figures from the machine description."""

from __future__ import annotations

import math

from wspec.ir.core import Operation
from wspec.ir.types import IntegerAttr
from wspec.plan.costs import loop_work
from wspec.plan.machine import Machine
from wspec.plan.partition import decline
from wspec.plan.plan import Plan, Prediction


def predict(loops: list[Operation], machine: Machine, overlap: bool) -> Prediction:
    """First figures: one iteration of the heaviest loop, specialized and not.

    Specialized with overlap, the tensor core and the CUDA cores work side by side and the longer one bounds; without
    overlap two consumer groups still interleave, with part of the shorter one exposed. The plain kernel exposes it all
    but for what its two blocks or warp groups hide of each other.
    """
    bodies = [loop_work(loop, machine) for loop in loops]
    heaviest = max(bodies, key=lambda b: b.mma)
    longer, shorter = max(heaviest.mma, heaviest.compute), min(heaviest.mma, heaviest.compute)
    exposed = 0.15 if overlap else 0.35
    cycles = max(longer + exposed * shorter, heaviest.tma)
    plain = max(longer + 0.5 * shorter, heaviest.tma) + machine.mbarrier_latency
    bounds = {"tensor core": heaviest.mma, "exponential and arithmetic": heaviest.compute, "memory": heaviest.tma}
    return Prediction(round(cycles, 1), round(plain, 1), machine.setup_latency, max(bounds, key=lambda b: bounds[b]))


def constant_trips(loop: Operation) -> int | None:
    """The trip count when it is a compile-time constant."""
    owners = [v.op for v in loop.operands[:3]]
    values = [op.attr("value") if op is not None and op.name == "arith.constant" else None for op in owners]
    if not all(isinstance(v, IntegerAttr) for v in values):
        return None
    low, high, step = (v.value for v in values if isinstance(v, IntegerAttr))
    return max(0, math.ceil((high - low) / step)) if step > 0 else None


def check_pays(plan: Plan, loops: list[Operation]) -> None:
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
