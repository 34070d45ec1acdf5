"""Registers of the tasks of a chain: each gets what it needs, the consumer what is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wspec.ir.core import Operation
from wspec.ir.shapes import DOTS
from wspec.ir.types import TensorType
from wspec.model.fitted import FIXED_REGISTERS, PACKING
from wspec.model.machine import Machine
from wspec.model.operations import bits, byte_size, elements
from wspec.options import Options
from wspec.plan.partition import decline, hot_loops
from wspec.plan.plan import Task
from wspec.plan.registers import consumer_need, instruction_need, launch_registers
from wspec.plan.relayout import STORE_BITS
from wspec.target.hopper import CONSUMER_REGISTERS, WARP_GROUP

LIVE_TILES = 2  # of a task without dots: what it computes with, and what it sends


def choose_registers(
    tasks: tuple[Task, ...],
    loops: list[Operation],
    functions: Mapping[str, Operation],
    blocks: int,
    machine: Machine,
    options: Options,
) -> tuple[Task, ...]:
    """The tasks (the one that multiplies, others, the one that loads) with their registers when `blocks` blocks share
    an SM; `functions` are the kernel as each has it. Raises Declined when they do not fit."""
    consumer, *helpers, producer = tasks
    groups = consumer.warps * consumer.replicas
    own = [helper for helper in helpers if helper.warps >= WARP_GROUP]  # others share the producer's warp group
    warps = groups + sum(helper.warps * helper.replicas for helper in own) + WARP_GROUP
    start = launch_registers(machine, blocks, warps - WARP_GROUP)
    needed = {helper.name: helper_need(functions[helper.name], helper) for helper in own}
    spare = start * warps - producer.registers * WARP_GROUP
    spare -= sum(needed[helper.name] * helper.warps * helper.replicas for helper in own)
    given = options.consumer_registers or min(CONSUMER_REGISTERS, spare // groups // 8 * 8)
    least, wanted = max(map(instruction_need, functions.values())), consumer_need(loops, (), 32 * groups)
    if start < least or given < wanted:
        raise decline(
            "registers",
            f"a chain of {warps} warps leaves {start} registers a thread at launch and {given} to the dots, which need "
            f"{least} and {wanted}",
            loops[0].location,
            "use smaller tiles, or chain=off",
        )
    others = [replace(helper, registers=needed.get(helper.name, producer.registers)) for helper in helpers]
    return replace(consumer, registers=given), *others, producer


def helper_need(function: Operation, helper: Task) -> int:
    """Registers a thread of the helper needs, in steps of 8."""
    threads = 32 * helper.warps * helper.replicas
    loops = hot_loops(function)
    if loops:
        own = max(byte_size(op.result.type) for loop in loops for op in loop.walk() if op.name in DOTS)
        return min(CONSUMER_REGISTERS, -(-(consumer_need(loops, (), threads) + own // 4 // threads) // 8) * 8)
    tiles = [op.result.type for op in function.walk() if len(op.results) == 1]
    largest = max((type for type in tiles if isinstance(type, TensorType)), key=byte_size, default=None)
    if largest is None:
        return min(CONSUMER_REGISTERS, -(-FIXED_REGISTERS // 8) * 8)
    tile = PACKING * LIVE_TILES * byte_size(largest) / 4 / threads
    need = FIXED_REGISTERS + tile + carried(function, largest, threads)
    return min(CONSUMER_REGISTERS, -(-int(need) // 8) * 8)


def carried(function: Operation, tile: TensorType, threads: int) -> int:
    """Registers of a thread for the numbers that each row of `tile` takes along from one iteration to the next, such as
    scales: every thread of a row has them all, one a register (relayout.py)."""
    lanes = min(32, tile.shape[-1] * bits(tile) // STORE_BITS) if len(tile.shape) == 2 else 1
    loops = [op for op in function.walk() if op.name == "scf.for"]
    rows = [result.type for loop in loops for result in loop.results]
    vectors = [type for type in rows if isinstance(type, TensorType) and len(type.shape) == 1]
    return sum(elements(type) * lanes // threads for type in vectors)
