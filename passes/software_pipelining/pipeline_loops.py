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
dot, such as the scaling of an accumulator: done at the end of the iteration before. In front of L it would keep this
group's dots, and with turns the other groups', from being issued (measured: docs/results). Right for any trip
count: with none, both branches pass their initial values through. Runs before async_dots, which sees the new order and
waits for each dot as late as it can.
"""

from __future__ import annotations

from dataclasses import dataclass

from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Region, Value, replace_uses
from wspec.ir.loc import Location
from wspec.ir.numbering import id_of
from wspec.ir.wgmma import is_sum, wait_for
from wspec.passes.software_pipelining.loop_parts import LoopParts, continues, source_of, take_apart
from wspec.plan.plan import Plan

Values = dict[Value, Value]


def pipeline_loops(module: Operation, plan: Plan) -> Operation:
    """Pipeline every consumer loop the plan schedules."""
    op = ws.need(module)
    late = {schedule.loop: frozenset(schedule.stage1) for schedule in plan.loops if schedule.stage1}
    for block in ws.task_blocks(op)[: plan.consumer.replicas]:
        found: list[list[LoopParts]] = []
        for loop in [inner for inner in block.walk() if inner.name == "scf.for"]:
            parts = take_apart(loop, late[id_of(loop)]) if id_of(loop) in late and loop.parent is not None else None
            if parts is None or not parts.tail or not (parts.front or parts.rest):
                continue
            if found and len(found[-1]) == 1 and continues(found[-1][0], parts):
                found[-1].append(parts)
            else:
                found.append([parts])
        for group in found:
            if len(group) == 2:
                _pipeline_pair(block, *group)
            else:
                _pipeline(block, group[0])
    return module


def _pipeline(root: Block, parts: LoopParts) -> None:
    """Pipeline one loop."""
    loop = parts.loop
    assert loop.parent is not None
    build = Builder.before(loop)
    runs = _runs(build, loop)
    state = _main_loop(build, parts, _guarded_early(build, runs, parts))
    final = build.branch(runs, lambda side: _last(side.block, parts, state), lambda _: state.passed(parts))
    _finish(root, parts, state.early, final)


def _pipeline_pair(root: Block, one: LoopParts, two: LoopParts) -> None:
    """Pipeline two loops in a row: the last late part of the first runs beside the first early part of the second."""
    block = one.loop.parent
    assert block is not None
    build = Builder.before(one.loop)
    ran = _runs(build, one.loop)
    state = _main_loop(build, one, _guarded_early(build, ran, one))
    replace_uses(root, _by_result(one, one.early, state.early))
    build = Builder.before(two.loop)
    order = [one.later.index(source_of(two, one, i)) for i in two.later]

    def goes_on(side: Builder) -> list[Value]:
        after = _main_loop(side, two, _handed_over(side, ran, one, state, two, order))
        return after.early + _last(side.block, two, after)

    def ends(side: Builder) -> list[Value]:
        done = side.branch(ran, lambda inner: _last(inner.block, one, state), lambda _: state.passed(one))
        return [two.loop.operands[3 + i] for i in two.early] + [done[i] for i in order]

    out = build.branch(_runs(build, two.loop), goes_on, ends)
    one.loop.erase()
    _finish(root, two, out[: len(two.early)], out[len(two.early) :])


def _finish(root: Block, parts: LoopParts, early: list[Value], later: list[Value]) -> None:
    parts.loop.erase()
    replace_uses(root, {**_by_result(parts, parts.early, early), **_by_result(parts, parts.later, later)})


def _by_result(parts: LoopParts, indices: list[int], values: list[Value]) -> Values:
    return {parts.loop.results[i]: value for i, value in zip(indices, values, strict=True)}


def _runs(build: Builder, loop: Operation) -> Value:
    return build.compare("slt", loop.operands[0], loop.operands[1])


@dataclass(frozen=True, slots=True)
class _State:
    """Values between two iterations: carried by the early part, of the late part what is held, crossing."""

    early: list[Value]
    held: list[Value]
    crossing: list[Value]

    @property
    def all(self) -> list[Value]:
        return [*self.early, *self.held, *self.crossing]

    def passed(self, parts: LoopParts) -> list[Value]:
        """The later values, of a loop that does not run."""
        here = self.held + self.crossing
        return [here[place] for place in parts.places]

    @staticmethod
    def of(parts: LoopParts, values: list[Value]) -> _State:
        a, b = len(parts.early), len(parts.early) + len(parts.held)
        return _State(values[:a], values[a:b], values[b:])


def _emit(block: Block, ops: list[Operation], values: Values) -> None:
    for op in ops:
        block.append(op.clone(values))


def _next(parts: LoopParts, indices: list[int], values: Values) -> list[Value]:
    return [values.get(v, v) for v in (parts.body.terminator.operands[i] for i in indices)]


def _initial(parts: LoopParts, indices: list[int]) -> list[Value]:
    return [parts.loop.operands[3 + i] for i in indices]


def _ready(block: Block, parts: LoopParts, values: Values, later: list[Value]) -> _State:
    """The rest of E of an iteration, with what L starts from, given what the late part of the one before carries."""
    late_in = {parts.body.args[1 + i]: value for i, value in zip(parts.later, later, strict=True)}
    values.update(late_in)
    _emit(block, [*parts.rest, *parts.ahead], values)
    sums = [value for value in parts.crossing if value.op in parts.ahead]
    _keep_together(block, sums, values, parts.loop.location)
    held = [values[parts.body.args[1 + i]] for i in parts.held]
    return _State(_next(parts, parts.early, values), held, [values.get(v, v) for v in parts.crossing])


def _keep_together(block: Block, sums: list[Value], values: Values, location: Location) -> None:
    """Let what the dots will add to pass through a wait that has nothing to wait for.

    To LLVM it is opaque. Otherwise it computes such a sum once more behind the loop, where it can do so with vectors,
    and what it is computed from takes as many registers again all through the loop.
    """
    sums = [value for value in sums if is_sum(value.type)]
    if sums:
        wait = block.append(wait_for([values[value] for value in sums], 0, location))
        values.update(zip(sums, wait.results, strict=True))


def _guarded_early(build: Builder, runs: Value, parts: LoopParts) -> _State:
    """E of the first iteration, if there is one."""
    lower, inits = parts.loop.operands[0], parts.loop.operands[3:]

    def first(side: Builder) -> list[Value]:
        values: Values = {parts.body.args[0]: lower}
        values.update(zip(parts.body.args[1:], inits, strict=True))
        _emit(side.block, parts.front, values)
        state = _ready(side.block, parts, values, _initial(parts, parts.later))
        return state.early + state.crossing

    def none(side: Builder) -> list[Value]:
        passed = {place - len(parts.held): inits[i] for i, place in zip(parts.later, parts.places, strict=True)}
        through = [passed.get(at) or side.zero(v.type) for at, v in enumerate(parts.crossing)]
        return _initial(parts, parts.early) + through

    out, count = build.branch(runs, first, none), len(parts.early)
    return _State(out[:count], _initial(parts, parts.held), out[count:])


def _main_loop(build: Builder, parts: LoopParts, start: _State) -> _State:
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
    inner.create("scf.yield", _ready(block, parts, early_in, later).all)
    lower, step = parts.loop.operands[0], parts.loop.operands[2]
    attributes = dict(parts.loop.attributes)
    types = [v.type for v in start.all]
    op = build.create("scf.for", [lower, upper, step, *start.all], types, parts.loop.properties, attributes, [region])
    return _State.of(parts, op.results)


def _handed_over(
    build: Builder, ran: Value, before: LoopParts, state: _State, parts: LoopParts, order: list[int]
) -> _State:
    """E of a loop's first iteration; beside it L of the last iteration of the loop before, if that ran."""
    first: Values = {parts.body.args[0]: parts.loop.operands[0]}
    first.update(zip(parts.body.args[1:], parts.loop.operands[3:], strict=True))

    def early(block: Block, later: list[Value]) -> list[Value]:
        values = dict(first)
        _emit(block, parts.front, values)
        return _ready(block, parts, values, [later[i] for i in order]).all

    # The late part first: what it reads from registers may have to be moved, which must not be beside a dot (C7513).
    out = build.branch(
        ran,
        lambda side: early(side.block, _last(side.block, before, state)),
        lambda side: early(side.block, state.passed(before)),
    )
    return _State.of(parts, out)


def _last(block: Block, parts: LoopParts, state: _State) -> list[Value]:
    """L of an iteration; returns what it carries."""
    values: Values = {parts.body.args[1 + i]: v for i, v in zip(parts.held, state.held, strict=True)}
    values.update(zip(parts.crossing, state.crossing, strict=True))
    _emit(block, parts.tail, values)
    return _next(parts, parts.later, values)
