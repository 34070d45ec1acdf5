"""Plain Triton kernels, pipelined or specialized by Triton itself.

Conventions: a is [M, K] and b [K, N]; in attention q, k, v are [heads * length, D], a head after the other, and the
scale is already times log2(e). The tiles divide the shapes. Descriptors are made on the device, whose boxes Triton's
specialization halves; in the kernels called `_host` they are arguments, whose boxes stay as the host made them.
"""

from __future__ import annotations

# mypy: ignore-errors
# The bodies of jit functions are read by Triton, which has no types to give their arguments.
import triton
import triton.language as tl


@triton.jit
def _fold(
    acc, total, top, q, k_desc, v_desc, row, first_query, start, scale,
    BM: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One step of online softmax over the BN keys from `start` on."""
    s = tl.dot(q, k_desc.load([row + start, 0]).T) * scale
    if MASKED:
        queries = first_query + tl.arange(0, BM)
        keys = start + tl.arange(0, BN)
        s = tl.where(queries[:, None] >= keys[None, :], s, -float("inf"))
    new_top = tl.maximum(top, tl.max(s, 1))
    p = tl.math.exp2(s - new_top[:, None])
    decay = tl.math.exp2(top - new_top)
    total = total * decay + tl.sum(p, 1)
    acc = acc * decay[:, None]
    v = v_desc.load([row + start, 0])
    acc = tl.dot(p.to(v.dtype), v, acc)
    return acc, total, new_top


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, length,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr, SPLIT: tl.constexpr, WS: tl.constexpr,
):  # fmt: skip
    """One tile of BM queries of one head; grid (length / BM, heads). BM is a multiple of BN.

    CAUSAL with SPLIT: a loop without a mask and one with; without SPLIT one loop that masks every tile.
    """
    rows = length * tl.num_programs(1)
    q_desc = tl.make_tensor_descriptor(q_ptr, [rows, D], [D, 1], [BM, D])
    k_desc = tl.make_tensor_descriptor(k_ptr, [rows, D], [D, 1], [BN, D])
    v_desc = tl.make_tensor_descriptor(v_ptr, [rows, D], [D, 1], [BN, D])
    o_desc = tl.make_tensor_descriptor(o_ptr, [rows, D], [D, 1], [BM, D])
    first = tl.program_id(0) * BM
    row = tl.program_id(1) * length
    top = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    q = q_desc.load([row + first, 0])
    if CAUSAL and not SPLIT:
        for start in tl.range(0, first + BM, BN, warp_specialize=WS):
            acc, total, top = _fold(acc, total, top, q, k_desc, v_desc, row, first, start, scale, BM, BN, MASKED=True)
    else:
        for start in tl.range(0, first if CAUSAL else length, BN, warp_specialize=WS):
            acc, total, top = _fold(acc, total, top, q, k_desc, v_desc, row, first, start, scale, BM, BN, MASKED=False)
        if CAUSAL:
            for start in tl.range(first, first + BM, BN, warp_specialize=WS):
                acc, total, top = _fold(
                    acc, total, top, q, k_desc, v_desc, row, first, start, scale, BM, BN, MASKED=True
                )
    o_desc.store([row + first, 0], (acc / total[:, None]).to(q.dtype))


@triton.jit
def attention_host(
    q_desc, k_desc, v_desc, o_ptr, scale, length,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, WS: tl.constexpr,
):  # fmt: skip
    """The same without a mask, its descriptors of operands made on the host."""
    first = tl.program_id(0) * BM
    row = tl.program_id(1) * length
    top = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    q = q_desc.load([row + first, 0])
    for start in tl.range(0, length, BN, warp_specialize=WS):
        acc, total, top = _fold(acc, total, top, q, k_desc, v_desc, row, first, start, scale, BM, BN, MASKED=False)
    at = (row + first + tl.arange(0, BM))[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(o_ptr + at, (acc / total[:, None]).to(q.dtype))


@triton.jit
def gemm(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr):
    """One tile of c; grid (M / BM, N / BN)."""
    a_desc = tl.make_tensor_descriptor(a_ptr, [m, k], [k, 1], [BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, [k, n], [n, 1], [BK, BN])
    c_desc = tl.make_tensor_descriptor(c_ptr, [m, n], [n, 1], [BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK, warp_specialize=WS):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def gemm_host(a_desc, b_desc, c_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr):
    """The same with the descriptors of operands made on the host."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK, warp_specialize=WS):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    at = (row + tl.arange(0, BM))[:, None] * n + (column + tl.arange(0, BN))[None, :]
    tl.store(c_ptr + at, acc.to(c_ptr.dtype.element_ty))


@triton.jit
def persistent_gemm(
    a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr
):
    """Every num_programs-th tile of c."""
    a_desc = tl.make_tensor_descriptor(a_ptr, [m, k], [k, 1], [BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, [k, n], [n, 1], [BK, BN])
    c_desc = tl.make_tensor_descriptor(c_ptr, [m, n], [n, 1], [BM, BN])
    columns = n // BN
    for tile in tl.range(tl.program_id(0), (m // BM) * columns, tl.num_programs(0), warp_specialize=WS):
        row, column = tile // columns * BM, tile % columns * BN
        acc = tl.zeros([BM, BN], tl.float32)
        for i in tl.range(0, k, BK):
            acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
        c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def pointer_gemm(a_ptr, b_ptr, c_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One tile of c, loaded through pointers: the pipeliner makes cp.async of them."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_at = a_ptr + rows[:, None] * k + inner[None, :]
    b_at = b_ptr + inner[:, None] * n + columns[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for _ in tl.range(0, k, BK):
        acc = tl.dot(tl.load(a_at), tl.load(b_at), acc)
        a_at += BK
        b_at += BK * n
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], acc.to(c_ptr.dtype.element_ty))
