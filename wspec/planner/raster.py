"""Whether tiles go in raster order (tile_scheduler/raster.py): blocks beside each other share the larger operand.

It is asked of a kernel without a loop over tiles. No pass is made for it: the launch writes another table, and the plan
has the channel of that operand last.
"""

from __future__ import annotations

from dataclasses import replace

from wspec.decision import Decision
from wspec.ir.core import Operation
from wspec.ir.numbering import id_of
from wspec.model.machine import Machine
from wspec.model.operations import byte_size, loop_work
from wspec.plan.exclusions import COARSENING, EXCLUDED, RASTER
from wspec.plan.fill import Fill, fill_of
from wspec.plan.partition import hot_loops
from wspec.plan.plan import Plan
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
    small, large = _by_size(loads)
    less, more = byte_size(small.result.type), byte_size(large.result.type)
    work = loop_work(loops[0], machine)
    larger = bool(asked) or (more >= LARGER * less and work.tma > max(work.mma, work.compute))
    slice = Slice(function)
    shared, kept = (_place(op, slice) for op in (large, small))
    if shared is None or kept is None or shared == kept:
        return Decision(None, "the places of its tiles are not one coordinate each, known before the launch")
    scalars, moved = slice.kept((shared, kept))
    return Decision(Raster(moved[shared], moved[kept], scalars, id_of(loops[0]), more, less, machine.l2_bytes, larger))


def shared_last(function: Operation, looped: Operation, plan: Plan) -> Plan:
    """The plan in whose channels the tile that neighbours share comes last, and is so issued last in each step.

    L2 merges what neighbours ask for at the same moment. Behind a tile of its own a block asks for the shared one when
    L2 has got so far, and so more nearly when its neighbours do (docs/results/products.md). `looped`: the function with
    the loop over tiles, whose loads are the function's in the same order.
    """
    raster = plan.raster.value
    if raster is None or not raster.larger:
        return plan
    (loop,) = hot_loops(function)
    _, large = _by_size(_boxes(loop))
    same = dict(zip(_boxes(function), _boxes(looped), strict=True))
    shared = plan.channel_of(id_of(same[large]))
    return replace(plan, channels=tuple(sorted(plan.channels, key=lambda one: one is shared)))


def _boxes(where: Operation) -> list[Operation]:
    return [op for op in where.walk() if fill_of(op) is Fill.TMA]


def _by_size(loads: list[Operation]) -> list[Operation]:
    return sorted(loads, key=lambda op: byte_size(op.result.type))


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
