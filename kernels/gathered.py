"""A matrix product whose rows of A are gathered by an index vector, as a plain Triton kernel for Hopper.

C[i] = A[index[i]] B with float32 accumulation: what a mixture of experts does with the tokens of one expert, or an
embedding table with a projection behind it. The copy engine takes boxes of neighbouring rows, which these are not, so
tiles of A come through tensors of pointers; tiles of B and C are boxes, and go through descriptors.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies of jit functions are read by Triton, which has no types to give their arguments.

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl

from wspec.kernels.arguments import (
    HALF_DTYPES,
    check_cuda,
    check_no_grad,
    check_same,
    check_tensor,
    tma_descriptors,
    tma_strides,
)
from wspec.kernels.matmul import Config, empty_output
from wspec.kernels.reference import exact_float32_products


@triton.jit
def gathered_matmul_kernel(
    a_ptr, index_ptr, b_desc, c_desc, m, k, stride_am,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One BLOCK_M x BLOCK_N tile of C; grid (tiles down, tiles across).

    a_ptr: rows of k elements, stride_am elements apart; index_ptr: [m] int32, rows of A; b_desc: [K, N];
    c_desc: [M, N].
    """
    first_m = tl.program_id(0) * BLOCK_M
    first_n = tl.program_id(1) * BLOCK_N
    offs_m = first_m + tl.arange(0, BLOCK_M)
    offs_k = tl.arange(0, BLOCK_K)
    index = tl.load(index_ptr + offs_m, mask=offs_m < m, other=0)  # below the last row of C stands row 0 of A
    a_ptrs = a_ptr + index.to(tl.int64)[:, None] * stride_am + offs_k[None, :]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for first_k in tl.range(0, k, BLOCK_K):
        a = tl.load(a_ptrs + first_k, mask=offs_k[None, :] < k - first_k, other=0.0)
        b = b_desc.load([first_k, first_n])
        acc = tl.dot(a, b, acc)
    c_desc.store([first_m, first_n], acc.to(c_desc.dtype))


CONFIG = Config(128, 256, 64, num_warps=8, num_stages=3)
"""The tile when nobody chose one: that of large products through descriptors."""


@functools.cache
def specialized_kernel() -> Any:
    """The jit function under `wspec.compile`, made on first use; its model leaves it alone, unless gate=off is set."""
    import wspec

    return wspec.compile(gathered_matmul_kernel, trials=0)


def gathered_matmul(
    a: torch.Tensor, index: torch.Tensor, b: torch.Tensor, *, config: Config = CONFIG, kernel: Any = None
) -> torch.Tensor:
    """a[index] @ b with float32 accumulation, as an [M, N] tensor of a's dtype.

    a: [R, K] with contiguous rows that begin at multiples of 16 bytes; index: [M] int32, rows of a from 0 to R - 1,
    which nothing checks; b: [K, N] likewise aligned; float16 or bfloat16, all on one CUDA device, any sizes, zero
    included. kernel: the jit function to launch; the specialized one if None.

    Raises TypeError (type, dtype) or ValueError (shape, device, strides), naming the argument.
    """
    check_inputs(a, index, b)
    out = empty_output(index[:, None], b, a.dtype)
    if not out.numel() or not a.shape[1]:
        return out.zero_().contiguous()
    grid, arguments, meta = launch(a, index, b, out, config)
    with torch.cuda.device(a.device):
        (specialized_kernel() if kernel is None else kernel)[grid](*arguments, **meta)
    return out.contiguous()


def launch(
    a: torch.Tensor, index: torch.Tensor, b: torch.Tensor, out: torch.Tensor, config: Config = CONFIG
) -> tuple[tuple[int, int], tuple[Any, ...], dict[str, Any]]:
    """Grid, arguments, and constexprs with options, for inputs that passed `check_inputs`, nothing empty.

    Raises ValueError naming the argument whose strides cannot be walked.
    """
    stride_am = tma_strides("a", a)[0]  # cp.async wants what TMA wants of a row
    rows, columns, steps = config.block_m, config.block_n, config.block_k
    b_desc, c_desc = tma_descriptors(("b", b, (steps, columns)), ("out", out, (rows, columns)))
    blocks = {"BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "BLOCK_K": config.block_k}
    meta = {**blocks, "num_warps": config.num_warps, "num_stages": config.num_stages}
    grid = (triton.cdiv(out.shape[0], config.block_m), triton.cdiv(out.shape[1], config.block_n))
    return grid, (a, index, b_desc, c_desc, out.shape[0], a.shape[1], stride_am), meta


def check_inputs(a: torch.Tensor, index: torch.Tensor, b: torch.Tensor, *, need_cuda: bool = True) -> None:
    """Raises TypeError or ValueError naming the argument that `gathered_matmul` cannot take."""
    for name, tensor in (("a", a), ("b", b)):
        check_tensor(name, tensor, 2, HALF_DTYPES)
        check_no_grad(name, tensor)
    check_tensor("index", index, 1, (torch.int32,))
    if not index.is_contiguous():
        raise ValueError("index: must be contiguous")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"b: has {b.shape[0]} rows, but a has {a.shape[1]} columns")
    if not a.shape[0] and index.shape[0]:
        raise ValueError("a: has no rows to gather")
    check_same("b", b, "a", a)
    if index.device != a.device:
        raise ValueError(f"index: is on {index.device}, but a is on {a.device}")
    if need_cuda:
        check_cuda("a", a)


def gathered_matmul_reference(
    a: torch.Tensor, index: torch.Tensor, b: torch.Tensor, *, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """a[index] @ b in `dtype` (float32 or float64) on the inputs' device, without TF32."""
    with exact_float32_products():
        return a.to(dtype)[index.long()] @ b.to(dtype)
