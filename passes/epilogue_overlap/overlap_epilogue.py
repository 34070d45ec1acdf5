"""overlap_epilogue: finish a tile beside the first product of the next one.

    for tile t:                                 for tile t, carrying acc and place of tile t - 1:
      if there is a loop:                         if there is a loop:
        wait for K; issue Q K                       wait for K; issue Q K
        wait for Q K; softmax                       END(t - 1)
      loops                               =>        wait for Q K; softmax
      END(t): normalise acc, store                else: END(t - 1)
                                                  loops
                                                END(last)

At its end a tile leaves the tensor core idle, and at its start a warp group waits for a product with nothing to do. The
end takes what the loops leave and where the tile is, so these are carried to the next tile; what they are computed
with is computed again. The end stays straight-line code, because a dot in flight is waited for before a branch: in
front of the first tile it runs on zeros, and its stores do nothing. The mask of a store is false then, and a copy goes
to a place outside of the tensor, where TMA writes nothing.

Runs after pipeline_loops, which issues the first product of a tile ahead of its loop, and before async_dots, which puts
the wait for it behind what stands here. The plan says where this can be (passes/epilogue_overlap/choice.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.carry import carry
from wspec.ir.core import Block, Operation, Value
from wspec.ir.loc import Location
from wspec.ir.shapes import DOTS
from wspec.ir.types import I1, TensorType
from wspec.ir.wgmma import is_sum, wait_for
from wspec.passes.epilogue_overlap.choice import Epilogue, epilogue, first_to_multiply
from wspec.plan.plan import Plan
from wspec.plan.stores import TMA_STORE, store_only_if


def overlap_epilogue(module: Operation, plan: Plan) -> Operation:
    """Let every consumer finish a tile while the first product of the next one runs."""
    op = ws.need(module)
    if plan.epilogue_overlap:
        for block in ws.task_blocks(op)[: plan.consumer.replicas]:
            tile = first_to_multiply(block)
            assert tile is not None and tile.name == "scf.for"
            _defer(tile)
    return module


def _defer(tile: Operation) -> None:
    """`tile`: the loop over tiles."""
    body, outer = tile.regions[0].block, tile.parent
    first = first_to_multiply(body)
    assert outer is not None and first is not None and first.name == "scf.if"
    end = epilogue(body)
    before = carry(tile, end.taken)
    yes, no = (region.block for region in first.regions)
    lower, upper = tile.operands[:2]
    at, passed = _wait_for_sums(yes, before)
    _finish(yes, at, end, passed, (body.args[0], lower), tile.location)
    _finish(no, len(no.ops) - 1, end, before, (body.args[0], lower), tile.location)
    final = dict(zip(end.taken, tile.results[-len(before) :], strict=True)) if before else {}
    _finish(outer, outer.ops.index(tile) + 1, end, final, (upper, lower), tile.location)
    for op in end.effects:
        op.erase()
    _drop_unused(body, end.pure)


def _drop_unused(body: Block, ops: list[Operation]) -> None:
    """Take out those of `ops` whose results nobody in the body uses any more."""
    counts = Counter(value for op in body.walk() for value in op.operands)
    for op in reversed(ops):
        if not any(counts[value] for value in op.results):
            counts.subtract(value for inner in op.walk() for value in inner.operands)
            op.erase()


def _wait_for_sums(block: Block, values: dict[Value, Value]) -> tuple[int, dict[Value, Value]]:
    """Wait behind the dots of a block for all dots but these; where that is, and the values that have passed.

    The dots that made the sums of the tile before are done, but ptxas knows it only from a wait in the same place:
    without one it puts a wait for everything in front of their first reader (note C7517).
    """
    dots = [at for at, op in enumerate(block.ops) if op.name in DOTS]
    sums = [value for value in values if is_sum(value.type)]
    behind = dots[-1] + 1
    if not sums:
        return behind, values
    location = block.ops[dots[-1]].location
    wait = block.insert(behind, wait_for([values[value] for value in sums], len(dots), location))
    return behind + 1, {**values, **dict(zip(sums, wait.results, strict=True))}


def _finish(
    block: Block, at: int, end: Epilogue, values: dict[Value, Value], rounds: tuple[Value, Value], location: Location
) -> None:
    """The end of the tile before, at a place of a block; there is such a tile when the first of `rounds` is greater."""
    build = Builder(block, at, location)
    exists = build.compare("sgt", *rounds)
    values = dict(values)
    for op in end.ops:
        build.location = op.location
        made = op.clone(values)
        if op.name == "tt.store":
            _mask(build, made, exists)
        elif op.name == TMA_STORE:
            store_only_if(build, made, slice(1, -1), exists)
        build.add(made)


def _mask(build: Builder, store: Operation, exists: Value) -> None:
    """Let a store do nothing unless `exists`."""
    pointers, old = store.operands[0].type, store.operands[2:]
    mask = exists
    if isinstance(pointers, TensorType):
        mask = build.create("tt.splat", [exists], [replace(pointers, element=I1)]).result
    store.operands[2:] = [build.binary("arith.andi", old[0], mask) if old else mask]
