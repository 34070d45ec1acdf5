"""Why a mutant does the same as its original: one small function on the IR for each reason.

The docstring of a rule is the reason, given that the original is right. A rule says yes only where the reason holds for
this kernel and this change; that no rule says yes proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.mutants.edits import Mutant
from tests.mutants.facts import (
    ARRIVE,
    COPY,
    DOT,
    DOT_WAIT,
    EXPECT,
    FENCE,
    LOCAL_STORE,
    STORE_WAIT,
    TMA_STORE,
    WAIT,
    Kernel,
    Ring,
    after,
    before,
)
from tests.mutants.numbering import Meaning, Numbering
from wspec.ir.core import Operation, Value


class Original:
    """A kernel that is mutated, with what rules ask of it worked out once."""

    def __init__(self, module: Operation) -> None:
        self.kernel = Kernel(module)
        self.meaning = Meaning(module)
        self.numbers = Numbering(module)


@dataclass(frozen=True, slots=True)
class Case:
    """One mutant, built, and its original."""

    original: Original
    mutant: Mutant
    module: Operation

    @property
    def kernel(self) -> Kernel:
        return self.original.kernel

    @property
    def op(self) -> Operation:
        """The operation of the original that was changed."""
        return self.mutant.edit.op

    def same(self, one: Value, other: Value) -> bool:
        """Always equal, in the original?"""
        return self.original.numbers[one] == self.original.numbers[other]


Rule = Callable[[Case], bool]


def argument(case: Case) -> str | None:
    """The first reason that holds."""
    found = next((rule for rule in RULES if rule(case)), None)
    return None if found is None else " ".join((found.__doc__ or found.__name__).split())


# ------------------------------------------------------------------------------------------- nothing has changed


def nothing_changes(case: Case) -> bool:
    """Only dead code differs, or which of two always equal values is used."""
    return case.original.meaning.is_that_of(case.module)


def waits_twice(case: Case) -> bool:
    """The second wait asks for what the first one has just seen. The barrier cannot have moved on by two phases in
    between, since this task has a part in each: it hands the buffer back, or fills it, or nobody ever does again."""
    if case.mutant.operator != "double-wait":
        return False
    kernel, ring, task = case.kernel, case.kernel.ring_of(case.op.operands[0]), case.kernel.task_of(case.op)
    if ring is None:
        return False
    if kernel.root(case.op.operands[0]) is ring.empty:
        copies = (copy for copy in kernel.named(COPY) if kernel.ring_of(copy.operands[-2]) is ring)
        return task in map(kernel.task_of, copies)
    return ring.empty is None or task in map(kernel.task_of, _arrives(kernel, ring))


def barriers_need_no_fence(case: Case) -> bool:
    """The fence stands between the initialization of barriers and the tasks, which start behind a barrier of the block.
    Triton's own kernels have no fence there."""
    if case.mutant.operator not in ("drop-fence", "late-fence") or case.kernel.task_of(case.op) is not None:
        return False
    return not any(op.name == LOCAL_STORE for op in before(case.op))


def fences_twice(case: Case) -> bool:
    """Nothing stands between the two fences, or the two waits for stores."""
    return case.mutant.operator in ("double-fence", "double-store-wait")


# ------------------------------------------------------------------------------------------------- nobody waits


def nobody_waits(case: Case) -> bool:
    """The arrival comes when this task has waited for all tiles of the ring: the buffer is not filled again, so nobody
    waits for that arrival any more."""
    op = _arrival(case)
    if op is None:
        return False
    place = case.mutant.edit.arguments[1] if case.mutant.operator == "early-release" else op
    barriers = [op.operands[0]]
    if case.mutant.operator == "other-barrier":
        barriers.append(case.mutant.edit.arguments[0])
    return all(_is_done_with(case.kernel, place, barrier) for barrier in barriers)


def _arrival(case: Case) -> Operation | None:
    """The one arrival that is changed."""
    changes = ("drop-arrive", "double-arrive", "predicate", "other-barrier", "early-release")
    if case.mutant.operator in changes:
        return case.op if case.op.name == ARRIVE else None
    if case.mutant.operator == "other-index":
        users = [user for user, _ in case.kernel.uses.get(case.op.result, [])]
        return users[0] if len(users) == 1 and users[0].name == ARRIVE else None
    return None


def _is_done_with(kernel: Kernel, place: Operation, barrier: Value) -> bool:
    """Behind `place` its task waits for no tile of the ring, and an arrival on `barrier` concerns no other task."""
    ring, task = kernel.ring_of(barrier), kernel.task_of(place)
    if ring is None:  # of what a task computes once, say
        return False
    waits = [op for op in kernel.named(WAIT) if kernel.root(op.operands[0]) is ring.full]
    tasks = {kernel.task_of(op) for op in waits}
    if kernel.root(barrier) is ring.full and tasks != {task}:
        return False
    return task in tasks and not any(_may_follow(kernel, op, place) for op in waits if kernel.task_of(op) == task)


