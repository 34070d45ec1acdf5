"""Kernels that stretch what TTGIR says of values: arithmetic, shapes, scans, control flow, side effects."""

from __future__ import annotations

# mypy: ignore-errors
# The bodies of jit functions are read by Triton, which has no types to give their arguments.
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside, other=0), mask=inside)


@triton.jit
def softmax(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + at, mask=at < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + tl.program_id(0) * n + at, e / tl.sum(e, 0), mask=at < n)


@triton.jit
def layer_norm(x_ptr, weight_ptr, out_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    mean = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mean += tl.load(x_ptr + row + at, mask=at < n, other=0.0).to(tl.float32)
    center = tl.sum(mean, 0) / n
    for start in tl.range(0, n, BLOCK, num_stages=2):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + at, mask=at < n, other=0.0, eviction_policy="evict_first").to(tl.float32) - center
        y = x * tl.rsqrt(tl.sum(x * x, 0) / n + eps) * tl.load(weight_ptr + at, mask=at < n)
        tl.store(out_ptr + row + at, y.to(out_ptr.dtype.element_ty), mask=at < n, cache_modifier=".cs")


@triton.jit
def special_floats(out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(out_ptr + at)
    x = tl.where(x != x, float("inf"), x) + float("nan")
    x = tl.where(x < -1e-45, -float("inf"), x) * 0.1 + 3.4028234e38
    tl.store(out_ptr + at, x - 2.0**-149)


@triton.jit
def atomics(x_ptr, lock_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.atomic_add(x_ptr + at, at.to(tl.float32), mask=at < 7, sem="relaxed")
    tl.atomic_max(lock_ptr + 1, at.sum() if False else 3)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0, sem="release", scope="sys")


@triton.jit
def _first_order(a0, b0, a1, b1):
    return a0 * a1, b0 * a1 + b1


@triton.jit
def scans(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    decay, state = tl.associative_scan((tl.sigmoid(x), x), 1, _first_order)
    x = tl.cumsum(state, 0) + tl.cumprod(decay, 1, reverse=True)
    tl.store(out_ptr + at, tl.flip(x, 1))


@triton.jit
def sorting(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    value, index = tl.max(x, 0, return_indices=True)
    best = tl.topk(tl.sort(x, descending=True), 8)
    tl.store(out_ptr + tl.arange(0, 8), best + value + index + tl.argmin(x, 0))


@triton.jit
def histogram(x_ptr, out_ptr, BLOCK: tl.constexpr, BINS: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.atomic_add(out_ptr + tl.arange(0, BINS), tl.histogram(x, BINS, mask=x > 0))


@triton.jit
def gather(x_ptr, index_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out_ptr + at, tl.gather(tl.load(x_ptr + at), tl.load(index_ptr + at), 1))


@triton.jit
def shapes(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    low, high = tl.split(x.reshape(M, N // 2, 2))
    both = (
        tl.interleave(low, high)
        + tl.join(low, high).permute(0, 2, 1).reshape(M, N)
        + tl.cat(low.ravel(True), high.ravel(True), True).reshape(M, N)
    )
    tl.store(out_ptr + tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :], both.trans())


@triton.jit
def inline_asm(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    y = tl.inline_asm_elementwise(
        asm='{ .reg .b32 t; // a "quoted" comment\n\tmov.b32 t, $1; add.u32 $0, t, 1; }',
        constraints="=r,r",
        args=[x],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )  # fmt: skip
    tl.inline_asm_elementwise("bar.sync 9, 128;\nmov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(out_ptr + at, y)


@triton.jit
def printing(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.device_print('value "quoted" \\ 100% ', x, n, hex=True)
    tl.device_assert(x < n, "x is\tsmall, größer? {}")
    tl.assume(n > 4)
    tl.store(x_ptr + at, x)


@triton.jit
def float8(x_ptr, out_ptr, half_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at).to(tl.float32)
    tl.store(out_ptr + at, (x * 0.5).to(tl.float8e5))
    tl.store(half_ptr + at, x.to(tl.float16, fp_downcast_rounding="rtz"))


@triton.jit(noinline=True)
def _helper(x, scale):
    if scale > 2:
        x = x * scale
    return x + 1, scale


@triton.jit
def calls(x_ptr, scale, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, again = _helper(tl.load(x_ptr), scale)
    tl.store(x_ptr + at, x * again)


@triton.jit
def branches(x_ptr, n, flag, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    if flag == 0:
        return
    if flag > 3:
        x = x * 2
        count = n
    else:
        x = x - 1
        count = n // 3
    while count > 0:
        x += count
        if tl.max(x, 0) > 100:
            count = 0
        else:
            count = count - 1
    tl.store(x_ptr + at, x)


@triton.jit
def early_return(x_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    if row >= n:
        return
    if tl.load(x_ptr + row) == 0:
        tl.store(x_ptr + row, -1)
        return
    tl.store(x_ptr + tl.arange(0, BLOCK), row)


@triton.jit
def nested_loops(x_ptr, rows, columns, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    best = tl.full([BLOCK], -float("inf"), tl.float32)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), flatten=True):
        for column in tl.range(0, columns, BLOCK, loop_unroll_factor=2):
            x = tl.load(x_ptr + row * columns + column + tl.arange(0, BLOCK))
            total, best = total + x, tl.maximum(best, x, propagate_nan=tl.PropagateNan.ALL)
    tl.store(x_ptr + tl.arange(0, BLOCK), total + best)


@triton.jit
def integers(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    z = (x // y) ^ (x % y) | (x << 3) & (y >> 2)
    z = tl.where((x > y) & (x != 0), z, -x) + tl.umulhi(x.to(tl.uint32), y.to(tl.uint32)).to(tl.int32)
    wide = z.to(tl.int64) * -9223372036854775807 + (x.to(tl.int8).to(tl.uint8) // 3).to(tl.int64)
    tl.store(out_ptr + at, wide + tl.xor_sum(x, 0) + tl.clamp(x.to(tl.float32), -1.0, 7.0).to(tl.int64))


@triton.jit
def transcendental(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    y = tl.sin(x) + tl.cos(x) * tl.log(tl.abs(x)) - tl.erf(x) / tl.sqrt_rn(x) + tl.div_rn(x, 3.0) + tl.floor(x)
    y += tl.fma(x, y, tl.ceil(x)) + tl.exp2(tl.log2(x)) + tl.extra.cuda.libdevice.tanh(x)
    tl.store(out_ptr + at, y.to(tl.bfloat16))


@triton.jit
def random(out_ptr, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.rand(seed, at) + tl.randn(seed, at))


@triton.jit
def block_pointers(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    x = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (0, 0), (BLOCK, BLOCK), (1, 0))
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for _ in range(0, N, BLOCK):
        total += tl.load(x, boundary_check=(0, 1), padding_option="nan")
        x = tl.advance(x, (0, BLOCK))
    out = tl.make_block_ptr(out_ptr, (M, N), (N, 1), (0, 0), (BLOCK, BLOCK), (1, 0))
    tl.store(out, total, boundary_check=(0,))


@triton.jit
def static_range(x_ptr, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.static_assert(BLOCK >= 16)
    for step in tl.static_range(3):
        tl.store(x_ptr + at * stride + step * 7, tl.full([BLOCK], step, tl.float16), mask=at < 1 << step)


@triton.jit
def _halves(x, y):
    return x + y, x - y


@triton.jit
def mapped(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    low, high = tl.map_elementwise(_halves, tl.load(x_ptr + at), at.to(tl.float32))
    tl.store(out_ptr + at, low * high)
