"""Kernels that find in memory where their tiles begin and end: packed sequences, experts, pages of a cache.

Sources of our own for what serving libraries run, with pointers and masks throughout. wspec is told nothing of them.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies of jit functions are read by Triton, which has no types to give their arguments.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax_step(s, seen, top, weight, out, v):
    """One block of keys more: scores s [M, N] where `seen`, values v [N, D]."""
    s = tl.where(seen, s, -1e30)
    new_top = tl.maximum(top, tl.max(s, 1))
    p, decay = tl.math.exp2(s - new_top[:, None]), tl.math.exp2(top - new_top)
    weight = weight * decay + tl.sum(p, 1)
    return new_top, weight, tl.dot(p.to(v.dtype), v, out * decay[:, None])


@triton.jit
def packed_attention(
    q_ptr, k_ptr, v_ptr, o_ptr, starts_ptr, scale, stride_q, stride_k, D: tl.constexpr, SHARED: tl.constexpr,
    CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Attention within sequences that lie behind each other; grid (tiles of the longest, heads, sequences).

    q, o [tokens, heads, D], k, v [tokens, heads / SHARED, D], starts [sequences + 1]; scale has log2(e).
    """
    tile, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    begin = tl.load(starts_ptr + sequence)
    length = tl.load(starts_ptr + sequence + 1) - begin
    if tile * BLOCK_M >= length:
        return
    rows, keys, dims = tile * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, D)
    at = (begin + rows[:, None]) * stride_q + head * D + dims[None, :]
    q = tl.load(q_ptr + at, mask=rows[:, None] < length, other=0.0)
    k_at = (begin + keys[:, None]) * stride_k + head // SHARED * D + dims[None, :]
    top = tl.zeros([BLOCK_M], dtype=tl.float32) - 1e30
    weight = tl.zeros([BLOCK_M], dtype=tl.float32)
    out = tl.zeros([BLOCK_M, D], dtype=tl.float32)
    end = min(length, (tile + 1) * BLOCK_M) if CAUSAL else length
    for first in range(0, end, BLOCK_N):
        now = first + keys
        k = tl.load(k_ptr + first * stride_k + k_at, mask=now[:, None] < length, other=0.0)
        seen = now[None, :] < length
        if CAUSAL:
            seen = seen & (now[None, :] <= rows[:, None])
        s = tl.dot(q, k.T) * scale
        v = tl.load(v_ptr + first * stride_k + k_at, mask=now[:, None] < length, other=0.0)
        top, weight, out = softmax_step(s, seen, top, weight, out, v)
    result = (out / weight[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + at, result, mask=rows[:, None] < length)


@triton.jit
def experts(
    x_ptr, w_ptr, y_ptr, expert_ptr, first_ptr, ends_ptr, N, K, stride_x, stride_expert, stride_w, stride_y,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Y [rows, N] = X [rows, K] W[expert of the row] [N, K]^T, rows in the order of their experts.

    Grid (tiles of rows, tiles of columns). By tile of rows: its expert (below 0: nothing to do) and first row; by
    expert where its rows end.
    """
    row, column = tl.program_id(0), tl.program_id(1)
    expert = tl.load(expert_ptr + row).to(tl.int64)
    if expert < 0:
        return
    first, end = tl.load(first_ptr + row).to(tl.int64), tl.load(ends_ptr + expert)
    rows = first + tl.arange(0, BLOCK_M)
    columns, inner = column * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        at = k + inner
        x = tl.load(
            x_ptr + rows[:, None] * stride_x + at[None, :], mask=(rows[:, None] < end) & (at[None, :] < K), other=0.0
        )
        w = tl.load(
            w_ptr + expert * stride_expert + columns[None, :] * stride_w + at[:, None],
            mask=(columns[None, :] < N) & (at[:, None] < K), other=0.0,
        )  # fmt: skip
        acc = tl.dot(x, w, acc)
    y = y_ptr + rows[:, None] * stride_y + columns[None, :]
    tl.store(y, acc.to(y_ptr.dtype.element_ty), mask=(rows[:, None] < end) & (columns[None, :] < N))


@triton.jit
def paged_attention(
    q_ptr, k_ptr, v_ptr, o_ptr, starts_ptr, lengths_ptr, pages_ptr, scale, MOST, stride_q, stride_page, stride_k,
    D: tl.constexpr, SHARED: tl.constexpr, BLOCK_M: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """Causal attention of new tokens to all of their sequence, whose keys lie in pages.

    q, o [tokens, heads, D]; k, v [pages, PAGE, heads / SHARED, D]; starts [sequences + 1] of the new tokens, lengths
    [sequences] with those before; pages [sequences, MOST]. Grid (tiles of the longest, heads, sequences); scale has
    log2(e).
    """
    tile, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    begin, length = tl.load(starts_ptr + sequence), tl.load(lengths_ptr + sequence)
    new = tl.load(starts_ptr + sequence + 1) - begin
    if tile * BLOCK_M >= new:
        return
    rows, keys, dims = tile * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, PAGE), tl.arange(0, D)
    at = (begin + rows[:, None]) * stride_q + head * D + dims[None, :]
    q = tl.load(q_ptr + at, mask=rows[:, None] < new, other=0.0)
    in_page = keys[:, None] * stride_k + head // SHARED * D + dims[None, :]
    top = tl.zeros([BLOCK_M], dtype=tl.float32) - 1e30
    weight = tl.zeros([BLOCK_M], dtype=tl.float32)
    out = tl.zeros([BLOCK_M, D], dtype=tl.float32)
    places = length - new + rows
    end = min(length, length - new + (tile + 1) * BLOCK_M)
    for number in range(0, tl.cdiv(end, PAGE)):
        page = tl.load(pages_ptr + sequence * MOST + number).to(tl.int64)
        now = number * PAGE + keys
        k = tl.load(k_ptr + page * stride_page + in_page, mask=now[:, None] < length, other=0.0)
        s = tl.dot(q, k.T) * scale
        v = tl.load(v_ptr + page * stride_page + in_page, mask=now[:, None] < length, other=0.0)
        top, weight, out = softmax_step(s, now[None, :] <= places[:, None], top, weight, out, v)
    result = (out / weight[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + at, result, mask=rows[:, None] < new)
