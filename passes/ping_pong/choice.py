"""Whether consumer warp groups issue their products one after the other."""

from __future__ import annotations

from dataclasses import replace

from wspec.ir.core import Operation
from wspec.model.machine import Machine
from wspec.model.operations import loop_work
from wspec.options import Options
from wspec.plan.plan import LoopSchedule


def take_turns(
    loops: list[Operation], schedules: tuple[LoopSchedule, ...], replicas: int, machine: Machine, options: Options
) -> tuple[LoopSchedule, ...]:
    """Let consumer groups issue the dots of pipelined loops one after the other, where the tensor core is the bound.

    Where the CUDA cores are, a group that waits for its turn keeps them idle; but of three groups two compute then, and
    turns keep the members of a team in step on the tiles that they share (docs/experiments.md: 3 to 5 % at D=64).
    """
    if replicas < 2 or options.turns is False:
        return schedules
    work = [loop_work(loop, machine) for loop in loops]
    return tuple(
        replace(one, turns=bool(one.late) and (bool(options.turns) or replicas > 2 or cycles.mma >= cycles.compute))
        for one, cycles in zip(schedules, work, strict=True)
    )
