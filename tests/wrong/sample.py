"""A product that wspec specializes, and a kernel that it leaves alone."""

import triton
import triton.language as tl


@triton.jit
def product(a_desc, b_desc, c_desc, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    acc = tl.zeros([M, N], tl.float32)
    for at in range(0, k, K):
        acc = tl.dot(a_desc.load([row, at]), b_desc.load([at, column]), acc)
    c_desc.store([row, column], acc.to(tl.bfloat16))


@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2.0, mask=at < n)
