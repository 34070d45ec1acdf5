"""Numbers with a bound on how far a kernel's may be off: what the reference computes with.

A value is held in float64 next to an error: what float32 arithmetic, in any order and with or without fused
multiply-adds, may make of it lies within. Where float32 is exact the error is zero, and the kernel must agree in every
bit; that is so for much of what is computed from small whole numbers, whatever the order of a sum.
Bounds are doubled against the accumulators of tensor cores, which cut off rather than round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[np.float64]

UNIT = 2.0**-23  # of a float32 in [1, 2): twice the error of rounding
TINY = 2.0**-126  # what is smaller may be flushed to zero
EXACT_BITS = 24
TORCH = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
}


@dataclass(frozen=True, slots=True)
class Parts:
    """What a product adds up: the sum of their sizes, what divides them all, and how many there are."""

    size: Array
    granule: float
    count: int

    def order(self, before: Array) -> Array:
        """What the order may make of the sum that begins with `before`."""
        size = self.size + np.abs(before)
        inexact = size > min(self.granule, _granule(before)) * 2.0**EXACT_BITS
        return np.where(inexact, (self.count + 2) * UNIT * size, 0.0)


@dataclass(frozen=True, slots=True)
class Bounded:
    """Values and the bounds of their errors, of one shape. Of truths (0 or 1), an error of 1 says "perhaps not".

    `parts`: of a product that begins with nothing. What is added to it Triton lets it begin with.
    """

    value: Array
    error: Array
    parts: Parts | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def sure(self) -> bool:
        return not self.error.any()


def exact(value: npt.ArrayLike) -> Bounded:
    """Numbers that are what they are."""
    array = np.asarray(value, dtype=np.float64)
    return Bounded(array, np.zeros_like(array))


def rounded(value: Array, error: Array) -> Bounded:
    """The result of an operation in float32: `error` is what its operands' errors have made of it.

    Only a result that is exact, of operands that are, is not rounded.
    """
    with np.errstate(all="ignore"):
        kept = (value == value.astype(np.float32)) & (error == 0)
        half = np.where(kept, 0.0, (np.abs(value) + error) * UNIT / 2)
        small = np.where((np.abs(value) < TINY) & (value != 0), TINY, 0.0)
        error = error + half + small
        overflow = (np.abs(value) + error > np.finfo(np.float32).max) & ~np.isinf(value)
    unknown = overflow | np.isnan(value) | np.isnan(error)
    return Bounded(value, np.where(unknown, np.inf, error))


# ------------------------------------------------------------------------------------------------ elementwise


def add(a: Bounded, b: Bounded) -> Bounded:
    with np.errstate(all="ignore"):
        orders = [one.parts.order(other.value) for one, other in ((a, b), (b, a)) if one.parts is not None]
        return rounded(a.value + b.value, a.error + b.error + sum(orders))


def subtract(a: Bounded, b: Bounded) -> Bounded:
    with np.errstate(all="ignore"):
        return rounded(a.value - b.value, a.error + b.error)


def multiply(a: Bounded, b: Bounded) -> Bounded:
    with np.errstate(all="ignore"):
        error = _times(a.error, np.abs(b.value) + b.error) + _times(b.error, np.abs(a.value))
        return rounded(a.value * b.value, error)


def _times(error: Array, factor: Array) -> Array:
    """error * factor, where no error stays none. What may be infinite is unknown (NaN) even after a factor of 0."""
    return np.where(error == 0, 0.0, error * factor)


def divide(a: Bounded, b: Bounded) -> Bounded:
    """GPUs divide within two units in the last place."""
    with np.errstate(all="ignore"):
        value = a.value / b.value
        least = np.abs(b.value) - b.error - 2.0**-50 * (np.abs(b.value) + b.error)  # what float64 may have rounded off
        error = (a.error + np.abs(value) * b.error) / least
        error = np.where((a.error == 0) & (b.error == 0), 0.0, np.where(least > 0, error, np.inf))
        return rounded(value, error + 2 * UNIT * np.abs(value))


def monotone(function: Callable[[Array], Array], x: Bounded) -> Bounded:
    """A function that never turns back: its bounds are those of the ends. Nothing is rounded."""
    with np.errstate(all="ignore"):
        value = function(x.value)
        if x.sure:
            return Bounded(value, np.where(np.isnan(value), np.inf, 0.0))
        return _within(value, function(x.value - x.error), function(x.value + x.error))


def exp2(x: Bounded) -> Bounded:
    """Within four units in the last place."""
    found = monotone(np.exp2, x)
    with np.errstate(all="ignore"):
        return rounded(found.value, found.error + np.where(found.value == 0, 0.0, 4 * UNIT * found.value))


def sqrt(x: Bounded) -> Bounded:
    """Within two units in the last place; of what may be negative nothing is known."""
    with np.errstate(all="ignore"):
        found = monotone(np.sqrt, x)
        return rounded(found.value, found.error + 2 * UNIT * np.abs(found.value))


def absolute(x: Bounded) -> Bounded:
    return Bounded(np.abs(x.value), x.error)


def negative(x: Bounded) -> Bounded:
    return Bounded(-x.value, x.error)


def maximum(a: Bounded, b: Bounded) -> Bounded:
    """Of a number and NaN, the number."""
    return _between(np.fmax, a, b)


def minimum(a: Bounded, b: Bounded) -> Bounded:
    """Of a number and NaN, the number."""
    return _between(np.fmin, a, b)


def _between(function: Callable[[Array, Array], Array], a: Bounded, b: Bounded) -> Bounded:
    """A function that grows with both."""
    with np.errstate(all="ignore"):
        low, high = function(a.value - a.error, b.value - b.error), function(a.value + a.error, b.value + b.error)
        return _within(function(a.value, b.value), low, high)


def _within(value: Array, low: Array, high: Array) -> Bounded:
    """A value and the ends of where it may be."""
    with np.errstate(all="ignore"):
        error = np.maximum(np.where(high == value, 0.0, high - value), np.where(low == value, 0.0, value - low))
    return Bounded(value, np.where(np.isnan(error), np.inf, error))


def compare(op: str, a: Bounded, b: Bounded) -> Bounded:
    """A truth; "perhaps not" where the errors overlap."""
    functions = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
    functions |= {"==": np.equal, "!=": np.not_equal}
    with np.errstate(all="ignore"):
        value = functions[op](a.value, b.value).astype(np.float64)
        slack = a.error + b.error
        unsure = (slack > 0) & ~(np.abs(a.value - b.value) > slack)
    return Bounded(value, unsure.astype(np.float64))


def both(a: Bounded, b: Bounded) -> Bounded:
    return Bounded(a.value * b.value, np.maximum(a.error, b.error))


def select(condition: Bounded, a: Bounded, b: Bounded) -> Bounded:
    """Where the condition is not sure it may be either."""
    value = np.where(condition.value != 0, a.value, b.value)
    error = np.where(condition.value != 0, a.error, b.error)
    if condition.sure:
        return Bounded(value, error)
    with np.errstate(all="ignore"):
        either = np.abs(a.value - b.value) + np.maximum(a.error, b.error)
        either = np.where(np.isnan(either), np.inf, either)
    return Bounded(value, np.where(condition.error != 0, either, error))


def to_dtype(array: Array, dtype: str) -> Array:
    """Rounded to the numbers of a type, to the nearest."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    found: Array = tensor.to(TORCH[dtype]).to(torch.float64).numpy()
    return found


