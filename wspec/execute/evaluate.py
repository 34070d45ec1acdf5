"""The entry to the value semantics: what an operation makes of its operands' values.

Handled is everything that is a function of its operands, or touches global memory only. Control flow, tasks, shared
memory, barriers and asynchronous operations are not.
"""

from __future__ import annotations

from wspec.execute import (
    access,
    asm,
    bits,
    convert,
    debug,
    dots,
    floats,
    integers,
    libdevice,
    reduce,
    scaled,
    tensors,
    tiles,
)
from wspec.execute.context import Context, Item, Prepare, Run
from wspec.execute.errors import ExecutionError
from wspec.ir.core import Operation

__all__ = ["Context", "Item", "Run", "evaluate", "handles", "prepare"]


def handles(name: str) -> bool:
    """Is the operation of that name evaluated here?"""
    return name in _TABLE


def evaluate(op: Operation, operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
    """The results of one operation. Raises ExecutionError, with the operation's location."""
    run = context.prepared.get(op)
    if run is None:
        run = context.prepared[op] = prepare(op)
    return run(operands, context)


def prepare(op: Operation) -> Run:
    """The operation as a function of operands and context, with types and attributes decoded: for running it often.

    Raises ExecutionError, with the operation's location, for operations that are not handled; so does the function for
    what goes wrong when it runs.
    """
    make = _TABLE.get(op.name)
    if make is None:
        raise ExecutionError(f"an operation that the executor does not know: {op.name}", op.location)
    try:
        run = make(op)
    except ExecutionError as error:
        raise error.placed(op.location) from None

    def located(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        try:
            return run(operands, context)
        except ExecutionError as error:
            raise error.placed(op.location) from None

    return located


_TABLE: dict[str, Prepare] = {
    **integers.HANDLERS,
    **bits.HANDLERS,
    **floats.HANDLERS,
    **convert.HANDLERS,
    **tensors.HANDLERS,
    **reduce.handlers(prepare),
    **dots.HANDLERS,
    **scaled.HANDLERS,
    **access.HANDLERS,
    **tiles.HANDLERS,
    **debug.HANDLERS,
    **libdevice.HANDLERS,
    **asm.HANDLERS,
}
