"""pipeline_loops: run part of a consumer loop one iteration behind the rest.

    for j:                              if n > 0:  E(0)
      E(j)   // S = QK; P = softmax S   for j < n - 1:
      L(j)   // O += P V            =>    front of E(j+1)     // issue QK(j+1)
                                          L(j)                // O += P(j) V(j)
                                          rest of E(j+1)      // softmax(j+1), while L(j) runs
                                        if n > 0:  L(n-1)

The plan names the late operations L. Values that go from E to L are carried round the loop; a value carried round the
original loop belongs to the part that computes its next value. The front of E is what its dots need: issued first, so
that the tensor core has work while this warp group computes. Right for any trip count: with none, both branches pass
their initial values through. Runs before async_dots, which sees the new order and waits for each dot as late as it can.
"""

from __future__ import annotations

from dataclasses import dataclass

from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Region, Value, replace_uses
from wspec.ir.types import DenseAttr, FloatAttr, IntegerAttr, ScalarType, TensorType, Type
from wspec.plan.plan import Plan, id_of
from wspec.plan.tile import DOTS

Values = dict[Value, Value]


def pipeline_loops(module: Operation, plan: Plan) -> Operation:
    """Pipeline every consumer loop the plan schedules."""
    op = ws.find(module)
    assert op is not None
    late = {schedule.loop: frozenset(schedule.late) for schedule in plan.loops if schedule.late}
    for block in ws.task_blocks(op)[: plan.consumer.replicas]:
        for loop in [inner for top in block.ops for inner in top.walk() if inner.name == "scf.for"]:
            if id_of(loop) in late:
                _pipeline(block, loop, late[id_of(loop)])
    return module


@dataclass(frozen=True, slots=True)
class _Parts:
    """A loop taken apart. `early`/`later` are indices of carried values, by the part that computes their next value."""

    loop: Operation
    body: Block
    front: list[Operation]
    rest: list[Operation]
    tail: list[Operation]  # the late operations
    early: list[int]
    later: list[int]
    crossing: list[Value]  # defined in an early part (or the induction variable), used by a late one


def _pipeline(root: Block, loop: Operation, late_ids: frozenset[int]) -> None:
    parts = _take_apart(loop, late_ids)
    if not parts.tail or not (parts.front or parts.rest):
        return
    assert loop.parent is not None
    build = Builder(loop.parent, loop.parent.ops.index(loop), loop.location)
    lower, upper, step = loop.operands[:3]
    runs = build.compare("slt", lower, upper)
    first = _guarded_early(build, runs, parts, lower)
    last = build.binary("arith.subi", upper, step)
    main = _main_loop(build, parts, first, last)
    final = _guarded_late(build, runs, parts, main)
    loop.erase()
    replace_uses_in(root, dict(zip(loop.results, final, strict=True)))


def replace_uses_in(root: Block, values: Values) -> None:
    for op in root.ops:
        replace_uses(op, values)


# ------------------------------------------------------------------------------------------- taking apart


def _take_apart(loop: Operation, late_ids: frozenset[int]) -> _Parts:
    body = loop.regions[0].block
    late = {op for op in body.ops[:-1] if id_of(op) in late_ids}
    tail = [op for op in body.ops[:-1] if op in late]
    stage0 = [op for op in body.ops[:-1] if op not in late]
    front = _front(stage0)
    early: list[int] = []
    later: list[int] = []
    for index, value in enumerate(body.terminator.operands):
        (later if _is_late(value, body, late, index) else early).append(index)
    return _Parts(
        loop, body, front, [op for op in stage0 if op not in front], tail, early, later,
        _crossing(body, tail, late, early),
    )  # fmt: skip


def _is_late(value: Value, body: Block, late: set[Operation], index: int) -> bool:
    if value.op is not None and value.op in late:
        return True
    # A value passed round unchanged stays with whoever reads it; late ones must see late state only.
    users = [op for op in body.ops[:-1] for inner in op.walk() if body.args[1 + index] in inner.operands]
    return value is body.args[1 + index] and bool(users) and all(op in late for op in users)


def _front(stage0: list[Operation]) -> list[Operation]:
    """The dots of the early part and what they need, in order."""
    needed: set[Operation] = set()
    work = [op for op in stage0 if op.name in DOTS]
    while work:
        op = work.pop()
        if op in needed:
            continue
        needed.add(op)
        for inner in op.walk():
            work += [v.op for v in inner.operands if v.op is not None and v.op in stage0]
    return [op for op in stage0 if op in needed]


def _crossing(body: Block, tail: list[Operation], late: set[Operation], early: list[int]) -> list[Value]:
    """What the late part takes from the early one, in order of first use."""
    own: set[Value] = set()
    found: list[Value] = []
    early_args = {body.args[1 + index] for index in early} | {body.args[0]}
    for op in tail:
        for inner in op.walk():
            own.update(inner.results)
            own.update(a for region in inner.regions for b in region.blocks for a in b.args)
            for value in inner.operands:
                defined_early = value.op is not None and value.op.parent is body and value.op not in late
                if value not in own and value not in found and (defined_early or value in early_args):
                    found.append(value)
    for index, value in enumerate(body.terminator.operands):
        if index not in early and value in early_args and value not in found:
            found.append(value)
    return found


