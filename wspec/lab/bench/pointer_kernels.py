"""Kernels as they are mostly written: tiles found through tensors of pointers, with strides, masks and rows that wrap.

Sources of our own, after Triton's public tutorials (03 for the product, 06 in its older form for attention). wspec is
told nothing of them.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies of jit functions are read by Triton, which has no types to give their arguments.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """C [M, N] = A [M, K] B [K, N], any strides; grid (tiles,). Rows and columns behind the end begin again."""
    number = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    in_group = GROUP * tiles_n
    first = number // in_group * GROUP
    height = min(tiles_m - first, GROUP)
    row = first + number % in_group % height
    column = number % in_group // height
    tl.assume(row >= 0)
    tl.assume(column >= 0)
    tl.assume(stride_am > 0)
    tl.assume(stride_bn > 0)
    rows = (row * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (column * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (rows[:, None] * stride_am + inner[None, :] * stride_ak)
    b_ptrs = b_ptr + (inner[:, None] * stride_bk + columns[None, :] * stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=inner[None, :] < K - step * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=inner[:, None] < K - step * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    out_rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    out_columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * out_rows[:, None] + stride_cn * out_columns[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(out_rows[:, None] < M) & (out_columns[None, :] < N))


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, stride_b, stride_h, stride_s, HEADS, LENGTH,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, DIM: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """softmax(Q K^T) V of one tile of queries; grid (tiles, batch * heads); tensors of one shape; scale has log2(e).

    Rows behind LENGTH are masked; so are keys, in the loop's every round.
    """
    tile, pair = tl.program_id(0), tl.program_id(1)
    base = (pair // HEADS).to(tl.int64) * stride_b + (pair % HEADS).to(tl.int64) * stride_h
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    keys = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    q = tl.load(q_ptr + base + rows[:, None] * stride_s + dims[None, :], mask=rows[:, None] < LENGTH, other=0.0)
    top = tl.zeros([BLOCK_M], dtype=tl.float32) - 1e30
    weight = tl.zeros([BLOCK_M], dtype=tl.float32)
    out = tl.zeros([BLOCK_M, DIM], dtype=tl.float32)
    end = min(LENGTH, (tile + 1) * BLOCK_M) if CAUSAL else LENGTH
    for first in range(0, end, BLOCK_N):
        now = first + keys
        k = tl.load(k_ptr + base + now[:, None] * stride_s + dims[None, :], mask=now[:, None] < LENGTH, other=0.0)
        s = tl.dot(q, k.T) * scale
        seen = now[None, :] < LENGTH
        if CAUSAL:
            seen = seen & (now[None, :] <= rows[:, None])
        s = tl.where(seen, s, -1e30)
        new_top = tl.maximum(top, tl.max(s, 1))
        p, decay = tl.math.exp2(s - new_top[:, None]), tl.math.exp2(top - new_top)
        weight = weight * decay + tl.sum(p, 1)
        v = tl.load(v_ptr + base + now[:, None] * stride_s + dims[None, :], mask=now[:, None] < LENGTH, other=0.0)
        out = tl.dot(p.to(v.dtype), v, out * decay[:, None])
        top = new_top
    result = (out / weight[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + base + rows[:, None] * stride_s + dims[None, :], result, mask=rows[:, None] < LENGTH)
