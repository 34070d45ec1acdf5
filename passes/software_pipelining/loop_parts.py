"""A pipelined loop taken apart: what of it is issued first, what follows, what runs an iteration late.

passes/software_pipelining/pipeline_loops.py puts the parts together again, and says what they are for. The loop is
one of a task that has been split off: what fills its buffers stands elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from wspec.ir.core import Block, Operation, Value
from wspec.ir.isomorphism import Match
from wspec.ir.numbering import ID, id_of
from wspec.ir.shapes import DOTS
from wspec.passes.software_pipelining.stages import goes_ahead


@dataclass(frozen=True, slots=True)
class LoopParts:
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
    places: list[int]  # for each of the later ones, which of those held and crossing has its place
    taken: list[Value]  # what the tail and what goes ahead of it take from an early part or the induction variable


def take_apart(loop: Operation, late_ids: frozenset[int]) -> LoopParts:
    """The parts of a loop of which the operations with these ids run late, as `legal_late` allows."""
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
    return LoopParts(
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
            own.update(inner.defined)
            for value in inner.operands:
                defined_early = value.op is not None and value.op.parent is body and value.op not in late
                if value not in own and value not in found and (defined_early or value in early_args):
                    found.append(value)
    for index, value in enumerate(body.terminator.operands):
        made = value.op is not None and value.op.parent is body and value.op not in late
        if index not in early and (value in early_args or made) and value not in found:
            found.append(value)
    return found


def continues(before: LoopParts, parts: LoopParts) -> bool:
    """Can the late part of one loop wait for the next loop, which stands behind it in the same block?

    Both late parts must compute the same, the next loop must take over what the first one's late part carries, and
    nothing else may ask for that.
    """
    first, loop = before.loop, parts.loop
    if first.parent is not loop.parent or first.parent is None:
        return False
    results = {first.results[i] for i in before.later}
    users = [(op, at) for op in first.parent.walk() for at, v in enumerate(op.operands) if v in results]
    taken = {3 + i for i in parts.later if loop.operands[3 + i] in results}
    if any(op is not loop or at not in taken for op, at in users) or len(taken) != len(parts.later):
        return False
    if len(users) != len(before.later) or len(before.later) != len(parts.later):
        return False
    return _alike(before, parts)


def source_of(parts: LoopParts, before: LoopParts, index: int) -> int:
    """The index of the carried value of the loop before that becomes this one."""
    return before.loop.results.index(parts.loop.operands[3 + index])


def _alike(before: LoopParts, parts: LoopParts) -> bool:
    """Do the late parts compute the same, of what crosses at the same places?"""
    ours = {*parts.taken, *(parts.body.args[1 + i] for i in parts.later)}
    theirs = {*before.taken, *(before.body.args[1 + i] for i in before.later)}
    match = Match(ours, theirs)
    same = match.operations([*parts.ahead, *parts.tail], [*before.ahead, *before.tail], frozenset({ID}))
    for index in parts.later:
        source = source_of(parts, before, index)
        same = same and match.operand(parts.body.args[1 + index], before.body.args[1 + source])
        ends = parts.body.terminator.operands[index], before.body.terminator.operands[source]
        same = same and match.operand(*ends)
    found = [match.there.get(value) for value in parts.taken]
    return same and None not in found and len(set(found)) == len(before.taken)
