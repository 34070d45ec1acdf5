"""What the value semantics hands around: values, the context of a program, and an operation made ready to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wspec.execute.memory import GlobalMemory
from wspec.ir.core import Operation

# A value at run time, by its IR type:
#   tensor           torch.Tensor of that shape; i1 as bool, integers as signed torch integers of the width, pointers as
#                    int64 byte addresses. Tensors are shared (a splat is one element, expanded): never write into one.
#   integer, index   int: two's complement of the width, signed; i1 is 0 or 1; a pointer is its byte address
#   float            torch.Tensor without dimensions
#   tensor descriptor    wspec.execute.descriptor.Descriptor
# Anything else passes through unseen.
Item = Any


@dataclass(slots=True)
class Context:
    """What the operations of one program see. `dataclasses.replace(context, program=...)` shares memory and caches."""

    memory: GlobalMemory
    program: tuple[int, int, int] = (0, 0, 0)
    grid: tuple[int, int, int] = (1, 1, 1)
    printed: list[str] = field(default_factory=list)  # what tt.print has said, one entry an operation
    prepared: dict[Operation, Run] = field(default_factory=dict, repr=False)  # operations made ready so far


# An operation made ready: its attributes and types are decoded once, in `Prepare`, and it runs many times.
Run = Callable[[tuple[Item, ...], Context], tuple[Item, ...]]
Prepare = Callable[[Operation], Run]


def function(compute: Callable[..., Item]) -> Prepare:
    """An operation with one result that is a function of the operands alone, whatever the types."""

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        return (compute(*operands),)

    return lambda op: run


def typed(make: Callable[[Operation], Callable[..., Item]]) -> Prepare:
    """An operation with one result; `make` looks at its types and attributes and gives the function of the operands."""

    def prepare(op: Operation) -> Run:
        compute = make(op)
        return lambda operands, context: (compute(*operands),)

    return prepare
