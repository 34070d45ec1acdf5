"""A loop that Triton has made of two (`flatten=True`) becomes two again: what stands at a tile's begin and end stands
outside of the inner one.

    for %i = 0 to %tiles * %k iter_args(%c = 0, ...) {       for %t = 0 to %tiles {
      %row = if %c == 0 { place of the next tile }             %row = place of the next tile
             else { what it was }                              for %c = 0 to %k {
      %sums = product ...                                =>      %sums = product ...
      if %c == %k - 1 { store; begin anew }                    }
      %c' = %c == %k - 1 ? 0 : %c + 1                          store; begin anew
    }                                                        }

Triton fuses loops so that its pipeliner loads across tiles. A producer does that anyway, and in two loops a tile's
place does not hang on conditions. Runs before a plan is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wspec.ir.builder import PREDICATES, Builder
from wspec.ir.core import Block, Operation, Region, Value, functions, replace_uses
from wspec.ir.ops import is_pure
from wspec.ir.prune import prune
from wspec.ir.types import I32

Key = tuple[Any, ...]
_LOADS = frozenset({"tt.load", "tt.descriptor_load", "ttg.local_alloc"})
_EQUAL = PREDICATES.index("eq")


@dataclass(frozen=True, slots=True)
class _Counter:
    """The number that tells the iterations of the inner loop of a fused one apart."""

    place: int  # among the values that the loop carries
    rounds: Value  # of the outer loop
    length: Value  # of the inner one, at least 1


def unfuse_loops(module: Operation) -> None:
    """Do so in place, where it can be seen that a loop is one of two."""
    found = False
    for loop in [op for op in module.walk() if op.name == "scf.for"]:
        counter = _counter(loop)
        if counter is not None:
            found = True
            outer, inner = _nested(module, loop, counter)
            _begin(inner)
            _end(outer, inner, counter)
            _drop_constant(module, inner)
            _drop_constant(module, outer)
            _count(outer)
    for function in functions(module) if found else ():
        if len(function.regions[0].blocks) == 1:
            prune(function.regions[0].block)
            _merge_equal(function, function.regions[0].block, {})


def _counter(loop: Operation) -> _Counter | None:
    body = loop.regions[0].block
    index = body.args[0]
    total = loop.operands[1].op
    if loop.operands[0].number != 0 or loop.operands[2].number != 1 or index.type != I32:
        return None
    if total is None or total.name != "arith.muli" or any(index in op.operands for op in body.walk()):
        return None
    for place, (first, after) in enumerate(zip(loop.operands[3:], body.terminator.operands, strict=True)):
        for rounds, length in (total.operands, total.operands[::-1]):
            if first.number == 0 and _is_positive(length) and _wraps(after, body.args[1 + place], length):
                return _Counter(place, rounds, length)
    return None


def _is_positive(value: Value) -> bool:
    if (number := value.number) is not None:
        return number >= 1
    op = value.op
    return op is not None and op.name == "arith.maxsi" and any((one.number or 0) >= 1 for one in op.operands)


def _wraps(after: Value, counter: Value, length: Value) -> bool:
    """Is a value the counter's next one: 0 behind length - 1?"""
    choice = after.op
    if choice is None or choice.name != "arith.select" or choice.operands[1].number != 0:
        return False
    more = choice.operands[2].op
    adds = (
        more is not None and more.name == "arith.addi" and more.operands[0] is counter and more.operands[1].number == 1
    )
    return adds and _is_last(choice.operands[0], counter, length)


def _is_last(condition: Value, counter: Value, length: Value) -> bool:
    """Is a condition counter == length - 1?"""
    test = condition.op
    if test is None or test.name != "arith.cmpi" or test.int_attr("predicate") != _EQUAL:
        return False
    if test.operands[0] is not counter:
        return False
    end, known = test.operands[1], length.number
    if known is not None and end.number == known - 1:
        return True
    op = end.op
    if op is None or op.operands[:1] != [length]:
        return False
    by = {"arith.subi": 1, "arith.addi": -1}.get(op.name)
    return by is not None and op.operands[1].number == by


def _is_first(condition: Value, counter: Value) -> bool:
    test = condition.op
    equal = test is not None and test.name == "arith.cmpi" and test.int_attr("predicate") == _EQUAL
    return equal and test is not None and test.operands[0] is counter and test.operands[1].number == 0


