"""How many registers a thread of a consumer needs, and how many thread blocks that lets share an SM.

What is alive at once in a loop that multiplies: the tiles carried round it, the result of the dot in flight, the
operand of the next dot in registers, and, when the loop is pipelined, a second copy of what crosses from one iteration
to the next. The rest (addresses, row statistics, barriers) is a constant and a share of the tiles. Both were
set by hand, so that the attention tiles and schedules that ran best are the ones that fit; none of those spills.
"""

from __future__ import annotations

import math

from wspec.diagnostics import Declined, Remark
from wspec.ir.core import Operation, Value
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS
from wspec.ir.types import Layout, PointerType, TensorType
from wspec.model.fitted import FIXED_REGISTERS, PACKING
from wspec.model.machine import Machine
from wspec.model.operations import byte_size
from wspec.plan.plan import LoopSchedule, Plan
from wspec.target.hopper import CONSUMER_REGISTERS, START_REGISTERS, WARP_GROUP, WGMMA_OVERHEAD_REGISTERS


def _tile_registers(value: Value, threads: int) -> float:
    if not isinstance(value.type, TensorType) or len(value.type.shape) < 2:
        return 2.0 if isinstance(value.type, TensorType) else 0.0
    return byte_size(value.type) / 4 / threads / _side_by_side(value.type)


def _side_by_side(type: TensorType) -> int:
    """Of a tile of pointers a thread keeps one for each run of neighbours: those of the others follow from it."""
    layout = type.encoding
    is_pointers = isinstance(type.element, PointerType) and isinstance(layout, Layout)
    return math.prod(layout.ints("sizePerThread")) if is_pointers and isinstance(layout, Layout) else 1


def consumer_need(loops: list[Operation], schedules: tuple[LoopSchedule, ...], threads: int) -> int:
    """Registers a thread of the consumers needs, `threads` of them sharing the tile."""
    late = {schedule.loop: frozenset(schedule.stage1) for schedule in schedules}
    need = max(_loop_need(loop, late.get(id_of(loop), frozenset()), threads) for loop in loops)
    return int(FIXED_REGISTERS + PACKING * need)


def _loop_need(loop: Operation, late: frozenset[int], threads: int) -> float:
    body = loop.regions[0].block
    carried = sum(_tile_registers(arg, threads) for arg in body.args[1:] if _is_matrix(arg))
    dots = [op for op in body.ops if op.name in DOTS]
    fresh = [dot for dot in dots if not _accumulates(dot)]
    results = max((_tile_registers(dot.result, threads) for dot in fresh), default=0.0)
    held = {dot: _tile_registers(dot.operands[0], threads) for dot in dots if id_of(dot) not in late}
    adding = sum(size for dot, size in held.items() if dot not in fresh)  # ptxas computes them side by side
    operands = max([adding, *(size for dot, size in held.items() if dot in fresh)])
    again = sum(_tile_registers(value, threads) for value in _crossing(loop, late) if _is_matrix(value))
    return carried + results + operands + again


def _is_matrix(value: Value) -> bool:
    return isinstance(value.type, TensorType) and len(value.type.shape) >= 2


def _accumulates(dot: Operation) -> bool:
    """Does the dot add to a value carried round its loop, perhaps scaled or added to by another dot first?"""
    block = dot.parent
    work = [dot.operands[2]]
    for _ in range(64):
        if not work:
            return False
        value = work.pop()
        if block is not None and value.owner is block:
            return True
        if value.op is not None and value.op.parent is block:
            added = value.op.operands[2:3] if value.op.name in DOTS else value.op.operands
            work += [v for v in added if v.type == dot.result.type]
    return False


def _crossing(loop: Operation, late: frozenset[int]) -> list[Value]:
    body = loop.regions[0].block
    found: dict[Value, None] = {}
    for op in body.ops:
        if id_of(op) in late:
            for value in op.operands:
                if value.op is not None and value.op.parent is body and id_of(value.op) not in late:
                    found[value] = None
    return list(found)


def launch_registers(machine: Machine, blocks: int, consumer_warps: int) -> int:
    """Registers a thread has at launch, before setmaxnreg moves any: the same for every warp."""
    return min(START_REGISTERS, machine.registers // (32 * (consumer_warps + 4) * blocks) // 8 * 8)


def instruction_need(function: Operation) -> int:
    """Registers the widest tensor core instruction must find at launch: ptxas assembles it within that number (C7602).

    It may stand beside the loops. An instruction of N columns holds N / 2 accumulators a thread; ptxas 12.8 asks for 26
    more.
    """
    widest = 0
    for dot in (op for op in function.walk() if op.name in DOTS):
        layout = dot.result.type.encoding if isinstance(dot.result.type, TensorType) else None
        shape = layout.ints("instrShape") if isinstance(layout, Layout) else ()
        widest = max(widest, shape[1] if len(shape) > 1 else 0)
    return widest // 2 + WGMMA_OVERHEAD_REGISTERS


def available(machine: Machine, blocks: int, consumer_warps: int, producer_registers: int) -> int:
    """Registers a thread of the consumers can have when `blocks` blocks share the SM.

    Every warp starts with the same share; the producer's warp group keeps `producer_registers`, the consumers get the
    rest, in steps of 8 as setmaxnreg takes them.
    """
    start = launch_registers(machine, blocks, consumer_warps)
    spare = (start - producer_registers) * 4
    return min(CONSUMER_REGISTERS, (start + spare // consumer_warps) // 8 * 8)


def check_registers(plan: Plan, function: Operation, loops: list[Operation], machine: Machine) -> None:
    """The tasks must find what they ask for, or they would wait for it forever. Raises Declined."""
    groups = [task for task in plan.tasks if task.warps * task.replicas >= WARP_GROUP and task.kind != "producer"]
    warps = sum(task.warps * task.replicas for task in groups)
    start = launch_registers(machine, plan.blocks_per_sm, warps)
    rest = max(task.registers for task in plan.tasks if task not in groups)  # they share a warp group
    asked = sum(task.registers * task.warps * task.replicas for task in groups) + rest * WARP_GROUP
    if asked > start * (warps + WARP_GROUP):
        why = f"the tasks ask for more than the {start} registers a thread there are"
        raise Declined(Remark("registers", why, function.location, note="ask for fewer registers or fewer blocks"))
    if start < (least := instruction_need(function)):
        why = f"a dot needs {least} registers a thread when the kernel starts, the plan leaves {start}"
        raise Declined(Remark("registers", why, loops[0].location, note="use smaller tiles or fewer blocks"))
