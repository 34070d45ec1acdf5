"""Regions of scalar operations, run on whole tensors at once: what `tt.reduce`, `tt.scan` and the like combine with.

Every scalar of the region stands for a tensor, one element for each time the region would run. Constants become tensors
without dimensions. Both sides of an `scf.if` run, and the condition selects element by element: nothing in such a
region has an effect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from wspec.execute.constants import constant
from wspec.execute.context import Context, Prepare, Run
from wspec.execute.elements import dtype_of, tensor
from wspec.execute.errors import ExecutionError
from wspec.execute.select import select
from wspec.ir.core import Block, Operation, Value
from wspec.ir.ops import is_pure

Tensors = tuple[torch.Tensor, ...]
_Slots = list[torch.Tensor]
_Step = Callable[[_Slots, Context], None]
_UNSET = torch.empty(0)


@dataclass(frozen=True, eq=False, slots=True)
class Body:
    """A block as a function of tensors. A value has a slot; the arguments have the first ones."""

    start: tuple[torch.Tensor, ...]  # what the other slots hold at first: constants from around the region
    steps: tuple[_Step, ...]
    results: tuple[int, ...]

    def __call__(self, args: Tensors, context: Context) -> Tensors:
        slots = [*args, *self.start]
        for step in self.steps:
            step(slots, context)
        return tuple([slots[slot] for slot in self.results])


def body_of(op: Operation, prepare: Prepare) -> Body:
    """The only block of the operation's only region. Raises ExecutionError for what cannot run on tensors."""
    if len(op.blocks) != 1:
        raise ExecutionError(f"{op.name} with branches in its region", op.location)
    (block,) = op.blocks
    reader = _Reader(prepare)
    for value in block.args:
        reader.define(value)
    steps = reader.steps(block)
    results = tuple(reader.slot(value) for value in block.terminator.operands)
    return Body(tuple(reader.start[len(block.args) :]), steps, results)


class _Reader:
    """Numbers the values of a region and makes its operations ready."""

    def __init__(self, prepare: Prepare) -> None:
        self.prepare = prepare
        self.numbers: dict[Value, int] = {}
        self.start: list[torch.Tensor] = []

    def define(self, value: Value, start: torch.Tensor = _UNSET) -> int:
        """A slot for the value."""
        self.numbers[value] = len(self.start)
        self.start.append(start)
        return self.numbers[value]

    def slot(self, value: Value) -> int:
        """Where the value is. Constants may be hoisted out of the region; nothing else comes from outside."""
        found = self.numbers.get(value)
        if found is not None:
            return found
        if value.op is None or value.op.name != "arith.constant":
            raise ExecutionError(f"a region that runs on every element uses {value!r} from outside")
        return self.define(value, tensor(constant(value.op.attr("value")), dtype_of(value.type)))

    def steps(self, block: Block) -> tuple[_Step, ...]:
        """All operations but the terminator."""
        return tuple([self._branch(op) if op.name == "scf.if" else self._step(op) for op in block.ops[:-1]])

    def _step(self, op: Operation) -> _Step:
        if op.regions or not is_pure(op):
            raise ExecutionError(f"{op.name} inside a region that runs on every element", op.location)
        run: Run = self.prepare(op)
        operands = tuple(self.slot(value) for value in op.operands)
        results = tuple((self.define(value), dtype_of(value.type)) for value in op.results)

        def step(slots: _Slots, context: Context) -> None:
            found = run(tuple([slots[slot] for slot in operands]), context)
            for (slot, dtype), item in zip(results, found, strict=True):
                slots[slot] = tensor(item, dtype)

        return step

    def _branch(self, op: Operation) -> _Step:
        """Both sides, then a selection."""
        condition = self.slot(op.operands[0])
        sides = [region.block for region in op.regions if region.blocks]
        parts = tuple(step for block in sides for step in self.steps(block))
        ends = [tuple(self.slot(value) for value in block.terminator.operands) for block in sides]
        results = tuple(self.define(value) for value in op.results)

        def step(slots: _Slots, context: Context) -> None:
            for part in parts:
                part(slots, context)
            for slot, first, second in zip(results, *ends, strict=True):
                slots[slot] = select(slots[condition], slots[first], slots[second])

        return step
