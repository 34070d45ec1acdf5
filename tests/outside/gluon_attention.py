"""Warp-specialized attention forward in Gluon, and ways to get it wrong.

One warp fetches Q, and K and V into rings; two warp groups take BM / 2 queries each. FAULT names what is wrong; ""
is right.
"""

from __future__ import annotations

# mypy: ignore-errors
# The bodies of jit functions are read by Triton, which has no types to give their arguments.
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from tests.support.gluon_names import load_tile, store_tile


@gluon.jit
def _load(desc, row, ring, full, empty, turn, DEPTH: gl.constexpr, ACQUIRE: gl.constexpr):
    """Fetch the tile at `row` in turn number `turn` of a ring."""
    slot, phase = turn % DEPTH, turn // DEPTH & 1
    if ACQUIRE:
        mbarrier.wait(empty.index(slot), phase ^ 1)
    mbarrier.expect(full.index(slot), desc.block_type.nbytes)
    load_tile(desc, [row, 0], full.index(slot), ring.index(slot))


@gluon.jit
def _fetch(
    q, k, v, q_tile, k_ring, v_ring, q_full, k_full, k_empty, v_full, v_empty, steps,
    DEPTH: gl.constexpr, FAULT: gl.constexpr,
):  # fmt: skip
    """The producer. In the order K, V; with "order", the next K before V, for which a ring of one tile is too short."""
    BN: gl.constexpr = k.block_shape[0]
    head = gl.program_id(1) * steps * BN
    mbarrier.expect(q_full, q.block_type.nbytes)
    load_tile(q, [head + gl.program_id(0) * q.block_shape[0], 0], q_full, q_tile)
    if FAULT == "order":
        _load(k, head, k_ring, k_full, k_empty, 0, DEPTH, True)
        for step in range(steps - 1):
            _load(k, head + (step + 1) * BN, k_ring, k_full, k_empty, step + 1, DEPTH, True)
            _load(v, head + step * BN, v_ring, v_full, v_empty, step, DEPTH, True)
        _load(v, head + (steps - 1) * BN, v_ring, v_full, v_empty, steps - 1, DEPTH, True)
    else:
        for step in range(steps):
            _load(k, head + step * BN, k_ring, k_full, k_empty, step, DEPTH, True)
            _load(v, head + step * BN, v_ring, v_full, v_empty, step, DEPTH, FAULT != "no acquire")


