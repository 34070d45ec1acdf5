"""What an iteration costs with and without a chain: the busiest unit, the slowest task, or the wait for memory.

Units are shared by all tasks: tensor core, CUDA cores, TMA, shared memory. A task's own time is what its warps do one
after the other: arithmetic, the way through shared memory, a handshake for each channel it takes part in. Work that
replicas do each for themselves, because they do not share it, counts for each; a chain does it once. The constants were
fitted to products with int8 and int4 weights and to persistent products on an H200 (docs/chains.md).
"""

from __future__ import annotations

from wspec.ir.core import Operation
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS, shape_of
from wspec.ir.types import MemDescType, TensorType
from wspec.model.machine import Machine
from wspec.model.operations import Iteration, byte_size, iteration, loop_work
from wspec.passes.packed_dequantization.choice import with_packed
from wspec.plan.fitted import CORE_RATE, HELPER_SMEM, TILE_TRIPS
from wspec.plan.plan import Channel, Plan, Prediction
from wspec.plan.stores import HALVES, OWN
from wspec.planner.cuts import OPERANDS, STORE, Cut


def predict_chain(plan: Plan, cut: Cut, consumer: Operation, helper: Operation, machine: Machine) -> Prediction:
    """One iteration of the heaviest loop, divided as in the plan."""
    heaviest = _heaviest(plan, consumer, machine)
    number = id_of(heaviest)
    flying = any(schedule.in_flight for schedule in plan.loops if schedule.loop == number)
    here = [channel for channel in plan.values if _inside(consumer, helper, channel, number)]
    multiply, inner = loop_work(heaviest, machine), _loop_of(helper, number)
    other = with_packed(_work(inner, machine), inner, machine)
    moved = sum(channel.buffer_bytes for channel in here)
    read = sum(channel.buffer_bytes for channel in plan.channels if _read_by_helper(plan, channel))
    handshake = machine.busy_mbarrier_latency
    waited = 0.0 if flying else machine.mma_latency + handshake
    bounds = {
        "tensor core": multiply.mma + other.mma,
        "exponential and arithmetic": multiply.compute + other.compute,
        "memory": multiply.tma + other.tma,
        "memory latency": memory_wait(plan, _dots(heaviest), machine),
        "shared memory": (moved + read + operand_bytes(heaviest)) / machine.smem_rate,
        "multiplying": multiply.mma + multiply.compute / CORE_RATE + waited,
    }
    if cut.kind == STORE:
        bounds["multiplying"] += handshake / TILE_TRIPS
    else:
        busy = other.mma + other.compute / CORE_RATE
        waited = (moved + read) / HELPER_SMEM + operand_bytes(heaviest) / machine.smem_rate
        bounds[plan.helpers[0].name] = busy + waited + (handshake if here else 0.0)
    bound = max(bounds, key=lambda name: bounds[name])
    return Prediction(round(bounds[bound], 1), 0.0, machine.setup_latency, bound)


def unchained_cycles(single: Plan, chained: Plan, cut: Cut, loops: list[Operation], machine: Machine) -> float:
    """The same iteration without the chain."""
    cycles = single.prediction.iteration_cycles
    numbers = {schedule.loop for schedule in single.loops}
    inside = [loop for loop in loops if id_of(loop) in numbers]
    if cut.kind == STORE:
        waited = max(cycles, memory_wait(single, max(map(_dots, inside), default=1), machine))
        if cut.behind <= {store for store, _, kind in single.staging if kind in (OWN, HALVES)}:
            return waited  # the stores run on during the next tile
        stored = sum(channel.buffer_bytes for channel in chained.values)
        exposed = stored / machine.tma_rate + machine.tma_latency
        return waited + exposed / TILE_TRIPS
    if cut.kind == OPERANDS:
        heaviest = max(inside, key=lambda loop: loop_work(loop, machine).mma)
        cuts = (op for op in heaviest.walk() if id_of(op) in cut.before)
        shared = any(channel.sliced for channel in chained.values)
        again = 0.0 if shared else (single.consumer.replicas - 1) * iteration(cuts, machine).compute / CORE_RATE
        return max(cycles + again / single.blocks_per_sm, memory_wait(single, _dots(heaviest), machine))
    return cycles


def memory_wait(plan: Plan, dots: int, machine: Machine) -> float:
    """What an iteration takes at least for its tiles to arrive in time.

    A buffer makes a round: it is handed back, loaded, and handed over. It is handed back when the dot behind the one
    that reads it has been issued: of `dots` in an iteration, a part of an iteration later.
    """
    rings = [channel for channel in plan.channels if not channel.stays and not channel.source]
    if not rings or plan.blocks_per_sm > 1:
        return 0.0
    brought = sum(ring.buffer_bytes for ring in rings) / machine.tma_rate
    trip = machine.tma_dram_latency + brought + 2 * machine.busy_mbarrier_latency
    return trip / max(1.0, min(ring.depth for ring in rings) - 1 / dots)


def _dots(loop: Operation) -> int:
    return max(1, sum(op.name in DOTS for op in loop.walk()))


def _heaviest(plan: Plan, function: Operation, machine: Machine) -> Operation:
    numbers = {schedule.loop for schedule in plan.loops}
    loops = [op for op in function.walk() if op.name == "scf.for" and id_of(op) in numbers]
    return max(loops, key=lambda loop: loop_work(loop, machine).mma)


def _loop_of(function: Operation, number: int) -> Operation | None:
    return next((op for op in function.walk() if op.name == "scf.for" and id_of(op) == number), None)


def _work(loop: Operation | None, machine: Machine) -> Iteration:
    return loop_work(loop, machine) if loop is not None else Iteration(0.0, 0.0, 0.0, 0.0)


def _read_by_helper(plan: Plan, channel: Channel) -> bool:
    """Does the helper read tiles from memory through the channel, again and again?"""
    return not channel.source and not channel.stays and any(task in plan.helpers for task in plan.readers(channel))


def _inside(consumer: Operation, helper: Operation, channel: Channel, loop: int) -> bool:
    """Is the channel filled in the loop?"""
    for function in (consumer, helper):
        for op in function.walk():
            if op.name == "wspec.buffer" and id_of(op) == channel.loads[0]:
                return any(id_of(outer) == loop for outer in op.ancestors())
    return False


def operand_bytes(loop: Operation) -> float:
    """Bytes the tensor core reads from shared memory: its right operand again for every 64 rows."""
    total = 0.0
    for dot in (op for op in loop.walk() if op.name in DOTS):
        rows = shape_of(dot.result.type)[0]
        left, right = dot.operands[0].type, dot.operands[1].type
        if isinstance(right, MemDescType | TensorType):
            total += byte_size(right) * max(1, rows // 64)
        if isinstance(left, MemDescType):
            total += byte_size(left)
    return total
