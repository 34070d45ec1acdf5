"""Linear attention and state spaces as people write them."""

import triton
import triton.language as tl


@triton.jit
def chunked_states(Q, K, V, Out, G, T, scale, C: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr):
    """Linear attention: a state that decays goes from chunk to chunk."""
    h = tl.program_id(1)
    vb = tl.program_id(0)
    oc = tl.arange(0, C)
    od = tl.arange(0, D)
    ov = vb * BV + tl.arange(0, BV)
    Q += h * T * D
    K += h * T * D
    V += h * T * DV
    Out += h * T * DV
    g = tl.load(G + h)
    decay = tl.math.exp2(g * (oc + 1))
    rest = tl.math.exp2(g * (C - 1 - oc))
    whole = tl.math.exp2(g * C)
    inner = tl.where(oc[:, None] >= oc[None, :], tl.math.exp2(g * (oc[:, None] - oc[None, :])), 0.0)
    s = tl.zeros([D, BV], tl.float32)
    for t in range(0, T, C):
        q = tl.load(Q + (t + oc)[:, None] * D + od[None, :])
        k = tl.load(K + (t + oc)[:, None] * D + od[None, :])
        v = tl.load(V + (t + oc)[:, None] * DV + ov[None, :])
        o = tl.dot(q, s.to(q.dtype)) * decay[:, None]
        p = tl.dot(q, tl.trans(k)) * inner
        o += tl.dot(p.to(v.dtype), v)
        s = s * whole + tl.dot(tl.trans(k), (v * rest[:, None]).to(v.dtype))
        tl.store(Out + (t + oc)[:, None] * DV + ov[None, :], (o * scale).to(Out.dtype.element_ty))


@triton.jit
def chunk_scan(
    C,
    B,
    X,
    DT,
    Out,
    L,
    NCH,
    sh: tl.constexpr,
    CH: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    DS: tl.constexpr,
    HD: tl.constexpr,
):
    """Inside of a chunk, as state-space duals have it."""
    mb = tl.program_id(0)
    c = tl.program_id(1)
    h = tl.program_id(2)
    om = mb * BM + tl.arange(0, BM)
    on0 = tl.arange(0, BN)
    od = tl.arange(0, DS)
    oh = tl.arange(0, HD)
    t0 = c * CH
    cc = tl.load(C + (t0 + om)[:, None] * DS + od[None, :])
    lm = tl.load(L + h * NCH * CH + t0 + om)
    acc = tl.zeros([BM, HD], tl.float32)
    for n in range(0, (mb + 1) * BM, BN):
        on = n + on0
        b = tl.load(B + (t0 + on)[None, :] * DS + od[:, None])
        cb = tl.dot(cc, b)
        ln = tl.load(L + h * NCH * CH + t0 + on)
        dt = tl.load(DT + h * NCH * CH + t0 + on)
        w = cb * tl.exp(lm[:, None] - ln[None, :]) * dt[None, :]
        w = tl.where(om[:, None] >= on[None, :], w, 0.0)
        x = tl.load(X + (t0 + on)[:, None] * sh + h * HD + oh[None, :])
        acc = tl.dot(w.to(x.dtype), x, acc)
    tl.store(Out + (t0 + om)[:, None] * sh + h * HD + oh[None, :], acc.to(Out.dtype.element_ty))


@triton.jit
def chunk_outputs(
    q,
    k,
    v,
    h,
    o,
    T,
    scale,
    BT: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    H: tl.constexpr,
):
    """What comes out of a chunk, of its state and of itself."""
    i_v, i_t, i_bh = (tl.program_id(0), tl.program_id(1), tl.program_id(2))
    NT = tl.cdiv(T, BT)
    p_q = tl.make_block_ptr(q + i_bh * T * K, (T, K), (K, 1), (i_t * BT, 0), (BT, BK), (1, 0))
    p_k = tl.make_block_ptr(k + i_bh * T * K, (K, T), (1, K), (0, i_t * BT), (BK, BT), (0, 1))
    p_h = tl.make_block_ptr(h + (i_bh * NT + i_t) * K * V, (K, V), (V, 1), (0, i_v * BV), (BK, BV), (1, 0))
    b_o = tl.zeros([BT, BV], dtype=tl.float32)
    b_s = tl.zeros([BT, BT], dtype=tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        b_q = tl.load(p_q, boundary_check=(0, 1))
        b_k = tl.load(p_k, boundary_check=(0, 1))
        b_h = tl.load(p_h, boundary_check=(0, 1))
        b_o += tl.dot(b_q, b_h)
        b_s += tl.dot(b_q, b_k)
        p_q = tl.advance(p_q, (0, BK))
        p_k = tl.advance(p_k, (BK, 0))
        p_h = tl.advance(p_h, (BK, 0))
    o_i = tl.arange(0, BT)
    b_s = tl.where(o_i[:, None] >= o_i[None, :], b_s, 0)
    p_v = tl.make_block_ptr(v + i_bh * T * V, (T, V), (V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
    b_v = tl.load(p_v, boundary_check=(0, 1))
    b_o = (b_o + tl.dot(b_s.to(b_v.dtype), b_v)) * scale
    p_o = tl.make_block_ptr(o + i_bh * T * V, (T, V), (V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
    tl.store(p_o, b_o.to(p_o.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def gated_states(
    K, V, G, Out, T, BT: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr
):
    """The state before each chunk, with a gate for each of its rows; keys come transposed."""
    i_k, i_v, i_h = (tl.program_id(0), tl.program_id(1), tl.program_id(2))
    NT = tl.cdiv(T, BT)
    s = tl.zeros([BK, BV], tl.float32)
    for c in range(0, NT):
        p_s = tl.make_block_ptr(
            Out + (i_h * NT + c) * DK * DV, (DK, DV), (DV, 1), (i_k * BK, i_v * BV), (BK, BV), (1, 0)
        )
        tl.store(p_s, s.to(Out.dtype.element_ty), boundary_check=(0, 1))
        p_k = tl.make_block_ptr(K + i_h * T * DK, (DK, T), (1, DK), (i_k * BK, c * BT), (BK, BT), (0, 1))
        p_g = tl.make_block_ptr(G + i_h * T * DK, (DK, T), (1, DK), (i_k * BK, c * BT), (BK, BT), (0, 1))
        p_v = tl.make_block_ptr(V + i_h * T * DV, (T, DV), (DV, 1), (c * BT, i_v * BV), (BT, BV), (1, 0))
        k = tl.load(p_k, boundary_check=(0, 1))
        g = tl.load(p_g, boundary_check=(0, 1))
        v = tl.load(p_v, boundary_check=(0, 1))
        last = min(c * BT + BT, T) - 1
        gate = tl.load(G + (i_h * T + last) * DK + i_k * BK + tl.arange(0, BK))
        s *= tl.exp(gate)[:, None]
        k = (k.to(tl.float32) * tl.exp(gate[:, None] - g)).to(k.dtype)
        s += tl.dot(k, v)
