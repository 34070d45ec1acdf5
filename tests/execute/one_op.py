"""One operation, written as text, on values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from wspec.execute.evaluate import Context, evaluate
from wspec.execute.memory import GlobalMemory
from wspec.ir import read
from wspec.ir.core import Operation


def operation(
    name: str, operands: Sequence[str], results: Sequence[str], props: str = "", region: str = ""
) -> Operation:
    """The operation of those operand and result types. `region` may use constants put in front of it by `before`."""
    values = ", ".join(f"%a{index}" for index in range(len(operands)))
    made = f'{values} = "t.make"() : () -> ({", ".join(operands)})\n' if operands else ""
    left = f"%r:{len(results)} = " if results else ""
    inner = f" ({{\n{region}\n}})" if region else ""
    attributes = f" <{{{props}}}>" if props else ""
    text = f'{made}{left}"{name}"({values}){attributes}{inner} : ({", ".join(operands)}) -> ({", ".join(results)})'
    return read(text).regions[0].block.ops[-1]


def context() -> Context:
    return Context(GlobalMemory())


def run_all(
    name: str,
    operands: Sequence[str],
    results: Sequence[str],
    *items: Any,
    props: str = "",
    region: str = "",
    within: Context | None = None,
) -> tuple[Any, ...]:
    """All results."""
    op = operation(name, operands, results, props, region)
    return evaluate(op, items, within if within is not None else context())


def run(name: str, operands: Sequence[str], result: str, *items: Any, **more: Any) -> Any:
    """The only result."""
    (found,) = run_all(name, operands, [result], *items, **more)
    return found


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Equal in type, shape and values; NaN equals NaN, and -0 is not +0."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    if not found.dtype.is_floating_point:
        return bool((found == expected).all())
    a, b = found.to(torch.float64), expected.to(torch.float64)
    return bool((((a == b) & (a.signbit() == b.signbit())) | (a.isnan() & b.isnan())).all())