def _may_follow(kernel: Kernel, op: Operation, place: Operation) -> bool:
    """May `op` run after `place` (or be it), both of one task?"""
    loops = {outer for outer in place.ancestors() if outer.name == "scf.for"}
    if loops.intersection(op.ancestors()):
        return True
    return kernel.order[op] >= kernel.order[place]


# ----------------------------------------------------------------------------------------------------- releases


def reads_are_over(case: Case) -> bool:
    """The buffer is handed back earlier, but still behind the end of the last read of it: what must come before the
    arrival still does."""
    if case.mutant.operator != "early-release":
        return False
    ring = case.kernel.ring_of(case.op.operands[0])
    return ring is not None and not any(_concerns(case.kernel, op, ring) for op in _crossed(case))


def _crossed(case: Case) -> Iterator[Operation]:
    """What a release was moved in front of."""
    moved, place = case.mutant.edit.arguments
    for op in before(case.op):
        if op not in moved:
            yield op
        if op is place:
            return


def _concerns(kernel: Kernel, op: Operation, ring: Ring) -> bool:
    """Does anything in `op` read the ring's buffers, end a read of them, or wait for a tile of it?"""
    if kernel.touches(op, ring.buffers):
        return True
    enders = _enders(kernel, ring, kernel.task_of(op))
    for inner in op.walk():
        if inner.name in enders or (inner.name == WAIT and kernel.root(inner.operands[0]) is ring.full):
            return True
    return False


def _enders(kernel: Kernel, ring: Ring, task: int | None) -> set[str]:
    """What ends reads of the ring's buffers in a task: waits for dots, waits for stores, fences behind loads."""
    readers = {op.name for op in kernel.reads(ring) if kernel.task_of(op) == task}
    found = {DOT_WAIT} if DOT in readers else set()
    if TMA_STORE in readers:
        found.add(STORE_WAIT)
    return found | ({FENCE} if readers - {DOT, TMA_STORE} else set())


# --------------------------------------------------------------------------- rings that move together with others


def held_back_by_another_ring(case: Case) -> bool:
    """Other rings stand at the same index: the task that fills them waits for a buffer of those first, and whoever
    reads this ring hands a buffer of one of those back later. So the wait that is left out, or passes early, waits
    for nothing."""
    operator, kernel = case.mutant.operator, case.kernel
    if operator == "early-release":
        ring = kernel.ring_of(case.op.operands[0])
        own = [op for op in _crossed(case) if _waits_for(case, op, ring)]
        return (
            ring is not None
            and not own
            and any(
                _acquired_first(case, other, ring) and _released_later(case, other, case.op) for other in kernel.rings
            )
        )
    if operator == "drop-wait":
        wait: Operation | None = case.op
    elif operator == "early-copy" and case.mutant.edit.what == "alone":
        wait = case.mutant.edit.arguments[1]
    else:
        return False
    ring = kernel.ring_of(wait.operands[0]) if wait is not None else None
    if wait is None or ring is None or kernel.root(wait.operands[0]) is not ring.empty:
        return False
    first = [other for other in kernel.rings if other is not ring and _first(case, other, wait)]
    return all(any(_released_later(case, other, arrive) for other in first) for arrive in _arrives(kernel, ring))


def _waits_for(case: Case, op: Operation, ring: Ring | None) -> bool:
    """Does anything in `op` wait for the very tile whose buffer the case's arrival hands back?"""
    index = case.kernel.index(case.op.operands[0])
    for inner in op.walk():
        if inner.name == WAIT and ring is not None and case.kernel.root(inner.operands[0]) is ring.full:
            mine = case.kernel.index(inner.operands[0])
            if mine is None or index is None or case.same(mine, index):
                return True
    return False


def _acquired_first(case: Case, other: Ring, ring: Ring) -> bool:
    waits = [op for op in case.kernel.named(WAIT) if case.kernel.root(op.operands[0]) is ring.empty]
    return other is not ring and all(_first(case, other, wait) for wait in waits)


def _first(case: Case, other: Ring, wait: Operation) -> bool:
    """Is there, in front of `wait` in its block, a wait for a buffer of `other` at the same place?"""
    ring = case.kernel.ring_of(wait.operands[0])
    if ring is None or ring.depth != other.depth:
        return False
    return any(
        op.name == WAIT and case.kernel.root(op.operands[0]) is other.empty and _same_place(case, op, wait, (1,))
        for op in before(wait)
    )


def _released_later(case: Case, other: Ring, arrive: Operation) -> bool:
    """Is there, behind `arrive` in its block, an arrival for `other` at the same place?"""
    return any(
        op.name == ARRIVE and case.kernel.root(op.operands[0]) is other.empty and _same_place(case, op, arrive, (1,))
        for op in after(arrive)
    )


