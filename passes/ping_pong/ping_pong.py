"""ping_pong: consumer warp groups issue their tensor core operations one after the other.

    for j:                                   for j:
      %s0 = warp_group_dot {isAsync}           bar.sync  mine             // my turn
      %o0 = warp_group_dot {isAsync}    =>     %s0 = warp_group_dot {isAsync}
      %s = warp_group_dot_wait %s0             %o0 = warp_group_dot {isAsync}
      softmax                                  bar.arrive next            // your turn
                                               %s = warp_group_dot_wait %s0
                                               softmax                    // while the next one multiplies

Left to themselves two groups drift into step: both want the tensor core, then both compute. With turns one multiplies
while the other computes. A turn is a named hardware barrier of two groups: one arrives and goes on, the other waits.
All groups make the same rounds, as they walk the same loops; the last group gives the first its first turn, and the
first takes the turn that is left at the end. Runs after async_dots, which decides where the waits are.
"""

from __future__ import annotations

from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation
from wspec.ir.numbering import id_of
from wspec.ir.shapes import DOTS
from wspec.plan.plan import Plan
from wspec.target.hopper import WARP_GROUP

FIRST = 8  # Triton uses the hardware barriers below this one for its own tasks
THREADS = 32 * WARP_GROUP


def ping_pong(module: Operation, plan: Plan) -> Operation:
    """Put the turns around the dots of the loops the plan names."""
    op = ws.need(module)
    chosen = {schedule.loop for schedule in plan.loops if schedule.ping_pong}
    groups = plan.consumer.replicas
    if not chosen or groups < 2:
        return module
    for replica, block in enumerate(ws.task_blocks(op)[:groups]):
        mine, following = FIRST + replica, FIRST + (replica + 1) % groups
        for loop in [inner for inner in block.walk() if inner.name == "scf.for"]:
            if id_of(loop) in chosen:
                _around_dots(loop.regions[0].block, mine, following)
        if replica == groups - 1:
            _barrier(Builder(block, 0, op.location), "arrive", following)
        if replica == 0:
            _barrier(Builder(block, len(block.ops) - 1, op.location), "sync", mine)
    return module


def _around_dots(body: Block, mine: int, following: int) -> None:
    dots = [op for op in body.ops if op.name in DOTS]
    first, last = dots[0], dots[-1]
    _barrier(Builder.before(first), "sync", mine)
    _barrier(Builder.behind(last), "arrive", following)


def _barrier(build: Builder, what: str, number: int) -> None:
    build.assembly(f"bar.{what} {number}, {2 * THREADS};", build.constant(0))
