"""read_tables_early: let blocks that start before the kernel in front has ended read their table of tiles meanwhile.

    warp_specialize                       warp_specialize
      task: %n, %x, %y, %z = load table     task: %n, %x, %y, %z = load table
            for tiles: ...            =>          "from here on memory may be used"
                                                  for tiles: ...

A kernel that starts early waits for the kernels before it where it first touches what they may have written
(wspec/bridge/ptx/programmatic_launch.py). No kernel of the user's writes a table: the launcher has it made, and the
launch right behind that does not start early (wspec/bridge/persistent.py). So blocks that walk through tiles can be two
round trips to L2 further when the wait is over. The mark is a comment in an
instruction that does nothing; the wait itself is put there when the PTX is made. Runs last, before finish.
"""

from __future__ import annotations

from wspec.ir import warp_specialize as ws
from wspec.ir.assembly import MEMORY_FROM_HERE
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation
from wspec.ir.ops import is_pure
from wspec.plan.plan import Plan
from wspec.plan.tile_table import POINTER


def read_tables_early(module: Operation, plan: Plan) -> Operation:
    """Mark in every task of a kernel whose blocks walk through tiles where other kernels' memory is first used."""
    op = ws.need(module)
    if plan.tile_loop is not None and plan.programmatic_launch:
        for block in ws.task_blocks(op):
            _mark(block, op)
    return module


def _mark(block: Block, op: Operation) -> None:
    first = next((at for at, inner in enumerate(block.ops) if not _before_memory(inner)), len(block.ops) - 1)
    build = Builder(block, first, op.location)
    build.assembly(f"mov.b32 $0, 0; // {MEMORY_FROM_HERE}", build.constant(0))


def _before_memory(op: Operation) -> bool:
    """Does it touch no memory but the table?"""
    return (is_pure(op) and not op.regions) or (op.name == "tt.load" and op.operands[0].type == POINTER)