def _same_place(case: Case, one: Operation, other: Operation, operands: tuple[int, ...]) -> bool:
    """The same index of two rings, and equal operands."""
    mine, its = case.kernel.index(one.operands[0]), case.kernel.index(other.operands[0])
    if mine is None or its is None or not case.same(mine, its):
        return False
    return all(case.same(one.operands[index], other.operands[index]) for index in operands)


# ------------------------------------------------------------------------------------------------------- copies


def only_tiles_differ(case: Case) -> bool:
    """The copies bring other tiles, of the same size: barriers, buffers and bytes are as before."""
    return case.mutant.operator == "swap-tiles"


def tiles_are_waited_for_together(case: Case) -> bool:
    """The two copies bring as many bytes to the same index of their rings, and whoever reads either waits for both
    before it does: which of the two barriers counts which bytes makes no difference."""
    if case.mutant.operator != "swap-copies" or not case.mutant.edit.what.startswith("barriers"):
        return False
    return _read_together(case, case.op, case.mutant.edit.arguments[0])


def buffers_are_handed_back_together(case: Case) -> bool:
    """As with their barriers; and the buffer that is filled first was handed back first, so it is free. What is
    computed is another thing, but in the same order."""
    if case.mutant.operator != "swap-copies" or not case.mutant.edit.what.startswith("buffers"):
        return False
    first = case.mutant.edit.arguments[0]
    ring, other = (case.kernel.ring_of(copy.operands[-2]) for copy in (case.op, first))
    if ring is None or other is None or not _read_together(case, case.op, first):
        return False
    return _acquired_first(case, other, ring) and all(
        _released_later(case, other, arrive) for arrive in _arrives(case.kernel, ring)
    )


def _read_together(case: Case, one: Operation, other: Operation) -> bool:
    rings = [case.kernel.ring_of(copy.operands[-2]) for copy in (one, other)]
    sizes = [_expected(copy) for copy in (one, other)]
    if rings[0] is None or rings[1] is None or rings[0].depth != rings[1].depth or sizes[0] != sizes[1]:
        return False
    if not _same_index(case, one.operands[-3], other.operands[-3]):
        return False
    waits = [[op for op in case.kernel.named(WAIT) if case.kernel.root(op.operands[0]) is r.full] for r in rings if r]
    pairs = [(op, _partner(case, op, waits[1])) for op in waits[0]]
    if len(waits[0]) != len(waits[1]) or any(partner is None for _, partner in pairs):
        return False
    return all(_nothing_between(case, op, partner, rings) for op, partner in pairs if partner is not None)


def _expected(copy: Operation) -> int | None:
    expects = (op for op in before(copy) if op.name == EXPECT and op.operands[0] is copy.operands[-3])
    return next((op.int_attr("size") for op in expects), None)


def _same_index(case: Case, one: Value, other: Value) -> bool:
    mine, its = case.kernel.index(one), case.kernel.index(other)
    return mine is not None and its is not None and case.same(mine, its)


def _partner(case: Case, wait: Operation, others: list[Operation]) -> Operation | None:
    """The wait of the same block for the other ring's tile at the same place."""
    beside = (op for op in others if op.parent is wait.parent)
    return next((op for op in beside if _same_place(case, op, wait, (1, 2))), None)


def _nothing_between(case: Case, one: Operation, other: Operation, rings: list[Ring | None]) -> bool:
    """Between the two waits nothing touches the buffers of either ring."""
    assert one.parent is not None
    places = sorted(one.parent.ops.index(op) for op in (one, other))
    between = one.parent.ops[places[0] : places[1]]
    return not any(case.kernel.touches(op, ring.buffers) for op in between for ring in rings if ring is not None)


def _arrives(kernel: Kernel, ring: Ring) -> list[Operation]:
    return [op for op in kernel.named(ARRIVE) if kernel.root(op.operands[0]) is ring.empty]


# -------------------------------------------------------------------------------------------------------- rings


def the_ring_is_only_shorter(case: Case) -> bool:
    """Buffers, barriers and positions agree on one buffer less. A shorter ring lets the task that fills it run less far
    ahead and changes nothing else; whether the others then still get what they wait for does not depend on the order
    in which tasks run, and so shows in any run that goes round the ring."""
    return case.mutant.operator == "shrink-ring"


RULES: tuple[Rule, ...] = (
    nothing_changes,
    waits_twice,
    barriers_need_no_fence,
    fences_twice,
    nobody_waits,
    reads_are_over,
    held_back_by_another_ring,
    only_tiles_differ,
    tiles_are_waited_for_together,
    buffers_are_handed_back_together,
    the_ring_is_only_shorter,
)
