"""Which edits the PTX of a plan gets (wspec/bridge/ptx/edits.py), where the options do not say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wspec.decision import NOT_ASKED, Decision
from wspec.ir.core import Operation
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS
from wspec.ir.types import TensorType
from wspec.model.fitted import HELD_SHARE, STARTS_BEHIND
from wspec.model.machine import Machine
from wspec.model.operations import iteration, loop_work
from wspec.options import Options
from wspec.plan.plan import Plan
from wspec.target.hopper import WGMMA_ROWS


def with_ptx_edits(plan: Plan, loops: Sequence[Operation], team: int, machine: Machine, options: Options) -> Plan:
    """The plan with its edits. `loops`: those that multiply; `team`: how many neighbours a block works on at a time."""
    elide, hold = options.elide_barriers, options.hold_waits
    return replace(
        plan,
        elide_barriers=elide is not False,
        hold_waits=(team == 1 and _holds(plan, loops, machine)) if hold is None else hold,
        programmatic_launch=_early(options.programmatic_launch, loops, machine),
    )


def _holds(plan: Plan, loops: Sequence[Operation], machine: Machine) -> bool:
    """Waits are held where exponentials have enough to do until the late products are done.

    Where those take much longer the wait comes in any case, and the buffers are only handed back later. Nor in a team,
    whose groups have each other's products to run beside. Measured: docs/results/attention.md.
    """
    late = {one.loop: set(one.stage1) for one in plan.loops if one.stage1}
    loop = next((loop for loop in loops if id_of(loop) in late), None)
    if loop is None:
        return False
    behind = iteration((op for op in loop.regions[0].block.ops if id_of(op) in late[id_of(loop)]), machine)
    return loop_work(loop, machine).exp >= HELD_SHARE * behind.mma > 0


def _early(asked: bool | None, loops: Sequence[Operation], machine: Machine) -> Decision[bool]:
    """Blocks start early unless products wait for tiles that many blocks want: L2 sends such a tile once where they ask
    for it together, and blocks that start early come to lie on the SMs in the order in which these are rid of the
    kernel before. Measured: docs/results/products.md.
    """
    if asked is not None:
        return Decision(True) if asked else NOT_ASKED
    for loop in filter(_shares_tiles, loops):
        work = loop_work(loop, machine)
        others = max(work.mma, work.compute)
        if work.tma > STARTS_BEHIND * others:
            why = (
                f"an iteration's tiles take {work.tma:.0f} cycles to arrive and its products {others:.0f}; L2 sends a "
                "tile to many SMs at once where blocks run in step, which those that start early do not"
            )
            return Decision(None, why)
    return Decision(True)


def _shares_tiles(loop: Operation) -> bool:
    """Has a product of it rows and columns enough for a warp group? With fewer on either side a launch is a few rows
    high, and its blocks share few tiles."""
    dots = (op.results[0].type for op in loop.walk() if op.name in DOTS)
    return any(isinstance(type, TensorType) and min(type.shape[-2:]) >= WGMMA_ROWS for type in dots)
