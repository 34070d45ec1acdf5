"""Kernels as people write them after Triton's tutorials, for shapes that are drawn at random (`drawn`).

They are no examples of ours: nothing in wspec was made for them, and no number fitted to them. Products with a tile a
program and with programs that walk over tiles, B stored either way; attention forward over heads stacked in one matrix.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies of jit functions are read by Triton, which has no types to give their arguments.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _place(number, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of a tile, numbered down GROUP rows of tiles before the next column."""
    band = GROUP * tiles_n
    top = (number // band) * GROUP
    height = tl.minimum(tiles_m - top, GROUP)
    inside = number % band
    return top + inside % height, inside // height


@triton.jit
def product_tma(
    a_desc, b_desc, c_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    B_BY_ROWS: tl.constexpr,
):  # fmt: skip
    """One tile of C [M, N] = A [M, K] times B, [N, K] with B_BY_ROWS and [K, N] without; grid (tiles,)."""
    tile_m, tile_n = _place(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP)
    at_m = tile_m * BLOCK_M
    at_n = tile_n * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        at_k = step * BLOCK_K
        left = a_desc.load([at_m, at_k])
        if B_BY_ROWS:
            total = tl.dot(left, b_desc.load([at_n, at_k]).T, total)
        else:
            total = tl.dot(left, b_desc.load([at_k, at_n]), total)
    c_desc.store([at_m, at_n], total.to(tl.bfloat16))


@triton.jit
def product_persistent(
    a_desc, b_desc, c_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    B_BY_ROWS: tl.constexpr,
):  # fmt: skip
    """As `product_tma`, each program walking over tiles in steps of the number of programs; grid (programs,)."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    for number in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        tile_m, tile_n = _place(number, tiles_m, tiles_n, GROUP)
        at_m = tile_m * BLOCK_M
        at_n = tile_n * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(steps):
            at_k = step * BLOCK_K
            left = a_desc.load([at_m, at_k])
            if B_BY_ROWS:
                total = tl.dot(left, b_desc.load([at_n, at_k]).T, total)
            else:
                total = tl.dot(left, b_desc.load([at_k, at_n]), total)
        c_desc.store([at_m, at_n], total.to(tl.bfloat16))


@triton.jit
def _fold_keys(
    out, weight, top, q, k_desc, v_desc, base, begin, end, rows, scale,
    BLOCK_N: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Keys [begin, end) of the head whose rows start at `base`, folded into (out, weight, top)."""
    columns = tl.arange(0, BLOCK_N)
    for at in tl.range(begin, end, BLOCK_N):
        at = tl.multiple_of(at, BLOCK_N)
        scores = tl.dot(q, k_desc.load([base + at, 0]).T)
        if MASKED:
            scores = scores * scale + tl.where(rows[:, None] >= at + columns[None, :], 0, -1.0e6)
            higher = tl.maximum(top, tl.max(scores, 1))
            scores -= higher[:, None]
        else:
            higher = tl.maximum(top, tl.max(scores, 1) * scale)
            scores = scores * scale - higher[:, None]
        p = tl.math.exp2(scores)
        fade = tl.math.exp2(top - higher)
        out = out * fade[:, None]
        out = tl.dot(p.to(tl.bfloat16), v_desc.load([base + at, 0]), out)
        weight = weight * fade + tl.sum(p, 1)
        top = higher
    return out, weight, top


@triton.jit
def attention(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, scale, heads, LENGTH,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, DIM: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """softmax(Q K^T) V of one tile of queries; grid (LENGTH / BLOCK_M, batch * heads).

    q, k, v, o: [batch * heads * LENGTH, DIM]; LENGTH is a multiple of BLOCK_M and BLOCK_N; scale includes log2(e).
    """
    tile = tl.program_id(0)
    pair = tl.program_id(1)
    base = (pair // heads) * (LENGTH * heads) + (pair % heads) * LENGTH
    first = tile * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M)
    top = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    weight = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    out = tl.zeros([BLOCK_M, DIM], dtype=tl.float32)
    q = q_desc.load([base + first, 0])
    if CAUSAL:
        out, weight, top = _fold_keys(
            out, weight, top, q, k_desc, v_desc, base, 0, first // BLOCK_N * BLOCK_N, rows, scale, BLOCK_N, False
        )
        out, weight, top = _fold_keys(
            out, weight, top, q, k_desc, v_desc, base, first // BLOCK_N * BLOCK_N, first + BLOCK_M, rows, scale,
            BLOCK_N, True,
        )  # fmt: skip
    else:
        out, weight, top = _fold_keys(out, weight, top, q, k_desc, v_desc, base, 0, LENGTH, rows, scale, BLOCK_N, False)
    top += tl.math.log2(weight)
    tl.store(lse_ptr + pair * LENGTH + rows, top)
    o_desc.store([base + first, 0], (out / weight[:, None]).to(tl.bfloat16))