# ------------------------------------------------------------------------------------------------ building


@dataclass(frozen=True, slots=True)
class _State:
    """Values at one point: carried by the early part, carried by the late part, crossing."""

    early: list[Value]
    later: list[Value]
    crossing: list[Value]


def _emit(block: Block, ops: list[Operation], values: Values) -> None:
    for op in ops:
        block.append(op.clone(values))


def _next(parts: _Parts, indices: list[int], values: Values) -> list[Value]:
    return [values.get(v, v) for v in (parts.body.terminator.operands[i] for i in indices)]


def _yield(block: Block, values: list[Value], loop: Operation) -> None:
    block.append(Operation.create("scf.yield", values, location=loop.location))


def _zero(build: Builder, type: Type) -> Value:
    """Any value of the type; it is never read."""
    element = type.element if isinstance(type, TensorType) else type
    if not isinstance(element, ScalarType):
        raise AssertionError(f"a value of type {type} cannot be carried round a pipelined loop")
    digits = "0.000000e+00" if element.is_float else ("false" if element.name == "i1" else "0")
    if isinstance(type, TensorType):
        return build.create("arith.constant", [], [type], {"value": DenseAttr(digits, type)}).result
    value = FloatAttr(digits, element) if element.is_float else IntegerAttr(0, element)
    return build.create("arith.constant", [], [type], {"value": value}).result


def _guarded_early(build: Builder, runs: Value, parts: _Parts, lower: Value) -> _State:
    """E of the first iteration, if there is one."""
    inits = parts.loop.operands[3:]
    yes, no = Region(), Region()
    block = yes.add_block()
    values: Values = {parts.body.args[0]: lower}
    values.update(zip(parts.body.args[1:], inits, strict=True))
    _emit(block, [*parts.front, *parts.rest], values)
    out = _next(parts, parts.early, values) + [values.get(v, v) for v in parts.crossing]
    _yield(block, out, parts.loop)
    other = Builder(no.add_block(), None, parts.loop.location)
    unread = [_zero(other, v.type) for v in parts.crossing]
    _yield(other.block, [inits[i] for i in parts.early] + unread, parts.loop)
    op = build.create("scf.if", [runs], [v.type for v in out], regions=[yes, no])
    count = len(parts.early)
    return _State(op.results[:count], [inits[i] for i in parts.later], op.results[count:])


def _main_loop(build: Builder, parts: _Parts, start: _State, upper: Value) -> _State:
    """E of the next iteration around L of this one."""
    region = Region()
    block = region.add_block()
    old = parts.body
    iv = block.add_arg(old.args[0].type, old.args[0].location)
    carried = [*start.early, *start.later, *start.crossing]
    args = [block.add_arg(v.type) for v in carried]
    a, b = len(start.early), len(start.early) + len(start.later)
    early_in: Values = {old.args[1 + i]: v for i, v in zip(parts.early, args[:a], strict=True)}
    late_in: Values = {old.args[1 + i]: v for i, v in zip(parts.later, args[a:b], strict=True)}
    late_in.update(zip(parts.crossing, args[b:], strict=True))
    inner = Builder(block, None, parts.loop.location)
    early_in[old.args[0]] = inner.binary("arith.addi", iv, parts.loop.operands[2])
    _emit(block, parts.front, early_in)
    _emit(block, parts.tail, late_in)
    _emit(block, parts.rest, early_in)
    out = _next(parts, parts.early, early_in) + _next(parts, parts.later, late_in)
    out += [early_in.get(v, v) for v in parts.crossing]
    _yield(block, out, parts.loop)
    lower, step = parts.loop.operands[0], parts.loop.operands[2]
    attributes = dict(parts.loop.attributes)
    types = [v.type for v in carried]
    op = build.create("scf.for", [lower, upper, step, *carried], types, parts.loop.properties, attributes, [region])
    return _State(op.results[:a], op.results[a:b], op.results[b:])


def _guarded_late(build: Builder, runs: Value, parts: _Parts, state: _State) -> list[Value]:
    """L of the last iteration, if there was one; returns the results of the whole loop, in the old order."""
    yes, no = Region(), Region()
    block = yes.add_block()
    values: Values = {parts.body.args[1 + i]: v for i, v in zip(parts.later, state.later, strict=True)}
    values.update(zip(parts.crossing, state.crossing, strict=True))
    _emit(block, parts.tail, values)
    _yield(block, _next(parts, parts.later, values), parts.loop)
    _yield(no.add_block(), state.later, parts.loop)
    op = build.create("scf.if", [runs], [v.type for v in state.later], regions=[yes, no])
    results: dict[int, Value] = dict(zip(parts.early, state.early, strict=True))
    results.update(zip(parts.later, op.results, strict=True))
    return [results[i] for i in range(len(results))]