def cast(x: Bounded, dtype: str) -> Bounded:
    """To a floating point type. Rounding is monotone."""
    return monotone(lambda array: to_dtype(array, dtype), x)


# ----------------------------------------------------------------------------------------------------- sums


def total(x: Bounded, axis: int) -> Bounded:
    """A sum in any order."""
    with np.errstate(all="ignore"):
        value, size = x.value.sum(axis), np.abs(x.value).sum(axis)
        error = x.error.sum(axis)
        inexact = size > _granule(x.value) * 2.0**EXACT_BITS
        order = np.where(inexact, x.shape[axis] * UNIT * size, 0.0)
        return rounded(value, error + order + _overflow(size, value))


def product(a: Bounded, b: Bounded, acc: Bounded | None, tf32: bool) -> Bounded:
    """acc + a @ b, summed in any order; with `tf32` the operands lose their last 13 bits."""
    a, b = (_to_tf32(a), _to_tf32(b)) if tf32 else (a, b)
    before = exact(np.zeros((a.shape[0], b.shape[1]))) if acc is None else acc
    with np.errstate(all="ignore"):
        value = a.value @ b.value + before.value
        granule = _granule(a.value) * _granule(b.value)
        parts = Parts(np.abs(a.value) @ np.abs(b.value), granule, a.shape[1])
        error = before.error
        if not a.sure:
            error = error + a.error @ (np.abs(b.value) + b.error)
        if not b.sure:
            error = error + np.abs(a.value) @ b.error
        overflow = _overflow(parts.size + np.abs(before.value), value)
        found = rounded(value, error + parts.order(before.value) + overflow)
        return replace(found, parts=parts) if acc is None else found


def _overflow(size: Array, value: Array) -> Array:
    """Nothing is known of a finite sum whose parts may be beyond float32 in some order; `size`: of all its parts."""
    return np.where((size > np.finfo(np.float32).max) & np.isfinite(value), np.inf, 0.0)


def _to_tf32(x: Bounded) -> Bounded:
    with np.errstate(all="ignore"):
        bits = x.value.astype(np.float32).view(np.uint32) & np.uint32(0x1FFF)
        lost = np.where((bits == 0) & (x.error == 0), 0.0, np.abs(x.value) * 2.0**-10)
    return Bounded(x.value, x.error + lost)


def _granule(array: Array) -> float:
    """The largest power of two that divides every number; infinity if all are zero, 0 if it is beyond float32."""
    finite = array[np.isfinite(array) & (array != 0)]
    if finite.size == 0:
        return np.inf
    mantissa, exponent = np.frexp(finite)
    whole = (mantissa * 2.0**53).astype(np.int64)
    lowest = np.log2((whole & -whole).astype(np.float64)).astype(np.int64)
    return float(2.0 ** int((lowest + exponent - 53).min()))


def extreme(op: str, x: Bounded, axis: int) -> Bounded:
    """The largest or smallest along an axis."""
    function = np.fmax if op == "max" else np.fmin

    def along(array: Array) -> Array:
        return np.asarray(function.reduce(array, axis=axis))

    with np.errstate(all="ignore"):
        return _within(along(x.value), along(x.value - x.error), along(x.value + x.error))
