"""Operators that move an operation to another place in its block, with the pure operations it needs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.mutants.edits import Edit, Operator, Twin, edit
from tests.mutants.facts import (
    ARRIVE,
    COPY,
    EXPECT,
    FENCE,
    TMA_STORE,
    WAIT,
    Kernel,
    after,
    before,
    has_effects,
    needed,
)
from wspec.ir.core import Operation
from wspec.ir.ops import is_terminator


def _releases(kernel: Kernel) -> Iterator[Edit]:
    """To in front of each earlier operation that has an effect: anything between two of them is the same place."""
    for op in kernel.named(ARRIVE):
        moved = needed(op)
        for distance, place in enumerate((o for o in before(op) if o not in moved and has_effects(o)), start=1):
            yield edit(op, f"up {distance}, before {place.name}", _move_before, [*moved, op], place)


def _move_before(twin: Twin, op: Operation, ops: list[Operation], place: Operation) -> None:
    twin.move_before(ops, place)


def _late_waits(kernel: Kernel) -> Iterator[Edit]:
    for op in kernel.named(WAIT):
        ring = kernel.ring_of(op.operands[0])
        if ring is not None and kernel.root(op.operands[0]) is ring.full:
            reader = next((later for later in after(op) if kernel.touches(later, ring.buffers)), None)
            if reader is not None:
                yield edit(op, f"behind {reader.name}", _move_behind, reader)


def _late_fences(kernel: Kernel) -> Iterator[Edit]:
    """Behind the next operation that has an effect; for stores of tiles that is what `_early_stores` does."""
    for op in kernel.named(FENCE):
        following = next((later for later in after(op) if has_effects(later)), None)
        if following is not None and following.name != TMA_STORE and not is_terminator(following):
            yield edit(op, f"behind {following.name}", _move_behind, following)


def _move_behind(twin: Twin, op: Operation, place: Operation) -> None:
    twin.move_behind(op, place)


def _early_copies(kernel: Kernel) -> Iterator[Edit]:
    """With its expect, or alone, to before the wait for its buffer."""
    for op in kernel.named(COPY):
        ring = kernel.ring_of(op.operands[-2])
        if ring is None or ring.empty is None:
            continue
        waits = (o for o in before(op) if o.name == WAIT and kernel.root(o.operands[0]) is ring.empty)
        wait = next(waits, None)
        expect = next((o for o in before(op) if o.name == EXPECT and o.operands[0] is op.operands[-3]), None)
        if wait is not None and expect is not None:
            both = list(dict.fromkeys([*needed(expect), expect, *needed(op), op]))
            yield edit(op, "with its expect", _move_before, _below(wait, both), wait)
            yield edit(op, "alone", _move_before, _below(wait, [*needed(op), op]), wait)


def _below(place: Operation, ops: list[Operation]) -> list[Operation]:
    """Those behind `place` in its block: the others need not be moved."""
    behind = list(after(place))
    return [op for op in ops if op in behind]


def _early_stores(kernel: Kernel) -> Iterator[Edit]:
    for op in kernel.named(TMA_STORE):
        fence = next((o for o in before(op) if o.name == FENCE), None)
        if fence is not None:
            yield edit(op, "", _move_before, _below(fence, [*needed(op), op]), fence)


OPERATORS = (
    Operator("early-release", "a buffer is handed back earlier in its block", _releases),
    Operator("late-wait", "a wait for a tile comes behind the first read of it", _late_waits),
    Operator("early-copy", "a copy is issued before the wait for its buffer", _early_copies),
    Operator("late-fence", "a fence comes behind what it is there for", _late_fences),
    Operator("early-store", "a tile leaves before the fence that makes it visible", _early_stores),
)
