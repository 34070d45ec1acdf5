"""What an iteration costs with and without a chain: the busiest unit, or the busiest task.

Units are shared by all tasks: tensor core, CUDA cores, TMA, shared memory. A task's own time is what its warps do one
after the other: arithmetic, the way through shared memory, a handshake for each channel it takes part in. Work that
replicas do each for themselves, because they do not share it, counts for each; a chain does it once.
"""

from __future__ import annotations

from wspec.ir.core import Operation
from wspec.ir.types import MemDescType, TensorType
from wspec.plan.costs import Iteration, byte_size, iteration, loop_work
from wspec.plan.cuts import OPERANDS, STORE, Cut
from wspec.plan.machine import Machine
from wspec.plan.plan import WARP_GROUP, Channel, Plan, Prediction, Task, id_of
from wspec.plan.tile import DOTS, shape_of

ISSUE = 0.6  # of the CUDA cores' rate that one warp group alone reaches; start
STORE_TRIPS = 32  # iterations a tile is multiplied for, where the kernel does not say; start


def _loop_of(function: Operation, number: int) -> Operation | None:
    return next((op for op in function.walk() if op.name == "scf.for" and id_of(op) == number), None)


def _work(loop: Operation | None, machine: Machine) -> Iteration:
    return loop_work(loop, machine) if loop is not None else Iteration(0.0, 0.0, 0.0, 0.0)


def predict_chain(plan: Plan, cut: Cut, consumer: Operation, helper: Operation, machine: Machine) -> Prediction:
    """One iteration of the heaviest loop, divided as in the plan."""
    numbers = {schedule.loop for schedule in plan.loops}
    loops = [op for op in consumer.walk() if op.name == "scf.for" and id_of(op) in numbers]
    heaviest = max(loops, key=lambda loop: loop_work(loop, machine).mma)
    number = id_of(heaviest)
    flying = any(schedule.in_flight for schedule in plan.loops if schedule.loop == number)
    here = [channel for channel in plan.values if _inside(consumer, helper, channel, number)]
    multiply, other = _work(heaviest, machine), _work(_loop_of(helper, number), machine)
    moved = sum(channel.buffer_bytes for channel in here)
    read = sum(c.buffer_bytes for c in plan.channels if not c.source and any(t in plan.helpers for t in plan.readers(c)))
    handshake = machine.mbarrier_latency
    tasks = {
        "multiplying": multiply.mma + multiply.compute + (0.0 if flying else machine.mma_latency + handshake),
        plan.helpers[0].name: _alone(other, plan.helpers[0])
        + other.mma
        + (moved + read) / machine.smem_rate
        + (handshake if here else 0.0),
    }
    if cut.kind == STORE:
        tasks = {"multiplying": max(tasks["multiplying"], multiply.tma) + handshake / STORE_TRIPS}
    units = {
        "tensor core": multiply.mma + other.mma,
        "exponential and arithmetic": multiply.compute + other.compute,
        "memory": max(multiply.tma + other.tma, 0.0),
        "shared memory": (moved + read + operand_bytes(heaviest)) / machine.smem_rate,
    }
    bounds = {**units, **tasks}
    bound = max(bounds, key=lambda name: bounds[name])
    return Prediction(round(bounds[bound], 1), 0.0, machine.setup_latency, bound)


def _alone(work: Iteration, task: Task) -> float:
    groups = task.warps * task.replicas / WARP_GROUP
    return work.compute / min(1.0, ISSUE * groups)


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


def unchained_cycles(single: Plan, chained: Plan, cut: Cut, loops: list[Operation], machine: Machine) -> float:
    """The same iteration without the chain: the model's figure, and what the chain would save on top of it."""
    cycles = single.prediction.iteration_cycles
    if cut.kind == STORE:
        stored = sum(channel.buffer_bytes for channel in chained.values)
        return cycles + (stored / machine.tma_rate + machine.l2_latency + machine.tma_extra_latency) / STORE_TRIPS
    if cut.kind == OPERANDS and not any(channel.sliced for channel in chained.values):
        again = single.consumer.replicas - 1  # each group makes all of the operand for itself
        work = iteration((op for loop in loops for op in loop.walk() if id_of(op) in cut.before), machine)
        kept = sum(channel.buffer_bytes for channel in chained.values) * single.consumer.replicas
        return cycles + again * work.compute + kept / machine.smem_rate + machine.mbarrier_latency
    return cycles
