"""Plain Triton kernels without a loop worth specializing: add, softmax and layer norm.

None multiplies matrices, so there is nothing a producer warp could run ahead of: `wspec.compile` leaves them as they
are and says why. `add` and `softmax` have no loop at all; `layer_norm` has loops without a dot.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies of jit functions are read by Triton, which has no types to give their arguments.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from wspec.kernels.arguments import check_cuda, check_same, check_tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_SOFTMAX_COLUMNS = 1 << 16
"""A row of `softmax` lives in the registers of one block."""


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
    """BLOCK elements of x + y, all contiguous; grid (ceil(count / BLOCK),)."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    x = tl.load(x_ptr + offsets, mask=inside)
    y = tl.load(y_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, x + y, mask=inside)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """One row of a contiguous [rows, columns]; grid (rows,); BLOCK >= columns."""
    start = tl.program_id(0).to(tl.int64) * columns
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    x = tl.load(x_ptr + start + offsets, mask=inside, other=-float("inf")).to(tl.float32)
    p = tl.exp(x - tl.max(x, 0))
    p = p / tl.sum(p, 0)
    tl.store(out_ptr + start + offsets, p.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    """One row of a contiguous [rows, columns], in blocks of BLOCK columns; grid (rows,)."""
    start = tl.program_id(0).to(tl.int64) * columns
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for first in tl.range(0, columns, BLOCK):
        inside = first + offsets < columns
        total += tl.load(x_ptr + start + first + offsets, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / columns
    squares = tl.zeros([BLOCK], tl.float32)
    for first in tl.range(0, columns, BLOCK):
        inside = first + offsets < columns
        x = tl.load(x_ptr + start + first + offsets, mask=inside, other=0.0).to(tl.float32)
        centred = tl.where(inside, x - mean, 0.0)
        squares += centred * centred
    inverse_deviation = tl.rsqrt(tl.sum(squares, 0) / columns + eps)
    for first in tl.range(0, columns, BLOCK):
        at = first + offsets
        inside = at < columns
        x = tl.load(x_ptr + start + at, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + at, mask=inside, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + at, mask=inside, other=0.0).to(tl.float32)
        y = (x - mean) * inverse_deviation * weight + bias
        tl.store(out_ptr + start + at, y.to(out_ptr.dtype.element_ty), mask=inside)


def add(x: torch.Tensor, y: torch.Tensor, *, kernel: Any = add_kernel) -> torch.Tensor:
    """x + y for tensors of one shape, contiguous; raises TypeError or ValueError naming the argument."""
    _check("x", x)
    _check("y", y, like=x)
    if y.shape != x.shape:
        raise ValueError(f"y: shape {tuple(y.shape)} differs from x's {tuple(x.shape)}")
    out = torch.empty_like(x)
    if x.numel():
        with torch.cuda.device(x.device):
            kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out


def softmax(x: torch.Tensor, *, kernel: Any = softmax_kernel) -> torch.Tensor:
    """Softmax over the last dimension of a contiguous tensor, at most 65536 long.

    Raises TypeError or ValueError naming the argument.
    """
    _check("x", x)
    if x.ndim == 0 or x.shape[-1] > MAX_SOFTMAX_COLUMNS:
        raise ValueError(f"x: needs a last dimension of at most {MAX_SOFTMAX_COLUMNS}, got shape {tuple(x.shape)}")
    out = torch.empty_like(x)
    if x.numel():
        columns = x.shape[-1]
        block = triton.next_power_of_2(columns)
        with torch.cuda.device(x.device):
            kernel[(x.numel() // columns,)](x, out, columns, BLOCK=block, num_warps=min(32, max(4, block // 512)))
    return out


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, eps: float = 1e-5, kernel: Any = layer_norm_kernel
) -> torch.Tensor:
    """Layer norm over the last dimension of a contiguous tensor; weight and bias are [last dimension].

    Raises TypeError or ValueError naming the argument.
    """
    _check("x", x)
    for name, tensor in (("weight", weight), ("bias", bias)):
        _check(name, tensor, like=x)
        if tensor.shape != x.shape[-1:]:
            raise ValueError(f"{name}: shape {tuple(tensor.shape)} is not x's last dimension {tuple(x.shape[-1:])}")
    out = torch.empty_like(x)
    if x.numel():
        columns = x.shape[-1]
        block = min(4096, triton.next_power_of_2(columns))
        with torch.cuda.device(x.device):
            kernel[(x.numel() // columns,)](x, weight, bias, out, columns, eps, BLOCK=block, num_warps=8)
    return out


def add_reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y in float32."""
    return x.float() + y.float()


def softmax_reference(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension in float32."""
    return x.float().softmax(-1)


def layer_norm_reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, eps: float = 1e-5
) -> torch.Tensor:
    """Layer norm over the last dimension in float32."""
    return torch.nn.functional.layer_norm(x.float(), x.shape[-1:], weight.float(), bias.float(), eps)


def _check(name: str, tensor: torch.Tensor, like: torch.Tensor | None = None) -> None:
    rank = tensor.ndim if isinstance(tensor, torch.Tensor) else 0
    check_tensor(name, tensor, rank, DTYPES)
    if like is not None:
        check_same(name, tensor, "x", like)
    check_cuda(name, tensor)
    if not tensor.is_contiguous():
        raise ValueError(f"{name}: must be contiguous, got strides {tensor.stride()} for shape {tuple(tensor.shape)}")
