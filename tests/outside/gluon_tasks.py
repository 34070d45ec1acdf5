"""Kernels of three tasks in Gluon that share more than operands, and ways to get them wrong. FAULT names what is wrong.

* `persistent_gemm`: a block makes many tiles of c; a task of its own stores them.
* `copied_gemm`: four warps fetch tiles by cp.async.
* `scale_rows`: a tile goes to registers, its buffer back to TMA, and results out through another buffer.
"""

from __future__ import annotations

# mypy: ignore-errors
# ruff: noqa: SIM113
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
def _fetch_tiles(a, b, a_ring, b_ring, full, empty, tiles, columns, steps, DEPTH: gl.constexpr, FAULT: gl.constexpr):
    """Fetch the operands of every tile; the ring goes on from one tile to the next."""
    both: gl.constexpr = a.block_type.nbytes + b.block_type.nbytes
    turn = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, column = tile // columns * a.block_shape[0], tile % columns * b.block_shape[1]
        for step in range(steps):
            slot, phase = turn % DEPTH, turn // DEPTH & 1
            mbarrier.wait(empty.index(slot), phase ^ 1)
            mbarrier.expect(full.index(slot), both)
            load_tile(a, [row, step * a.block_shape[1]], full.index(slot), a_ring.index(slot))
            load_tile(b, [step * b.block_shape[0], column], full.index(slot), b_ring.index(slot))
            turn += 1


@gluon.jit
def _multiply_tiles(
    out, a_ring, b_ring, full, empty, done, stored, tiles, steps, DEPTH: gl.constexpr, FAULT: gl.constexpr
):
    """Make every tile and leave it in `out`."""
    BM: gl.constexpr = out.shape[0]
    BN: gl.constexpr = out.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    turn = 0
    made = 0
    for _tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        acc = gl.zeros([BM, BN], gl.float32, layout)
        if FAULT == "ring restarts":
            turn = turn * 0
        for _step in range(steps):
            slot, phase = turn % DEPTH, turn // DEPTH & 1
            mbarrier.wait(full.index(slot), phase)
            acc = warpgroup_mma(a_ring.index(slot), b_ring.index(slot), acc, is_async=True)
            acc = warpgroup_mma_wait(0, deps=[acc])
            mbarrier.arrive(empty.index(slot))
            turn += 1
        if FAULT != "overwrites":
            mbarrier.wait(stored, made & 1 ^ 1)
        out.store(acc.to(gl.float16))
        if FAULT != "no fence":
            fence_async_shared()
        mbarrier.arrive(done)
        made += 1


