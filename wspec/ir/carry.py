"""Loops that hand values of a round to the next."""

from __future__ import annotations

from wspec.ir.builder import Builder
from wspec.ir.core import Operation, Value


def carry(loop: Operation, values: list[Value]) -> dict[Value, Value]:
    """Carry values of a loop's body to its next round: for each, what it was in the round before, zero at first.

    The loop gains a result for each, behind those it has.
    """
    body, outside = loop.regions[0].block, loop.parent
    assert outside is not None
    build = Builder.before(loop)
    loop.operands += [build.zero(value.type) for value in values]
    body.terminator.operands += values
    for value in values:
        loop.add_result(value.type)
    return {value: body.add_arg(value.type, value.location) for value in values}


def drop(loop: Operation, index: int) -> None:
    """Carry a value no more, whose result and argument nobody reads."""
    body = loop.regions[0].block
    del loop.operands[3 + index], body.args[1 + index], body.terminator.operands[index], loop.results[index]
    for values, first in ((body.args, 1), (loop.results, 0)):
        for at in range(first + index, len(values)):
            values[at].index = at
