"""Asynchronous tensor core operations: the order in which they complete within one block, and what they leave."""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ir.core import Block, Operation, Value
from wspec.ir.loc import Location
from wspec.ir.types import F32, Layout, TensorType, Type, i32

DOT = "ttng.warp_group_dot"
WAIT = "ttng.warp_group_dot_wait"


def is_async(op: Operation) -> bool:
    return op.name == DOT and str(op.attr("isAsync")) == "true"


def completions(block: Block) -> dict[Operation, Operation]:
    """For each asynchronous dot issued in `block`, the wait in `block` after which it is complete.

    Dots complete in order: `pendings = n` waits for all but the last n. A dot that is still running at the end of the
    block is not in the result.
    """
    done: dict[Operation, Operation] = {}
    pending: list[Operation] = []
    for op in block.ops:
        if is_async(op):
            pending.append(op)
        elif op.name == WAIT:
            keep = op.int_attr("pendings") or 0
            finished = pending[: max(0, len(pending) - keep)]  # a wait may let more go on than there are
            done.update((dot, op) for dot in finished)
            pending = pending[len(finished) :]
    return done


def wait_for(values: Sequence[Value], pendings: int, location: Location) -> Operation:
    """A wait for all dots but the last `pendings`, detached; the values pass through it."""
    flags = {"pendings": i32(pendings)}
    return Operation.create(WAIT, values, [value.type for value in values], flags, location=location)


def is_sum(type: Type) -> bool:
    """A tensor as the tensor core leaves it?"""
    if not isinstance(type, TensorType):
        return False
    encoding = type.encoding
    return isinstance(encoding, Layout) and encoding.name == "ttg.nvidia_mma" and type.element == F32
