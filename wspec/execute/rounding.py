"""Conversions between numbers, as the instructions of Hopper make them.

* float to a narrower float: to nearest, ties to even, in one rounding (also from f64, where LLVM rounds to odd first);
  `rtz` towards zero, a finite number never becoming infinite. NaN stays NaN; its payload is not kept.
* float to fp8: `cvt.satfinite`: what is too large, infinities included, becomes the largest number; NaN stays NaN.
* float to integer: `cvt.rzi`: towards zero, what is too large becomes the nearest integer of the type. NaN becomes 0;
  from f64, or to 64 bits, it becomes the sign bit alone (PTX ISA, cvt). For i8 and i1 the back end converts to 16 bits
  and cuts; LLVM itself calls numbers that do not fit undefined.
* fp8 to wider types: exact, but for e5m2 to bf16 (`e5m2_to_bfloat16`).
* integer to float: to nearest, in one rounding; to bf16 through f32, as Triton lowers it.
"""

from __future__ import annotations

import numpy as np
import torch

from wspec.execute.elements import FP8, as_unsigned, from_numpy, integer_of

RTNE, RTZ = "rtne", "rtz"
TF32_MASK = ~0x1FFF


def round_to(values: torch.Tensor, dtype: torch.dtype, mode: str = RTNE) -> torch.Tensor:
    """Floats as another float type."""
    if values.dtype == dtype:
        return values
    if values.dtype in FP8:
        values = values.to(torch.float32)
    nearest = _nearest(values, dtype)
    return nearest if mode == RTNE else _back_towards_zero(values, nearest)


def double(values: torch.Tensor) -> torch.Tensor:
    """Floats as f64, which holds them all."""
    return round_to(values, torch.float64)


def _nearest(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if values.dtype == torch.float64 and dtype.itemsize < 4:
        values = round_to_odd(values)
    if dtype in FP8:
        largest = torch.finfo(dtype).max
        return values.to(torch.float32).clamp(-largest, largest).to(dtype)
    return values.to(dtype)


def round_to_odd(values: torch.Tensor) -> torch.Tensor:
    """f64 as f32, towards zero, with the last bit set where digits were lost: rounding again then is as if from f64."""
    short = _back_towards_zero(values, values.to(torch.float32))
    inexact = (short.to(torch.float64) != values) & values.isfinite()
    return (short.view(torch.int32) | inexact.to(torch.int32)).view(torch.float32)


def _back_towards_zero(values: torch.Tensor, rounded: torch.Tensor) -> torch.Tensor:
    """One step down in magnitude where rounding went up."""
    if rounded.dtype.itemsize > values.dtype.itemsize:
        return rounded
    above = rounded.to(torch.float64).abs() > values.to(torch.float64).abs()
    bits = rounded.view(integer_of(rounded.dtype))
    return (bits - above.to(bits.dtype)).view(rounded.dtype)


def e5m2_to_bfloat16(values: torch.Tensor) -> torch.Tensor:
    """As Triton makes it for Hopper, by shifting bits and a product: infinity is 65536 there, NaN larger numbers."""
    bits = values.view(torch.int8).to(torch.int32)
    shifted = (((bits & 0x7F) << 21).view(torch.float32) * 2.0**112).view(torch.int32)
    return (shifted | ((bits & 0x80) << 24)).view(torch.float32).to(torch.bfloat16)


def truncate_tf32(values: torch.Tensor) -> torch.Tensor:
    """f32 without the 13 bits that tensor cores do not read (wgmma and mma take f32 registers as tf32 that way)."""
    return (values.view(torch.int32) & TF32_MASK).view(torch.float32)


def round_tf32(values: torch.Tensor) -> torch.Tensor:
    """`cvt.rna.tf32.f32`: to nearest, ties away from zero."""
    rounded = ((values.view(torch.int32) + 0x1000) & TF32_MASK).view(torch.float32)
    return torch.where(values.isfinite(), rounded, values)


# --------------------------------------------------------------------------------------------- integers


def float_to_signed(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Towards zero; `dtype` is a signed integer type or bool."""
    if dtype in (torch.int8, torch.bool):
        return _cut(float_to_signed(values, torch.int16), dtype)
    info = torch.iinfo(dtype)
    wide = values.to(torch.float64).trunc()
    inside = (wide >= info.min) & (wide < 2.0 ** (info.bits - 1))
    whole = torch.where(inside, wide, 0.0).to(dtype)
    ends = torch.where(wide > 0, info.max, info.min).to(dtype)
    return torch.where(wide.isnan(), _integer_nan(values.dtype, dtype), torch.where(inside, whole, ends))


def float_to_unsigned(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Towards zero, negative numbers become 0; the result is the signed integer type of the same bits."""
    if dtype in (torch.int8, torch.bool):
        return _cut(float_to_unsigned(values, torch.int16), dtype)
    bits = torch.iinfo(dtype).bits
    wide = values.to(torch.float64).trunc()
    half = 2.0 ** (bits - 1)
    upper = (wide >= half) & (wide < 2 * half)
    low = torch.where((wide > 0) & (wide < half), wide, 0.0).to(dtype)
    high = torch.where(upper, wide - half, 0.0).to(dtype) + torch.iinfo(dtype).min
    whole = torch.where(upper, high, low)
    whole = torch.where(wide >= 2 * half, torch.tensor(-1, dtype=dtype), whole)
    return torch.where(wide.isnan(), _integer_nan(values.dtype, dtype), whole)


def _cut(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return (values & 1) != 0 if dtype == torch.bool else values.to(dtype)


def _integer_nan(source: torch.dtype, dtype: torch.dtype) -> torch.Tensor:
    sign_bit = source == torch.float64 or dtype == torch.int64
    return torch.tensor(torch.iinfo(dtype).min if sign_bit else 0, dtype=dtype)


def signed_to_float(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A true i1 is -1."""
    if values.dtype == torch.bool:
        values = -values.to(torch.int8)
    return _short_float(values.to(torch.float64 if dtype == torch.float16 else _wide(dtype)), dtype)


def unsigned_to_float(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The integers' bits as unsigned numbers; a true i1 is 1."""
    wide = torch.float64 if dtype == torch.float16 else _wide(dtype)
    floats = as_unsigned(values).astype(np.float64 if wide == torch.float64 else np.float32)
    return _short_float(from_numpy(floats, wide), dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _short_float(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return values if values.dtype == dtype else round_to(values, dtype)
