"""Offsets that a loop carries and moves on by a constant, as what they are: a place, and so much for each iteration.

    at = start + a                                  for j in range(a, b, s):
    for j in range(a, b, s):             =>             load(start + j)
        load(at); at += s

So members of a team are seen to want the same tile in an iteration, however many of these each has. Integers wrap, so
that both are the same number whatever they are.
"""

from __future__ import annotations

from wspec.ir.builder import Builder
from wspec.ir.carry import drop
from wspec.ir.core import Operation, Value, replace_uses, uses
from wspec.ir.ops import is_pure


def count_offsets(loop: Operation) -> None:
    """Of a `scf.for`, in place: what it carries so and nobody reads behind it."""
    body, step = loop.regions[0].block, loop.operands[2].number
    assert loop.parent is not None and loop.parent.parent_op is not None
    used = uses(loop.parent.parent_op)
    for index in reversed(range(len(loop.results))):
        offset, moved = body.args[1 + index], body.terminator.operands[index].op
        by = _moves_by(offset, moved)
        if moved is None or by is None or not step or by % step or offset.type != body.args[0].type:
            continue
        if loop.results[index] in used or len(used[moved.result]) > 1:
            continue
        base, times = _base(loop, index, by // step), by // step
        build = Builder(body, 0, moved.location)
        counted = body.args[0]
        if times != 1:
            counted = build.binary("arith.muli", counted, build.constant(times, offset.type))
        place = build.binary("arith.addi", base, counted)
        for op in body.ops[build.at or 0 :]:
            if op is not moved:
                replace_uses(op, {offset: place})
        drop(loop, index)
        moved.erase()


def is_same(one: Value, other: Value) -> bool:
    """Do two values come from the same ones by the same arithmetic?"""
    if one is other:
        return True
    a, b = one.op, other.op
    if a is None or b is None or a.regions or a.name != b.name or a.properties != b.properties or not is_pure(a):
        return False
    same = one.index == other.index and len(a.operands) == len(b.operands)
    return same and all(is_same(x, y) for x, y in zip(a.operands, b.operands, strict=True))


def _moves_by(offset: Value, moved: Operation | None) -> int | None:
    if moved is None or moved.name != "arith.addi" or offset not in moved.operands:
        return None
    other = moved.operands[1] if moved.operands[0] is offset else moved.operands[0]
    return other.number


def _base(loop: Operation, index: int, times: int) -> Value:
    """What the offset would be where the loop's index is 0."""
    start, lower = loop.operands[3 + index], loop.operands[0]
    if lower.number == 0:
        return start
    if times == 1 and start.op is not None and start.op.name == "arith.addi":
        for rest, added in (start.op.operands, reversed(start.op.operands)):
            if is_same(added, lower):
                return rest
    build = Builder.before(loop)
    before = lower if times == 1 else build.binary("arith.muli", lower, build.constant(times, lower.type))
    return build.binary("arith.subi", start, before)
