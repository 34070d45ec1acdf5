"""Operators that leave an operation out, or do it twice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.mutants.edits import Edit, Operator, Twin, edit
from tests.mutants.facts import ARRIVE, COPY, DOT_WAIT, EXPECT, FENCE, INIT, STORE_WAIT, WAIT, Kernel
from wspec.ir.core import Operation

NAMES = {
    "arrive": ARRIVE,
    "wait": WAIT,
    "expect": EXPECT,
    "fence": FENCE,
    "copy": COPY,
    "init": INIT,
    "store-wait": STORE_WAIT,
}


def _drops(name: str, kernel: Kernel) -> Iterator[Edit]:
    for op in kernel.named(name):
        yield edit(op, "", _drop)


def _drop(twin: Twin, op: Operation) -> None:
    twin.op(op).erase()


def _doubles(name: str, kernel: Kernel) -> Iterator[Edit]:
    for op in kernel.named(name):
        yield edit(op, "", _double)


def _double(twin: Twin, op: Operation) -> None:
    twin.behind(op).add(twin.op(op).clone({}))


def _dot_waits(kernel: Kernel) -> Iterator[Edit]:
    for op in kernel.named(DOT_WAIT):
        yield edit(op, "", _forward)


def _forward(twin: Twin, op: Operation) -> None:
    for operand, result in zip(op.operands, op.results, strict=True):
        twin.replace(result, twin.value(operand))
    twin.op(op).erase()


OPERATORS = (
    *(Operator(f"drop-{short}", f"leave out a {name}", partial(_drops, name)) for short, name in NAMES.items()),
    *(Operator(f"double-{short}", f"do a {name} twice", partial(_doubles, name)) for short, name in NAMES.items()),
    Operator("drop-dot-wait", "take the results of dots without waiting for them", _dot_waits),
)
