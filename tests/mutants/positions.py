"""Operators on positions in rings: phases that do not fit, positions that do not move on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.mutants.edits import Edit, Operator, Twin, edit
from tests.mutants.facts import INDEX, WAIT, Kernel, history
from wspec.ir.core import Operation, Value


def _waits(kernel: Kernel) -> Iterator[Edit]:
    for op in kernel.named(WAIT):
        yield edit(op, "", _flip, 1)


def _starts(kernel: Kernel) -> Iterator[Edit]:
    phases = _union(op.operands[1] for op in kernel.named(WAIT))
    for loop in kernel.named("scf.for"):
        for index, argument in enumerate(loop.regions[0].block.args[1:]):
            if argument in phases:
                yield edit(loop, f"value {index}", _flip, 3 + index)


def _flip(twin: Twin, op: Operation, index: int) -> None:
    build = twin.before(op)
    phase = twin.value(op.operands[index])
    twin.set_operand(op, index, build.binary("arith.xori", phase, build.constant(1)))


def _union(values: Iterable[Value]) -> set[Value]:
    return set().union(*map(history, values))


# --------------------------------------------------------------------------------------------------- moving on


def _indices(kernel: Kernel) -> Iterator[Edit]:
    """`select(wraps, 0, i + 1)` becomes i, or i + 1."""
    indices = _union(op.operands[1] for op in kernel.named(INDEX))
    for op in _selects(kernel, indices):
        following = op.operands[2].op
        if following is not None and following.name == "arith.addi":
            yield edit(op, "stays", _become, following.operands[0])
            yield edit(op, "does not wrap", _become, following.result)


def _phases(kernel: Kernel) -> Iterator[Edit]:
    """`select(wraps, p ^ 1, p)` becomes p, or p ^ 1; in a ring of one buffer, p ^ 1 becomes p."""
    phases = _union(op.operands[1] for op in kernel.named(WAIT))
    for op in _selects(kernel, phases):
        yield edit(op, "never turns", _become, op.operands[2])
        yield edit(op, "always turns", _become, op.operands[1])
    for op in kernel.named("arith.xori"):
        users = [user.name for user, _ in kernel.uses.get(op.result, [])]
        if op.result in phases and "arith.select" not in users:
            yield edit(op, "never turns", _become, op.operands[0])


def _selects(kernel: Kernel, values: set[Value]) -> list[Operation]:
    return [op for op in kernel.named("arith.select") if op.result in values]


def _become(twin: Twin, op: Operation, value: Value) -> None:
    twin.replace(op.result, twin.value(value))


OPERATORS = (
    Operator("flip-phase", "a wait asks for the other phase", _waits),
    Operator("flip-start", "a loop starts with the other phase", _starts),
    Operator("stuck-index", "a position does not move on, or not back to the start", _indices),
    Operator("stuck-phase", "a phase is not turned over at the end of the ring, or always", _phases),
)
