"""delay_last_subtile: store the second half of a tile beside the first products of the next one.

    for tile t:                              for tile t, carrying right and its place of tile t - 1:
      loop:                                    loop:
        wait for A, B; issue A B                 wait for A, B; issue A B
        wait for the products before             in the first round, behind another tile: END(right of t - 1)
                                        =>       wait for the products before
                                               if there was no round: END(right of t - 1)
      wait for the last products               wait for the last products
      END(left); END(right)                    END(left)
                                             END(right of the last tile), if there was a tile

where END waits until the copy before has read the buffer, stores the half there, and copies it out. At the end of a
tile, END(right) would wait for as long as half of a tile takes to be stored, with an idle tensor core; here products
run meanwhile, of this warp group and of the others.

The branch holds dots in flight, and may: it neither reads nor writes their sums (ptxas waits for them only then).
What it stores has been computed; only the values that END takes are carried. Runs behind fix_up, when loops carry all
they will; the plan says where this can be (passes/store_staging/subtiling.py).
"""

from __future__ import annotations

from collections.abc import Callable

from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.carry import carry
from wspec.ir.core import Block, Operation, Value
from wspec.ir.shapes import DOTS
from wspec.plan.plan import Plan
from wspec.plan.stores import SUBTILES, TMA_STORE

END = ("ttng.async_tma_store_wait", "ttg.local_store", "ttng.fence_async_shared", TMA_STORE)


def delay_last_subtile(module: Operation, plan: Plan) -> Operation:
    """Let every consumer store the second half of a tile while products of the next one run."""
    if not any(kind == SUBTILES for *_, kind in plan.staging):
        return module
    op = ws.need(module)
    for block in ws.task_blocks(op)[: plan.consumer.replicas]:
        tile = next(o for o in block.ops if o.name == "scf.for" and any(inner.name in DOTS for inner in o.walk()))
        _put_off(tile)
    return module


def _put_off(tile: Operation) -> None:
    """`tile`: the loop over tiles."""
    body, outside = tile.regions[0].block, tile.parent
    assert outside is not None
    last_copy = max(at for at, op in enumerate(body.ops) if op.name == TMA_STORE)
    end = body.ops[last_copy + 1 - len(END) : last_copy + 1]
    assert tuple(op.name for op in end) == END, "the last effect of a tile is to store its second half"
    taken = _taken(end, body)
    before = carry(tile, taken)
    loop = next(op for op in body.walk() if op.name == "scf.for" and _multiplies(op))
    lower, upper = loop.operands[:2]
    round_, first, last = loop.regions[0].block.args[0], *tile.operands[:2]
    dot = max(at for at, op in enumerate(loop.regions[0].block.ops) if op.name in DOTS)
    other = body.args[0], first  # the tile's number is greater than the first behind another tile

    def begins(build: Builder) -> Value:
        return build.binary("arith.andi", build.compare("eq", round_, lower), build.compare("sgt", *other))

    def has_no_round(build: Builder) -> Value:
        return build.binary("arith.andi", build.compare("sge", lower, upper), build.compare("sgt", *other))

    def ran(build: Builder) -> Value:
        return build.compare("sgt", last, first)

    _if(loop.regions[0].block, dot + 1, begins, end, before)
    _if(body, body.ops.index(body.holder(loop)) + 1, has_no_round, end, before)
    final = dict(zip(taken, tile.results[-len(taken) :], strict=True))
    _if(outside, outside.ops.index(tile) + 1, ran, end, final)
    for op in reversed(end):
        op.erase()


def _multiplies(loop: Operation) -> bool:
    return any(op.name in DOTS for op in loop.regions[0].block.ops)


def _taken(end: list[Operation], body: Block) -> list[Value]:
    """What the body computes and the end takes, in order of first use."""
    used = dict.fromkeys(value for op in end for value in op.operands)
    return [value for value in used if value.owner is body or (value.op is not None and value.op.parent is body)]


def _if(
    block: Block, at: int, condition: Callable[[Builder], Value], end: list[Operation], values: dict[Value, Value]
) -> None:
    """The end, with these values, at a place of a block and on a condition."""

    def stored(side: Builder) -> list[Value]:
        for op in end:
            side.add(op.clone(dict(values)))
        return []

    build = Builder(block, at, end[0].location)
    build.branch(condition(build), stored, lambda _: [])
