"""Kernels of the shape of attention, with odd structure, for the compiler's tests."""

from __future__ import annotations

# mypy: ignore-errors
# The bodies of jit functions are read by Triton, which has no types to give their arguments.
import triton
import triton.language as tl


@triton.jit
def _fold(acc, total, top, q, k_desc, v_desc, start, last, scale, BN: tl.constexpr, MASKED: tl.constexpr):
    """Fold BN keys into the online softmax."""
    scores = tl.dot(q, k_desc.load([start, 0]).T)
    if MASKED:
        scores = tl.where((start + tl.arange(0, BN))[None, :] <= last[:, None], scores, -1.0e6)
    new = tl.maximum(top, tl.max(scores, 1) * scale)
    p = tl.exp2(scores * scale - new[:, None])
    decay = tl.exp2(top - new)
    acc = tl.dot(p.to(q.dtype), v_desc.load([start, 0]), acc * decay[:, None])
    return acc, total * decay + tl.sum(p, 1), new


@triton.jit
def _no_keys(BM: tl.constexpr, D: tl.constexpr):
    """The online softmax of no keys yet: (weighted sum, sum of weights, maximum)."""
    top = tl.full([BM], -1.0e6, tl.float32)
    total = tl.zeros([BM], tl.float32)
    return tl.zeros([BM, D], tl.float32), total, top


