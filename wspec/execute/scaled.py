"""4-bit floats and products of operands with a scale for each group along K."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import torch

from wspec.execute.context import Context, Item, Prepare, Run, typed
from wspec.execute.elements import FP8, dtype_of
from wspec.execute.errors import ExecutionError
from wspec.execute.rounding import double, round_to
from wspec.ir.core import Operation
from wspec.ir.types import DenseArrayAttr

# e2m1: sign, two bits of exponent, one of mantissa
_FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
_E2M1 = 4  # of a_elem_type and b_elem_type
_UNKNOWN = {2: "e2m3", 3: "e3m2"}


def unpack_fp4(packed: torch.Tensor, axis: int) -> torch.Tensor:
    """Two numbers from each i8, the lower four bits first: twice as many along `axis`, as f32."""
    pairs = torch.stack((packed & 15, (packed >> 4) & 15), axis + 1)
    shape = list(packed.shape)
    shape[axis] *= 2
    return _FP4[pairs.long()].reshape(shape)


def _fp4_to_fp(op: Operation) -> Callable[[torch.Tensor], Item]:
    axis, dtype = op.int_attr("axis") or 0, dtype_of(op.result.type)
    return lambda packed: unpack_fp4(packed, axis).to(dtype)


def scale_factors(scale: torch.Tensor) -> torch.Tensor:
    """Scales as f64: bytes are exponents (e8m0, 255 is NaN), fp8 numbers themselves."""
    if scale.dtype in FP8:
        return double(scale)
    exponent = scale.to(torch.int64) & 255
    factors = torch.ldexp(torch.ones(scale.shape, dtype=torch.float64), exponent - 127)
    return torch.where(exponent == 255, torch.full_like(factors, torch.nan), factors)


def _dot_scaled(op: Operation) -> Run:
    """a * scale_a @ b * scale_b + c, in float64, rounded once."""
    segments = op.attr("operandSegmentSizes")
    if not isinstance(segments, DenseArrayAttr):
        raise ExecutionError("a scaled dot whose operands cannot be told apart")
    starts = [0, *accumulate(segments.values)]
    dtype = dtype_of(op.result.type)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        a, b, c = operands[:3]
        scale_a, scale_b = (operands[starts[i]] if starts[i + 1] > starts[i] else None for i in (3, 4))
        left = _scaled(_values(op, a, "a", "lhs_k_pack", -1), scale_a, -1)
        right = _scaled(_values(op, b, "b", "rhs_k_pack", -2), scale_b, -2)
        return (round_to(left @ right + c.to(torch.float64), dtype),)

    return run


def _values(op: Operation, values: torch.Tensor, which: str, pack: str, k_axis: int) -> torch.Tensor:
    """An operand as f64. Packed 4-bit numbers lie along K, or along the other dimension."""
    kind = op.int_attr(f"{which}_elem_type")
    if kind in _UNKNOWN:
        raise ExecutionError(f"a scaled dot of {_UNKNOWN[kind]} numbers")
    if kind == _E2M1:
        along_k = op.int_attr(pack) != 0
        axis = k_axis if along_k else -3 - k_axis
        return unpack_fp4(values, values.dim() + axis).to(torch.float64)
    return double(values)


def _scaled(values: torch.Tensor, scale: torch.Tensor | None, k_axis: int) -> torch.Tensor:
    """`scale` is (..., M or N, groups of K)."""
    if scale is None:
        return values
    factors = scale_factors(scale).repeat_interleave(values.shape[k_axis] // scale.shape[-1], -1)
    return values * (factors if k_axis == -1 else factors.transpose(-1, -2))


HANDLERS: dict[str, Prepare] = {"ttg.fp4_to_fp": typed(_fp4_to_fp), "tt.dot_scaled": _dot_scaled}
