"""Gluon kernels: TTGIR as a specializing compiler emits it, with partitions, barriers and asynchronous products."""

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
def _load(a, b, a_ring, b_ring, full, empty, K, BK: gl.constexpr, DEPTH: gl.constexpr):
    for step in range(0, gl.cdiv(K, BK)):
        slot = step % DEPTH
        mbarrier.wait(empty.index(slot), step // DEPTH & 1 ^ 1)
        mbarrier.expect(full.index(slot), a.block_type.nbytes + b.block_type.nbytes)
        load_tile(a, [gl.program_id(0) * 128, step * BK], full.index(slot), a_ring.index(slot))
        load_tile(b, [step * BK, gl.program_id(1) * 128], full.index(slot), b_ring.index(slot))


@gluon.jit
def _multiply(c, a_ring, b_ring, full, empty, K, BK: gl.constexpr, DEPTH: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    acc = gl.zeros([128, 128], gl.float32, layout)
    for step in range(0, gl.cdiv(K, BK)):
        slot = step % DEPTH
        mbarrier.wait(full.index(slot), step // DEPTH & 1)
        acc = warpgroup_mma(a_ring.index(slot), b_ring.index(slot), acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=[acc])
        mbarrier.arrive(empty.index(slot), count=1)
    acc = warpgroup_mma_wait(0, deps=[acc])
    out = gl.allocate_shared_memory(gl.float16, [128, 128], c.layout)
    out.store(acc.to(gl.float16))
    fence_async_shared()
    store_tile(c, [gl.program_id(0) * 128, gl.program_id(1) * 128], out)
    tma.store_wait(0)


@gluon.jit
def specialized_gemm(a, b, c, K, BK: gl.constexpr, DEPTH: gl.constexpr):
    a_ring = gl.allocate_shared_memory(gl.float16, [DEPTH, 128, BK], a.layout)
    b_ring = gl.allocate_shared_memory(gl.float16, [DEPTH, BK, 128], b.layout)
    full = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(DEPTH):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=1)
    gl.warp_specialize(
        [
            (_multiply, (c, a_ring, b_ring, full, empty, K, BK, DEPTH)),
            (_load, (a, b, a_ring, b_ring, full, empty, K, BK, DEPTH)),
        ],
        [1],
        [24],
    )
    for slot in gl.static_range(DEPTH):
        mbarrier.invalidate(full.index(slot))


@gluon.jit
def layouts(x_ptr, out_ptr, n):
    blocked: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])
    turned: gl.constexpr = gl.BlockedLayout([4, 1], [4, 8], [1, 4], [0, 1])
    rows = gl.arange(0, 32, gl.SliceLayout(1, blocked))
    columns = gl.arange(0, 16, gl.SliceLayout(0, blocked))
    at = rows[:, None] * 16 + columns[None, :]
    buffer = gl.allocate_shared_memory(gl.float32, [2, 32, 16], gl.SwizzledSharedLayout(4, 1, 8, [1, 0]))
    load_elements(buffer.index(0), x_ptr + at, mask=at < n)
    async_copy.commit_group()
    async_copy.wait_group(0)
    first = buffer.index(0).load(blocked)
    buffer.index(1).store(first * 2)
    padded = gl.allocate_shared_memory(
        gl.float32, [32, 16], gl.PaddedSharedLayout.with_identity_for([[16, 4]], [32, 16], [1, 0])
    )
    padded.store(first)
    both = buffer.index(1).permute([1, 0]).load(turned.__class__([1, 4], [4, 8], [4, 1], [0, 1]))
    gl.store(out_ptr + at, gl.convert_layout(both.trans(), blocked) + padded.load(blocked))
    gl.store(out_ptr + at, buffer.index(1).slice(0, 32, 0).load(blocked))
