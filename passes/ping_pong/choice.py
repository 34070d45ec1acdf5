"""Whether consumer warp groups issue their products one after the other."""

from __future__ import annotations

from dataclasses import replace

from wspec.decision import NOT_ASKED, Decision
from wspec.ir.core import Operation
from wspec.model.machine import Machine
from wspec.model.operations import loop_work
from wspec.options import Options
from wspec.plan.plan import LoopSchedule


def choose_ping_pong(
    loops: list[Operation], schedules: tuple[LoopSchedule, ...], replicas: int, machine: Machine, options: Options
) -> tuple[tuple[LoopSchedule, ...], Decision[bool]]:
    """Let consumer groups issue the dots of pipelined loops one after the other, where the tensor core is the bound.

    Where the CUDA cores are, a group that waits for its turn keeps them idle; but of three groups two compute then, and
    turns keep groups that share a stream of tiles in step (docs/results: 3 to 5 % at D=64).
    """
    if replicas < 2:
        return schedules, Decision(None, "one group of warps has nobody to alternate with")
    if not any(schedule.stage1 for schedule in schedules):
        return schedules, Decision(None, "no loop's products run beside what feeds them")
    if options.ping_pong is False:
        return schedules, NOT_ASKED
    work = [loop_work(loop, machine) for loop in loops]
    made = tuple(
        replace(
            one,
            ping_pong=bool(one.stage1) and (bool(options.ping_pong) or replicas > 2 or cycles.mma >= cycles.compute),
        )
        for one, cycles in zip(schedules, work, strict=True)
    )
    if any(one.ping_pong for one in made):
        return made, Decision(True)
    return made, Decision(None, "arithmetic bounds the loops, and a group that waits would keep it idle")
