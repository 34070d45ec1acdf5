"""A launch of each kernel here: inputs on any device, grid, and what must come out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia import hopper
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.outside import gluon_attention, gluon_gemm, gluon_single, gluon_tasks, triton_kernels
from wspec.kernels.reference import exact_float32_products

FP16, BF16 = torch.float16, torch.bfloat16
SIZE, DEEP = 2048, 1024  # of the products: [SIZE, DEEP] times [DEEP, SIZE]; two waves of blocks on 132 multiprocessors
HEADS, LENGTH = 32, 2048  # of attention; four waves
LOG2_E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class Launch:
    """`kernel[grid](*args, **options)` leaves `expected()` in `out`, up to rounding. Tensors are on one device."""

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    options: dict[str, Any]
    out: Tensor
    expected: Callable[[], Tensor]  # float32, of the shape of `out`

    def run(self) -> Any:
        """Launch, without waiting; the compiled kernel."""
        return self.kernel[self.grid](*self.args, **self.options)


def _random(device: str, seed: int, *shape: int, dtype: torch.dtype = FP16) -> Tensor:
    """Standard normal numbers, the same for the same seed."""
    if device == "meta":
        return torch.empty(shape, dtype=dtype, device=device)
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(shape, dtype=torch.float32, device=device, generator=generator).to(dtype)


def _operands(device: str) -> tuple[Tensor, Tensor, Tensor]:
    """a, b and the empty c of a product."""
    c = torch.empty((SIZE, SIZE), dtype=FP16, device=device)
    return _random(device, 0, SIZE, DEEP), _random(device, 1, DEEP, SIZE), c


def _product(a: Tensor, b: Tensor) -> Tensor:
    with exact_float32_products():
        return a.float() @ b.float()


def _attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """[heads, length, D] three times."""
    with exact_float32_products():
        scores = q.float() @ k.float().mT / math.sqrt(q.shape[-1])
        if causal:
            above = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(above, -math.inf)
        return scores.softmax(-1) @ v.float()


# ------------------------------------------------------------------------------------------------ Triton


def triton_gemm(
    device: str, tile: tuple[int, int, int], stages: int, warps: int = 4, ws: bool = False, host: bool = False
) -> Launch:
    """One tile a block; `host`: the descriptors are arguments."""
    a, b, out = _operands(device)
    bm, bn, bk = tile
    args: tuple[Any, ...]
    if host:
        kernel = triton_kernels.gemm_host
        operands = [TensorDescriptor.from_tensor(a, [bm, bk]), TensorDescriptor.from_tensor(b, [bk, bn])]
        args = (*operands, out, SIZE, DEEP, *tile, ws)
    else:
        kernel = triton_kernels.gemm
        args = (a, b, out, SIZE, SIZE, DEEP, *tile, ws)
    options = {"num_warps": warps, "num_stages": stages}
    return Launch(kernel, (SIZE // bm, SIZE // bn), args, options, out, lambda: _product(a, b))


def triton_persistent(device: str, stages: int, ws: bool) -> Launch:
    """Three blocks make 256 tiles."""
    a, b, out = _operands(device)
    args = (a, b, out, SIZE, SIZE, DEEP, 128, 128, 64, ws)
    options = {"num_warps": 4, "num_stages": stages}
    return Launch(triton_kernels.persistent_gemm, (3,), args, options, out, lambda: _product(a, b))


def triton_pointers(device: str, stages: int, warps: int) -> Launch:
    a, b, out = _operands(device)
    args = (a, b, out, SIZE, DEEP, 128, 128, 64)
    options = {"num_warps": warps, "num_stages": stages}
    return Launch(triton_kernels.pointer_gemm, (SIZE // 128, SIZE // 128), args, options, out, lambda: _product(a, b))


def triton_attention(
    device: str,
    head_dim: int,
    block_n: int,
    stages: int,
    mask: str = "full",
    warps: int = 4,
    ws: bool = False,
    host: bool = False,
    dtype: torch.dtype = BF16,
) -> Launch:
    """Tiles of 128 queries. mask: full, causal (two loops) or masked (causal, one loop)."""
    q, k, v = (_random(device, seed, HEADS, LENGTH, head_dim, dtype=dtype) for seed in range(3))
    out = torch.empty_like(q)
    scale, grid = LOG2_E / math.sqrt(head_dim), (LENGTH // 128, HEADS)
    tile = (128, block_n, head_dim)
    options = {"num_warps": warps, "num_stages": stages}
    args: tuple[Any, ...]
    if host:
        flat = [one.view(HEADS * LENGTH, head_dim) for one in (q, k, v)]
        boxes = [[128, head_dim], [block_n, head_dim], [block_n, head_dim]]
        descs = [TensorDescriptor.from_tensor(one, box) for one, box in zip(flat, boxes, strict=True)]
        kernel = triton_kernels.attention_host
        args = (*descs, out, scale, LENGTH, *tile, ws)
    else:
        kernel = triton_kernels.attention
        args = (q, k, v, out, scale, LENGTH, *tile, mask != "full", mask == "causal", ws)
    return Launch(kernel, grid, args, options, out, lambda: _attend(q, k, v, mask != "full"))


# ------------------------------------------------------------------------------------------------- Gluon


def _desc(x: Tensor, box: list[int]) -> hopper.TensorDescriptor:
    """A descriptor of float16 boxes in the layout that wgmma and TMA take."""
    return hopper.TensorDescriptor.from_tensor(x, box, gl.NVMMASharedLayout.get_default_for(box, gl.float16))


def specialized_gemm(device: str, consumers: int = 1, depth: int = 3, lag: bool = False, fault: str = "") -> Launch:
    a, b, out = _operands(device)
    descs = _desc(a, [128, 64]), _desc(b, [64, 128]), _desc(out, [128 // consumers, 128])
    args = (*descs, DEEP // 64, consumers, depth, lag, fault)
    return Launch(gluon_gemm.gemm, (SIZE // 128, SIZE // 128), args, {"num_warps": 4}, out, lambda: _product(a, b))


def single_gemm(device: str, depth: int = 3, warps: int = 4, fault: str = "") -> Launch:
    a, b, out = _operands(device)
    descs = _desc(a, [128, 64]), _desc(b, [64, 128]), _desc(out, [128, 128])
    args, grid = (*descs, DEEP // 64, depth, fault), (SIZE // 128, SIZE // 128)
    return Launch(gluon_single.tma_gemm, grid, args, {"num_warps": warps}, out, lambda: _product(a, b))


def pointer_gemm(device: str, depth: int = 3, specialized: bool = False, fault: str = "") -> Launch:
    """By cp.async: in one task, or with four warps that only copy."""
    a, b, out = _operands(device)
    kernel = gluon_tasks.copied_gemm if specialized else gluon_single.pointer_gemm
    args, grid = (a, b, out, SIZE, DEEP, DEEP // 64, 128, 128, 64, depth, fault), (SIZE // 128, SIZE // 128)
    return Launch(kernel, grid, args, {"num_warps": 4}, out, lambda: _product(a, b))


def persistent_gemm(device: str, depth: int = 3, fault: str = "") -> Launch:
    """Seven blocks make 256 tiles."""
    a, b, out = _operands(device)
    descs = _desc(a, [128, 64]), _desc(b, [64, 128]), _desc(out, [128, 128])
    args = (*descs, (SIZE // 128) ** 2, SIZE // 128, DEEP // 64, depth, fault)
    return Launch(gluon_tasks.persistent_gemm, (7,), args, {"num_warps": 4}, out, lambda: _product(a, b))


def scale_rows(device: str, depth: int = 2, fault: str = "") -> Launch:
    """128 blocks of 16 tiles of 64 rows."""
    x = _random(device, 0, 128 * 16 * 64, 64)
    out = torch.empty_like(x)
    args = (_desc(x, [64, 64]), _desc(out, [64, 64]), 16, 1.5, depth, fault)
    return Launch(gluon_tasks.scale_rows, (128,), args, {"num_warps": 4}, out, lambda: x.float() * 1.5)


def specialized_attention(device: str, depth: int = 2, p_shared: bool = False, fault: str = "") -> Launch:
    """D = 64, tiles of 128 queries and 64 keys, without a mask."""
    q, k, v = (_random(device, seed, HEADS, LENGTH, 64) for seed in range(3))
    out = torch.empty_like(q)
    flat = [one.view(HEADS * LENGTH, 64) for one in (q, k, v, out)]
    descs = [_desc(one, [rows, 64]) for one, rows in zip(flat, (128, 64, 64, 64), strict=True)]
    args = (*descs, LENGTH // 64, LOG2_E / 8, depth, p_shared, fault)
    grid = (LENGTH // 128, HEADS)
    kernel = gluon_attention.attention
    return Launch(kernel, grid, args, {"num_warps": 4}, out, lambda: _attend(q, k, v, False))
