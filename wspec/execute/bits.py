"""Counting bits, absolute values and powers of integers."""

from __future__ import annotations

from collections.abc import Callable

import torch

from wspec.execute.context import Item, Prepare, typed
from wspec.execute.elements import bits_of, dtype_of, tensor, unsigned, wrap
from wspec.ir.core import Operation


def count_ones(value: Item, bits: int) -> Item:
    """How many bits are set."""
    if isinstance(value, int):
        return unsigned(value, bits).bit_count()
    total = torch.zeros_like(value)
    for place in range(bits):
        total = total + ((value >> place) & 1)
    return total


def leading_zeros(value: Item, bits: int) -> Item:
    """Zeros above the highest bit set; `bits` when there is none."""
    if isinstance(value, int):
        return bits - unsigned(value, bits).bit_length()
    return bits - count_ones(_smeared(value, bits), bits)


def trailing_zeros(value: Item, bits: int) -> Item:
    """Zeros below the lowest bit set; `bits` when there is none."""
    if isinstance(value, int):
        return bits if value == 0 else (value & -value).bit_length() - 1
    return count_ones(~value & (value - 1), bits)


def _smeared(value: torch.Tensor, bits: int) -> torch.Tensor:
    """Every bit below one that is set, set."""
    step = 1
    while step < bits:
        mask = (1 << (bits - step)) - 1
        value = value | ((value >> step) & mask)
        step *= 2
    return value


def _absolute(value: Item, bits: int) -> Item:
    """The most negative number stays."""
    return wrap(abs(value), bits) if isinstance(value, int) else value.abs()


def _power(op: Operation) -> Callable[..., Item]:
    """Integers by squaring; a negative exponent gives 1 / base^n, which is 0 but for 1 and -1."""
    bits, dtype, wide = bits_of(op.result.type), dtype_of(op.result.type), bits_of(op.operands[1].type)

    def compute(base: Item, exponent: Item) -> Item:
        is_scalar = isinstance(base, int)
        factor, left = tensor(base, dtype), tensor(exponent, dtype_of(op.operands[1].type))
        unit = torch.where(factor == 1, factor, torch.where(factor == -1, 1 - 2 * (left & 1).to(dtype), 0)).to(dtype)
        result, negative = torch.ones_like(factor), left < 0
        for _ in range(wide):
            result = torch.where((left & 1) != 0, result * factor, result)
            factor, left = factor * factor, left >> 1
            if not bool(left.clamp(min=0).any()):
                break
        result = torch.where(negative, unit, result)
        return wrap(int(result), bits) if is_scalar else result

    return compute


def _counted(count: Callable[[Item, int], Item]) -> Prepare:
    def make(op: Operation) -> Callable[..., Item]:
        bits = bits_of(op.result.type)

        def compute(value: Item) -> Item:
            if bits == 1 and isinstance(value, torch.Tensor):
                return torch.tensor([count(0, 1) & 1, count(1, 1) & 1], dtype=torch.bool)[value.long()]
            return wrap(count(value, bits), bits) if isinstance(value, int) else count(value, bits)

        return compute

    return typed(make)


HANDLERS: dict[str, Prepare] = {
    "math.absi": _counted(_absolute),
    "math.ctlz": _counted(leading_zeros),
    "math.ctpop": _counted(count_ones),
    "math.cttz": _counted(trailing_zeros),
    "math.ipowi": typed(_power),
}
