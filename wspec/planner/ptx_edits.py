"""Which edits the PTX of a plan gets (wspec/bridge/ptx/edits.py), where the options do not say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wspec.ir.core import Operation
from wspec.ir.numbering import id_of
from wspec.model.fitted import HELD_SHARE
from wspec.model.machine import Machine
from wspec.model.operations import iteration, loop_work
from wspec.options import Options
from wspec.plan.plan import Plan


def with_ptx_edits(plan: Plan, loops: Sequence[Operation], machine: Machine, options: Options) -> Plan:
    """The plan with its edits. `loops`: those that multiply."""
    elide, hold = options.elide_barriers, options.hold_waits
    return replace(
        plan,
        elide_barriers=_elides(plan) if elide is None else elide,
        hold_waits=_holds(plan, loops, machine) if hold is None else hold,
        early_start=options.early_start,
    )


def _elides(plan: Plan) -> bool:
    """Barriers that order nothing go, but for a team, which they keep in step (docs/experiments.md: 1 to 1.5 %)."""
    return plan.coarsening == 1


def _holds(plan: Plan, loops: Sequence[Operation], machine: Machine) -> bool:
    """Waits are held where exponentials have enough to do until the late products are done.

    Where those take much longer the wait comes in any case, and the buffers are only handed back later; the groups of a
    team have each other's products to run beside. Measured: docs/experiments.md.
    """
    late = {one.loop: set(one.late) for one in plan.loops if one.late}
    loop = next((loop for loop in loops if id_of(loop) in late), None)
    if loop is None or plan.coarsening > 1:
        return False
    behind = iteration((op for op in loop.regions[0].block.ops if id_of(op) in late[id_of(loop)]), machine)
    return loop_work(loop, machine).exp >= HELD_SHARE * behind.mma > 0
