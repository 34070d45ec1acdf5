"""divide_tiles: let a block do a part of a tile's loop, on the sums of the block that did the part before.

    for tile (x, y, z):                      for tile (x, y, z), first, end, from, to:
      acc = zeros                              acc = zeros if from < 0 else sums of slot `from`      // resume
      for k in lower to upper by step    =>    for k in (lower if from < 0 else lower + first * step)
        acc += a b                                  to (upper if to < 0 else lower + end * step) by step
      store acc                                  acc += a b
                                               if to >= 0: sums of slot `to` = acc                  // hand on
                                               store acc, where to < 0

The table of tiles says who does what (wspec/tile_scheduler/division.py): a whole tile has neither slot. A part that
is not the
last stores nothing: its coordinates lie outside of the tensor then, where TMA writes nothing. Where sums are resumed
and handed on is only marked here, on values that change nothing; fix_up puts the code there when every warp group has
its own rows. Runs on a kernel that persist has wrapped, before the plan is made.
"""

from __future__ import annotations

from wspec.ir.builder import Builder
from wspec.ir.core import Operation, Value, functions, replace_uses
from wspec.ir.types import i32
from wspec.passes.stream_k.choice import HAND_ON, RESUME
from wspec.plan.partition import hot_loops
from wspec.plan.stores import store_only_if
from wspec.plan.tile_table import add_pointer, tile_loop
from wspec.tile_scheduler.names import PARTIALS


def divide_tiles(module: Operation) -> Operation:
    """Give the loop of a persistent kernel the bounds of its part, in place; choice.py says which can."""
    function = functions(module)[0]
    add_pointer(function, PARTIALS)
    tile = tile_loop(function)
    body = tile.regions[0].block
    first, end, taken, given = body.args[5:9]
    (loop,) = hot_loops(function)
    assert loop.parent is body
    build = Builder.before(loop)
    zero = build.constant(0)
    fresh, last = build.compare("slt", taken, zero), build.compare("slt", given, zero)
    lower, upper, step = loop.operands[:3]
    loop.operands[0] = build.select(fresh, lower, _iteration(build, lower, step, first))
    loop.operands[1] = build.select(last, upper, _iteration(build, lower, step, end))
    for number, start in enumerate(loop.operands[3:]):
        loop.operands[3 + number] = _marked(build, fresh, start, RESUME, number)
    behind = body.behind(loop)
    build.at = body.ops.index(loop) + 1
    for number, result in enumerate(loop.results):
        made = _marked(build, last, result, HAND_ON, number)
        for op in behind:
            replace_uses(op, {result: made})
    for store in [op for op in behind if op.name == "tt.descriptor_store"]:
        store_only_if(Builder.before(store), store, slice(2, None), last)
    return module


def _iteration(build: Builder, lower: Value, step: Value, number: Value) -> Value:
    return build.binary("arith.addi", lower, build.binary("arith.muli", number, step))


def _marked(build: Builder, condition: Value, value: Value, what: str, number: int) -> Value:
    """The value, by an operation that says what is to happen to it here unless the condition holds."""
    made = build.select(condition, value, value)
    assert made.op is not None
    made.op.attributes[what] = i32(number)
    return made
