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

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Region, Value, replace_uses
from wspec.ir.isomorphism import Match
from wspec.ir.types import Type
from wspec.plan.plan import ID, Plan, id_of
from wspec.plan.tile import DOTS

Values = dict[Value, Value]


def pipeline_loops(module: Operation, plan: Plan) -> Operation:
    """Pipeline every consumer loop the plan schedules."""
    op = ws.find(module)
    assert op is not None
    late = {schedule.loop: frozenset(schedule.late) for schedule in plan.loops if schedule.late}
    for block in ws.task_blocks(op)[: plan.consumer.replicas]:
        found: list[list[_Parts]] = []
        for loop in [inner for top in block.ops for inner in top.walk() if inner.name == "scf.for"]:
            parts = _take_apart(loop, late[id_of(loop)]) if id_of(loop) in late and loop.parent is not None else None
            if parts is None or not parts.tail or not (parts.front or parts.rest):
                continue
            if found and len(found[-1]) == 1 and _continues(found[-1][0], parts):
                found[-1].append(parts)
            else:
                found.append([parts])
        for group in found:
            if len(group) == 2:
                _pipeline_pair(block, *group)
            else:
                _pipeline(block, group[0])
    return module


@dataclass(frozen=True, slots=True)
class _Parts:
    """A loop taken apart. `early`/`later` are indices of carried values, by the part that computes their next value."""

    loop: Operation
    body: Block
    front: list[Operation]
    rest: list[Operation]
    ahead: list[Operation]  # late operations that go first: they make what the late dots start from
    tail: list[Operation]  # the other late operations
    early: list[int]
    later: list[int]
    crossing: list[Value]  # defined in an early part (or the induction variable), used by a late one


def _pipeline(root: Block, parts: _Parts) -> None:
    """Pipeline one loop."""
    loop = parts.loop
    assert loop.parent is not None
    build = Builder(loop.parent, loop.parent.ops.index(loop), loop.location)
    runs = _runs(build, loop)
    state = _main_loop(build, parts, _guarded_early(build, runs, parts))
    final = _branch(build, runs, lambda block: _last(block, parts, state), lambda _: state.later)
    _finish(root, parts, state.early, final)


def _pipeline_pair(root: Block, one: _Parts, two: _Parts) -> None:
    """Pipeline two loops in a row: the last late part of the first runs beside the first early part of the second."""
    block = one.loop.parent
    assert block is not None
    build = Builder(block, block.ops.index(one.loop), one.loop.location)
    ran = _runs(build, one.loop)
    state = _main_loop(build, one, _guarded_early(build, ran, one))
    replace_uses_in(root, _by_result(one, one.early, state.early))
    build = Builder(block, block.ops.index(two.loop), two.loop.location)
    order = [one.later.index(_source(two, one, i)) for i in two.later]

    def goes_on(inner: Block) -> list[Value]:
        within = Builder(inner, None, two.loop.location)
        after = _main_loop(within, two, _handed_over(within, ran, one, state, two, order))
        return after.early + _last(inner, two, after)

    def ends(inner: Block) -> list[Value]:
        within = Builder(inner, None, two.loop.location)
        done = _branch(within, ran, lambda at: _last(at, one, state), lambda _: state.later)
        return [two.loop.operands[3 + i] for i in two.early] + [done[i] for i in order]

    out = _branch(build, _runs(build, two.loop), goes_on, ends)
    one.loop.erase()
    _finish(root, two, out[: len(two.early)], out[len(two.early) :])


def _finish(root: Block, parts: _Parts, early: list[Value], later: list[Value]) -> None:
    parts.loop.erase()
    replace_uses_in(root, {**_by_result(parts, parts.early, early), **_by_result(parts, parts.later, later)})


def _by_result(parts: _Parts, indices: list[int], values: list[Value]) -> Values:
    return {parts.loop.results[i]: value for i, value in zip(indices, values, strict=True)}


def _runs(build: Builder, loop: Operation) -> Value:
    return build.compare("slt", loop.operands[0], loop.operands[1])


def replace_uses_in(root: Block, values: Values) -> None:
    for op in root.ops:
        replace_uses(op, values)


# ------------------------------------------------------------------------------------------- taking apart


