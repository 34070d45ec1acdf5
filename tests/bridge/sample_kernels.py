"""Small kernels the bridge's and the API's tests compile."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import triton
import triton.language as tl

from wspec import bridge, ir
from wspec.diagnostics import Remark
from wspec.ir.disjoint import NONE, Disjoint
from wspec.options import Options


@triton.jit
def twice(x):
    return x + x


@triton.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr = 128):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, twice(x), mask=i < n)


@triton.jit
def gemm(a_desc, b_desc, c_ptr, K, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in tl.range(0, K, BLOCK_K):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc)
    offsets = (row + tl.arange(0, BLOCK_M))[:, None] * N + (column + tl.arange(0, BLOCK_N))[None, :]
    tl.store(c_ptr + offsets, acc.to(tl.float16))


@triton.jit
def strided_gemm(
    a_desc, b_desc, c_ptr, M, N, K, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in tl.range(0, K, BLOCK_K):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc)
    rows, columns = row + tl.arange(0, BLOCK_M)[:, None], column + tl.arange(0, BLOCK_N)[None, :]
    c_ptrs = c_ptr + rows * stride_cm + columns * stride_cn
    tl.store(c_ptrs, acc.to(tl.bfloat16), mask=(rows < M) & (columns < N))


@triton.jit
def own_descriptor_gemm(
    a_desc, b_desc, c_ptr, M, N, K, stride_cm, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [stride_cm, 1], [BLOCK_M, BLOCK_N])
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in tl.range(0, K, BLOCK_K):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc)
    c_desc.store([row, column], acc.to(tl.bfloat16))


@triton.jit
def device_descriptor(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [n], [1], [BLOCK])
    y = tl.make_tensor_descriptor(y_ptr, [n], [1], [BLOCK])
    y.store([tl.program_id(0) * BLOCK], x.load([tl.program_id(0) * BLOCK]) * 2)


@triton.jit
def wrong(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), tl.zeros([BLOCK], tl.float32).reshape(BLOCK // 2))


ADD_SIGNATURE = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "n": "i32:16"}
GEMM_SIGNATURE = {
    "a_desc": "tensordesc<fp16[128, 64]>",
    "b_desc": "tensordesc<fp16[64, 128]>",
    "c_ptr": "*fp16:16",
    "K": "i32:16",
    "N": "i32:16",
}
GEMM_BLOCKS = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}


@functools.cache
def add_source() -> bridge.KernelSource:
    return bridge.from_signature(add, ADD_SIGNATURE, {})


@functools.cache
def gemm_source() -> bridge.KernelSource:
    return bridge.from_signature(gemm, GEMM_SIGNATURE, {**GEMM_BLOCKS, "num_warps": 8})


@dataclass
class FakeOutcome:
    """What the pipeline returns, for compilers that tests make up."""

    module: ir.Operation | None
    plan: Any = None
    remarks: tuple[Remark, ...] = ()
    stages: dict[str, str] = field(default_factory=dict)
    disjoint: Disjoint = NONE
    promotion: Any = None


class FakeSpecialize:
    """A pipeline that returns what it was given (its `wspec.fake` attribute added), and counts its calls."""

    def __init__(self, action: str = "specialize") -> None:
        self.action = action
        self.calls = 0

    def __call__(
        self, module: ir.Operation, options: Options, *, plan: Any, keep_stages: bool, **_: Any
    ) -> FakeOutcome:
        self.calls += 1
        if self.action == "raise":
            raise RuntimeError("a bug")
        if self.action == "decline":
            return FakeOutcome(None, remarks=(Remark("no-loop", "the kernel has no loop", module.location),))
        if self.action == "break":
            function = next(op for op in module.walk() if op.name == "tt.func")
            function.regions[0].blocks[0].ops.pop()  # no terminator
        stages = {"first pass": ir.print_module(module)} if keep_stages else {}
        return FakeOutcome(module, plan, (Remark("specialized", "specialized by a fake"),), stages)
