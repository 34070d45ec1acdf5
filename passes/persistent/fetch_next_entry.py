"""fetch_next_entry: let the producer ask for the next tile's entry before it loads this one's operands.

    for %i: (%entry, %x, %y)               for %i: (%entry, %x, %y)
      for %k: copy A[%x, %k], B[%k, %y]      %next = %entry + 8; %nx, %ny = load %next
      %next = %entry + 8                =>   for %k: copy A[%x, %k], B[%k, %y]
      %nx, %ny = load %next                  yield %next, %nx, %ny
      yield %next, %nx, %ny

`persist` puts the load behind the last loop, where a consumer has registers free and its epilogue to hide the latency.
A producer has nothing to do there but wait: L2 that sends tiles to all SMs takes longer to answer than the ring keeps
the consumers busy, at every tile (docs/results/products.md). Registers it has enough. Runs when nothing moves any more.
"""

from __future__ import annotations

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation
from wspec.ir.ops import is_pure
from wspec.plan.plan import Plan
from wspec.plan.tile_table import POINTER


def fetch_next_entry(module: Operation, plan: Plan) -> Operation:
    """Move the loads of the next tile's entry to the beginning of the producer's loop over tiles."""
    op = ws.need(module)
    if plan.tile_loop is not None:
        for loop in ws.task_blocks(op)[-1].ops:
            if loop.name == "scf.for":
                _ask_first(loop.regions[0].block)
    return module


def _ask_first(body: Block) -> None:
    """The loads of entries that stand in a loop's body and what they are of, in front of all else."""
    moved: list[Operation] = []
    for op in body.ops:
        if op.name == "tt.load" and op.operands[0].type == POINTER:
            needed = _computed(op, body)
            if all(is_pure(one) for one in needed[:-1]):
                moved += [one for one in needed if one not in moved]
    body.ops[:] = [*moved, *(op for op in body.ops if op not in moved)]


def _computed(op: Operation, body: Block) -> list[Operation]:
    """The operation, behind those of the body that it needs."""
    found: list[Operation] = []
    for value in op.operands:
        owner = value.owner
        if isinstance(owner, Operation) and owner.parent is body:
            found += [one for one in _computed(owner, body) if one not in found]
    return [*found, op]