def _nested(module: Operation, loop: Operation, counter: _Counter) -> tuple[Operation, Operation]:
    """The two loops in the place of the one, with all that it does in the inner one."""
    block, body = loop.parent, loop.regions[0].block
    assert block is not None
    keep = [at for at in range(len(loop.results)) if at != counter.place]
    build = Builder.before(loop)
    zero, one = build.constant(0), build.constant(1)
    around, within = Region(), Region()
    outside, inside = around.add_block(), within.add_block()
    outside.add_arg(I32)
    now = inside.add_arg(I32)
    types = [loop.results[at].type for at in keep]
    carried = [outside.add_arg(type) for type in types]
    seen = {body.args[1 + at]: inside.add_arg(type) for at, type in zip(keep, types, strict=True)}
    for op in body.ops:
        inside.append(op)
    replace_uses(inside, {**seen, body.args[1 + counter.place]: now})
    inside.terminator.operands[:] = [inside.terminator.operands[at] for at in keep]
    inner = Operation.create(
        "scf.for", [zero, counter.length, one, *carried], types, None, None, [within], loop.location
    )
    outside.append(inner)
    outside.append(Operation.create("scf.yield", inner.results, location=loop.location))
    first = [loop.operands[3 + at] for at in keep]
    outer = build.create("scf.for", [zero, counter.rounds, one, *first], types, regions=[around])
    results = dict(zip((loop.results[at] for at in keep), outer.results, strict=True))
    replace_uses(module, {**results, loop.results[counter.place]: zero})
    loop.erase()
    return outer, inner


def _begin(inner: Operation) -> None:
    """What an inner loop does in its first iteration only is done before it."""
    body = inner.regions[0].block
    now = body.args[0]
    for op in list(body.ops):
        if op.name == "arith.select" and _is_first(op.operands[0], now) and _counts_on(op, body):
            replace_uses(inner, {op.result: now})
        elif op.name == "scf.if" and op.results and _is_first(op.operands[0], now) and _stays(op, body):
            _hoist(inner, op)


def _counts_on(op: Operation, body: Block) -> bool:
    """Is `c == 0 ? 0 : carried` the number of the iteration: is it carried on plus 1?"""
    carried = op.operands[2]
    if op.result.type != I32 or op.operands[1].number != 0 or carried.owner is not body or carried.index == 0:
        return False
    after = body.terminator.operands[carried.index - 1].op
    return (
        after is not None
        and after.name == "arith.addi"
        and after.operands[0] is op.result
        and after.operands[1].number == 1
    )


def _stays(op: Operation, body: Block) -> bool:
    """Are the results of an if what they were before, in all iterations but the first?"""
    first = body.ops[: body.ops.index(op)]
    early = all(is_pure(one) and not one.regions for one in first)  # nothing is written before what it loads
    begins = op.regions[0].block.ops[:-1]
    if len(op.regions) != 2 or any(
        one.regions or not (is_pure(one) or (early and one.name in _LOADS)) for one in begins
    ):
        return False
    if len(op.regions[1].block.ops) != 1:
        return False
    for result, before in zip(op.results, op.regions[1].block.terminator.operands, strict=True):
        if before.owner is not body or before.index == 0 or body.terminator.operands[before.index - 1] is not result:
            return False
    inside = set(op.regions[0].block.ops)
    used = [value for one in op.regions[0].block.ops for value in one.operands]
    return all(
        value.owner in inside or (value.owner is body and value.index > 0) or not _is_within(value, body)
        for value in used
    )


def _is_within(value: Value, body: Block) -> bool:
    """Is a value made in a block or deeper?"""
    owner = value.owner
    block: Block | None = owner if isinstance(owner, Block) else owner.parent
    while block is not None:
        if block is body:
            return True
        around = block.parent_op
        block = around.parent if around is not None else None
    return False


def _hoist(inner: Operation, op: Operation) -> None:
    body = inner.regions[0].block
    values = {arg: inner.operands[2 + arg.index] for arg in body.args[1:]}
    build = Builder.before(inner, op.location)
    for one in op.regions[0].block.ops[:-1]:
        build.add(one.clone(values))
    made = [values.get(value, value) for value in op.regions[0].block.terminator.operands]
    now = dict(zip(op.results, made, strict=True))
    for before, value in zip(op.regions[1].block.terminator.operands, made, strict=True):
        inner.operands[2 + before.index] = value
        now[before] = value
    op.erase()
    replace_uses(inner, now)


