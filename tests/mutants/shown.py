"""A module as lines that say of each operation what it uses, and the difference between two: to see a mutation."""

from __future__ import annotations

import difflib

from wspec.ir.core import Block, Operation, Value
from wspec.ir.loc import value_name
from wspec.ir.types import DenseArrayAttr, IntegerAttr, MemDescType
from wspec.ir.verify import PARTITIONS

DEEP = 4  # operands of operands that a line shows
ATTRIBUTES = ("count", "size", "pendings", "partitionNumWarps", "requestedRegisters")
SIGNS = {"addi": "+", "subi": "-", "xori": "^"}


def difference(one: Operation, other: Operation) -> list[str]:
    """The lines that differ, `-` of the first module and `+` of the second, and one before and after each change."""
    compared = difflib.unified_diff(_Shown(one).lines(), _Shown(other).lines(), n=1, lineterm="")
    return [line for line in compared if not line.startswith(("---", "+++", "@@"))]


class _Shown:
    """Allocations of shared memory are called shared0, shared1, ..., in every task."""

    def __init__(self, module: Operation) -> None:
        self.module = module
        allocations = (op.result for op in module.walk() if op.name == "ttg.local_alloc")
        self.names = {value: f"shared{number}" for number, value in enumerate(allocations)}

    def lines(self) -> list[str]:
        """One for each operation that does something, or gives values to what does."""
        return [self.line(op) for op in self.module.walk() if not (op.results and _is_inlined(op))]

    def line(self, op: Operation) -> str:
        operands = ", ".join(self.text(value, DEEP) for value in op.operands)
        marks = [f"{name} = {_number(op, name)}" for name in ATTRIBUTES if op.attr(name) is not None]
        types = [str(value.type.shape) for value in op.results if isinstance(value.type, MemDescType)]
        results = "".join(f"{self.names[value]} = " for value in op.results if value in self.names)
        return f"{results}{_short(op)}({operands}) {' '.join([*marks, *types])}".rstrip()

    def text(self, value: Value, deep: int) -> str:
        op = value.op
        if value in self.names:
            return self.names[value]
        name = value_name(value.location if op is None else op.location) or ""
        if op is None:
            passed = _passed(value)
            return f"{name or 'carried'}.{value.index}" if passed is None else self.text(passed, deep)
        if op.name == "arith.constant":
            number = op.attr("value")
            return str(number.value) if isinstance(number, IntegerAttr) else "constant"
        if not deep or not _is_inlined(op):
            return f"{_short(op)}{f' {name}' if name else ''}" + (f"#{value.index}" if len(op.results) > 1 else "")
        operands = [self.text(operand, deep - 1) for operand in op.operands]
        if op.name == "ttg.memdesc_index":
            return f"{operands[0]}[{operands[1]}]"
        sign = SIGNS.get(_short(op))
        return f"({operands[0]} {sign} {operands[1]})" if sign else f"{_short(op)}({', '.join(operands)})"


def _is_inlined(op: Operation) -> bool:
    return not op.regions and op.name.startswith(("arith.", "ttg.memdesc_"))


def _passed(value: Value) -> Value | None:
    """What an argument of a partition stands for."""
    holder = value.owner.parent_op if isinstance(value.owner, Block) else None
    around = holder.parent_op if holder is not None and holder.name == PARTITIONS else None
    return None if around is None else around.operands[value.index]


def _number(op: Operation, name: str) -> str:
    attribute = op.attr(name)
    if isinstance(attribute, IntegerAttr):
        return str(attribute.value)
    return str(list(attribute.values)) if isinstance(attribute, DenseArrayAttr) else str(attribute)


def _short(op: Operation) -> str:
    return op.name.rpartition(".")[2]
