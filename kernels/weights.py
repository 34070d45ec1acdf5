"""Weights of 8 or 4 bits: making them, what they stand for, and what the products in `quantized.py` can take."""

from __future__ import annotations

import torch

from wspec.kernels.arguments import check_no_grad, check_tensor
from wspec.kernels.reference import exact_float32_products

MIDDLE = 8
"""What is subtracted from a number of 4 bits as it is stored."""


def check_int8(a: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> None:
    """Raises TypeError or ValueError naming the argument that `matmul_int8_weights` cannot take."""
    _check(a, weight, torch.int8)
    check_tensor("scale", scale, 1, (torch.float32,))
    if weight.shape[1] != a.shape[1]:
        raise ValueError(f"weight: has rows of {weight.shape[1]}, but a has {a.shape[1]} columns")
    if scale.shape[0] != weight.shape[0] or not scale.is_contiguous():
        raise ValueError(f"scale: expected {weight.shape[0]} contiguous numbers, got {tuple(scale.shape)}")


def check_int4(a: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> None:
    """Raises TypeError or ValueError naming the argument that `matmul_int4_weights` cannot take."""
    _check(a, weight, torch.int8)
    check_tensor("scale", scale, 2, (torch.bfloat16,))
    if weight.shape[1] * 2 != a.shape[1]:
        raise ValueError(f"weight: has rows of {weight.shape[1]} bytes, but a has {a.shape[1]} columns")
    if scale.shape[1] != weight.shape[0] or a.shape[1] % (2 * scale.shape[0]) or not scale.is_contiguous():
        raise ValueError(f"scale: expected contiguous [groups, {weight.shape[0]}], got {tuple(scale.shape)}")


def _check(a: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype) -> None:
    check_tensor("a", a, 2, (torch.bfloat16,))
    check_no_grad("a", a)
    check_tensor("weight", weight, 2, (dtype,))
    if not (a.numel() and weight.numel()):
        raise ValueError(f"a: nothing to multiply: {tuple(a.shape)} by {tuple(weight.shape)}")


def quantize_int8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[N, K] as int8 and a float32 scale for each row."""
    scale = weight.float().abs().amax(1).clamp_min(1e-12) / 127
    return (weight.float() / scale[:, None]).round().to(torch.int8), scale


def quantize_int4(weight: torch.Tensor, group: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    """[N, K] as [N, K / 2] bytes and [K / group, N] bfloat16 scales: column j in the low half of byte j, column
    K / 2 + j in the high half."""
    n, k = weight.shape
    grouped = weight.float().reshape(n, k // group, group)
    scale = (grouped.abs().amax(2).clamp_min(1e-12) / 7).to(torch.bfloat16)
    numbers = (grouped / scale.float()[:, :, None]).round().clamp(-MIDDLE, MIDDLE - 1).to(torch.int8) + MIDDLE
    numbers = numbers.reshape(n, k).to(torch.uint8)
    packed = numbers[:, : k // 2] | (numbers[:, k // 2 :] << 4)
    return packed.contiguous().view(torch.int8), scale.T.contiguous()


def dequantize_int4(weight: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What `quantize_int4` packed, in `dtype`."""
    numbers = torch.cat([weight & 15, weight >> 4 & 15], 1).to(dtype) - MIDDLE
    return numbers * scale.T.to(dtype).repeat_interleave(numbers.shape[1] // scale.shape[0], 1)


def int8_reference(
    a: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, *, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """A (weight * scale)^T in `dtype` (float32 or float64) on the inputs' device, without TF32."""
    with exact_float32_products():
        return (a.to(dtype) @ weight.to(dtype).T) * scale.to(dtype)


def int4_reference(
    a: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, *, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """A W^T in `dtype` on the inputs' device, without TF32."""
    with exact_float32_products():
        return a.to(dtype) @ dequantize_int4(weight, scale, dtype).T
