"""Products as people write them."""

import triton
import triton.language as tl


@triton.jit
def grouped(A, B, C, SIZES, OFFS, G, N, K, SMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows in groups of different sizes, each with a matrix of its own; one block after the other takes tiles."""
    tile = tl.program_id(0)
    last = 0
    nt = tl.cdiv(N, BN)
    for g in range(G):
        m = tl.load(SIZES + g)
        off = tl.load(OFFS + g)
        count = tl.cdiv(m, BM) * nt
        while tile >= last and tile < last + count:
            t = tile - last
            om = t // nt * BM + tl.arange(0, BM)
            on = t % nt * BN + tl.arange(0, BN)
            ok = tl.arange(0, BK)
            ap = A + (off + om[:, None]) * K + ok[None, :]
            bp = B + g * N * K + on[None, :] * K + ok[:, None]
            acc = tl.zeros([BM, BN], tl.float32)
            for _ in range(0, tl.cdiv(K, BK)):
                a = tl.load(ap, mask=om[:, None] < m, other=0.0)
                b = tl.load(bp, mask=on[None, :] < N, other=0.0)
                acc = tl.dot(a, b, acc)
                ap += BK
                bp += BK
            tl.store(
                C + (off + om[:, None]) * N + on[None, :],
                acc.to(C.dtype.element_ty),
                mask=(om[:, None] < m) & (on[None, :] < N),
            )
            tile += SMS
        last += count


@triton.jit
def batched_gelu(
    A, B, BIAS, C, M, N, K, sab, sam, sbb, sbk, scb, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """A batch of products, a bias and GELU."""
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    z = tl.program_id(2)
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    ap = A + z * sab + om[:, None] * sam + ok[None, :]
    bp = B + z * sbb + ok[:, None] * sbk + on[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        a = tl.load(ap + k, mask=(om[:, None] < M) & (k + ok[None, :] < K), other=0.0)
        b = tl.load(bp + k * sbk, mask=(on[None, :] < N) & (k + ok[:, None] < K), other=0.0)
        acc += tl.dot(a, b)
    acc += tl.load(BIAS + on, mask=on < N, other=0.0)[None, :].to(tl.float32)
    acc = 0.5 * acc * (1 + tl.erf(acc * 0.70710678))
    tl.store(
        C + z * scb + om[:, None] * scm + on[None, :],
        acc.to(C.dtype.element_ty),
        mask=(om[:, None] < M) & (on[None, :] < N),
    )


@triton.jit
def swiglu(X, WG, WU, Y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr):
    """Two products of the same rows, one gating the other."""
    pid = tl.program_id(0)
    nm = tl.cdiv(M, BM)
    nn = tl.cdiv(N, BN)
    g = pid // (GM * nn)
    gs = min(nm - g * GM, GM)
    pm = g * GM + pid % (GM * nn) % gs
    pn = pid % (GM * nn) // gs
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    xp = X + om[:, None] * K + ok[None, :]
    gp = WG + on[None, :] * K + ok[:, None]
    up = WU + on[None, :] * K + ok[:, None]
    ag = tl.zeros([BM, BN], tl.float32)
    au = tl.zeros([BM, BN], tl.float32)
    for _ in range(0, K, BK):
        x = tl.load(xp, mask=om[:, None] < M, other=0.0)
        ag = tl.dot(x, tl.load(gp, mask=on[None, :] < N, other=0.0), ag)
        au = tl.dot(x, tl.load(up, mask=on[None, :] < N, other=0.0), au)
        xp += BK
        gp += BK
        up += BK
    y = ag * tl.sigmoid(ag) * au
    tl.store(Y + om[:, None] * N + on[None, :], y.to(Y.dtype.element_ty), mask=(om[:, None] < M) & (on[None, :] < N))


@triton.jit
def fp8_blocks(A, B, C, AS, BS, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product of fp8 with a scale for each block of 128."""
    pm = tl.program_id(1)
    pn = tl.program_id(0)
    nk = tl.cdiv(K, BK)
    om = (pm * BM + tl.arange(0, BM)) % M
    on = (pn * BN + tl.arange(0, BN)) % N
    ok = tl.arange(0, BK)
    ap = A + om[:, None] * K + ok[None, :]
    bp = B + on[None, :] * K + ok[:, None]
    asp = AS + om * nk
    bsp = BS + on // BK * nk
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(nk):
        a = tl.load(ap, mask=ok[None, :] < K - k * BK, other=0.0)
        b = tl.load(bp, mask=ok[:, None] < K - k * BK, other=0.0)
        sa = tl.load(asp + k)
        sb = tl.load(bsp + k)
        acc += tl.dot(a, b) * sa[:, None] * sb[None, :]
        ap += BK
        bp += BK
    cm = pm * BM + tl.arange(0, BM)
    cn = pn * BN + tl.arange(0, BN)
    tl.store(C + cm[:, None] * N + cn[None, :], acc.to(C.dtype.element_ty), mask=(cm[:, None] < M) & (cn[None, :] < N))


@triton.jit
def int8_scaled(A, B, C, SA, SB, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product of int8 with a scale for each row and column."""
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    acc = tl.zeros([BM, BN], tl.int32)
    for k in range(0, K, BK):
        a = tl.load(A + om[:, None] * K + k + ok[None, :], mask=om[:, None] < M, other=0)
        b = tl.load(B + on[None, :] * K + k + ok[:, None], mask=on[None, :] < N, other=0)
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
    y = (
        acc.to(tl.float32)
        * tl.load(SA + om, mask=om < M, other=0.0)[:, None]
        * tl.load(SB + on, mask=on < N, other=0.0)[None, :]
    )
    tl.store(C + om[:, None] * N + on[None, :], y.to(C.dtype.element_ty), mask=(om[:, None] < M) & (on[None, :] < N))


@triton.jit
def split_k(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    """Parts of the sum are added up by atomics."""
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    pk = tl.program_id(2)
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    ok = pk * BK + tl.arange(0, BK)
    ap = A + om[:, None] * K + ok[None, :]
    bp = B + ok[:, None] * N + on[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, tl.cdiv(K, BK * SPLIT)):
        a = tl.load(ap, mask=ok[None, :] < K - k * BK * SPLIT, other=0.0)
        b = tl.load(bp, mask=ok[:, None] < K - k * BK * SPLIT, other=0.0)
        acc += tl.dot(a, b)
        ap += BK * SPLIT
        bp += BK * SPLIT * N
    tl.atomic_add(C + om[:, None] * N + on[None, :], acc, mask=(om[:, None] < M) & (on[None, :] < N))


@triton.jit
def convolution(
    X,
    W,
    Y,
    NB,
    H,
    WD,
    C,
    CO,
    OH,
    OW,
    R: tl.constexpr,
    S: tl.constexpr,
    PAD: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """A convolution as a product, channels last."""
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    b = om // (OH * OW)
    y = om % (OH * OW) // OW
    x = om % OW
    acc = tl.zeros([BM, BN], tl.float32)
    for r in range(R):
        for s in range(S):
            iy = y + r - PAD
            ix = x + s - PAD
            ok_m = (om < NB * OH * OW) & (iy >= 0) & (iy < H) & (ix >= 0) & (ix < WD)
            xp = X + ((b * H + iy) * WD + ix)[:, None] * C + ok[None, :]
            wp = W + ((r * S + s) * C + ok)[:, None] * CO + on[None, :]
            for c in range(0, C, BK):
                a = tl.load(xp + c, mask=ok_m[:, None], other=0.0)
                w = tl.load(wp + c * CO, mask=on[None, :] < CO, other=0.0)
                acc = tl.dot(a, w, acc)
    tl.store(
        Y + om[:, None] * CO + on[None, :],
        acc.to(Y.dtype.element_ty),
        mask=(om[:, None] < NB * OH * OW) & (on[None, :] < CO),
    )


@triton.jit
def log_sum_exp(X, W, LSE, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The logarithm of the sum of exponentials of logits that are never stored."""
    pm = tl.program_id(0)
    om = pm * BM + tl.arange(0, BM)
    on0 = tl.arange(0, BN)
    ok = tl.arange(0, BK)
    mi = tl.full([BM], -float("inf"), tl.float32)
    li = tl.zeros([BM], tl.float32)
    for n in range(0, N, BN):
        acc = tl.zeros([BM, BN], tl.float32)
        on = n + on0
        for k in range(0, K, BK):
            x = tl.load(X + om[:, None] * K + k + ok[None, :], mask=om[:, None] < M, other=0.0)
            w = tl.load(W + on[None, :] * K + k + ok[:, None], mask=on[None, :] < N, other=0.0)
            acc = tl.dot(x, w, acc)
        acc = tl.where(on[None, :] < N, acc, -1e30)
        mn = tl.maximum(mi, tl.max(acc, 1))
        li = li * tl.exp(mi - mn) + tl.sum(tl.exp(acc - mn[:, None]), 1)
        mi = mn
    tl.store(LSE + om, mi + tl.log(li), mask=om < M)


@triton.jit
def tf32(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product of float32."""
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        a = tl.load(A + om[:, None] * K + k + ok[None, :])
        b = tl.load(B + on[None, :] * K + k + ok[:, None])
        acc = tl.dot(a, b, acc)
    tl.store(C + om[:, None] * N + on[None, :], acc)


@triton.jit
def gathered_experts(
    A, B, C, IDS, EXPERTS, VALID, N, K, TOPK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Rows that a list names, sorted by experts, each with a matrix of its own."""
    pm = tl.program_id(1)
    pn = tl.program_id(0)
    e = tl.load(EXPERTS + pm)
    if e == -1:
        return
    ids = tl.load(IDS + pm * BM + tl.arange(0, BM))
    on = pn * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    good = ids < VALID
    ap = A + (ids // TOPK)[:, None] * K + ok[None, :]
    bp = B + e.to(tl.int64) * N * K + on[None, :] * K + ok[:, None]
    acc = tl.zeros([BM, BN], tl.float32)
    for _ in range(0, tl.cdiv(K, BK)):
        acc += tl.dot(tl.load(ap, mask=good[:, None], other=0.0), tl.load(bp))
        ap += BK
        bp += BK
    tl.store(C + ids[:, None] * N + on[None, :], acc.to(C.dtype.element_ty), mask=good[:, None])


@triton.jit
def two_layers(X, W1, W2, Y, M, K, H, N: tl.constexpr, BM: tl.constexpr, BH: tl.constexpr, BK: tl.constexpr):
    """A hidden layer a few units at a time, which never leaves the block."""
    pm = tl.program_id(0)
    om = pm * BM + tl.arange(0, BM)
    ok = tl.arange(0, BK)
    oh0 = tl.arange(0, BH)
    on = tl.arange(0, N)
    y = tl.zeros([BM, N], tl.float32)
    for h in range(0, H, BH):
        a = tl.zeros([BM, BH], tl.float32)
        for k in range(0, K, BK):
            a = tl.dot(
                tl.load(X + om[:, None] * K + k + ok[None, :]),
                tl.load(W1 + (k + ok)[:, None] * H + h + oh0[None, :]),
                a,
            )
        a = tl.maximum(a, 0.0).to(tl.bfloat16)
        y = tl.dot(a, tl.load(W2 + (h + oh0)[:, None] * N + on[None, :]), y)
    tl.store(Y + om[:, None] * N + on[None, :], y.to(Y.dtype.element_ty))


@triton.jit
def lower_triangle(A, C, M, K, BM: tl.constexpr, BK: tl.constexpr):
    """The lower triangle of a matrix times itself: half of the blocks return at once."""
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    if pn > pm:
        return
    om = pm * BM + tl.arange(0, BM)
    on = pn * BM + tl.arange(0, BM)
    ok = tl.arange(0, BK)
    acc = tl.zeros([BM, BM], tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(
            tl.load(A + om[:, None] * K + k + ok[None, :]), tl.load(A + on[None, :] * K + k + ok[:, None]), acc
        )
    tl.store(C + om[:, None] * M + on[None, :], acc.to(C.dtype.element_ty))


@triton.jit
def int4_groups(A, QW, SC, C, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Weights of four bits, eight in a word, with a scale for each group."""
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    acc = tl.zeros([BM, BN], tl.float32)
    shift = ok % 8 * 4
    for k in range(0, K, BK):
        a = tl.load(A + om[:, None] * K + k + ok[None, :])
        w = tl.load(QW + ((k + ok) // 8)[:, None] * N + on[None, :])
        s = tl.load(SC + k // GROUP * N + on)
        b = ((w >> shift[:, None] & 15) - 8).to(tl.bfloat16) * s[None, :]
        acc = tl.dot(a, b, acc)
    tl.store(C + om[:, None] * N + on[None, :], acc.to(C.dtype.element_ty))


@triton.jit
def device_descriptors(A, B, C, M, N, K, SMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product by blocks that walk, with descriptors that they build."""
    a_desc = tl.make_tensor_descriptor(A, [M, K], [K, 1], [BM, BK])
    b_desc = tl.make_tensor_descriptor(B, [N, K], [K, 1], [BN, BK])
    c_desc = tl.make_tensor_descriptor(C, [M, N], [N, 1], [BM, BN])
    nm = tl.cdiv(M, BM)
    nn = tl.cdiv(N, BN)
    for t in tl.range(tl.program_id(0), nm * nn, SMS, flatten=True):
        pm = t % nm
        pn = t // nm
        acc = tl.zeros([BM, BN], tl.float32)
        for k in range(0, tl.cdiv(K, BK)):
            acc = tl.dot(a_desc.load([pm * BM, k * BK]), b_desc.load([pn * BN, k * BK]).T, acc)
        c_desc.store([pm * BM, pn * BN], acc.to(tl.bfloat16))


@triton.jit
def block_pointers(A, B, C, M, N, K, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product through block pointers that the loop moves on."""
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    ap = tl.make_block_ptr(A, (M, K), (sam, 1), (pm * BM, 0), (BM, BK), (1, 0))
    bp = tl.make_block_ptr(B, (K, N), (sbk, 1), (0, pn * BN), (BK, BN), (1, 0))
    acc = tl.zeros([BM, BN], tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(
            tl.load(ap, boundary_check=(0, 1), padding_option="zero"),
            tl.load(bp, boundary_check=(0, 1), padding_option="zero"),
            acc,
        )
        ap = tl.advance(ap, (0, BK))
        bp = tl.advance(bp, (BK, 0))
    cp = tl.make_block_ptr(C, (M, N), (scm, 1), (pm * BM, pn * BN), (BM, BN), (1, 0))
    tl.store(cp, acc.to(C.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def added(A, B, R, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr):
    """A product of a transposed A, added to another matrix."""
    pid = tl.program_id(0)
    nm = tl.cdiv(M, BM)
    nn = tl.cdiv(N, BN)
    g = pid // (GM * nn)
    gs = min(nm - g * GM, GM)
    pm = g * GM + pid % (GM * nn) % gs
    pn = pid % (GM * nn) // gs
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    acc = tl.zeros([BM, BN], tl.float32)
    for k in tl.range(0, K, BK, num_stages=4):
        a = tl.load(A + (k + ok)[None, :] * M + om[:, None], mask=om[:, None] < M, other=0.0)
        b = tl.load(B + (k + ok)[:, None] * N + on[None, :], mask=on[None, :] < N, other=0.0)
        acc = tl.dot(a, b, acc)
    at = om[:, None] * N + on[None, :]
    ok2 = (om[:, None] < M) & (on[None, :] < N)
    acc += tl.load(R + at, mask=ok2, other=0.0).to(tl.float32)
    tl.store(C + at, acc.to(C.dtype.element_ty), mask=ok2)


@triton.jit
def int4_pairs(A, Q, SC, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Two weights in a byte of a row, made neighbours in registers."""
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    on = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    oh = tl.arange(0, BK // 2)
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        a = tl.load(A + om[:, None] * K + (k + ok)[None, :], mask=om[:, None] < M, other=0.0)
        q = tl.load(Q + on[:, None] * (K // 2) + (k // 2 + oh)[None, :])
        low = ((q << 4) >> 4).to(tl.float32)
        high = (q >> 4).to(tl.float32)
        scale = tl.load(SC + on * (K // BK) + k // BK)
        w = tl.join(low, high).reshape(BN, BK) * scale[:, None]
        acc = tl.dot(a, w.to(a.dtype).T, acc)
    tl.store(C + om[:, None] * N + on[None, :], acc.to(C.dtype.element_ty), mask=om[:, None] < M)


@triton.jit
def mx_scaled(A, SA, B, SB, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """fp8 with a scale for 32 numbers, which Hopper multiplies as bf16."""
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    on = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    og = tl.arange(0, BK // 32)
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        a = tl.load(A + om[:, None] * K + (k + ok)[None, :])
        b = tl.load(B + on[:, None] * K + (k + ok)[None, :])
        sa = tl.load(SA + om[:, None] * (K // 32) + (k // 32 + og)[None, :])
        sb = tl.load(SB + on[:, None] * (K // 32) + (k // 32 + og)[None, :])
        acc = tl.dot_scaled(a, sa, "e4m3", b.T, sb, "e4m3", acc)
    tl.store(C + om[:, None] * N + on[None, :], acc.to(C.dtype.element_ty))


@triton.jit
def normalized(X, G, W, Y, M, N, K, eps, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product of rows that are normalized on the way, by what is summed beside it."""
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    on = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    acc = tl.zeros([BM, BN], tl.float32)
    squares = tl.zeros([BM], tl.float32)
    for k in range(0, K, BK):
        x = tl.load(X + om[:, None] * K + (k + ok)[None, :], mask=om[:, None] < M, other=0.0)
        g = tl.load(G + k + ok)
        w = tl.load(W + on[:, None] * K + (k + ok)[None, :], mask=on[:, None] < N, other=0.0)
        x32 = x.to(tl.float32)
        squares += tl.sum(x32 * x32, 1)
        acc = tl.dot((x32 * g[None, :].to(tl.float32)).to(x.dtype), w.T, acc)
    acc = acc * tl.rsqrt(squares / K + eps)[:, None]
    tl.store(Y + om[:, None] * N + on[None, :], acc.to(Y.dtype.element_ty), mask=(om[:, None] < M) & (on[None, :] < N))
