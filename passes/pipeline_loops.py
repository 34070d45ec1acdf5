"""pipeline_loops: run part of a consumer loop one iteration behind the rest.

    for j:                                   if n > 0:  E(0); A(0)
      E(j)   // S = QK; P = softmax S        for j < n - 1:
      A(j)   // O *= decay             =>      front of E(j+1)     // issue QK(j+1)
      L(j)   // O += P V                       L(j)                // O += P(j) V(j)
                                               rest of E(j+1)      // softmax(j+1), while L(j) runs
                                               A(j+1)              // O *= decay(j+1)
                                             if n > 0:  L(n-1)

The plan names the late operations, A and L. Values that go from E or A to L are carried round the loop; a value carried
round the original loop belongs to the part that computes its next value. The front of E is what its dots need: issued
first, so that the tensor core has work while this warp group computes. A is the arithmetic in front of the first late
dot, such as the scaling of an accumulator: done as soon as there is what it needs, among the instructions of E, where
issue slots are free. In front of L it would keep this group's dots, and with turns the other groups', from being issued
(measured: docs/experiments.md). Right for any trip count: with none, both branches pass their initial values through.
Runs before async_dots, which sees the new order and waits for each dot as late as it can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Region, Value, replace_uses
from wspec.ir.isomorphism import Match
from wspec.ir.loc import Location
from wspec.ir.types import F32, Layout, TensorType, Type, i32
from wspec.ir.wgmma import WAIT
from wspec.plan.plan import ID, Plan, id_of
from wspec.plan.schedule import goes_ahead
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
    held: list[int]  # of the later ones, those that the tail or the next iteration takes as they are
    crossing: list[Value]  # what the tail takes from an early part, the induction variable or what goes ahead of it
    places: list[
        int
    ]  # for each of the later ones, which of those held and crossing has its place: one register for both
    taken: list[Value]  # what the tail and what goes ahead of it take from an early part or the induction variable


def _pipeline(root: Block, parts: _Parts) -> None:
    """Pipeline one loop."""
    loop = parts.loop
    assert loop.parent is not None
    build = Builder(loop.parent, loop.parent.ops.index(loop), loop.location)
    runs = _runs(build, loop)
    state = _main_loop(build, parts, _guarded_early(build, runs, parts))
    final = _branch(build, runs, lambda block: _last(block, parts, state), lambda _: state.passed(parts))
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
        done = _branch(within, ran, lambda at: _last(at, one, state), lambda _: state.passed(one))
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
    front, ahead = _front(stage0), goes_ahead(tail)
    early: list[int] = []
    later: list[int] = []
    for index, value in enumerate(body.terminator.operands):
        (later if _is_late(value, body, late, index) else early).append(index)
    last = [op for op in tail if op not in ahead]
    rest = [op for op in stage0 if op not in front]
    crossing = _crossing(body, last, set(last), early)
    held, places = _places(body, last, later, crossing, {value for op in ahead for value in op.results})
    return _Parts(
        loop, body, front, rest, ahead, last, early, later, held, crossing, places,
        _crossing(body, tail, late, early),
    )  # fmt: skip


def _places(
    body: Block, tail: list[Operation], later: list[int], crossing: list[Value], ahead: set[Value]
) -> tuple[list[int], list[int]]:
    """Which of the later values are held, and for each of them its place among those held and those that cross.

    Where the tail takes only what was made of a value ahead of it, that has the value's place: a loop that does not run
    passes the value through there. Beside it the value would take as many registers again.
    """
    used = {value for op in tail for inner in op.walk() for value in inner.operands}
    used.update(body.terminator.operands[index] for index in later)
    free = [at for at, value in enumerate(crossing) if value in ahead]
    found: dict[int, int] = {}
    for index in later:
        arg = body.args[1 + index]
        if arg not in used and (same := [at for at in free if crossing[at].type == arg.type]):
            found[index] = same[0]
            free.remove(same[0])
    held = [index for index in later if index not in found]
    return held, [len(held) + found[index] if index in found else held.index(index) for index in later]


def _is_late(value: Value, body: Block, late: set[Operation], index: int) -> bool:
    if value.op is not None and value.op in late:
        return True
    # A value passed round unchanged stays with whoever reads it; late ones must see late state only.
    users = [op for op in body.ops[:-1] for inner in op.walk() if body.args[1 + index] in inner.operands]
    return value is body.args[1 + index] and bool(users) and all(op in late for op in users)


def _front(stage0: list[Operation]) -> list[Operation]:
    """The dots of the early part and what they need, in order."""
    dots = [op for op in stage0 if op.name in DOTS]
    return _needed(stage0, [value for op in dots for value in op.results])


def _needed(ops: list[Operation], values: list[Value]) -> list[Operation]:
    """Those of `ops` that it takes to compute some values, in order."""
    among = set(ops)
    needed: set[Operation] = set()
    work = [value.op for value in values]
    while work:
        op = work.pop()
        if op is not None and op in among and op not in needed:
            needed.add(op)
            work += [value.op for inner in op.walk() for value in inner.operands]
    return [op for op in ops if op in needed]


def _crossing(body: Block, tail: list[Operation], late: set[Operation], early: list[int]) -> list[Value]:
    """What the late operations `tail` take from those that are not `late`, in order of first use."""
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
        made = value.op is not None and value.op.parent is body and value.op not in late
        if index not in early and (value in early_args or made) and value not in found:
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
    ours = {*parts.taken, *(parts.body.args[1 + i] for i in parts.later)}
    theirs = {*before.taken, *(before.body.args[1 + i] for i in before.later)}
    match = Match(ours, theirs)
    same = match.operations([*parts.ahead, *parts.tail], [*before.ahead, *before.tail], frozenset({ID}))
    for index in parts.later:
        source = _source(parts, before, index)
        same = same and match.operand(parts.body.args[1 + index], before.body.args[1 + source])
        ends = parts.body.terminator.operands[index], before.body.terminator.operands[source]
        same = same and match.operand(*ends)
    found = [match.there.get(value) for value in parts.taken]
    if not same or None in found or len(set(found)) != len(before.taken):
        return None
    return [value for value in found if value is not None]


# ------------------------------------------------------------------------------------------------ building


@dataclass(frozen=True, slots=True)
class _State:
    """Values between two iterations: carried by the early part, of the late part what is held, crossing."""

    early: list[Value]
    held: list[Value]
    crossing: list[Value]

    @property
    def all(self) -> list[Value]:
        return [*self.early, *self.held, *self.crossing]

    def passed(self, parts: _Parts) -> list[Value]:
        """The later values, of a loop that does not run."""
        here = self.held + self.crossing
        return [here[place] for place in parts.places]

    @staticmethod
    def of(parts: _Parts, values: list[Value]) -> _State:
        a, b = len(parts.early), len(parts.early) + len(parts.held)
        return _State(values[:a], values[a:b], values[b:])


def _emit(block: Block, ops: list[Operation], values: Values) -> None:
    for op in ops:
        block.append(op.clone(values))


def _next(parts: _Parts, indices: list[int], values: Values) -> list[Value]:
    return [values.get(v, v) for v in (parts.body.terminator.operands[i] for i in indices)]


def _initial(parts: _Parts, indices: list[int]) -> list[Value]:
    return [parts.loop.operands[3 + i] for i in indices]


def _yield(block: Block, values: list[Value], loop: Operation) -> None:
    block.append(Operation.create("scf.yield", values, location=loop.location))


def _ready(block: Block, parts: _Parts, values: Values, later: list[Value]) -> _State:
    """The rest of E of an iteration, with what L starts from, given what the late part of the one before carries."""
    late_in = {parts.body.args[1 + i]: value for i, value in zip(parts.later, later, strict=True)}
    values.update(late_in)
    _emit(block, [*parts.rest, *parts.ahead], values)
    sums = [value for value in parts.crossing if value.op in parts.ahead]
    _keep_together(block, sums, values, parts.loop.location)
    held = [values[parts.body.args[1 + i]] for i in parts.held]
    return _State(_next(parts, parts.early, values), held, [values.get(v, v) for v in parts.crossing])


def _is_sum(type: Type) -> bool:
    """A tensor as the tensor core leaves it?"""
    if not isinstance(type, TensorType):
        return False
    encoding = type.encoding
    return isinstance(encoding, Layout) and encoding.name == "ttg.nvidia_mma" and type.element == F32


def _keep_together(block: Block, sums: list[Value], values: Values, location: Location) -> None:
    """Let what the dots will add to pass through a wait that has nothing to wait for.

    To LLVM it is opaque. Otherwise it computes such a sum once more behind the loop, where it can do so with vectors,
    and what it is computed from takes as many registers again all through the loop.
    """
    sums = [value for value in sums if _is_sum(value.type)]
    if sums:
        operands = [values[value] for value in sums]
        flags = {"pendings": i32(0)}
        wait = Operation.create(WAIT, operands, [v.type for v in sums], flags, location=location)
        block.append(wait)
        values.update(zip(sums, wait.results, strict=True))


def _guarded_early(build: Builder, runs: Value, parts: _Parts) -> _State:
    """E of the first iteration, if there is one."""
    lower, inits = parts.loop.operands[0], parts.loop.operands[3:]
    yes, no = Region(), Region()
    block = yes.add_block()
    values: Values = {parts.body.args[0]: lower}
    values.update(zip(parts.body.args[1:], inits, strict=True))
    _emit(block, parts.front, values)
    state = _ready(block, parts, values, _initial(parts, parts.later))
    out = state.early + state.crossing
    _yield(block, out, parts.loop)
    other = Builder(no.add_block(), None, parts.loop.location)
    passed = {place - len(parts.held): inits[i] for i, place in zip(parts.later, parts.places, strict=True)}
    through = [passed.get(at) or other.zero(v.type) for at, v in enumerate(parts.crossing)]
    _yield(other.block, _initial(parts, parts.early) + through, parts.loop)
    op = build.create("scf.if", [runs], [v.type for v in out], regions=[yes, no])
    count = len(parts.early)
    return _State(op.results[:count], _initial(parts, parts.held), op.results[count:])


def _main_loop(build: Builder, parts: _Parts, start: _State) -> _State:
    """E of the next iteration around L of this one."""
    upper = build.binary("arith.subi", parts.loop.operands[1], parts.loop.operands[2])
    region = Region()
    block = region.add_block()
    old = parts.body
    iv = block.add_arg(old.args[0].type, old.args[0].location)
    here = _State.of(parts, [block.add_arg(v.type) for v in start.all])
    early_in: Values = {old.args[1 + i]: v for i, v in zip(parts.early, here.early, strict=True)}
    inner = Builder(block, None, parts.loop.location)
    early_in[old.args[0]] = inner.binary("arith.addi", iv, parts.loop.operands[2])
    _emit(block, parts.front, early_in)
    later = _last(block, parts, here)
    _yield(block, _ready(block, parts, early_in, later).all, parts.loop)
    lower, step = parts.loop.operands[0], parts.loop.operands[2]
    attributes = dict(parts.loop.attributes)
    types = [v.type for v in start.all]
    op = build.create("scf.for", [lower, upper, step, *start.all], types, parts.loop.properties, attributes, [region])
    return _State.of(parts, op.results)


def _handed_over(build: Builder, ran: Value, before: _Parts, state: _State, parts: _Parts, order: list[int]) -> _State:
    """E of a loop's first iteration; beside it L of the last iteration of the loop before, if that ran."""
    first: Values = {parts.body.args[0]: parts.loop.operands[0]}
    first.update(zip(parts.body.args[1:], parts.loop.operands[3:], strict=True))

    def early(block: Block, later: list[Value]) -> list[Value]:
        values = dict(first)
        _emit(block, parts.front, values)
        return _ready(block, parts, values, [later[i] for i in order]).all

    # The late part first: what it reads from registers may have to be moved, which must not be beside a dot (C7513).
    out = _branch(
        build,
        ran,
        lambda block: early(block, _last(block, before, state)),
        lambda block: early(block, state.passed(before)),
    )
    return _State.of(parts, out)


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
    """L of an iteration; returns what it carries."""
    values: Values = {parts.body.args[1 + i]: v for i, v in zip(parts.held, state.held, strict=True)}
    values.update(zip(parts.crossing, state.crossing, strict=True))
    _emit(block, parts.tail, values)
    return _next(parts, parts.later, values)
