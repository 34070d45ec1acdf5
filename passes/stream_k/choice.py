"""Which kernels can have a tile's loop divided between two blocks, the second taking up the sums of the first.

Where tiles are few times as many as blocks, some blocks do one more than others, which wait. Divided tiles give all
blocks the same work (stream-K, as the literature calls it). The sums of the first part go through global memory to the
block that does the rest: what is added, and in which order, stays as it was, to the bit.
"""

from __future__ import annotations

from wspec.ir.core import Operation
from wspec.ir.ops import info, is_pure
from wspec.ir.shapes import DOTS, shape_of
from wspec.ir.types import I32
from wspec.ir.wgmma import is_sum
from wspec.plan.graph import LOADS
from wspec.plan.partition import hot_loops
from wspec.plan.pointer_loads import is_copied

RESUME, HAND_ON = "wspec.resume", "wspec.fix_up"
"""Attributes of the places where sums are taken up, and handed on: their number in the loop."""


def hindrance(function: Operation) -> tuple[str, Operation] | None:
    """What keeps tiles of a kernel, before it has a loop over them, from being divided: (why, where), or None."""
    loops = hot_loops(function)
    if len(loops) != 1:
        return f"it has {len(loops)} loops that multiply", function
    (loop,) = loops
    body = function.regions[0].block
    if loop.parent is not body:
        return "its loop stands in another one, or in a branch", loop
    if loop.is_set("unsignedCmp"):
        return "its loop counts without a sign", loop
    if loop.operands[0].type != I32:
        return "its loop does not count in 32 bits", loop
    if not loop.results or not all(is_sum(value.type) and len(shape_of(value.type)) == 2 for value in loop.results):
        return "its loop carries more than sums of products", loop
    if any(op.name in DOTS and not op.is_inside(loop) for op in function.walk()):
        return "it multiplies outside of its loop", function
    if (copied := next((op for op in loop.walk() if is_copied(op)), None)) is not None:
        return "threads copy a tile through pointers, whose alignment the start of a part does not show", copied
    behind = body.behind(loop)[:-1]
    for op in function.walk():
        if op.name == "tt.descriptor_store" and op in behind:
            continue
        if op.regions and op not in (function, loop):
            return "it has more control flow than its loop", op
        if not _only_computes(op):
            return f"{op.name} would happen once for each part of a tile", op
    if not any(op.name == "tt.descriptor_store" for op in behind):
        return "nothing is stored behind its loop", loop
    return None


def _only_computes(op: Operation) -> bool:
    row = info(op.name)
    structure = bool(op.regions) or op.name in ("tt.return", "scf.yield", "llvm.intr.assume")  # as true a second time
    within = row is not None and row.pure_flag is None and not row.writes & {"global", "other"}
    return structure or op.name in LOADS or is_pure(op) or within


def sums_of_a_tile(loop: Operation) -> int:
    """How many sums go from block to block."""
    sizes = [shape_of(value.type) for value in loop.results]
    return sum(rows * columns for rows, columns in sizes)
