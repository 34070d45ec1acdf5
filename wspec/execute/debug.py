"""Printing, assertions and assumptions."""

from __future__ import annotations

import torch

from wspec.execute.context import Context, Item, Prepare, Run
from wspec.execute.elements import bits_of, unsigned
from wspec.execute.errors import ExecutionError
from wspec.ir.core import Operation
from wspec.ir.types import DenseArrayAttr, unescaped


def _print(op: Operation) -> Run:
    """One entry of `context.printed` for each operation, where a card prints a line for each thread."""
    prefix, is_hex = unescaped(op.str_attr("prefix") or ""), bool(op.int_attr("hex"))
    marks = op.attr("isSigned")
    signs = marks.values if isinstance(marks, DenseArrayAttr) else ()

    def shown(index: int, item: Item) -> str:
        is_signed = index >= len(signs) or bool(signs[index])
        if isinstance(item, int) and (is_hex or not is_signed):
            item = unsigned(item, bits_of(op.operands[index].type))
        if isinstance(item, int):
            return f"{item:#x}" if is_hex else str(item)
        if isinstance(item, torch.Tensor):
            return str(item.tolist()) if item.numel() <= 64 else str(item)
        return str(item)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        values = ", ".join(shown(index, item) for index, item in enumerate(operands))
        context.printed.append(f"pid {context.program}{prefix if prefix[:1] == ' ' else ' ' + prefix}{values}")
        return ()

    return run


def _holds(condition: Item) -> bool:
    return bool(condition.all()) if isinstance(condition, torch.Tensor) else bool(condition)


def _assert(op: Operation) -> Run:
    message = unescaped(op.str_attr("message") or op.str_attr("msg") or "")

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        if not _holds(operands[0]):
            raise ExecutionError(f"assertion failed in program {context.program}: {message}")
        return ()

    return run


def _assume(op: Operation) -> Run:
    """What the compiler was told is checked."""

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        if not _holds(operands[0]):
            raise ExecutionError(f"what the kernel assumes does not hold in program {context.program}")
        return ()

    return run


HANDLERS: dict[str, Prepare] = {
    "tt.print": _print,
    "tt.assert": _assert,
    "cf.assert": _assert,
    "llvm.intr.assume": _assume,
}
