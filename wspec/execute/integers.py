"""Integer arithmetic: wrapping, of a width, signed or not. Scalars are Python integers, tensors torch integers.

Where LLVM leaves a result open, it is what the instructions of the card give: a shift by the width or more shifts
everything out, and of an amount of 64 bits the lower 32 count; a division by zero has all bits set and leaves its
dividend as the remainder; the most negative number divided by -1 is itself. (On a card an i64 quotient by zero has 32
bits set when the dividend has no more.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from wspec.execute.context import Context, Item, Prepare, Run, typed
from wspec.execute.elements import Array, any_of, as_unsigned, bits_of, from_numpy, signed, unsigned, wrap
from wspec.execute.minmax import unsigned_less, unsigned_maximum, unsigned_minimum
from wspec.ir.core import Operation

Scalar = Callable[[int, int, int], int]  # (a, b, bits): a and b as the operation reads them
Tensor = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Binary:
    """An operation of two integers of one type."""

    scalar: Scalar
    tensor: Tensor  # not of i1
    unsigned: bool = False  # how `scalar` gets its operands, and how i1 is widened


def _binary(spec: Binary) -> Prepare:
    def make(op: Operation) -> Callable[..., Item]:
        bits = bits_of(op.results[0].type)
        read = unsigned if spec.unsigned else signed

        def compute(a: Item, b: Item) -> Item:
            if isinstance(a, int) and isinstance(b, int):
                return wrap(spec.scalar(read(a, bits), read(b, bits), bits), bits)
            if bits == 1:
                return _narrow(spec.tensor(_widen(a, spec.unsigned), _widen(b, spec.unsigned)))
            return spec.tensor(a, b)

        return compute

    return typed(make)


def _widen(values: torch.Tensor, is_unsigned: bool) -> torch.Tensor:
    """A bool as i8: a true one is 1, or -1 for signed operations."""
    wide = values.to(torch.int8)
    return wide if is_unsigned else -wide


def _narrow(values: torch.Tensor) -> torch.Tensor:
    return (values & 1) != 0


# ---------------------------------------------------------------------------------------------- division


def _quotient(a: int, b: int, bits: int) -> int:
    """Towards zero."""
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int, bits: int) -> int:
    """Of the sign of the dividend."""
    return a if b == 0 else a - b * _quotient(a, b, bits)


def _floor(a: int, b: int, bits: int) -> int:
    return -1 if b == 0 else a // b


def _ceil(a: int, b: int, bits: int) -> int:
    return -1 if b == 0 else -(-a // b)


def _divide(rounding: str) -> Tensor:
    """Signed division that does not trap; `rounding` is torch's name."""

    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        unsafe = (b == 0) | (b == -1)  # the most negative number by -1 traps
        if not any_of(unsafe):
            return torch.div(a, b, rounding_mode=rounding)
        quotient = torch.div(a, torch.where(unsafe, torch.ones_like(b), b), rounding_mode=rounding)
        return torch.where(b == 0, torch.full_like(b, -1), torch.where(b == -1, -a, quotient))

    return run


_truncated, _floored = _divide("trunc"), _divide("floor")


