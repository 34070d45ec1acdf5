"""Integer arithmetic of scalar operations on whole arrays of values.

A value of any width up to 64 bits is an int64, its sign extended: a true i1 is -1. Where LLVM leaves a result open,
it is what the card's instructions give: a shift by the width or more shifts everything out, a division by zero has all
bits set and leaves its dividend, the most negative number divided by -1 is itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]
Unsigned = npt.NDArray[np.uint64]
LIMIT = 1 << 62  # what larger counts are taken for


def wrapped(array: Array, bits: int) -> Array:
    """The low bits, their sign extended."""
    if bits == 64:
        return array
    if bits == 32:
        return array.astype(np.int32).astype(np.int64)
    half = 1 << (bits - 1)
    return ((array + half) & ((1 << bits) - 1)) - half


def wrapped_int(number: int, bits: int) -> int:
    """`wrapped` of one integer of any size."""
    half = 1 << (bits - 1)
    return ((number + half) & ((1 << bits) - 1)) - half


def unsigned(array: Array, bits: int) -> Unsigned:
    """The same bits without a sign."""
    plain = array.view(np.uint64)
    return plain if bits == 64 else plain & np.uint64((1 << bits) - 1)


def trips(lower: Array, upper: Array, step: Array, bits: int, is_unsigned: bool) -> Array:
    """How often a loop from lower to upper runs; 0 for a step that is not positive, at most LIMIT."""
    if is_unsigned:
        low, high, by = (unsigned(array, bits) for array in (lower, upper, step))
        runs = (low < high) & (by > 0)
    else:
        runs = (lower < upper) & (step > 0)
        low, high, by = (array.view(np.uint64) for array in (lower, upper, step))
    one = np.uint64(1)
    count = (high - low - one) // np.where(by == 0, one, by)  # one less than the trip count, so that it fits
    return np.where(runs, np.minimum(count, np.uint64(LIMIT - 1)) + one, np.uint64(0)).astype(np.int64)


def product(a: Array, b: Array) -> Array:
    """Of two counts, at most LIMIT."""
    return np.where(a.astype(np.float64) * b >= LIMIT, LIMIT, a * b)


# ------------------------------------------------------------------------------------------- operations of two


def _floor(a: Array, b: Array) -> tuple[Array, Array]:
    """(quotient, rest) of a division that rounds down, by 1 where b is 0."""
    divisor = b if b.all() else np.where(b == 0, 1, b)
    quotient = a // divisor
    return quotient, a - quotient * divisor


def _where_divided(b: Array, quotient: Array) -> Array:
    return quotient if b.all() else np.where(b == 0, -1, quotient)


def _floor_signed(a: Array, b: Array, bits: int) -> Array:
    return _where_divided(b, _floor(a, b)[0])


def _quotient(a: Array, b: Array, bits: int) -> Array:
    quotient, rest = _floor(a, b)
    return _where_divided(b, quotient + ((rest != 0) & ((a < 0) != (b < 0))))


def _remainder(a: Array, b: Array, bits: int) -> Array:
    return np.where(b == 0, a, a - b * _quotient(a, b, bits))


def _ceil_signed(a: Array, b: Array, bits: int) -> Array:
    quotient, rest = _floor(a, b)
    return _where_divided(b, quotient + (rest != 0))


def _divided_unsigned(a: Array, b: Array, bits: int) -> tuple[Unsigned, Unsigned]:
    """(quotient, rest), by 1 where b is 0."""
    dividend, divisor = unsigned(a, bits), unsigned(b, bits)
    quotient = dividend // np.where(divisor == 0, np.uint64(1), divisor)
    return quotient, dividend - quotient * divisor


def _quotient_unsigned(a: Array, b: Array, bits: int) -> Array:
    return _where_divided(b, _divided_unsigned(a, b, bits)[0].view(np.int64))


def _remainder_unsigned(a: Array, b: Array, bits: int) -> Array:
    return _divided_unsigned(a, b, bits)[1].view(np.int64)  # by zero: a - q * 0


def _ceil_unsigned(a: Array, b: Array, bits: int) -> Array:
    quotient, rest = _divided_unsigned(a, b, bits)
    return _where_divided(b, (quotient + (rest != 0)).view(np.int64))


def _amount(b: Array, bits: int) -> tuple[npt.NDArray[np.bool_], Unsigned]:
    """(does it shift everything out, how far it shifts otherwise); 32 bits of it count."""
    amount = unsigned(b, min(bits, 32))
    outside = amount >= bits
    return outside, np.where(outside, np.uint64(0), amount)


def _left(a: Array, b: Array, bits: int) -> Array:
    outside, amount = _amount(b, bits)
    return np.where(outside, 0, (a.view(np.uint64) << amount).view(np.int64))


def _right(a: Array, b: Array, bits: int) -> Array:
    outside, amount = _amount(b, bits)
    return a >> np.where(outside, bits - 1, amount.view(np.int64))


def _right_unsigned(a: Array, b: Array, bits: int) -> Array:
    outside, amount = _amount(b, bits)
    return np.where(outside, 0, (unsigned(a, bits) >> amount).view(np.int64))


def _smaller_unsigned(a: Array, b: Array, bits: int) -> Array:
    return np.where(unsigned(a, bits) < unsigned(b, bits), a, b)


def _larger_unsigned(a: Array, b: Array, bits: int) -> Array:
    return np.where(unsigned(a, bits) > unsigned(b, bits), a, b)


BINARY: dict[str, Callable[[Array, Array, int], Array]] = {  # results still to be wrapped
    "addi": lambda a, b, bits: a + b,
    "subi": lambda a, b, bits: a - b,
    "muli": lambda a, b, bits: a * b,
    "divsi": _quotient,
    "divui": _quotient_unsigned,
    "remsi": _remainder,
    "remui": _remainder_unsigned,
    "ceildivsi": _ceil_signed,
    "ceildivui": _ceil_unsigned,
    "floordivsi": _floor_signed,
    "minsi": lambda a, b, bits: np.minimum(a, b),
    "maxsi": lambda a, b, bits: np.maximum(a, b),
    "minui": _smaller_unsigned,
    "maxui": _larger_unsigned,
    "andi": lambda a, b, bits: a & b,
    "ori": lambda a, b, bits: a | b,
    "xori": lambda a, b, bits: a ^ b,
    "shli": _left,
    "shrsi": _right,
    "shrui": _right_unsigned,
}

_COMPARE = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
PREDICATES = 10  # of arith.cmpi: _COMPARE, then the last four unsigned


def compared(predicate: int, a: Array, b: Array, bits: int) -> Array:
    """arith.cmpi."""
    if predicate < len(_COMPARE):
        return -_COMPARE[predicate](a, b).astype(np.int64)
    return -_COMPARE[predicate - 4](unsigned(a, bits), unsigned(b, bits)).astype(np.int64)