def _take_apart(loop: Operation, late_ids: frozenset[int]) -> _Parts:
    body = loop.regions[0].block
    late = {op for op in body.ops[:-1] if id_of(op) in late_ids}
    tail = [op for op in body.ops[:-1] if op in late]
    stage0 = [op for op in body.ops[:-1] if op not in late]
    front, ahead = _front(stage0), _ahead(tail)
    early: list[int] = []
    later: list[int] = []
    for index, value in enumerate(body.terminator.operands):
        (later if _is_late(value, body, late, index) else early).append(index)
    return _Parts(
        loop, body, front, [op for op in stage0 if op not in front], ahead, [op for op in tail if op not in ahead],
        early, later, _crossing(body, tail, late, early),
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


def _ahead(tail: list[Operation]) -> list[Operation]:
    """The arithmetic in front of the first late dot, such as the scaling of an accumulator.

    It stands before the early dots are issued: ptxas serializes tensor core operations when a register that one of
    them reads is written while another is under way (C7513).
    """
    found: list[Operation] = []
    waiting: set[Value] = set()
    for op in itertools.takewhile(lambda op: op.name not in DOTS, tail):
        used = {v for inner in op.walk() for v in inner.operands}
        if op.name.startswith(("wspec.", "ttg.memdesc_", "ttg.local_")) or used & waiting:
            waiting.update(op.results)
        else:
            found.append(op)
    return found


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


# ------------------------------------------------------------------------------------- loops in sequence


def _continues(before: _Parts, parts: _Parts) -> bool:
    """Can the late part of one loop wait for the next loop, which stands behind it in the same block?

    Both late parts must compute the same, the next loop must take over what the first one's late part carries, and
    nothing else may ask for that.
    """
    first, loop = before.loop, parts.loop
    if first.parent is not loop.parent or first.parent is None:
        return False
    results = {first.results[i] for i in before.later}
    users = [
        (op, at) for top in first.parent.ops for op in top.walk() for at, v in enumerate(op.operands) if v in results
    ]
    taken = {3 + i for i in parts.later if loop.operands[3 + i] in results}
    if any(op is not loop or at not in taken for op, at in users) or len(taken) != len(parts.later):
        return False
    if len(users) != len(before.later) or len(before.later) != len(parts.later):
        return False
    return _counterparts(before, parts) is not None


def _source(parts: _Parts, before: _Parts, index: int) -> int:
    """The index of the carried value of the loop before that becomes this one."""
    return before.loop.results.index(parts.loop.operands[3 + index])


def _counterparts(before: _Parts, parts: _Parts) -> list[Value] | None:
    """For what crosses in a loop, what crosses in the one before at the same place; None when they differ."""
    ours = {*parts.crossing, *(parts.body.args[1 + i] for i in parts.later)}
    theirs = {*before.crossing, *(before.body.args[1 + i] for i in before.later)}
    match = Match(ours, theirs)
    same = match.operations([*parts.ahead, *parts.tail], [*before.ahead, *before.tail], frozenset({ID}))
    for index in parts.later:
        source = _source(parts, before, index)
        same = same and match.operand(parts.body.args[1 + index], before.body.args[1 + source])
        ends = parts.body.terminator.operands[index], before.body.terminator.operands[source]
        same = same and match.operand(*ends)
    found = [match.there.get(value) for value in parts.crossing]
    if not same or None in found or len(set(found)) != len(before.crossing):
        return None
    return [value for value in found if value is not None]


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


def _guarded_early(build: Builder, runs: Value, parts: _Parts) -> _State:
    """E of the first iteration, if there is one."""
    lower, inits = parts.loop.operands[0], parts.loop.operands[3:]
    yes, no = Region(), Region()
    block = yes.add_block()
    values: Values = {parts.body.args[0]: lower}
    values.update(zip(parts.body.args[1:], inits, strict=True))
    _emit(block, [*parts.front, *parts.rest], values)
    out = _next(parts, parts.early, values) + [values.get(v, v) for v in parts.crossing]
    _yield(block, out, parts.loop)
    other = Builder(no.add_block(), None, parts.loop.location)
    unread = [other.zero(v.type) for v in parts.crossing]
    _yield(other.block, [inits[i] for i in parts.early] + unread, parts.loop)
    op = build.create("scf.if", [runs], [v.type for v in out], regions=[yes, no])
    count = len(parts.early)
    return _State(op.results[:count], [inits[i] for i in parts.later], op.results[count:])


def _main_loop(build: Builder, parts: _Parts, start: _State) -> _State:
    """E of the next iteration around L of this one."""
    upper = build.binary("arith.subi", parts.loop.operands[1], parts.loop.operands[2])
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
    _emit(block, parts.ahead, late_in)
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


def _handed_over(build: Builder, ran: Value, before: _Parts, state: _State, parts: _Parts, order: list[int]) -> _State:
    """E of a loop's first iteration; beside it L of the last iteration of the loop before, if that ran."""
    lower, inits = parts.loop.operands[0], parts.loop.operands[3:]
    first: Values = {parts.body.args[0]: lower}
    first.update(zip(parts.body.args[1:], inits, strict=True))

    def early(block: Block, later: list[Value]) -> list[Value]:
        values = dict(first)
        _emit(block, [*parts.front, *parts.rest], values)
        own = _next(parts, parts.early, values), [values.get(v, v) for v in parts.crossing]
        return own[0] + [later[i] for i in order] + own[1]

    # The late part first: what it reads from registers may have to be moved, which must not be beside a dot (C7513).
    out = _branch(
        build, ran, lambda block: early(block, _last(block, before, state)), lambda block: early(block, state.later)
    )
    a, b = len(parts.early), len(parts.early) + len(parts.later)
    return _State(out[:a], out[a:b], out[b:])


def _branch(
    build: Builder, condition: Value, yes: Callable[[Block], list[Value]], no: Callable[[Block], list[Value]]
) -> list[Value]:
    """An scf.if whose regions are filled by what returns the values they yield."""
    regions = [Region(), Region()]
    types: list[Type] = []
    for region, fill in zip(regions, (yes, no), strict=True):
        block = region.add_block()
        out = fill(block)
        types = [value.type for value in out]
        block.append(Operation.create("scf.yield", out, location=build.location))
    return build.create("scf.if", [condition], types, regions=regions).results


def _last(block: Block, parts: _Parts, state: _State) -> list[Value]:
    """L of the last iteration; returns what it carries."""
    values: Values = {parts.body.args[1 + i]: v for i, v in zip(parts.later, state.later, strict=True)}
    values.update(zip(parts.crossing, state.crossing, strict=True))
    _emit(block, [*parts.ahead, *parts.tail], values)
    return _next(parts, parts.later, values)