@gluon.jit
def _attend(
    o, q_tile, k_ring, v_ring, p_tile, q_full, k_full, k_empty, v_full, v_empty, steps, scale,
    NUMBER: gl.constexpr, DEPTH: gl.constexpr, P_SHARED: gl.constexpr, FAULT: gl.constexpr,
):  # fmt: skip
    """A consumer of ROWS queries. P goes to the second product through registers, or through shared memory."""
    ROWS: gl.constexpr = o.block_shape[0]
    D: gl.constexpr = o.block_shape[1]
    BN: gl.constexpr = k_ring.shape[1]
    scores: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    top = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, scores))
    total = gl.full([ROWS], 0.0, gl.float32, gl.SliceLayout(1, scores))
    acc = gl.zeros([ROWS, D], gl.float32, layout)
    queries = q_tile.slice(NUMBER * ROWS, ROWS)
    if FAULT != "no q wait":
        mbarrier.wait(q_full, 0)
    for step in range(steps):
        slot, phase = step % DEPTH, step // DEPTH & 1
        mbarrier.wait(k_full.index(slot), phase)
        s = gl.zeros([ROWS, BN], gl.float32, scores)
        s = warpgroup_mma(queries, k_ring.index(slot).permute([1, 0]), s, is_async=True)
        if FAULT == "early k release":
            mbarrier.arrive(k_empty.index(slot))
        s = warpgroup_mma_wait(0, deps=[s]) * scale
        if FAULT != "early k release" and FAULT != "order" and FAULT != "no k release":
            mbarrier.arrive(k_empty.index(slot))
        new_top = gl.maximum(top, gl.max(s, 1))
        p = gl.exp2(s - new_top[:, None])
        decay = gl.exp2(top - new_top)
        total = total * decay + gl.sum(p, 1)
        top = new_top
        acc = acc * gl.convert_layout(decay, gl.SliceLayout(1, layout))[:, None]
        if FAULT == "v phase":
            mbarrier.wait(v_full.index(slot), phase ^ 1)
        else:
            mbarrier.wait(v_full.index(slot), phase)
        if P_SHARED:
            p_tile.store(p.to(gl.float16))
            if FAULT != "no p fence":
                fence_async_shared()
            acc = warpgroup_mma(p_tile, v_ring.index(slot), acc, is_async=True)
        else:
            operand = gl.convert_layout(p.to(gl.float16), gl.DotOperandLayout(0, layout, 2))
            acc = warpgroup_mma(operand, v_ring.index(slot), acc, is_async=True)
        if FAULT == "early v release":
            mbarrier.arrive(v_empty.index(slot))
        acc = warpgroup_mma_wait(0, deps=[acc])
        if FAULT != "early v release":
            mbarrier.arrive(v_empty.index(slot))
        if FAULT == "order":
            mbarrier.arrive(k_empty.index(slot))
    acc = acc / gl.convert_layout(total, gl.SliceLayout(1, layout))[:, None]
    out = gl.allocate_shared_memory(gl.float16, [ROWS, D], o.layout)
    out.store(acc.to(gl.float16))
    fence_async_shared()
    row = gl.program_id(1) * steps * BN + gl.program_id(0) * q_tile.shape[0] + NUMBER * ROWS
    store_tile(o, [row, 0], out)
    tma.store_wait(0)


@gluon.jit
def attention(q, k, v, o, steps, scale, DEPTH: gl.constexpr, P_SHARED: gl.constexpr, FAULT: gl.constexpr):
    """q, k, v, o: [heads * length, D] in boxes of BM, BN, BN and BM / 2 rows; grid (length / BM, heads).

    length = steps * BN; scale is times log2(e).
    """
    q_tile = gl.allocate_shared_memory(gl.float16, q.block_shape, q.layout)
    k_ring = gl.allocate_shared_memory(gl.float16, [DEPTH, k.block_shape[0], k.block_shape[1]], k.layout)
    v_ring = gl.allocate_shared_memory(gl.float16, [DEPTH, v.block_shape[0], v.block_shape[1]], v.layout)
    p_shape: gl.constexpr = [2, o.block_shape[0], k.block_shape[0]]
    p_tiles = gl.allocate_shared_memory(
        gl.float16, p_shape, gl.NVMMASharedLayout.get_default_for([o.block_shape[0], k.block_shape[0]], gl.float16)
    )
    q_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full, count=1)
    for slot in gl.static_range(DEPTH):
        mbarrier.init(k_full.index(slot), count=1)
        mbarrier.init(k_empty.index(slot), count=2)
        mbarrier.init(v_full.index(slot), count=1)
        mbarrier.init(v_empty.index(slot), count=2)
    p_first = p_tiles.index(0)
    p_second = p_tiles.index(0 if FAULT == "shared p" else 1)
    gl.warp_specialize(
        [
            (
                _attend,
                (o, q_tile, k_ring, v_ring, p_first, q_full, k_full, k_empty, v_full, v_empty, steps, scale,
                 0, DEPTH, P_SHARED, FAULT),
            ),
            (
                _attend,
                (o, q_tile, k_ring, v_ring, p_second, q_full, k_full, k_empty, v_full, v_empty, steps, scale,
                 1, DEPTH, P_SHARED, FAULT),
            ),
            (
                _fetch,
                (q, k, v, q_tile, k_ring, v_ring, q_full, k_full, k_empty, v_full, v_empty, steps, DEPTH, FAULT),
            ),
        ],
        [4, 1],
        [168, 24],
    )  # fmt: skip
