"""Operators that use one thing for another: an index, a barrier, a buffer, a predicate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from tests.mutants.edits import Edit, Operator, Twin, edit
from tests.mutants.facts import ARRIVE, COPY, EXPECT, INDEX, WAIT, Kernel, Ring, constant, needed
from wspec.ir.builder import Builder
from wspec.ir.core import Operation, Value
from wspec.ir.types import I1, MemDescType, TensorDescType

BARRIER = {ARRIVE: 0, WAIT: 0, EXPECT: 0, COPY: -3}
PREDICATE = {ARRIVE: 1, WAIT: 2, EXPECT: 1, COPY: -1}

# ---------------------------------------------------------------------------------------------------- indices


def _indices(kernel: Kernel) -> Iterator[Edit]:
    """Of every buffer and barrier a task picks."""
    for op in kernel.named(INDEX):
        ring = kernel.ring_of(op.operands[0])
        if ring is None or kernel.task_of(op) is None:
            continue
        if ring.depth > 1:
            yield edit(op, "next", _next, ring.depth, 1)
            if constant(op.operands[1]) != 0:
                yield edit(op, "first", _first)
        if ring.depth > 2:
            yield edit(op, "previous", _next, ring.depth, ring.depth - 1)
        for number, index in enumerate(_other_indices(kernel, op, ring)):
            yield edit(op, f"of ring {number}", _set, 1, index)


def _next(twin: Twin, op: Operation, depth: int, step: int) -> None:
    """The index `step` buffers on."""
    build = twin.before(op)
    later = build.binary("arith.addi", twin.value(op.operands[1]), build.constant(step))
    wrapped = build.binary("arith.subi", later, build.constant(depth))
    beyond = build.compare("sge", later, build.constant(depth))
    twin.set_operand(op, 1, build.select(beyond, wrapped, later))


def _first(twin: Twin, op: Operation) -> None:
    twin.set_operand(op, 1, twin.before(op).constant(0))


def _set(twin: Twin, op: Operation, index: int, value: Value) -> None:
    twin.set_operand(op, index, twin.value(value))


def _other_indices(kernel: Kernel, op: Operation, ring: Ring) -> Iterator[Value]:
    """For each other ring an index of it that the same block uses; whether it can be used here the verifier says."""
    assert op.parent is not None
    beside = [o for o in op.parent.ops if o.name == INDEX and o.operands[1] is not op.operands[1]]
    for other in kernel.rings:
        if other is not ring:
            found = [o.operands[1] for o in beside if kernel.root(o.operands[0]) in other.values]
            yield from dict.fromkeys(found)


# --------------------------------------------------------------------------------------------------- barriers


def _barriers(kernel: Kernel) -> Iterator[Edit]:
    """At the same index: the other barrier of the ring, or that of the same kind of another ring."""
    for op in kernel.named(*BARRIER):
        barrier = op.operands[BARRIER[op.name]]
        ring, task = kernel.ring_of(barrier), kernel.task_of(op)
        if ring is None or task is None:
            continue
        kind = ring.values.index(kernel.root(barrier))
        for other in kernel.rings:
            for number, value in enumerate(other.values[1:], start=1):
                if (number != kind) if other is ring else (number == kind):
                    what = "full" if number == 1 else "empty"
                    where = kernel.seen(value, task), kernel.index(barrier)
                    yield edit(op, f"{what} of {kernel.rings.index(other)}", _other_barrier, *where)


def _other_barrier(twin: Twin, op: Operation, ring: Value, index: Value | None) -> None:
    """The barrier of `ring` at the index, the first one where there is none; the allocation itself if it is but one."""
    build, place = twin.before(op), BARRIER[op.name]
    barriers = twin.value(ring)
    assert isinstance(barriers.type, MemDescType)
    if len(barriers.type.shape) > 1:
        at = twin.value(index) if index is not None else build.constant(0)
        one = replace(barriers.type, shape=barriers.type.shape[1:])
        barriers = build.create(INDEX, [barriers, at], [one]).result
    twin.set_operand(op, place, barriers)


# ----------------------------------------------------------------------------------------------------- copies


def _copies(kernel: Kernel) -> Iterator[Edit]:
    """Of every two copies of a block."""
    for first, second in _pairs(kernel):
        yield edit(second, f"barriers, with {_nth(kernel, first)}", _exchange, first, (-3,))
        if first.operands[-2].type == second.operands[-2].type:
            yield edit(second, f"buffers, with {_nth(kernel, first)}", _exchange, first, (-2,))


def _pairs(kernel: Kernel) -> Iterator[tuple[Operation, Operation]]:
    yield from ((a, b) for a, b in combinations(kernel.named(COPY), 2) if a.parent is b.parent)


def _nth(kernel: Kernel, copy: Operation) -> int:
    return kernel.named(COPY).index(copy)


def _exchange(twin: Twin, second: Operation, first: Operation, places: tuple[int, ...]) -> None:
    """Operands of two copies; what the second one's need is computed for the first one again."""
    for place in places:
        mine = twin.value(first.operands[place])
        twin.op(first).operands[place] = _again(twin, twin.before(first), second, place)
        twin.op(second).operands[place] = mine


def _again(twin: Twin, build: Builder, op: Operation, place: int) -> Value:
    """Operand `place` of `op`, computed anew where `build` stands."""
    values: dict[Value, Value] = {}
    for source in needed(op):
        build.add(twin.op(source).clone(values))
    value = twin.value(op.operands[place])
    return values.get(value, value)


def _values(kernel: Kernel) -> Iterator[Edit]:
    """A copy brings another tile, or brings it into another ring; all barriers stay as they were."""
    for first, second in _pairs(kernel):
        number, width = _nth(kernel, first), _width(first)
        if first.operands[0].type == second.operands[0].type and first.operands[0] is not second.operands[0]:
            yield edit(second, f"descriptors, with {number}", _exchange, first, (0,))
        if width == _width(second) and first.operands[1 : 1 + width] != second.operands[1 : 1 + width]:
            yield edit(second, f"places, with {number}", _exchange, first, tuple(range(1, width + 1)))


def _width(copy: Operation) -> int:
    """How many coordinates it has."""
    assert isinstance(copy.operands[0].type, TensorDescType)
    return len(copy.operands) - 4


# ------------------------------------------------------------------------------------------------- predicates


def _predicates(kernel: Kernel) -> Iterator[Edit]:
    for op in kernel.named(*PREDICATE):
        place = PREDICATE[op.name]
        if len(op.operands) > place and op.operands[place].type == I1:
            if constant(op.operands[place]) != 1:
                yield edit(op, "dropped", _always, place)
            yield edit(op, "inverted", _invert, place)


def _always(twin: Twin, op: Operation, place: int) -> None:
    twin.set_operand(op, place, twin.before(op).constant(1, I1))


def _invert(twin: Twin, op: Operation, place: int) -> None:
    build = twin.before(op)
    twin.set_operand(op, place, build.binary("arith.xori", twin.value(op.operands[place]), build.constant(1, I1)))


OPERATORS = (
    Operator(
        "other-index",
        "the buffer or barrier before or behind the right one, the first one, or where another ring stands",
        _indices,
    ),
    Operator("other-barrier", "a full barrier for an empty one, or that of another ring", _barriers),
    Operator("swap-copies", "two copies exchange their barriers, or their buffers", _copies),
    Operator("predicate", "a predicate is dropped or inverted", _predicates),
    Operator("swap-tiles", "two copies exchange what they bring", _values, about_order=False),
)
