"""A warp-specialized matrix product in Gluon, and ways to get it wrong.

One warp fetches tiles of a and b into a ring; one or two warp groups multiply them. FAULT names what is wrong; ""
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
def _fetch(a, b, a_ring, b_ring, full, empty, steps, DEPTH: gl.constexpr, FAULT: gl.constexpr):
    """The producer: a barrier of `full` completes when both tiles are there."""
    row, column = gl.program_id(0) * a.block_shape[0], gl.program_id(1) * b.block_shape[1]
    both: gl.constexpr = a.block_type.nbytes + b.block_type.nbytes
    if FAULT == "few bytes":
        count: gl.constexpr = both // 2
    elif FAULT == "many bytes":
        count: gl.constexpr = both + 128
    else:
        count: gl.constexpr = both
    for step in range(steps):
        slot, phase = step % DEPTH, step // DEPTH & 1
        if FAULT == "producer phase":
            mbarrier.wait(empty.index(slot), phase)
        elif FAULT != "no acquire":
            mbarrier.wait(empty.index(slot), phase ^ 1)
        mbarrier.expect(full.index(slot), count)
        load_tile(a, [row, step * a.block_shape[1]], full.index(slot), a_ring.index(slot))
        load_tile(b, [step * b.block_shape[0], column], full.index(slot), b_ring.index(slot))


@gluon.jit
def _multiply(
    c, a_ring, b_ring, full, empty, steps,
    NUMBER: gl.constexpr, DEPTH: gl.constexpr, LAG: gl.constexpr, FAULT: gl.constexpr,
):  # fmt: skip
    """A consumer of the rows NUMBER * ROWS and on. With LAG, one product runs while the next tiles are waited for."""
    ROWS: gl.constexpr = c.block_shape[0]
    BN: gl.constexpr = c.block_shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    acc = gl.zeros([ROWS, BN], gl.float32, layout)
    for step in range(steps):
        slot, phase = step % DEPTH, step // DEPTH & 1
        if FAULT == "consumer phase":
            mbarrier.wait(full.index(slot), phase ^ 1)
        elif FAULT != "no wait":
            mbarrier.wait(full.index(slot), phase)
        if FAULT == "ring index":
            taken = (step + 1) % DEPTH
        else:
            taken = slot
        a, b = a_ring.index(taken).slice(NUMBER * ROWS, ROWS), b_ring.index(taken)
        if FAULT == "release before":
            mbarrier.arrive(empty.index(slot))
        acc = warpgroup_mma(a, b, acc, is_async=True)
        if LAG:
            acc = warpgroup_mma_wait(1, deps=[acc])
            if FAULT == "release while running":
                mbarrier.arrive(empty.index(slot))
            else:
                mbarrier.arrive(empty.index((step + DEPTH - 1) % DEPTH), pred=step > 0)
        else:
            acc = warpgroup_mma_wait(0, deps=[acc])
            if FAULT == "one releases":
                if NUMBER == 0:
                    mbarrier.arrive(empty.index(slot))
            elif FAULT != "no release" and FAULT != "release before":
                mbarrier.arrive(empty.index(slot))
    if FAULT == "result runs":
        acc = warpgroup_mma_wait(1, deps=[acc])
    elif LAG:
        acc = warpgroup_mma_wait(0, deps=[acc])
    out = gl.allocate_shared_memory(gl.float16, [ROWS, BN], c.layout)
    out.store(acc.to(gl.float16))
    if FAULT != "no fence":
        fence_async_shared()
    row = gl.program_id(0) * a_ring.shape[1] + NUMBER * ROWS
    store_tile(c, [row, gl.program_id(1) * BN], out)
    if FAULT != "no store wait":
        tma.store_wait(0)


@gluon.jit
def gemm(
    a, b, c, steps,
    CONSUMERS: gl.constexpr, DEPTH: gl.constexpr, LAG: gl.constexpr, FAULT: gl.constexpr,
):  # fmt: skip
    """One tile of c = a b, `steps` tiles deep; grid (M / BM, N / BN). c is stored in boxes of BM / CONSUMERS rows."""
    a_ring = gl.allocate_shared_memory(gl.float16, [DEPTH, a.block_shape[0], a.block_shape[1]], a.layout)
    b_ring = gl.allocate_shared_memory(gl.float16, [DEPTH, b.block_shape[0], b.block_shape[1]], b.layout)
    full = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    if FAULT == "empty count":
        readers: gl.constexpr = CONSUMERS + 1
    elif FAULT == "one releases":
        readers: gl.constexpr = 1
    else:
        readers: gl.constexpr = CONSUMERS
    for slot in gl.static_range(DEPTH):
        mbarrier.init(full.index(slot), count=1 + (FAULT == "full count"))
        mbarrier.init(empty.index(slot), count=readers)
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (_multiply, (c, a_ring, b_ring, full, empty, steps, 0, DEPTH, LAG, FAULT)),
                (_fetch, (a, b, a_ring, b_ring, full, empty, steps, DEPTH, FAULT)),
            ],
            [1],
            [24],
        )
    else:
        gl.warp_specialize(
            [
                (_multiply, (c, a_ring, b_ring, full, empty, steps, 0, DEPTH, LAG, FAULT)),
                (_multiply, (c, a_ring, b_ring, full, empty, steps, 1, DEPTH, LAG, FAULT)),
                (_fetch, (a, b, a_ring, b_ring, full, empty, steps, DEPTH, FAULT)),
            ],
            [4, 1],
            [168, 24],
        )
