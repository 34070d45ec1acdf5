"""Kernels with tensor cores: matrix products, attention, descriptors of host and device."""

from __future__ import annotations

# mypy: ignore-errors
# The bodies of jit functions are read by Triton, which has no types to give their arguments.
import triton
import triton.language as tl


@triton.jit
def gemm_pointers(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACT: tl.constexpr
):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_at = a_ptr + rows[:, None] * K + inner[None, :]
    b_at = b_ptr + inner[:, None] * N + columns[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_at, mask=inner[None, :] < K - k, other=0.0)
        b = tl.load(b_at, mask=inner[:, None] < K - k, other=0.0)
        acc = tl.dot(a, b, acc)
        a_at += BK
        b_at += BK * N
    if ACT:
        acc = tl.where(acc > 0, acc, 0.01 * acc)
    out = c_ptr + rows[:, None] * N + columns[None, :]
    tl.store(out, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def gemm_descriptors(a, b, c_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=WS):
        acc = tl.dot(a.load([row, k]), b.load([k, column]), acc)
    at = (row + tl.arange(0, BM))[:, None] * N + (column + tl.arange(0, BN))[None, :]
    tl.store(c_ptr + at, acc)


@triton.jit
def gemm_persistent(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * tl.cdiv(N, BN), tl.num_programs(0), flatten=True):
        row, column = tile // tl.cdiv(N, BN) * BM, tile % tl.cdiv(N, BN) * BN
        acc = tl.zeros([BM, BN], tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a.load([row, k]), b.load([column, k]).T, acc)
        c.store([row, column], acc.to(tl.float16))


@triton.jit
def attention(
    q_desc, k_desc, v_desc, o_desc, scale, length,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr, WS: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0) * BM
    q = q_desc.load([start, 0])
    m = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for n in tl.range(0, start + BM if CAUSAL else length, BN, warp_specialize=WS):
        s = tl.dot(q, k_desc.load([n, 0]).T)
        if CAUSAL:
            s = tl.where((start + tl.arange(0, BM))[:, None] >= n + tl.arange(0, BN)[None, :], s, -float("inf"))
        new = tl.maximum(m, tl.max(s, 1) * scale)
        p = tl.exp2(s * scale - new[:, None])
        alpha = tl.exp2(m - new)
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.float16), v_desc.load([n, 0]), acc * alpha[:, None])
        m = new
    out = (acc / total[:, None]).to(tl.float16)
    if WS:  # Triton's own pass cannot divide a descriptor's store
        tl.store(o_desc + (start + tl.arange(0, BM))[:, None] * D + tl.arange(0, D)[None, :], out)
    else:
        o_desc.store([start, 0], out)


@triton.jit
def chained(a_ptr, out_ptr, B: tl.constexpr):
    at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    a = tl.load(a_ptr + at)
    b = tl.dot(a, a, input_precision="tf32x3")
    tl.store(out_ptr + at, tl.dot(b, a.T, input_precision="ieee", out_dtype=tl.float32))


@triton.jit
def batched(a_ptr, out_ptr, B: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, B)[:, None, None] * N * N + tl.arange(0, N)[None, :, None] * N + tl.arange(0, N)[None, None, :]
    a = tl.load(a_ptr + at)
    tl.store(out_ptr + at, tl.dot(a, a))


@triton.jit
def scaled(a_ptr, s_ptr, b_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    a = tl.load(a_ptr + tl.arange(0, M)[:, None] * (K // 2) + tl.arange(0, K // 2)[None, :])
    s = tl.load(s_ptr + tl.arange(0, M)[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    b = tl.load(b_ptr + tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :])
    out = tl.dot_scaled(a, s, "e2m1", b, None, "bf16")
    tl.store(out_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], out)


@triton.jit
def gather_rows(desc, rows_ptr, out_ptr, K, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for k in tl.range(0, K, COLUMNS):
        at = tl.arange(0, ROWS)
        pointer = out_ptr + tl.load(rows_ptr + at)[:, None] * K + k + tl.arange(0, COLUMNS)[None, :]
        total += desc.load([k, 0]).to(tl.float32) + tl.load(pointer)
    desc.atomic_add([0, 0], total.to(tl.float16))
    desc.store([0, 0], total.to(tl.float16))


@triton.jit
def chunk_state(k_ptr, v_ptr, h_ptr, length, D: tl.constexpr, BT: tl.constexpr):
    state = tl.zeros([D, D], tl.float32)
    for t in range(0, tl.cdiv(length, BT)):
        rows = t * BT + tl.arange(0, BT)
        inside = (rows < length)[:, None]
        at = rows[:, None] * D + tl.arange(0, D)[None, :]
        k, v = tl.load(k_ptr + at, mask=inside, other=0.0), tl.load(v_ptr + at, mask=inside, other=0.0)
        square = tl.arange(0, D)[:, None] * D + tl.arange(0, D)[None, :]
        tl.store(h_ptr + t * D * D + square, state.to(tl.bfloat16))
        state += tl.dot(k.trans(), v)


@triton.jit
def int8_weights(a_ptr, w_ptr, scale_ptr, out_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + tl.arange(0, BM)[:, None] * K + k + tl.arange(0, BK)[None, :])
        w = tl.load(w_ptr + (k + tl.arange(0, BK))[:, None] * BN + tl.arange(0, BN)[None, :])
        scale = tl.load(scale_ptr + tl.arange(0, BN))
        acc += tl.dot(a, (w.to(tl.float32) * scale[None, :]).to(tl.float16))
    tl.store(out_ptr + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], acc)