@gluon.jit
def _store_tiles(c, out, done, stored, tiles, columns, FAULT: gl.constexpr):
    """Store what is left in `out`, and say when it has been read."""
    made = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        if FAULT == "store phase":
            mbarrier.wait(done, 0)
        elif FAULT != "stores early":
            mbarrier.wait(done, made & 1)
        store_tile(c, [tile // columns * out.shape[0], tile % columns * out.shape[1]], out)
        if FAULT == "frees early":
            mbarrier.arrive(stored)
        tma.store_wait(0)
        if FAULT != "frees early" and FAULT != "never frees":
            mbarrier.arrive(stored)
        made += 1


@gluon.jit
def persistent_gemm(a, b, c, tiles, columns, steps, DEPTH: gl.constexpr, FAULT: gl.constexpr):
    """Every num_programs-th of the tiles of c = a b, each `steps` tiles deep."""
    a_ring = gl.allocate_shared_memory(gl.float16, [DEPTH, a.block_shape[0], a.block_shape[1]], a.layout)
    b_ring = gl.allocate_shared_memory(gl.float16, [DEPTH, b.block_shape[0], b.block_shape[1]], b.layout)
    out = gl.allocate_shared_memory(gl.float16, c.block_shape, c.layout)
    full = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    stored = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for each in gl.static_range(DEPTH):
        mbarrier.init(full.index(each), count=1)
        mbarrier.init(empty.index(each), count=1)
    mbarrier.init(done, count=1)
    mbarrier.init(stored, count=1)
    gl.warp_specialize(
        [
            (_multiply_tiles, (out, a_ring, b_ring, full, empty, done, stored, tiles, steps, DEPTH, FAULT)),
            (_store_tiles, (c, out, done, stored, tiles, columns, FAULT)),
            (_fetch_tiles, (a, b, a_ring, b_ring, full, empty, tiles, columns, steps, DEPTH, FAULT)),
        ],
        [1, 1],
        [24, 24],
    )


@gluon.jit
def _copy_tile(base, row, column, stride, tile):
    """cp.async of the tile of a row-major matrix at (row, column), by four warps."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    rows = row + gl.arange(0, tile.shape[0], gl.SliceLayout(1, layout))
    columns = column + gl.arange(0, tile.shape[1], gl.SliceLayout(0, layout))
    load_elements(tile, base + rows[:, None] * stride + columns[None, :])


@gluon.jit
def _copy_tiles(a, b, n, k, a_ring, b_ring, full, empty, steps, DEPTH: gl.constexpr, FAULT: gl.constexpr):
    """The producer of `copied_gemm`: each of its 128 threads arrives when its own copies are there."""
    row, column = gl.program_id(0) * a_ring.shape[1], gl.program_id(1) * b_ring.shape[2]
    for step in range(steps):
        slot, phase = step % DEPTH, step // DEPTH & 1
        if FAULT != "no acquire":
            mbarrier.wait(empty.index(slot), phase ^ 1)
        _copy_tile(a, row, step * a_ring.shape[2], k, a_ring.index(slot))
        _copy_tile(b, step * b_ring.shape[1], column, n, b_ring.index(slot))
        if FAULT == "arrives early":
            mbarrier.arrive(full.index(slot), count=128)
        else:
            async_copy.mbarrier_arrive(full.index(slot), increment_count=FAULT == "increments")
    async_copy.wait_group(0)


@gluon.jit
def _multiply_copied(c, n, a_ring, b_ring, full, empty, steps, DEPTH: gl.constexpr, FAULT: gl.constexpr):
    """The consumer of `copied_gemm`: cp.async writes as threads do, the tensor core reads otherwise: fence."""
    BM: gl.constexpr = a_ring.shape[1]
    BN: gl.constexpr = b_ring.shape[2]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    acc = gl.zeros([BM, BN], gl.float32, layout)
    for step in range(steps):
        slot, phase = step % DEPTH, step // DEPTH & 1
        if FAULT == "phase":
            mbarrier.wait(full.index(slot), phase ^ 1)
        else:
            mbarrier.wait(full.index(slot), phase)
        if FAULT != "no fence":
            fence_async_shared()
        acc = warpgroup_mma(a_ring.index(slot), b_ring.index(slot), acc, is_async=True)
        if FAULT == "early release":
            mbarrier.arrive(empty.index(slot))
        acc = warpgroup_mma_wait(0, deps=[acc])
        if FAULT != "early release" and FAULT != "no release":
            mbarrier.arrive(empty.index(slot))
    rows = gl.program_id(0) * BM + gl.arange(0, BM, gl.SliceLayout(1, layout))
    columns = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, layout))
    gl.store(c + rows[:, None] * n + columns[None, :], acc.to(gl.float16))


@gluon.jit
def copied_gemm(
    a, b, c, n, k, steps,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, DEPTH: gl.constexpr, FAULT: gl.constexpr,
):  # fmt: skip
    """One tile of c = a b, `steps` tiles deep, through pointers; grid (M / BM, N / BN)."""
    a_shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, BK], gl.float16)
    b_shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BK, BN], gl.float16)
    a_ring = gl.allocate_shared_memory(gl.float16, [DEPTH, BM, BK], a_shared)
    b_ring = gl.allocate_shared_memory(gl.float16, [DEPTH, BK, BN], b_shared)
    full = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    for each in gl.static_range(DEPTH):
        mbarrier.init(full.index(each), count=128)
        mbarrier.init(empty.index(each), count=1)
    gl.warp_specialize(
        [
            (_multiply_copied, (c, n, a_ring, b_ring, full, empty, steps, DEPTH, FAULT)),
            (_copy_tiles, (a, b, n, k, a_ring, b_ring, full, empty, steps, DEPTH, FAULT)),
        ],
        [4],
        [120],
    )


@gluon.jit
def _fetch_rows(x, ring, full, empty, steps, DEPTH: gl.constexpr, FAULT: gl.constexpr):
    for step in range(steps):
        slot, phase = step % DEPTH, step // DEPTH & 1
        mbarrier.wait(empty.index(slot), phase ^ 1)
        mbarrier.expect(full.index(slot), x.block_type.nbytes)
        row = (gl.program_id(0) * steps + step) * x.block_shape[0]
        load_tile(x, [row, 0], full.index(slot), ring.index(slot))


@gluon.jit
def _scale_rows(y, ring, out, full, empty, steps, factor, DEPTH: gl.constexpr, FAULT: gl.constexpr):
    """Read a tile into registers, give its buffer back, store the tile times a factor."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    for step in range(steps):
        slot, phase = step % DEPTH, step // DEPTH & 1
        mbarrier.wait(full.index(slot), phase)
        if FAULT == "early release":
            mbarrier.arrive(empty.index(slot))
        tile = ring.index(slot).load(layout)
        if FAULT != "no read fence":
            fence_async_shared()
        if FAULT != "early release":
            mbarrier.arrive(empty.index(slot))
        if FAULT != "overwrites":
            tma.store_wait(0)
        out.store((tile.to(gl.float32) * factor).to(gl.float16))
        if FAULT != "no write fence":
            fence_async_shared()
        store_tile(y, [(gl.program_id(0) * steps + step) * y.block_shape[0], 0], out)
    tma.store_wait(0)


@gluon.jit
def scale_rows(x, y, steps, factor, DEPTH: gl.constexpr, FAULT: gl.constexpr):
    """y = x * factor, `steps` tiles a block; grid (rows / steps / rows of a tile)."""
    ring = gl.allocate_shared_memory(gl.float16, [DEPTH, x.block_shape[0], x.block_shape[1]], x.layout)
    out = gl.allocate_shared_memory(gl.float16, y.block_shape, y.layout)
    full = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    for each in gl.static_range(DEPTH):
        mbarrier.init(full.index(each), count=1)
        mbarrier.init(empty.index(each), count=1)
    gl.warp_specialize(
        [
            (_scale_rows, (y, ring, out, full, empty, steps, factor, DEPTH, FAULT)),
            (_fetch_rows, (x, ring, full, empty, steps, DEPTH, FAULT)),
        ],
        [1],
        [24],
    )