@triton.jit
def attention_masked(
    q_desc, k_desc, v_desc, o_desc, scale, length,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One loop that masks every tile."""
    row = tl.program_id(0) * BM
    rows = row + tl.arange(0, BM)
    last = rows if CAUSAL else tl.zeros([BM], tl.int32) + (length - 1)
    acc, total, top = _no_keys(BM, D)
    q = q_desc.load([row, 0])
    for start in tl.range(0, tl.minimum(row + BM, length) if CAUSAL else length, BN):
        acc, total, top = _fold(acc, total, top, q, k_desc, v_desc, start, last, scale, BN, True)
    o_desc.store([row, 0], (acc / total[:, None]).to(q.dtype))


@triton.jit
def short_chain(
    q_desc, k_desc, v_desc, o_desc, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, TRIPS: tl.constexpr
):
    """A loop whose trip count the compiler knows."""
    row = tl.program_id(0) * BM
    acc, total, top = _no_keys(BM, D)
    q = q_desc.load([row, 0])
    for start in tl.range(0, TRIPS * BN, BN):  # at: loop
        acc, total, top = _fold(acc, total, top, q, k_desc, v_desc, start, top, scale, BN, False)
    o_desc.store([row, 0], (acc / total[:, None]).to(q.dtype))


@triton.jit
def attention_two_loops(
    q_desc, k_desc, v_desc, o_desc, scale, length, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    """Causal: a loop over the tiles every row sees, then one over those on the diagonal."""
    row = tl.program_id(0) * BM
    last = row + tl.arange(0, BM)
    acc, total, top = _no_keys(BM, D)
    q = q_desc.load([row, 0])
    for start in tl.range(0, row, BN):
        acc, total, top = _fold(acc, total, top, q, k_desc, v_desc, start, last, scale, BN, False)
    for start in tl.range(row, tl.minimum(row + BM, length), BN):
        acc, total, top = _fold(acc, total, top, q, k_desc, v_desc, start, last, scale, BN, True)
    o_desc.store([row, 0], (acc / total[:, None]).to(q.dtype))


@triton.jit
def attention_offsets(
    q_desc, k_desc, v_desc, o_desc, scale, length, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    """The same, heads below each other, with offsets that the loops carry."""
    row, head = tl.program_id(0) * BM, tl.program_id(1) * length
    last = head + row + tl.arange(0, BM)
    acc, total, top = _no_keys(BM, D)
    scale *= 1.44269504
    q = q_desc.load([head + row, 0])
    at = head
    for _ in tl.range(0, row, BN):
        acc, total, top = _fold(acc, total, top, q, k_desc, v_desc, at, last, scale, BN, False)
        at += BN
    at = head + row
    for _ in tl.range(row, (tl.program_id(0) + 1) * BM, BN):
        acc, total, top = _fold(acc, total, top, q, k_desc, v_desc, at, last, scale, BN, True)
        at += BN
    o_desc.store([head + row, 0], (acc / total[:, None]).to(q.dtype))


@triton.jit
def scores_around_a_loop(
    q_desc, k_desc, u_desc, w_desc, v_desc, o_desc, length, inner,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, TRIPS: tl.constexpr,
):  # fmt: skip
    """Between two products of an iteration a loop takes so many tiles, or with 0 as many as the launch says."""
    row = tl.program_id(0) * BM
    acc, beside = tl.zeros([BM, D], tl.float32), tl.zeros([BM, BN], tl.float32)
    q = q_desc.load([row, 0])
    for start in tl.range(0, length, BN):
        scores = tl.dot(q, k_desc.load([start, 0]).T)
        for other in tl.range(0, TRIPS * BN if TRIPS else inner, BN):
            beside = tl.dot(q, u_desc.load([other, 0]).T, beside)
        scores += tl.dot(q, w_desc.load([start, 0]).T)
        acc = tl.dot(tl.abs(scores).to(q.dtype), v_desc.load([start, 0]), acc)
    o_desc.store([row, 0], (acc + tl.sum(beside, 1)[:, None]).to(q.dtype))


@triton.jit
def attention_grouped(
    q_desc, k_desc, v_desc, o_desc, scale, length, group, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    """Several query heads share a head of keys; the number of keys is a multiple of BN."""
    row, head = tl.program_id(0) * BM, tl.program_id(1)
    kv_row = head // group * length
    acc, total, top = _no_keys(BM, D)
    q = q_desc.load([head * length + row, 0])
    for start in tl.range(0, length, BN):
        acc, total, top = _fold(acc, total, top, q, k_desc, v_desc, kv_row + start, top, scale, BN, False)
    o_desc.store([head * length + row, 0], (acc / total[:, None]).to(q.dtype))


@triton.jit
def attention_persistent(
    q_desc, k_desc, v_desc, o_desc, scale, length, tiles, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    """Every block works through several tiles of queries."""
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = tile * BM
        acc, total, top = _no_keys(BM, D)
        q = q_desc.load([row, 0])
        for start in tl.range(0, length, BN):
            acc, total, top = _fold(acc, total, top, q, k_desc, v_desc, start, top, scale, BN, False)
        o_desc.store([row, 0], (acc / total[:, None]).to(q.dtype))


@triton.jit
def attention_weighted(
    q_desc, k_desc, v_desc, o_desc, scale, weight_ptr, length, tiles,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """As above, with a load that Triton moves out of the loop, under the condition that the loop runs."""
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = tile * BM
        acc, total, top = _no_keys(BM, D)
        q = q_desc.load([row, 0])
        for start in tl.range(0, length, BN):
            acc = acc * tl.load(weight_ptr + row + tl.arange(0, BM))[:, None]
            acc, total, top = _fold(acc, total, top, q, k_desc, v_desc, start, top, scale, BN, False)
        o_desc.store([row, 0], (acc / total[:, None]).to(q.dtype))


@triton.jit
def three_dots(q_desc, k_desc, v_desc, w_desc, o_desc, n, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    row = tl.program_id(0) * BM
    q = q_desc.load([row, 0])
    acc = tl.zeros([BM, D], tl.float32)
    for i in tl.range(0, n, BN):
        s = tl.dot(q, k_desc.load([i, 0]).T).to(q.dtype)
        t = tl.dot(s, w_desc.load([0, 0])).to(q.dtype)
        acc = tl.dot(t, v_desc.load([i, 0]), acc)
    o_desc.store([row, 0], acc.to(q.dtype))


@triton.jit
def flattened(q_desc, k_desc, v_desc, o_desc, tiles, length, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Triton makes one loop of both, which carries q's tile in shared memory; its own back end then fails on that."""
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        q = q_desc.load([tile * BM, 0])  # at: load
        acc = tl.zeros([BM, D], tl.float32)
        for i in tl.range(0, length, BN):
            s = tl.dot(q, k_desc.load([i, 0]).T)
            acc = tl.dot(tl.exp2(s).to(q.dtype), v_desc.load([i, 0]), acc)
        o_desc.store([tile * BM, 0], acc.to(q.dtype))


@triton.jit
def gathered_keys(
    q_desc, k_ptr, v_ptr, o_desc, page_ptr, scale, length, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    """Attention whose keys and values are rows that a table names: threads copy them, for two groups and a late dot."""
    row, columns = tl.program_id(0) * BM, tl.arange(0, D)
    q = q_desc.load([row, 0])
    m, total = tl.full([BM], -1e30, tl.float32), tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for i in tl.range(0, length, BN):
        keys = i + tl.arange(0, BN)
        places = tl.load(page_ptr + keys, mask=keys < length, other=0)[:, None] * D + columns[None, :]
        s = tl.where(keys[None, :] < length, tl.dot(q, tl.load(k_ptr + places).T) * scale, -1e30)
        larger = tl.maximum(m, tl.max(s, 1))
        p, less = tl.exp2(s - larger[:, None]), tl.exp2(m - larger)
        total = total * less + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.float16), tl.load(v_ptr + places), acc * less[:, None])
        m = larger
    o_desc.store([row, 0], (acc / total[:, None]).to(tl.float16))
