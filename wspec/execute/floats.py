"""Float arithmetic and functions, in the type of the operation; 16-bit types compute in f32 and round once.

Where a card differs by a few units in the last place, it is not followed: LLVM contracts a product and a sum to one
`fma`; `div.full`, `ex2.approx`, `lg2.approx`, `sin.approx` and the like are approximate and flush denormals.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from wspec.execute.context import Item, Prepare, function, typed
from wspec.execute.elements import dtype_of
from wspec.execute.minmax import maximum, maximum_number, minimum, minimum_number
from wspec.execute.rounding import round_to
from wspec.ir.core import Operation

Unary = Callable[[torch.Tensor], torch.Tensor]
Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _ordered(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return ~(a.isnan() | b.isnan())


# arith.cmpf's predicate; the unordered ones are true when one is NaN
_COMPARE: tuple[Binary, ...] = (
    lambda a, b: torch.zeros_like(a, dtype=torch.bool),
    torch.eq,
    torch.gt,
    torch.ge,
    torch.lt,
    torch.le,
    lambda a, b: (a < b) | (a > b),
    _ordered,
    lambda a, b: ~((a < b) | (a > b)),
    lambda a, b: ~(a <= b),
    lambda a, b: ~(a < b),
    lambda a, b: ~(a >= b),
    lambda a, b: ~(a > b),
    torch.ne,
    lambda a, b: ~_ordered(a, b),
    lambda a, b: torch.ones_like(a, dtype=torch.bool),
)


def _compare(op: Operation) -> Callable[..., Item]:
    test = _COMPARE[op.int_attr("predicate") or 0]

    def compute(a: torch.Tensor, b: torch.Tensor) -> Item:
        found = test(a, b)
        return found if found.dim() else int(found)

    return compute


def fma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """a * b + c, rounded once; in f64 nearly always."""
    if a.dtype == torch.float64:
        return _fma_double(a, b, c)
    product, addend = a.to(torch.float64) * b.to(torch.float64), c.to(torch.float64)  # the product is exact
    total = product + addend
    lost = _lost(product, addend, total)
    odd = (total.view(torch.int64) & 1) != 0
    towards = torch.where(lost > 0, math.inf, -math.inf).to(torch.float64)
    exact = (lost == 0) | odd | ~total.isfinite()
    return round_to(torch.where(exact, total, torch.nextafter(total, towards)), a.dtype)


def _lost(a: torch.Tensor, b: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """What rounding took from the sum of a and b (Knuth's two-sum)."""
    part = total - a
    return (a - (total - part)) + (b - part)


def _fma_double(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """With the rounding errors of product and sum added back (Dekker's product)."""
    product = a * b
    total = product + c
    (a1, a2), (b1, b2) = _split(a), _split(b)
    error = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2
    corrected = total + (error + _lost(product, c, total))
    return torch.where(corrected.isfinite(), corrected, total)


def _split(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scaled = a * 134217729.0  # 2^27 + 1
    upper = scaled - (scaled - a)
    return upper, a - upper


def round_away(a: torch.Tensor) -> torch.Tensor:
    """To the nearest integer, halves away from zero."""
    whole = a.trunc()
    return torch.where((a - whole).abs() >= 0.5, whole + a.sign(), whole).copysign(a)


def saturate(a: torch.Tensor) -> torch.Tensor:
    """To 0 .. 1; NaN and -0 become 0."""
    return torch.where(a > 0, a.clamp(max=1), torch.zeros_like(a))


def in_double(compute: Unary) -> Unary:
    """A function that torch lacks in other types, or is inexact in, by way of f64."""
    return lambda a: round_to(compute(a.to(torch.float64)), a.dtype)


def cbrt(a: torch.Tensor) -> torch.Tensor:
    return in_double(lambda x: x.abs().pow(1 / 3).copysign(x))(a)


def _power_of_integer(op: Operation) -> Callable[..., Item]:
    wide, dtype = torch.float64, dtype_of(op.result.type)

    def compute(base: torch.Tensor, exponent: Item) -> Item:
        power = exponent.to(wide) if isinstance(exponent, torch.Tensor) else float(exponent)
        return round_to(torch.pow(base.to(wide), power), dtype)

    return compute


def clamp(op: Operation) -> Callable[..., Item]:
    """tt.clampf: NaN becomes the lower bound, or stays with propagateNan."""
    keeps_nan = bool(op.int_attr("propagateNan"))

    def compute(x: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        if keeps_nan:
            return minimum(maximum(x, low), high)
        return minimum_number(maximum_number(x, low), high)

    return compute


def _test(of: Callable[[torch.Tensor], torch.Tensor]) -> Prepare:
    """A function of a float that is true or false."""

    def compute(a: torch.Tensor) -> Item:
        found = of(a)
        return found if found.dim() else int(found)

    return function(compute)


UNARY: dict[str, Unary] = {
    "absf": torch.abs,
    "acos": torch.acos,
    "acosh": torch.acosh,
    "asin": torch.asin,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "atanh": torch.atanh,
    "cbrt": cbrt,
    "ceil": torch.ceil,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "floor": torch.floor,
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "round": round_away,
    "roundeven": torch.round,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "trunc": torch.trunc,
}
_BINARY: dict[str, Binary] = {
    "addf": torch.add,
    "subf": torch.sub,
    "mulf": torch.mul,
    "divf": torch.div,
    "remf": torch.fmod,
    "maximumf": maximum,
    "minimumf": minimum,
    "maxnumf": maximum_number,
    "minnumf": minimum_number,
}

HANDLERS: dict[str, Prepare] = {
    **{f"math.{name}": function(compute) for name, compute in UNARY.items()},
    **{f"arith.{name}": function(compute) for name, compute in _BINARY.items()},
    "arith.negf": function(torch.neg),
    "arith.cmpf": typed(_compare),
    "math.atan2": function(torch.atan2),
    "math.clampf": function(torch.clamp),
    "math.copysign": function(torch.copysign),
    "math.powf": function(torch.pow),
    "math.fpowi": typed(_power_of_integer),
    "math.fma": function(fma),
    "math.isfinite": _test(torch.isfinite),
    "math.isinf": _test(torch.isinf),
    "math.isnan": _test(torch.isnan),
    "tt.clampf": typed(clamp),
    "tt.precise_divf": function(torch.div),
    "tt.precise_sqrt": function(torch.sqrt),
}
