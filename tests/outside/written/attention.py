"""Attention as people write it."""

import triton
import triton.language as tl


@triton.jit
def windowed(
    Q,
    K,
    V,
    Out,
    sqb,
    sqh,
    sqm,
    skb,
    skh,
    skn,
    svb,
    svh,
    svn,
    sob,
    soh,
    som,
    H,
    KVH,
    N,
    WINDOW,
    scale,
    cap,
    BM: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
):
    """Attention through pointers over a window of keys, with shared heads and soft caps."""
    m = tl.program_id(0)
    hb = tl.program_id(1)
    b = hb // H
    h = hb % H
    kvh = h // (H // KVH)
    om = m * BM + tl.arange(0, BM)
    on = tl.arange(0, BN)
    od = tl.arange(0, D)
    q = tl.load(Q + b * sqb + h * sqh + om[:, None] * sqm + od[None, :], mask=om[:, None] < N, other=0.0)
    kp = K + b * skb + kvh * skh + od[:, None] + on[None, :] * skn
    vp = V + b * svb + kvh * svh + on[:, None] * svn + od[None, :]
    mi = tl.full([BM], -float("inf"), tl.float32)
    li = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    lo = tl.maximum(0, (m * BM - WINDOW) // BN * BN)
    hi = tl.minimum(N, (m + 1) * BM)
    for s in range(lo, hi, BN):
        s = tl.multiple_of(s, BN)
        cols = s + on
        k = tl.load(kp + s * skn, mask=cols[None, :] < N, other=0.0)
        x = tl.dot(q, k) * scale
        x = cap * (2 * tl.sigmoid(2 * x / cap) - 1)
        ok = (om[:, None] >= cols[None, :]) & (om[:, None] - cols[None, :] < WINDOW)
        x = tl.where(ok, x, -1e30)
        mn = tl.maximum(mi, tl.max(x, 1))
        p = tl.exp(x - mn[:, None])
        a = tl.exp(mi - mn)
        li = li * a + tl.sum(p, 1)
        acc = acc * a[:, None]
        v = tl.load(vp + s * svn, mask=cols[:, None] < N, other=0.0)
        acc += tl.dot(p.to(v.dtype), v)
        mi = mn
    tl.store(
        Out + b * sob + h * soh + om[:, None] * som + od[None, :],
        (acc / li[:, None]).to(Out.dtype.element_ty),
        mask=om[:, None] < N,
    )


@triton.jit
def backward_keys(
    Q,
    K,
    V,
    DO,
    DK,
    DV,
    L,
    DELTA,
    sh,
    sn,
    N,
    scale,
    BM: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """The gradients of keys and values, as FlashAttention computes them."""
    nb = tl.program_id(0)
    h = tl.program_id(1)
    on = nb * BN + tl.arange(0, BN)
    od = tl.arange(0, D)
    om0 = tl.arange(0, BM)
    Q += h * sh
    K += h * sh
    V += h * sh
    DO += h * sh
    DK += h * sh
    DV += h * sh
    L += h * N
    DELTA += h * N
    k = tl.load(K + on[:, None] * sn + od[None, :])
    v = tl.load(V + on[:, None] * sn + od[None, :])
    dk = tl.zeros([BN, D], tl.float32)
    dv = tl.zeros([BN, D], tl.float32)
    lo = nb * BN if CAUSAL else 0
    for m in range(lo, N, BM):
        om = m + om0
        qT = tl.load(Q + om[None, :] * sn + od[:, None])
        lse = tl.load(L + om)
        sT = tl.dot(k, qT)
        pT = tl.math.exp2(sT * scale - lse[None, :])
        if CAUSAL:
            pT = tl.where(om[None, :] >= on[:, None], pT, 0.0)
        do = tl.load(DO + om[:, None] * sn + od[None, :])
        dv += tl.dot(pT.to(do.dtype), do)
        di = tl.load(DELTA + om)
        dpT = tl.dot(v, tl.trans(do))
        dsT = (pT * (dpT - di[None, :])).to(qT.dtype)
        dk += tl.dot(dsT, tl.trans(qT))
    tl.store(DK + on[:, None] * sn + od[None, :], (dk * scale).to(DK.dtype.element_ty))
    tl.store(DV + on[:, None] * sn + od[None, :], dv.to(DV.dtype.element_ty))


@triton.jit
def backward_queries(Q, K, V, DO, DQ, L, DELTA, sh, sn, N, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """The gradient of queries of causal attention."""
    mb = tl.program_id(0)
    h = tl.program_id(1)
    om = mb * BM + tl.arange(0, BM)
    od = tl.arange(0, D)
    on0 = tl.arange(0, BN)
    Q += h * sh
    K += h * sh
    V += h * sh
    DO += h * sh
    DQ += h * sh
    L += h * N
    DELTA += h * N
    q = tl.load(Q + om[:, None] * sn + od[None, :])
    do = tl.load(DO + om[:, None] * sn + od[None, :])
    lse = tl.load(L + om)[:, None]
    di = tl.load(DELTA + om)[:, None]
    dq = tl.zeros([BM, D], tl.float32)
    for n in range(0, (mb + 1) * BM, BN):
        on = n + on0
        kT = tl.load(K + on[None, :] * sn + od[:, None])
        vT = tl.load(V + on[None, :] * sn + od[:, None])
        p = tl.math.exp2(tl.dot(q, kT) * scale - lse)
        p = tl.where(om[:, None] >= on[None, :], p, 0.0)
        ds = (p * (tl.dot(do, vT) - di)).to(kT.dtype)
        dq += tl.dot(ds, tl.trans(kT))
    tl.store(DQ + om[:, None] * sn + od[None, :], (dq * scale).to(DQ.dtype.element_ty))


@triton.jit
def paged(Q, KC, VC, Out, TABLE, LENS, H, MAXP, scale, PAGE: tl.constexpr, BM: tl.constexpr, D: tl.constexpr):
    """Attention over pages of keys and values that a table names."""
    mb = tl.program_id(0)
    h = tl.program_id(1)
    b = tl.program_id(2)
    n = tl.load(LENS + b)
    M = tl.num_programs(0) * BM
    om = mb * BM + tl.arange(0, BM)
    on = tl.arange(0, PAGE)
    od = tl.arange(0, D)
    q = tl.load(Q + ((b * M + om[:, None]) * H + h) * D + od[None, :])
    mi = tl.full([BM], -float("inf"), tl.float32)
    li = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for j in range(0, tl.cdiv(n, PAGE)):
        page = tl.load(TABLE + b * MAXP + j)
        k = tl.load(KC + ((page * PAGE + on[None, :]) * H + h) * D + od[:, None])
        v = tl.load(VC + ((page * PAGE + on[:, None]) * H + h) * D + od[None, :])
        x = tl.dot(q, k) * scale
        x = tl.where((j * PAGE + on)[None, :] < n, x, -1e30)
        mn = tl.maximum(mi, tl.max(x, 1))
        p = tl.math.exp2(x - mn[:, None])
        a = tl.math.exp2(mi - mn)
        li = li * a + tl.sum(p, 1)
        acc = acc * a[:, None] + tl.dot(p.to(v.dtype), v)
        mi = mn
    tl.store(Out + ((b * M + om[:, None]) * H + h) * D + od[None, :], (acc / li[:, None]).to(Out.dtype.element_ty))


@triton.jit
def packed(
    Q,
    K,
    V,
    Out,
    CU,
    sqt,
    sqh,
    skt,
    skh,
    H,
    G,
    scale,
    D: tl.constexpr,
    DP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Attention over packed sequences of different lengths; heads may be no power of two wide."""
    mb = tl.program_id(0)
    h = tl.program_id(1)
    b = tl.program_id(2)
    lo = tl.load(CU + b)
    n = tl.load(CU + b + 1) - lo
    if mb * BM >= n:
        return
    om = mb * BM + tl.arange(0, BM)
    on0 = tl.arange(0, BN)
    od = tl.arange(0, DP)
    dm = od < D
    q = tl.load(Q + (lo + om)[:, None] * sqt + h * sqh + od[None, :], mask=(om[:, None] < n) & dm[None, :], other=0.0)
    mi = tl.full([BM], -float("inf"), tl.float32)
    li = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, DP], tl.float32)
    hi = tl.minimum(n, (mb + 1) * BM) if CAUSAL else n
    for s in range(0, hi, BN):
        on = s + on0
        k = tl.load(
            K + (lo + on)[None, :] * skt + h // G * skh + od[:, None], mask=(on[None, :] < n) & dm[:, None], other=0.0
        )
        x = tl.dot(q, k) * scale
        ok = on[None, :] < n
        if CAUSAL:
            ok = ok & (om[:, None] >= on[None, :])
        x = tl.where(ok, x, -1e30)
        mn = tl.maximum(mi, tl.max(x, 1))
        p = tl.math.exp2(x - mn[:, None])
        a = tl.math.exp2(mi - mn)
        li = li * a + tl.sum(p, 1)
        acc = acc * a[:, None]
        v = tl.load(
            V + (lo + on)[:, None] * skt + h // G * skh + od[None, :], mask=(on[:, None] < n) & dm[None, :], other=0.0
        )
        acc = tl.dot(p.to(v.dtype), v, acc)
        mi = mn
    tl.store(
        Out + (lo + om)[:, None] * sqt + h * sqh + od[None, :],
        (acc / li[:, None]).to(Out.dtype.element_ty),
        mask=(om[:, None] < n) & dm[None, :],
    )


@triton.jit
def block_sparse(Q, K, V, Out, IDX, CNT, N, MAXB, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Attention over the blocks of keys that a list names."""
    mb = tl.program_id(0)
    h = tl.program_id(1)
    om = mb * BM + tl.arange(0, BM)
    on = tl.arange(0, BN)
    od = tl.arange(0, D)
    base = h * N * D
    q = tl.load(Q + base + om[:, None] * D + od[None, :])
    mi = tl.full([BM], -float("inf"), tl.float32)
    li = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    cnt = tl.load(CNT + mb)
    for j in range(0, cnt):
        nb = tl.load(IDX + mb * MAXB + j)
        k = tl.load(K + base + (nb * BN + on)[None, :] * D + od[:, None])
        v = tl.load(V + base + (nb * BN + on)[:, None] * D + od[None, :])
        x = tl.dot(q, k) * scale
        mn = tl.maximum(mi, tl.max(x, 1))
        p = tl.math.exp2(x - mn[:, None])
        a = tl.math.exp2(mi - mn)
        li = li * a + tl.sum(p, 1)
        acc = acc * a[:, None]
        acc = tl.dot(p.to(v.dtype), v, acc)
        mi = mn
    tl.store(Out + base + om[:, None] * D + od[None, :], (acc / li[:, None]).to(Out.dtype.element_ty))


@triton.jit
def int8_keys(Q, K, V, KS, VS, Out, N, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Attention whose keys and values are int8 with a scale each."""
    mb = tl.program_id(0)
    h = tl.program_id(1)
    om = mb * BM + tl.arange(0, BM)
    on = tl.arange(0, BN)
    od = tl.arange(0, D)
    base = h * N * D
    q = tl.load(Q + base + om[:, None] * D + od[None, :])
    mi = tl.full([BM], -float("inf"), tl.float32)
    li = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for n in range(0, N, BN):
        k = tl.load(K + base + (n + on)[None, :] * D + od[:, None]).to(q.dtype)
        ks = tl.load(KS + h * N + n + on)
        x = tl.dot(q, k) * ks[None, :] * scale
        mn = tl.maximum(mi, tl.max(x, 1))
        p = tl.math.exp2(x - mn[:, None])
        a = tl.math.exp2(mi - mn)
        li = li * a + tl.sum(p, 1)
        acc = acc * a[:, None]
        v = tl.load(V + base + (n + on)[:, None] * D + od[None, :]).to(q.dtype)
        vs = tl.load(VS + h * N + n + on)
        acc = tl.dot((p * vs[None, :]).to(q.dtype), v, acc)
        mi = mn
    tl.store(Out + base + om[:, None] * D + od[None, :], (acc / li[:, None]).to(Out.dtype.element_ty))


@triton.jit
def dropped_out(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    SLOPES,
    N,
    H,
    scale,
    p_drop,
    seed,
    BM: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
):
    """Attention with slopes for distances and weights that are dropped at random, through descriptors."""
    m = tl.program_id(0)
    h = tl.program_id(1)
    om = m * BM + tl.arange(0, BM)
    on = tl.arange(0, BN)
    q = q_desc.load([h * N + m * BM, 0])
    slope = tl.load(SLOPES + h % H)
    mi = tl.full([BM], -float("inf"), tl.float32)
    li = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for n in range(0, N, BN):
        k = k_desc.load([h * N + n, 0])
        x = tl.dot(q, k.T) * scale - slope * tl.abs(om[:, None] - (n + on)[None, :]).to(tl.float32)
        mn = tl.maximum(mi, tl.max(x, 1))
        p = tl.math.exp2(x - mn[:, None])
        a = tl.math.exp2(mi - mn)
        li = li * a + tl.sum(p, 1)
        acc = acc * a[:, None]
        r = tl.rand(seed + h, om[:, None] * N + (n + on)[None, :])
        p = tl.where(r > p_drop, p, 0.0)
        v = v_desc.load([h * N + n, 0])
        acc = tl.dot(p.to(tl.bfloat16), v, acc)
        mi = mn
    o_desc.store([h * N + m * BM, 0], (acc / ((1 - p_drop) * li[:, None])).to(tl.bfloat16))


@triton.jit
def _with_keys(state, q, k, v, scale, rows, columns, MASKED: tl.constexpr):
    """(maximum, sum, output) of some rows with some keys more."""
    top, total, acc = state
    x = tl.dot(q, k) * scale
    if MASKED:
        x = tl.where(rows[:, None] >= columns[None, :], x, -1.0e30)
    new_top = tl.maximum(top, tl.max(x, 1))
    p, decay = tl.math.exp2(x - new_top[:, None]), tl.math.exp2(top - new_top)
    acc = tl.dot(p.to(v.dtype), v, acc * decay[:, None])
    return new_top, total * decay + tl.sum(p, 1), acc


@triton.jit
def in_stages(
    Q, K, V, Out, Lse, s_batch, s_head, s_row, H, N, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """Attention by block pointers that loops move on: one loop before the diagonal, and one on it with a mask."""
    block, pair = tl.program_id(0), tl.program_id(1)
    begin = (pair // H).to(tl.int64) * s_batch + (pair % H).to(tl.int64) * s_head
    k_first = tl.make_block_ptr(K + begin, (D, N), (1, s_row), (0, 0), (D, BN), (0, 1))
    v_first = tl.make_block_ptr(V + begin, (N, D), (s_row, 1), (0, 0), (BN, D), (1, 0))
    q = tl.load(tl.make_block_ptr(Q + begin, (N, D), (s_row, 1), (block * BM, 0), (BM, D), (1, 0)))
    rows, here = block * BM + tl.arange(0, BM), tl.arange(0, BN)
    state = (tl.full([BM], -float("inf"), tl.float32), tl.zeros([BM], tl.float32), tl.zeros([BM, D], tl.float32))
    diagonal = block * BM if CAUSAL else N
    k_at, v_at = k_first, v_first
    for n in range(0, diagonal, BN):
        state = _with_keys(state, q, tl.load(k_at), tl.load(v_at), scale, rows, n + here, False)
        k_at, v_at = tl.advance(k_at, (0, BN)), tl.advance(v_at, (BN, 0))
    if CAUSAL:
        k_at, v_at = tl.advance(k_first, (0, diagonal)), tl.advance(v_first, (diagonal, 0))
        for n in range(diagonal, diagonal + BM, BN):
            state = _with_keys(state, q, tl.load(k_at), tl.load(v_at), scale, rows, n + here, True)
            k_at, v_at = tl.advance(k_at, (0, BN)), tl.advance(v_at, (BN, 0))
    top, total, acc = state
    tl.store(Lse + pair * N + rows, top + tl.math.log2(total))
    out_at = tl.make_block_ptr(Out + begin, (N, D), (s_row, 1), (block * BM, 0), (BM, D), (1, 0))
    tl.store(out_at, (acc / total[:, None]).to(Out.dtype.element_ty))


@triton.jit
def with_sinks(
    Q, K, V, Out, SINK, sh, sn, window, scale, FIRST: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    """The first keys, then those of a window, and a learnt logit besides."""
    pm = tl.program_id(0)
    h = tl.program_id(1)
    rows = pm * BM + tl.arange(0, BM)
    on = tl.arange(0, BN)
    d = tl.arange(0, D)
    q = tl.load(Q + h * sh + rows[:, None] * sn + d[None, :])
    m = tl.zeros([BM], tl.float32) + tl.load(SINK + h).to(tl.float32)
    total = tl.full([BM], 1.0, tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for s in range(0, tl.minimum(FIRST, (pm + 1) * BM), BN):
        k = tl.load(K + h * sh + (s + on)[None, :] * sn + d[:, None])
        qk = tl.where(rows[:, None] >= (s + on)[None, :], tl.dot(q, k) * scale, -1e9)
        most = tl.maximum(m, tl.max(qk, 1))
        p = tl.exp(qk - most[:, None])
        alpha = tl.exp(m - most)
        total = total * alpha + tl.sum(p, 1)
        v = tl.load(V + h * sh + (s + on)[:, None] * sn + d[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = most
    for s in range(tl.maximum(FIRST, (pm * BM - window) // BN * BN), (pm + 1) * BM, BN):
        k = tl.load(K + h * sh + (s + on)[None, :] * sn + d[:, None])
        apart = rows[:, None] - (s + on)[None, :]
        qk = tl.where((apart >= 0) & (apart < window), tl.dot(q, k) * scale, -1e9)
        most = tl.maximum(m, tl.max(qk, 1))
        p = tl.exp(qk - most[:, None])
        alpha = tl.exp(m - most)
        total = total * alpha + tl.sum(p, 1)
        v = tl.load(V + h * sh + (s + on)[:, None] * sn + d[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = most
    tl.store(Out + h * sh + rows[:, None] * sn + d[None, :], (acc / total[:, None]).to(Out.dtype.element_ty))


@triton.jit
def masked_blocks(Q, K, V, Out, MASK, sh, sn, count, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """A number says whether a block of keys counts: both products stand in a branch."""
    pm = tl.program_id(0)
    h = tl.program_id(1)
    rows = pm * BM + tl.arange(0, BM)
    on = tl.arange(0, BN)
    d = tl.arange(0, D)
    q = tl.load(Q + h * sh + rows[:, None] * sn + d[None, :])
    m = tl.full([BM], -1e9, tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for j in range(0, count):
        if tl.load(MASK + pm * count + j) != 0:
            k = tl.load(K + h * sh + (j * BN + on)[None, :] * sn + d[:, None])
            qk = tl.dot(q, k) * scale
            most = tl.maximum(m, tl.max(qk, 1))
            p = tl.exp(qk - most[:, None])
            alpha = tl.exp(m - most)
            total = total * alpha + tl.sum(p, 1)
            v = tl.load(V + h * sh + (j * BN + on)[:, None] * sn + d[None, :])
            acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
            m = most
    total = tl.where(total == 0, 1.0, total)
    tl.store(Out + h * sh + rows[:, None] * sn + d[None, :], (acc / total[:, None]).to(Out.dtype.element_ty))