def _end(outer: Operation, inner: Operation, counter: _Counter) -> None:
    """What an inner loop does in its last iteration only is done behind it, if nothing else in it asks for it."""
    body, block = inner.regions[0].block, outer.regions[0].block
    now = body.args[0]
    for op in [one for one in body.ops if one.name == "scf.if" and _is_last(one.operands[0], now, counter.length)]:
        after = body.behind(op)[:-1]
        if any(
            op.results[at] in inner_op.operands
            for at in range(len(op.results))
            for top in after
            for inner_op in top.walk()
        ):
            continue
        if any(not is_pure(one) for one in after) or any(one.regions for one in after):
            continue
        others = op.regions[1].block if len(op.regions) > 1 and op.regions[1].blocks else None
        if others is not None and len(others.ops) != 1:
            continue
        kept = list(others.terminator.operands) if others is not None else []
        _behind(inner, op, kept, block)


def _behind(inner: Operation, op: Operation, kept: list[Value], block: Block) -> None:
    body, ends = inner.regions[0].block, inner.regions[0].block.terminator
    otherwise = dict(zip(op.results, kept, strict=True))
    yielded = [otherwise.get(value, value) for value in ends.operands]
    last = {value: inner.results[at] for at, value in enumerate(yielded)}
    region = op.regions[0].block
    within = set(region.walk())
    blocks = {inside for one in within for inside in one.blocks}
    for one in within:
        for value in one.operands:
            if value.owner in within or value.owner in blocks or value in last or not _is_within(value, body):
                continue
            if value.owner is body and value.index > 0 and yielded[value.index - 1] is value:
                continue
            return  # it looks at what only the last iteration knows
    values = {**{arg: inner.results[arg.index - 1] for arg in body.args[1:]}, **last}
    build = Builder.behind(inner, op.location)
    for one in region.ops[:-1]:
        build.add(one.clone(values))
    made = dict(zip(op.results, (values.get(value, value) for value in region.terminator.operands), strict=True))
    outer_ends = block.terminator
    for at, value in enumerate(ends.operands):
        if value in made:
            outer_ends.operands[at] = made[value]
    ends.operands[:] = yielded
    op.erase()


def _drop_constant(module: Operation, loop: Operation) -> None:
    """What is the same in all iterations of a loop, and behind it, is not carried."""
    body = loop.regions[0].block
    for at, value in enumerate(body.terminator.operands):
        first = loop.operands[3 + at]
        if value is first or value is body.args[1 + at]:
            replace_uses(loop, {body.args[1 + at]: first})
            replace_uses(module, {loop.results[at]: first})


def _count(loop: Operation) -> None:
    """A number that grows by the same each time is so many steps from where it began."""
    body = loop.regions[0].block
    for at, value in enumerate(body.terminator.operands):
        more, carried = value.op, body.args[1 + at]
        if more is None or more.name != "arith.addi" or carried.type != I32 or more.operands[0] is not carried:
            continue
        step = more.operands[1].number
        if step is None:
            continue
        build = Builder(body, 0, more.location)
        gone = build.binary("arith.muli", body.args[0], build.constant(step))
        replace_uses(loop, {carried: build.binary("arith.addi", loop.operands[3 + at], gone)})


def _merge_equal(function: Operation, block: Block, known: Mapping[Key, Operation]) -> None:
    """What begin and end of a tile both compute is computed once."""
    here = dict(known)
    for op in list(block.ops):
        if op.regions or not op.results or not is_pure(op):
            for inner in op.blocks if op.name.startswith("scf.") else ():
                _merge_equal(function, inner, here)
            continue
        types = tuple(str(result.type) for result in op.results)
        meaning = tuple(sorted((name, str(value)) for name, value in op.properties.items()))
        before = here.setdefault((op.name, tuple(op.operands), meaning, types), op)
        if before is not op:
            replace_uses(function, dict(zip(op.results, before.results, strict=True)))
            op.erase()