def _ceiled(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One more than the floor where something is left."""
    floor = _floored(a, b)
    return torch.where((b != 0) & (floor * b != a), floor + 1, floor)


def _remains(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.where(b == 0, a, a - b * _truncated(a, b))


def _on_unsigned(compute: Callable[[Array, Array], Array]) -> Tensor:
    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return from_numpy(np.asarray(compute(as_unsigned(a), as_unsigned(b))), a.dtype)

    return run


def _quotient_unsigned(a: Array, b: Array) -> Array:
    ones = np.array(-1, dtype=a.dtype.str.replace("u", "i")).view(a.dtype)
    return np.where(b == 0, ones, a // np.where(b == 0, np.ones_like(b), b))


def _remainder_unsigned(a: Array, b: Array) -> Array:
    return np.where(b == 0, a, a % np.where(b == 0, np.ones_like(b), b))


def _ceil_unsigned(a: Array, b: Array) -> Array:
    quotient = _quotient_unsigned(a, b)
    return np.where((b != 0) & (quotient * b != a), quotient + 1, quotient).astype(a.dtype)


# ------------------------------------------------------------------------------------------------ shifts


def _shift(amount: int, bits: int) -> int:
    """The amount as PTX takes it: unsigned, of 32 bits at most, no more than the width."""
    return min(unsigned(amount, min(bits, 32)), bits)


def _amount(b: torch.Tensor) -> torch.Tensor:
    return b & 0xFFFFFFFF if b.dtype == torch.int64 else b


def _left(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    bits, b = torch.iinfo(a.dtype).bits, _amount(b)
    outside = (b < 0) | (b >= bits)
    return torch.where(outside, torch.zeros_like(a), a << torch.where(outside, torch.zeros_like(b), b))


def _right(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """With copies of the sign."""
    bits, b = torch.iinfo(a.dtype).bits, _amount(b)
    return a >> torch.where((b < 0) | (b >= bits), torch.full_like(b, bits - 1), b)


def _right_unsigned(a: Array, b: Array) -> Array:
    b = b & 0xFFFFFFFF if b.dtype == np.uint64 else b
    outside = b >= a.dtype.itemsize * 8
    return np.where(outside, np.zeros_like(a), a >> np.where(outside, np.zeros_like(b), b))


# ------------------------------------------------------------------------------------------- other tables


BINARY: dict[str, Binary] = {
    "addi": Binary(lambda a, b, bits: a + b, torch.add),
    "subi": Binary(lambda a, b, bits: a - b, torch.sub),
    "muli": Binary(lambda a, b, bits: a * b, torch.mul),
    "andi": Binary(lambda a, b, bits: a & b, torch.bitwise_and),
    "ori": Binary(lambda a, b, bits: a | b, torch.bitwise_or),
    "xori": Binary(lambda a, b, bits: a ^ b, torch.bitwise_xor),
    "divsi": Binary(_quotient, _truncated),
    "remsi": Binary(_remainder, _remains),
    "floordivsi": Binary(_floor, _floored),
    "ceildivsi": Binary(_ceil, _ceiled),
    "divui": Binary(_floor, _on_unsigned(_quotient_unsigned), True),
    "remui": Binary(_remainder, _on_unsigned(_remainder_unsigned), True),
    "ceildivui": Binary(_ceil, _on_unsigned(_ceil_unsigned), True),
    "shli": Binary(lambda a, b, bits: a << _shift(b, bits), _left),
    "shrsi": Binary(lambda a, b, bits: a >> _shift(b, bits), _right),
    "shrui": Binary(lambda a, b, bits: a >> _shift(b, bits), _on_unsigned(_right_unsigned), True),
    "maxsi": Binary(lambda a, b, bits: max(a, b), torch.maximum),
    "minsi": Binary(lambda a, b, bits: min(a, b), torch.minimum),
    "maxui": Binary(lambda a, b, bits: max(a, b), unsigned_maximum, True),
    "minui": Binary(lambda a, b, bits: min(a, b), unsigned_minimum, True),
}

# arith.cmpi's predicate -> (is it unsigned, of two Python integers, of two tensors as signed integers)
_COMPARE: tuple[tuple[bool, Callable[[int, int], bool], Tensor], ...] = (
    (False, lambda a, b: a == b, torch.eq),
    (False, lambda a, b: a != b, torch.ne),
    (False, lambda a, b: a < b, torch.lt),
    (False, lambda a, b: a <= b, torch.le),
    (False, lambda a, b: a > b, torch.gt),
    (False, lambda a, b: a >= b, torch.ge),
    (True, lambda a, b: a < b, unsigned_less),
    (True, lambda a, b: a <= b, lambda a, b: ~unsigned_less(b, a)),
    (True, lambda a, b: a > b, lambda a, b: unsigned_less(b, a)),
    (True, lambda a, b: a >= b, lambda a, b: ~unsigned_less(a, b)),
)


def _compare(op: Operation) -> Callable[..., Item]:
    bits = bits_of(op.operands[0].type)
    is_unsigned, scalar, tensor = _COMPARE[op.int_attr("predicate") or 0]
    read = unsigned if is_unsigned else signed

    def compute(a: Item, b: Item) -> Item:
        if isinstance(a, int) and isinstance(b, int):
            return int(scalar(read(a, bits), read(b, bits)))
        return tensor(_widen(a, is_unsigned), _widen(b, is_unsigned)) if bits == 1 else tensor(a, b)

    return compute


# -------------------------------------------------------------------------------------- products in two parts


def high_part(a: Item, b: Item, bits: int, is_unsigned: bool) -> Item:
    """The upper half of a product."""
    if isinstance(a, int) and isinstance(b, int):
        read = unsigned if is_unsigned else signed
        return wrap((read(a, bits) * read(b, bits)) >> bits, bits)
    if bits == 64:
        return _high_64(a, b, is_unsigned)
    if is_unsigned:
        product = as_unsigned(a).astype(np.uint64) * as_unsigned(b).astype(np.uint64) >> np.uint64(bits)
        return from_numpy(np.asarray(product), a.dtype)
    return ((a.to(torch.int64) * b.to(torch.int64)) >> bits).to(a.dtype)


def _high_64(a: torch.Tensor, b: torch.Tensor, is_unsigned: bool) -> torch.Tensor:
    """By halves of 32 bits. A signed product is the unsigned one less the other factor where one is negative."""
    x, y, low, half = as_unsigned(a), as_unsigned(b), np.uint64(0xFFFFFFFF), np.uint64(32)
    cross = (x >> half) * (y & low) + ((x & low) * (y & low) >> half)
    other = (x & low) * (y >> half) + (cross & low)
    high = from_numpy(np.asarray((x >> half) * (y >> half) + (cross >> half) + (other >> half)), torch.int64)
    if is_unsigned:
        return high
    zero = torch.zeros_like(high)
    return high - torch.where(a < 0, b, zero) - torch.where(b < 0, a, zero)


def _extended(is_unsigned: bool) -> Prepare:
    """(lower half, upper half) of a product."""

    def prepare(op: Operation) -> Run:
        bits = bits_of(op.results[0].type)

        def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
            a, b = operands
            low = wrap(a * b, bits) if isinstance(a, int) else a * b
            return low, high_part(a, b, bits, is_unsigned)

        return run

    return prepare


def _add_extended(op: Operation) -> Run:
    """(sum, is there a carry)."""
    bits = bits_of(op.results[0].type)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        a, b = operands
        if isinstance(a, int):
            return wrap(a + b, bits), int(unsigned(a, bits) + unsigned(b, bits) >= 1 << bits)
        total = a + b
        return total, unsigned_less(total, a)

    return run


HANDLERS: dict[str, Prepare] = {
    **{f"arith.{name}": _binary(spec) for name, spec in BINARY.items()},
    "arith.cmpi": typed(_compare),
    "arith.addui_extended": _add_extended,
    "arith.mulsi_extended": _extended(False),
    "arith.mului_extended": _extended(True),
    "tt.mulhiui": typed(lambda op: lambda a, b: high_part(a, b, bits_of(op.result.type), True)),
}
