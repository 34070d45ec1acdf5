"""What an iteration costs with and without a chain: the busiest unit, the slowest task, or the wait for memory.

Units are shared by all tasks: tensor core, CUDA cores, TMA, shared memory. A task's own time is what its warps do one
after the other: arithmetic, the way through shared memory, a handshake for each channel it takes part in. Work that
replicas do each for themselves, because they do not share it, counts for each; a chain does it once. The constants were
fitted to products with int8 and int4 weights and to persistent products on an H200 (docs/chains.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wspec.ir.core import Operation
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS, shape_of
from wspec.ir.types import MemDescType, TensorType
from wspec.model import estimate
from wspec.model.fitted import CORE_RATE, HELPER_SMEM, TILE_TRIPS
from wspec.model.machine import Machine
from wspec.model.operations import Iteration, byte_size, heaviest, loop_work
from wspec.passes.packed_dequantization.choice import with_packed
from wspec.plan.plan import Channel, Plan, Prediction, Task
from wspec.plan.stores import OWN, SUBTILES
from wspec.planner.cuts import Cut
from wspec.planner.gate import own_loads_cycles


def predict_chain(plan: Plan, functions: Mapping[str, Operation], machine: Machine) -> Prediction:
    """One iteration of the heaviest loop, divided as in the plan; `functions` are the kernel as each task has it."""
    hot = heaviest(scheduled(functions[plan.consumer.name], plan), machine)
    number = id_of(hot)
    flying = any(schedule.in_flight for schedule in plan.loops if schedule.loop == number)
    here = [channel for channel in plan.values if _inside(functions.values(), channel, number)]
    multiply = loop_work(hot, machine)
    sending = [helper for helper in plan.helpers if not plan.does_effects(helper)]
    loops = {helper.name: _loop_of(functions[helper.name], number) for helper in plan.helpers}
    others = {name: with_packed(_work(loop, machine), loop, machine) for name, loop in loops.items()}
    moved = {task.name: sum(c.buffer_bytes for c in here if _takes_part(plan, c, task)) for task in plan.helpers}
    read = {
        task.name: sum(c.buffer_bytes for c in plan.channels if _reads_tiles(plan, c, task)) for task in plan.helpers
    }
    handshake = machine.busy_mbarrier_latency
    waited = 0.0 if flying else machine.mma_latency + handshake
    crossing = sum(channel.buffer_bytes for channel in here) + sum(read.values()) + operand_bytes(hot)
    bounds = {
        "tensor core": multiply.mma + sum(other.mma for other in others.values()),
        "exponential and arithmetic": multiply.compute + sum(other.compute for other in others.values()),
        "memory": multiply.tma + sum(other.tma for other in others.values()),
        "memory latency": memory_wait(plan, _dots(hot), multiply.mma, machine),
        "shared memory": crossing / machine.smem_rate,
        "multiplying": multiply.mma + multiply.compute / CORE_RATE + waited,
    }
    streamed = {load for channel in plan.channels if not channel.is_computed for load in channel.loads}
    bounds["multiplying"] += own_loads_cycles(hot, streamed, machine)
    if len(sending) < len(plan.helpers):
        bounds["multiplying"] += handshake / TILE_TRIPS
    for helper in sending:
        other = others[helper.name]
        busy = other.mma + other.compute / CORE_RATE
        through = (moved[helper.name] + read[helper.name]) / HELPER_SMEM + operand_bytes(hot) / machine.smem_rate
        alone = loops[helper.name]
        itself = 0.0 if alone is None else own_loads_cycles(alone, streamed, machine)
        bounds[helper.name] = busy + through + itself + (handshake if here else 0.0)
    bound = max(bounds, key=lambda name: bounds[name])
    return Prediction(round(bounds[bound], 1), 0.0, machine.setup_latency, bound)


def unchained_cycles(single: Plan, chained: Plan, cut: Cut, loops: list[Operation], machine: Machine) -> float:
    """The same iteration without the chain."""
    cycles = single.prediction.iteration_cycles
    numbers = {schedule.loop for schedule in single.loops}
    inside = [loop for loop in loops if id_of(loop) in numbers]
    if cut.stores:
        longest = max(inside, key=_dots, default=None)
        dots, mma = (1, 0.0) if longest is None else (_dots(longest), loop_work(longest, machine).mma)
        waited = max(cycles, memory_wait(single, dots, mma, machine))
        if cut.behind <= {store for store, _, kind in single.staging if kind in (OWN, SUBTILES)}:
            return waited  # the stores run on during the next tile
        stored = sum(channel.buffer_bytes for channel in chained.values if _of(cut, channel))
        exposed = stored / machine.tma_rate + machine.tma_latency
        return waited + exposed / TILE_TRIPS
    if cut.converts:
        loop = heaviest(inside, machine)
        return max(cycles, memory_wait(single, _dots(loop), loop_work(loop, machine).mma, machine))
    return cycles


def _of(cut: Cut, channel: Channel) -> bool:
    """Does the channel carry a value of the cut?"""
    return channel.loads[0] in [id_of(value.op) for value in cut.values if value.op is not None]


def memory_wait(plan: Plan, dots: int, mma: float, machine: Machine) -> float:
    """What an iteration takes at least for its tiles to arrive in time.

    A buffer makes a round: it is handed back, loaded, handed over, and read by one of the `dots` of an iteration, which
    take `mma` cycles together. It is handed back when the dot behind the one that reads it has been issued: a part of
    an iteration later.
    """
    rings = [channel for channel in plan.channels if not channel.stays and not channel.is_computed]
    if not rings or plan.blocks_per_sm > 1:
        return 0.0
    size = sum(ring.buffer_bytes for ring in rings)
    trip = estimate.round_trip(size, 2 * machine.busy_mbarrier_latency, mma / dots, machine)
    return trip / max(1.0, min(ring.depth for ring in rings) - 1 / dots)


def _dots(loop: Operation) -> int:
    return max(1, sum(op.name in DOTS for op in loop.walk()))


def scheduled(function: Operation, plan: Plan) -> list[Operation]:
    """The loops of the plan, in a task's copy of the kernel."""
    numbers = {schedule.loop for schedule in plan.loops}
    return [op for op in function.walk() if op.name == "scf.for" and id_of(op) in numbers]


def _loop_of(function: Operation, number: int) -> Operation | None:
    return next((op for op in function.walk() if op.name == "scf.for" and id_of(op) == number), None)


def _work(loop: Operation | None, machine: Machine) -> Iteration:
    return loop_work(loop, machine) if loop is not None else Iteration(0.0, 0.0, 0.0, 0.0)


def _reads_tiles(plan: Plan, channel: Channel, task: Task) -> bool:
    """Does the task read tiles from memory through the channel, again and again?"""
    return not channel.is_computed and not channel.stays and task in plan.readers(channel)


def _takes_part(plan: Plan, channel: Channel, task: Task) -> bool:
    return channel.source == task.name or task in plan.readers(channel)


def _inside(functions: Iterable[Operation], channel: Channel, loop: int) -> bool:
    """Is the channel filled in the loop?"""
    for function in functions:
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
