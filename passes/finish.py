"""finish: leave a module that is all Triton's again.

Takes off the marks of the planner (`wspec.*` attributes), states how many warps the default task has and how many
registers each task asks for. Runs after every other pass.
"""

from __future__ import annotations

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation
from wspec.ir.stages import NUM_STAGES, WHOLE_VIEWS
from wspec.ir.types import I32, DenseArrayAttr, i32
from wspec.plan.plan import Plan
from wspec.target.hopper import SM_REGISTERS, START_REGISTERS


def finish(module: Operation, plan: Plan) -> Operation:
    """Strip marks, set warps and registers."""
    op = ws.need(module)
    for inner in module.walk():
        for name in [n for n in inner.attributes if n.startswith("wspec.")]:
            del inner.attributes[name]
    for name in (NUM_STAGES, WHOLE_VIEWS):
        module.attributes.pop(f'"{name}"', None)
    requested = tuple(task.registers for task, _ in plan.regions()[1:])
    op.properties["requestedRegisters"] = DenseArrayAttr(I32, requested)
    module.attributes['"ttg.num-warps"'] = i32(plan.consumer.warps)
    # setmaxnreg needs a limit at launch; Triton's own is for one block an SM and may be more than a thread can have.
    if plan.blocks_per_sm > 1 or start_registers(plan) == START_REGISTERS:
        module.attributes["ttg.maxnreg"] = i32(start_registers(plan))
    return module


def start_registers(plan: Plan) -> int:
    """Registers a thread at launch so that `blocks_per_sm` blocks fit; what the tasks ask for is moved between them."""
    return min(START_REGISTERS, SM_REGISTERS // (32 * plan.total_warps * plan.blocks_per_sm) // 8 * 8)
