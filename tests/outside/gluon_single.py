"""Pipelined matrix products of a single task in Gluon, and ways to get them wrong.

FAULT names what is wrong; "" is right. Nothing is specialized: the warps that multiply also ask for the tiles they
will need, by TMA or by cp.async.
"""

from __future__ import annotations

# mypy: ignore-errors
# The bodies of jit functions are read by Triton, which has no types to give their arguments.
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from tests.support.gluon_names import load_elements, load_tile, store_tile


@gluon.jit
def _ask(a, b, a_ring, b_ring, full, step, wanted, DEPTH: gl.constexpr, FAULT: gl.constexpr):
    """Ask for the tiles of a step, if `wanted`."""
    both: gl.constexpr = a.block_type.nbytes + b.block_type.nbytes
    slot = step % DEPTH
    row, column = gl.program_id(0) * a.block_shape[0], gl.program_id(1) * b.block_shape[1]
    if FAULT == "few bytes":
        mbarrier.expect(full.index(slot), both - a.block_type.nbytes, pred=wanted)
    else:
        mbarrier.expect(full.index(slot), both, pred=wanted)
    load_tile(a, [row, step * a.block_shape[1]], full.index(slot), a_ring.index(slot), pred=wanted)
    load_tile(b, [step * b.block_shape[0], column], full.index(slot), b_ring.index(slot), pred=wanted)


@gluon.jit
def tma_gemm(a, b, c, steps, DEPTH: gl.constexpr, FAULT: gl.constexpr):
    """One tile of c = a b, `steps` tiles deep; grid (M / BM, N / BN). A product runs while the next is asked for."""
    BM: gl.constexpr = c.block_shape[0]
    BN: gl.constexpr = c.block_shape[1]
    a_ring = gl.allocate_shared_memory(gl.float16, [DEPTH, a.block_shape[0], a.block_shape[1]], a.layout)
    b_ring = gl.allocate_shared_memory(gl.float16, [DEPTH, b.block_shape[0], b.block_shape[1]], b.layout)
    full = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    for each in gl.static_range(DEPTH):
        mbarrier.init(full.index(each), count=1)
    for early in gl.static_range(DEPTH - 1):
        _ask(a, b, a_ring, b_ring, full, early, early < steps, DEPTH, FAULT)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BN, 16])
    acc = gl.zeros([BM, BN], gl.float32, layout)
    for step in range(steps):
        slot, phase = step % DEPTH, step // DEPTH & 1
        if FAULT == "phase":
            mbarrier.wait(full.index(slot), step & 1)
        elif FAULT != "no wait":
            mbarrier.wait(full.index(slot), phase)
        more = step + DEPTH - 1
        if FAULT == "asks early":
            _ask(a, b, a_ring, b_ring, full, more, more < steps, DEPTH, FAULT)
        acc = warpgroup_mma(a_ring.index(slot), b_ring.index(slot), acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=[acc])
        if FAULT == "asks one further":
            _ask(a, b, a_ring, b_ring, full, more + 1, more + 1 < steps, DEPTH, FAULT)
        elif FAULT != "asks early":
            _ask(a, b, a_ring, b_ring, full, more, more < steps, DEPTH, FAULT)
    acc = warpgroup_mma_wait(0, deps=[acc])
    out = gl.allocate_shared_memory(gl.float16, [BM, BN], c.layout)
    out.store(acc.to(gl.float16))
    if FAULT != "no fence":
        fence_async_shared()
    store_tile(c, [gl.program_id(0) * BM, gl.program_id(1) * BN], out)
    tma.store_wait(0)
    for each in gl.static_range(DEPTH):
        mbarrier.invalidate(full.index(each))


@gluon.jit
def _copy(base, row, column, stride, tile, wanted):
    """cp.async of the tile of a row-major matrix at (row, column), if `wanted`."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    rows = row + gl.arange(0, tile.shape[0], gl.SliceLayout(1, layout))
    columns = column + gl.arange(0, tile.shape[1], gl.SliceLayout(0, layout))
    at = base + rows[:, None] * stride + columns[None, :]
    mask = (rows[:, None] >= 0) & (columns[None, :] >= 0) & wanted
    load_elements(tile, at, mask=mask)


@gluon.jit
def pointer_gemm(
    a, b, c, n, k, steps,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, DEPTH: gl.constexpr, FAULT: gl.constexpr,
):  # fmt: skip
    """One tile of c = a b, `steps` tiles deep, through pointers; grid (M / BM, N / BN). A group of copies a step."""
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    a_shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, BK], gl.float16)
    b_shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BK, BN], gl.float16)
    a_ring = gl.allocate_shared_memory(gl.float16, [DEPTH, BM, BK], a_shared)
    b_ring = gl.allocate_shared_memory(gl.float16, [DEPTH, BK, BN], b_shared)
    for early in gl.static_range(DEPTH - 1):
        _copy(a, row, early * BK, k, a_ring.index(early), early < steps)
        _copy(b, early * BK, column, n, b_ring.index(early), early < steps)
        async_copy.commit_group()
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BN, 16])
    acc = gl.zeros([BM, BN], gl.float32, layout)
    for step in range(steps):
        slot = step % DEPTH
        if FAULT == "waits for too few":
            async_copy.wait_group(DEPTH - 1)
        else:
            async_copy.wait_group(DEPTH - 2)
        if FAULT != "no fence":
            fence_async_shared()
        acc = warpgroup_mma(a_ring.index(slot), b_ring.index(slot), acc, is_async=True)
        if FAULT == "copies early":
            acc = warpgroup_mma_wait(1, deps=[acc])
            more = step + DEPTH
        else:
            acc = warpgroup_mma_wait(0, deps=[acc])
            more = step + DEPTH - 1
        _copy(a, row, more * BK, k, a_ring.index(more % DEPTH), more < steps)
        _copy(b, more * BK, column, n, b_ring.index(more % DEPTH), more < steps)
        if FAULT != "no commit":
            async_copy.commit_group()
    acc = warpgroup_mma_wait(0, deps=[acc])
    async_copy.wait_group(0)
    rows = row + gl.arange(0, BM, gl.SliceLayout(1, layout))
    columns = column + gl.arange(0, BN, gl.SliceLayout(0, layout))
    gl.store(c + rows[:, None] * n + columns[None, :], acc.to(gl.float16))
