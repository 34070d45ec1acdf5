"""A while that counts is a for: how often it goes round is known before it begins.

    scf.while (%t = %first) {                          %n = ceil((%end - %first) / %step), 0 where it does not enter
      scf.condition(%t >= %begin & %t < %end) %t  =>   scf.for %k = 0 to %n iter_args(%t = %first) {
    } do { ...; scf.yield %t + %step }                   ...; scf.yield %t + %step }

Kernels that take tiles in steps of their programs are written so. Runs before a plan is made; whiles whose condition
hangs on more are left as they are. Taken for granted: that the number does not leave its type on the way, and that the
step leads towards an end that there is, without which the loop would go on for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Region, Value, replace_uses
from wspec.ir.ops import is_pure
from wspec.ir.types import I32, I64, ScalarType

_MOST = (1 << 31) - 1
_SLT, _SLE, _SGT, _SGE = 2, 3, 4, 5  # arith's predicates
_TURNED = {_SLT: _SGT, _SLE: _SGE, _SGT: _SLT, _SGE: _SLE}


@dataclass(frozen=True, slots=True)
class _Count:
    """The number that a while counts with."""

    place: int  # among the values that it carries
    step: Value
    below: tuple[tuple[Value, int], ...]  # ends: a value and what to add to it
    least: tuple[tuple[Value, int], ...]  # the same of what the number is not below


def count_whiles(module: Operation) -> None:
    """Make fors of them, in place, innermost first."""
    for loop in reversed([op for op in module.walk() if op.name == "scf.while"]):
        counted = _counted(loop)
        if counted is not None:
            _rewrite(module, loop, counted)


def _counted(loop: Operation) -> _Count | None:
    before, body = loop.regions[0].block, loop.regions[1].block
    condition = before.terminator
    tests = _tests(condition.operands[0], before)
    if tests is None or any(not is_pure(op) for op in before.ops[:-1]):
        return None
    if any(value.owner is not before for value in condition.operands[1:]):
        return None
    tested = {number.index for _, number, _ in tests if number.owner is before}
    if len(tested) != 1 or any(number.owner is not before for _, number, _ in tests):
        return None
    (place,) = tested
    step = _step(loop, body, [value.index for value in condition.operands[1:]], place)
    if step is None or not isinstance(step.type, ScalarType) or str(step.type) not in ("i32", "i64"):
        return None
    below = tuple((end, kind == _SLE) for kind, _, end in tests if kind in (_SLT, _SLE))
    least = tuple((end, kind == _SGT) for kind, _, end in tests if kind in (_SGT, _SGE))
    number = step.number
    if number == 0 or (number is not None and not (below if number > 0 else least)) or not (below or least):
        return None
    if number is None and not below:
        return None
    return _Count(place, step, below, least)


def _tests(condition: Value, before: Block) -> list[tuple[int, Value, Value]] | None:
    """The comparisons of what is carried with what is there before, all of which must hold."""
    found, work = [], [condition]
    while work:
        op = work.pop().op
        if op is None or op.parent is not before:
            return None
        if op.name == "arith.andi":
            work += op.operands
            continue
        kind = op.int_attr("predicate") if op.name == "arith.cmpi" else None
        if kind not in _TURNED:
            return None
        one, other = op.operands
        if one.owner is not before:
            one, other, kind = other, one, _TURNED[kind]
        if other.owner is before or (other.op is not None and other.op.parent is before):
            return None
        found.append((kind, one, other))
    return found


def _step(loop: Operation, body: Block, order: Sequence[int], place: int) -> Value | None:
    """What every iteration adds to the number."""
    after = body.terminator.operands[place].op
    if after is None or after.name != "arith.addi" or place not in order:
        return None
    now = {arg for arg, at in zip(body.args, order, strict=True) if at == place}
    step = next((value for value in after.operands if value not in now), None)
    if step is None or all(value not in now for value in after.operands):
        return None
    owner = step.op if step.op is not None else step.owner.parent_op if isinstance(step.owner, Block) else None
    return None if owner is None or owner is loop or owner.is_inside(loop) else step


def _rewrite(module: Operation, loop: Operation, counted: _Count) -> None:
    before, body = loop.regions[0].block, loop.regions[1].block
    order = [value.index for value in before.terminator.operands[1:]]
    build = Builder.before(loop)
    trips = _trips(build, loop, counted)
    region = Region()
    inside = region.add_block()
    inside.add_arg(I32)
    carried = [inside.add_arg(value.type) for value in loop.operands]
    for op in body.ops:
        inside.append(op)
    replace_uses(inside, {arg: carried[at] for arg, at in zip(body.args, order, strict=True)})
    types = [value.type for value in loop.operands]
    bounds = [build.constant(0), trips, build.constant(1)]
    made = build.create("scf.for", [*bounds, *loop.operands], types, regions=[region])
    replace_uses(module, {result: made.results[at] for result, at in zip(loop.results, order, strict=True)})
    loop.erase()


def _trips(build: Builder, loop: Operation, counted: _Count) -> Value:
    """How often it goes round, as an i32."""
    before, values = loop.regions[0].block, dict[Value, Value]()
    values.update(zip(before.args, loop.operands, strict=True))
    for op in before.ops[:-1]:
        build.add(op.clone(values))
    enters = values[before.terminator.operands[0]]
    first, step = _wide(build, loop.operands[counted.place]), _wide(build, counted.step)
    zero, one = build.constant(0, I64), build.constant(1, I64)

    def bound(ends: Sequence[tuple[Value, int]], kind: str) -> Value:
        found: Value | None = None
        for value, more in ends:
            end = _wide(build, value)
            end = build.binary("arith.addi", end, one) if more else end
            found = end if found is None else build.binary(kind, found, end)
        assert found is not None
        return found

    def rounds(room: Value, size: Value) -> Value:
        """The least number of steps of that size that leave no room."""
        size = build.binary("arith.maxsi", size, one)
        more = build.binary("arith.subi", build.binary("arith.addi", room, size), one)
        return build.binary("arith.divsi", more, size)

    trips = up = down = None
    if counted.below:
        up = rounds(build.binary("arith.subi", bound(counted.below, "arith.minsi"), first), step)
    if counted.least:
        least = build.binary("arith.subi", bound(counted.least, "arith.maxsi"), one)
        down = rounds(build.binary("arith.subi", first, least), build.binary("arith.subi", zero, step))
    if up is not None and down is not None:
        trips = build.select(build.compare("sgt", step, zero), up, down)
    else:
        trips = up if up is not None else down
    assert trips is not None
    trips = build.binary("arith.minsi", trips, build.constant(_MOST, I64))
    return build.create("arith.trunci", [build.select(enters, trips, zero)], [I32]).result


def _wide(build: Builder, value: Value) -> Value:
    return value if value.type == I64 else build.create("arith.extsi", [value], [I64]).result
