"""`tt.extern_elementwise`: functions of CUDA's libdevice by their symbols.

f64 functions have the bare name, f32 ones end in f. Functions that are computed in f64 and rounded are at least as
exact as the card's; `__nv_fast_*` are approximations there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from wspec.execute.bits import count_ones, leading_zeros, trailing_zeros
from wspec.execute.context import Item, Prepare, typed
from wspec.execute.elements import dtype_of, is_float, scalar, tensor
from wspec.execute.errors import ExecutionError
from wspec.execute.floats import UNARY, fma, in_double, round_away, saturate
from wspec.execute.integers import high_part
from wspec.execute.minmax import maximum_number, minimum_number
from wspec.execute.rounding import float_to_signed, float_to_unsigned, round_to, signed_to_float, unsigned_to_float
from wspec.ir.core import Operation

Function = Callable[..., torch.Tensor]


def _norm(*parts: torch.Tensor) -> torch.Tensor:
    """The length of a vector."""
    total = torch.zeros_like(parts[0], dtype=torch.float64)
    for part in parts:
        total = total + part.to(torch.float64) ** 2
    return round_to(total.sqrt(), parts[0].dtype)


def _inverse(length: torch.Tensor) -> torch.Tensor:
    return length.reciprocal()


def _positive_difference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    difference = torch.where(a > b, a - b, torch.zeros_like(a))
    return torch.where(a.isnan() | b.isnan(), torch.full_like(a, math.nan), difference)


def _remainder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """IEEE remainder: a - n * b, where n is the quotient rounded to even. A zero has the sign of a."""
    x, y = a.to(torch.float64), b.to(torch.float64).abs()
    rest = torch.fmod(x, 2 * y)
    left = torch.where(y.isinf() & x.isfinite(), x, rest - (rest / y).round() * y)
    return round_to(torch.where(left == 0, left.copysign(x), left), a.dtype)


def _logb(a: torch.Tensor) -> torch.Tensor:
    exponent = (torch.frexp(a.to(torch.float64)).exponent - 1).to(a.dtype)
    exponent = torch.where(a == 0, torch.full_like(a, -math.inf), exponent)
    return torch.where(a.isfinite(), exponent, a * a)


def _ldexp(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return round_to(torch.ldexp(a.to(torch.float64), b.to(torch.float64)), a.dtype)


def _find_first(a: torch.Tensor) -> torch.Tensor:
    """One more than the place of the lowest bit set; 0 when there is none."""
    zeros = trailing_zeros(a, torch.iinfo(a.dtype).bits)
    return torch.where(a == 0, torch.zeros_like(a), zeros + 1)


_FLOATS: dict[str, Function] = {
    **{name: compute for name, compute in UNARY.items() if name not in ("absf", "roundeven")},
    "fabs": torch.abs,
    "rint": torch.round,
    "nearbyint": torch.round,
    "exp10": in_double(lambda x: torch.pow(10.0, x)),
    "rcbrt": in_double(lambda x: 1 / x.abs().pow(1 / 3).copysign(x)),
    "cospi": in_double(lambda x: torch.cos(math.pi * torch.fmod(x, 2))),
    "sinpi": in_double(lambda x: torch.sin(math.pi * torch.fmod(x, 2))),
    "erfinv": torch.erfinv,
    "erfcinv": in_double(lambda x: torch.erfinv(1 - x)),
    "erfcx": in_double(torch.special.erfcx),
    "normcdf": in_double(torch.special.ndtr),
    "normcdfinv": in_double(torch.special.ndtri),
    "lgamma": torch.lgamma,
    "tgamma": in_double(lambda x: torch.lgamma(x).exp() * _gamma_sign(x)),
    "j0": torch.special.bessel_j0,
    "j1": torch.special.bessel_j1,
    "y0": torch.special.bessel_y0,
    "y1": torch.special.bessel_y1,
    "cyl_bessel_i0": torch.special.i0,
    "cyl_bessel_i1": torch.special.i1,
    "logb": _logb,
    "pow": torch.pow,
    "powi": lambda a, b: round_to(torch.pow(a.to(torch.float64), b.to(torch.float64)), a.dtype),
    "fmod": torch.fmod,
    "remainder": _remainder,
    "fdim": _positive_difference,
    "fmax": maximum_number,
    "fmin": minimum_number,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "nextafter": torch.nextafter,
    "hypot": _norm,
    "norm3d": _norm,
    "norm4d": _norm,
    "rhypot": lambda *parts: _inverse(_norm(*parts)),
    "rnorm3d": lambda *parts: _inverse(_norm(*parts)),
    "rnorm4d": lambda *parts: _inverse(_norm(*parts)),
    "fma": fma,
    "ldexp": _ldexp,
    "scalbn": _ldexp,
    "llrint": lambda a: float_to_signed(a.round(), torch.int64),
    "llround": lambda a: float_to_signed(round_away(a), torch.int64),
    "ilogb": lambda a: float_to_signed(_logb(a), torch.int32),
}


def _gamma_sign(x: torch.Tensor) -> torch.Tensor:
    """Negative between -1 and 0, -3 and -2, and so on."""
    return torch.where((x < 0) & (x.floor() % 2 != 0), -1.0, 1.0)


def _bits_as(dtype: torch.dtype) -> Function:
    return lambda a: a.view(dtype)


_ROUNDERS: dict[str, Function] = {"rn": torch.round, "rz": torch.trunc, "rd": torch.floor, "ru": torch.ceil}


def _conversions() -> dict[str, Function]:
    """`__nv_float2int_rz` and the like. To floats only to nearest."""
    found: dict[str, Function] = {}
    integers = {"int": torch.int32, "ll": torch.int64}
    floats = {"float": torch.float32, "double": torch.float64}
    for name, dtype in integers.items():
        for real in floats:
            for mode, rounder in _ROUNDERS.items():
                found[f"{real}2{name}_{mode}"] = lambda a, t=dtype, r=rounder: float_to_signed(r(a), t)
                found[f"{real}2u{name}_{mode}"] = lambda a, t=dtype, r=rounder: float_to_unsigned(r(a), t)
        for real, to in floats.items():
            found[f"{name}2{real}_rn"] = lambda a, t=to: signed_to_float(a, t)
            found[f"u{name}2{real}_rn"] = lambda a, t=to: unsigned_to_float(a, t)
    return found


_OTHERS: dict[str, Function] = {
    **_conversions(),
    "double2float_rn": lambda a: a.to(torch.float32),
    "double2float_rz": lambda a: round_to(a, torch.float32, "rtz"),
    "float_as_int": _bits_as(torch.int32),
    "float_as_uint": _bits_as(torch.int32),
    "int_as_float": _bits_as(torch.float32),
    "uint_as_float": _bits_as(torch.float32),
    "double_as_longlong": _bits_as(torch.int64),
    "longlong_as_double": _bits_as(torch.float64),
    "saturatef": saturate,
    "frsqrt_rn": in_double(torch.rsqrt),
    "abs": torch.abs,
    "llabs": torch.abs,
    "popc": lambda a: count_ones(a, 32),
    "popcll": lambda a: count_ones(a, 64).to(torch.int32),
    "clz": lambda a: leading_zeros(a, 32),
    "clzll": lambda a: leading_zeros(a, 64).to(torch.int32),
    "ffs": _find_first,
    "ffsll": lambda a: _find_first(a).to(torch.int32),
    "mulhi": lambda a, b: high_part(a, b, 32, False),
    "umulhi": lambda a, b: high_part(a, b, 32, True),
    "mul64hi": lambda a, b: high_part(a, b, 64, False),
    "umul64hi": lambda a, b: high_part(a, b, 64, True),
    "isinff": lambda a: a.isinf().to(torch.int32),
    "isinfd": lambda a: a.isinf().to(torch.int32),
    "isnanf": lambda a: a.isnan().to(torch.int32),
    "isnand": lambda a: a.isnan().to(torch.int32),
    "finitef": lambda a: a.isfinite().to(torch.int32),
    "isfinited": lambda a: a.isfinite().to(torch.int32),
    "signbitf": lambda a: a.signbit().to(torch.int32),
    "signbitd": lambda a: a.signbit().to(torch.int32),
    "fast_fdividef": torch.div,
}
_EXACT: dict[str, Function] = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}


def _table() -> dict[str, Function]:
    found = dict(_OTHERS)
    for name, compute in _FLOATS.items():
        found[name] = found[f"{name}f"] = compute
    for name in ("cos", "exp", "exp10", "log", "log10", "log2", "pow", "sin", "tan"):
        found[f"fast_{name}f"] = _FLOATS[name]
    for kind in "fd":
        for name, compute in _EXACT.items():
            found[f"{kind}{name}_rn"] = compute
        found[f"{kind}rcp_rn"] = torch.reciprocal
        found[f"{kind}sqrt_rn"] = torch.sqrt
    found["fma_rn"] = found["fmaf_rn"] = fma
    return {f"__nv_{name}": compute for name, compute in found.items()}


FUNCTIONS = _table()


def _extern(op: Operation) -> Callable[..., Item]:
    symbol = op.str_attr("symbol") or ""
    compute = FUNCTIONS.get(symbol)
    if compute is None:
        raise ExecutionError(f"an external function that the executor does not know: {symbol}")
    sources, dtype = [dtype_of(value.type) for value in op.operands], dtype_of(op.result.type)
    whole = not is_float(op.result.type)

    def run(*operands: Item) -> Item:
        found = compute(*(tensor(item, source) for item, source in zip(operands, sources, strict=True)))
        if found.dtype != dtype:
            raise ExecutionError(f"{symbol} gives {found.dtype}, and the kernel expects {dtype}")
        return scalar(found) if whole and not found.dim() else found

    return run


HANDLERS: dict[str, Prepare] = {"tt.extern_elementwise": typed(_extern)}
