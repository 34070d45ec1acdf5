"""Whether tiles go in raster order (tile_scheduler/raster.py): blocks beside each other share the larger operand.

It is asked of a kernel without a loop over tiles. No pass is made for it: the launch writes another table.
"""

from __future__ import annotations

from wspec.decision import Decision
from wspec.ir.core import Operation
from wspec.ir.numbering import id_of
from wspec.model.machine import Machine
from wspec.model.operations import byte_size, loop_work
from wspec.plan.exclusions import COARSENING, EXCLUDED, RASTER
from wspec.plan.fill import Fill, fill_of
from wspec.plan.partition import hot_loops
from wspec.tile_scheduler import Raster, TileLoop
from wspec.tile_scheduler.scalars import Slice, Unknown

LARGER = 1.5
"""Times the bytes of the other operand, from which on neighbours had better share this one: measured at twice and four
times, and nothing at equal ones (docs/results/products.md)."""


def choose_raster(function: Operation, tiles: TileLoop, machine: Machine, asked: bool | None) -> Decision[Raster]:
    """What neighbours are to share; `asked`: whichever is larger, or never, or where it pays."""
    if asked is False:
        return Decision(None, "raster=0 leaves tiles in the order of the grid")
    loops = hot_loops(function)
    if len(loops) != 1:
        return Decision(None, f"the kernel has {len(loops)} loops that multiply")
    if tiles.coarsening > 1:
        return Decision(None, EXCLUDED[frozenset((COARSENING, RASTER))])
    if not tiles.cost.uniform:
        return Decision(None, "tiles go by what they cost")
    loads = [op for op in loops[0].walk() if fill_of(op) is not None]
    if len(loads) != 2 or any(fill_of(op) is not Fill.TMA for op in loads):
        return Decision(None, "a step of its loop does not load one tile each of two tensors through descriptors")
    small, large = sorted(loads, key=lambda op: byte_size(op.result.type))
    less, more = byte_size(small.result.type), byte_size(large.result.type)
    work = loop_work(loops[0], machine)
    larger = bool(asked) or (more >= LARGER * less and work.tma > max(work.mma, work.compute))
    slice = Slice(function)
    shared, kept = (_place(op, slice) for op in (large, small))
    if shared is None or kept is None or shared == kept:
        return Decision(None, "the places of its tiles are not one coordinate each, known before the launch")
    scalars, moved = slice.kept((shared, kept))
    return Decision(Raster(moved[shared], moved[kept], scalars, id_of(loops[0]), more, less, machine.l2_bytes, larger))


def _place(load: Operation, slice: Slice) -> int | None:
    """The one coordinate of a tile that depends on the program; None where there is another number of them."""
    found = []
    for value in load.operands[1:]:
        try:
            at = slice.position(value)
        except Unknown:
            continue
        if any(scalar.name == "program_id" for scalar in slice.kept((at,))[0]):
            found.append(at)
    return found[0] if len(found) == 1 else None
