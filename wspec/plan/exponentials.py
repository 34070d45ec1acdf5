"""Which share of a loop's exponentials goes from the exponential unit to the FMA units.

An exponential takes one slot of a unit that has few of them, and one issue slot. The polynomial of
passes/exp2_on_fma.py takes INSTRUCTIONS slots of units that have many, and as many issue slots, which the rest of the
loop's arithmetic needs as well. So exponentials and arithmetic add up to the time of the CUDA cores here as they do in
costs.py, and moving some pays where the polynomial takes less of that time than the exponential unit: where the
machine's FMA rate is more than INSTRUCTIONS times its exp2 rate. On an H200 it is 8 times.

Which elements of a tile go where is the same for every thread: a whole number of every GROUP neighbours in its
registers.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from wspec.ir.core import Operation
from wspec.ir.types import ScalarType, TensorType
from wspec.model.machine import Machine
from wspec.model.operations import Iteration, elements, loop_work
from wspec.options import Options
from wspec.plan.plan import LoopSchedule

GROUP = 8  # elements of a thread, of which some go to the FMA units
LARGEST = Fraction(1, 2)  # share that is chosen
INSTRUCTIONS = 12  # for one element: 2 hold its range, 1 makes its scale, 9 add and multiply
ERROR_BITS = 22  # the relative error is at most 2^-22, about that of the exponential unit
THREADS = 32  # of a warp


def divisible(op: Operation, warps: int) -> bool:
    """Is it a 2^x in float32 of which each thread of `warps` warps holds whole groups?"""
    type = op.results[0].type if op.name == "math.exp2" else None
    if not isinstance(type, TensorType) or type.element != ScalarType("f32"):
        return False
    return elements(type) % (THREADS * warps * GROUP) == 0


def exponentials(loop: Operation, warps: int) -> list[Operation]:
    """The operations of a loop's body that can be divided between the units."""
    return [op for top in loop.regions[0].block.ops for op in top.walk() if divisible(op, warps)]


def is_share(share: float) -> bool:
    """Can that share be moved: a whole number of each GROUP, from none to all?"""
    return 0 <= share <= 1 and (share * GROUP).is_integer()


def with_share(work: Iteration, loop: Operation, share: float, warps: int, machine: Machine) -> Iteration:
    """An iteration's work when that share of its exponentials is moved. `warps`: of all consumers of a block."""
    moved = share * sum(elements(op.result.type) for op in exponentials(loop, warps))
    return replace(work, exp=work.exp - moved / machine.exp2, fma=work.fma + moved * INSTRUCTIONS / machine.fma)


def move_exponentials(
    loops: list[Operation], schedules: tuple[LoopSchedule, ...], warps: int, machine: Machine, options: Options
) -> tuple[LoopSchedule, ...]:
    """Set the share of each loop that has such exponentials.

    Loops get the same one, that of the loop that needs most: where two of them meet, one's operations must match the
    other's. `warps`: of all consumers of a block.
    """
    if options.exp2 == "auto":
        share = max((_best_share(loop, warps, machine) for loop in loops), default=Fraction(0))
    else:
        share = Fraction(0) if options.exp2 == "mufu" else Fraction(options.exp2)
    return tuple(
        replace(one, exp2_on_fma=float(share)) if exponentials(loop, warps) else one
        for loop, one in zip(loops, schedules, strict=True)
    )


def _best_share(loop: Operation, warps: int, machine: Machine) -> Fraction:
    """The smallest share with which the CUDA cores no longer bound the loop, none where moving one gains nothing."""
    work = loop_work(loop, machine)
    saved = work.compute - with_share(work, loop, 1.0, warps, machine).compute
    if saved <= 0 or work.compute <= max(work.mma, work.tma):
        return Fraction(0)
    enough = (work.compute - max(work.mma, work.tma)) / saved
    return min(LARGEST, Fraction(math.ceil(enough * GROUP), GROUP))
