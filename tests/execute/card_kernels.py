"""Kernels that write what operations make of edge cases, one row of `out_ptr` for each; see test_ops_card.py."""

from __future__ import annotations

# mypy: ignore-errors
# The bodies of jit functions are read by Triton, which has no types to give their arguments.
import triton
import triton.language as tl


@triton.jit
def integers(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y, out = tl.load(x_ptr + at), tl.load(y_ptr + at), out_ptr + at
    tl.store(out + 0 * N, x + y)
    tl.store(out + 1 * N, x - y)
    tl.store(out + 2 * N, x * y)
    tl.store(out + 3 * N, x // y)
    tl.store(out + 4 * N, x % y)
    tl.store(out + 5 * N, (x & y) ^ (x | ~y))
    tl.store(out + 6 * N, x << y)
    tl.store(out + 7 * N, x >> y)
    tl.store(out + 8 * N, tl.maximum(x, y))
    tl.store(out + 9 * N, tl.minimum(x, y))
    tl.store(out + 10 * N, tl.abs(x))
    compared = (x < y).to(tl.int32) + 2 * (x <= y).to(tl.int32) + 4 * (x == y).to(tl.int32)
    tl.store(out + 11 * N, compared.to(x.dtype))


@triton.jit
def wide_products(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.umulhi(tl.load(x_ptr + at), tl.load(y_ptr + at)))


@triton.jit
def floats(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y, out = tl.load(x_ptr + at), tl.load(y_ptr + at), out_ptr + at
    tl.store(out + 0 * N, x + y)
    tl.store(out + 1 * N, x - y)
    tl.store(out + 2 * N, x * y)
    tl.store(out + 3 * N, tl.maximum(x, y))
    tl.store(out + 4 * N, tl.minimum(x, y))
    tl.store(out + 5 * N, tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 6 * N, tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 7 * N, tl.abs(-x))
    compared = (x < y).to(tl.float32) + 2 * (x <= y).to(tl.float32) + 4 * (x == y).to(tl.float32)
    tl.store(out + 8 * N, (compared + 8 * (x != y).to(tl.float32) + 16 * (x > y).to(tl.float32)).to(x.dtype))
    tl.store(out + 9 * N, tl.where(x > y, x, y))


@triton.jit
def floats_single(x_ptr, y_ptr, z_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y, z, out = tl.load(x_ptr + at), tl.load(y_ptr + at), tl.load(z_ptr + at), out_ptr + at
    tl.store(out + 0 * N, tl.floor(x))
    tl.store(out + 1 * N, tl.ceil(x))
    tl.store(out + 2 * N, tl.div_rn(x, y))
    tl.store(out + 3 * N, tl.sqrt_rn(x))
    tl.store(out + 4 * N, tl.fma(x, y, z))
    tl.store(out + 5 * N, tl.clamp(x, -1.5, 2.5))
    tl.store(out + 6 * N, tl.clamp(x, -1.5, 2.5, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 7 * N, tl.extra.cuda.libdevice.fmod(x, y))
    tl.store(out + 8 * N, tl.extra.cuda.libdevice.round(x))
    tl.store(out + 9 * N, tl.extra.cuda.libdevice.rint(x))
    tl.store(out + 10 * N, tl.extra.cuda.libdevice.trunc(x))
    tl.store(out + 11 * N, tl.extra.cuda.libdevice.copysign(x, y))
    tl.store(out + 12 * N, tl.extra.cuda.libdevice.saturatef(x))
    tl.store(out + 13 * N, tl.extra.cuda.libdevice.remainder(x, y))
    tl.store(out + 14 * N, tl.extra.cuda.libdevice.fdim(x, y))


@triton.jit
def approximate(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, out = tl.load(x_ptr + at), out_ptr + at
    tl.store(out + 0 * N, tl.exp(x))
    tl.store(out + 1 * N, tl.exp2(x))
    tl.store(out + 2 * N, tl.log(x))
    tl.store(out + 3 * N, tl.log2(x))
    tl.store(out + 4 * N, tl.sin(x))
    tl.store(out + 5 * N, tl.cos(x))
    tl.store(out + 6 * N, tl.sqrt(x))
    tl.store(out + 7 * N, tl.rsqrt(x))
    tl.store(out + 8 * N, tl.erf(x))
    tl.store(out + 9 * N, tl.sigmoid(x))
    tl.store(out + 10 * N, 1.0 / x)
    tl.store(out + 11 * N, tl.extra.cuda.libdevice.tanh(x))
    tl.store(out + 12 * N, tl.extra.cuda.libdevice.log1p(x))
    tl.store(out + 13 * N, tl.extra.cuda.libdevice.expm1(x))
    tl.store(out + 14 * N, tl.extra.cuda.libdevice.pow(x, x))
    tl.store(out + 15 * N, tl.extra.cuda.libdevice.cbrt(x))
    tl.store(out + 16 * N, tl.extra.cuda.libdevice.normcdf(x))
    tl.store(out + 17 * N, tl.extra.cuda.libdevice.erfinv(x))
    tl.store(out + 18 * N, tl.extra.cuda.libdevice.tgamma(x))
    tl.store(out + 19 * N, tl.extra.cuda.libdevice.fast_expf(x))


@triton.jit
def cast(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at).to(out_ptr.dtype.element_ty))


@triton.jit
def cast_down(x_ptr, out_ptr, N: tl.constexpr, MODE: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, x.to(out_ptr.dtype.element_ty, fp_downcast_rounding=MODE))


@triton.jit
def masked(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at % 3 == 0))
    tl.store(out_ptr + N + at, tl.load(x_ptr + at, mask=at % 5 == 0, other=7))


@triton.jit
def atomics(x_ptr, index_ptr, value_ptr, before_ptr, N: tl.constexpr, KIND: tl.constexpr):
    at = tl.arange(0, N)
    place, value = x_ptr + tl.load(index_ptr + at), tl.load(value_ptr + at)
    if KIND == "add":
        before = tl.atomic_add(place, value)
    elif KIND == "max":
        before = tl.atomic_max(place, value)
    elif KIND == "min":
        before = tl.atomic_min(place, value)
    elif KIND == "and":
        before = tl.atomic_and(place, value)
    elif KIND == "or":
        before = tl.atomic_or(place, value)
    elif KIND == "xor":
        before = tl.atomic_xor(place, value)
    elif KIND == "xchg":
        before = tl.atomic_xchg(place, value)
    else:
        before = tl.atomic_cas(place, value, value + 1)
    tl.store(before_ptr + at, before)


@triton.jit
def reductions(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x, out = tl.load(x_ptr + at), out_ptr + tl.arange(0, M)
    tl.store(out + 0 * M, tl.max(x, 1))
    tl.store(out + 1 * M, tl.min(x, 1))
    tl.store(out + 2 * M, tl.argmax(x, 1).to(tl.float32))
    tl.store(out + 3 * M, tl.argmin(x, 1).to(tl.float32))
    tl.store(out + 4 * M, tl.sum((x * 4).to(tl.int32), 1).to(tl.float32))


@triton.jit
def matmul(a_ptr, b_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, P: tl.constexpr):
    a = tl.load(a_ptr + tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :])
    b = tl.load(b_ptr + tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :])
    out = out_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out, tl.dot(a, b, input_precision=P, out_dtype=out_ptr.dtype.element_ty))


@triton.jit
def tiles(desc, out_ptr, row, column, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out_ptr + at, desc.load([row, column]))
    desc.store([tl.abs(row + 1), tl.abs(column - 4)], desc.load([row, column]))


@triton.jit
def assembly(x_ptr, out_ptr, N: tl.constexpr, TEXT: tl.constexpr):
    at = tl.arange(0, N)
    made = tl.inline_asm_elementwise(TEXT, "=r,r", [tl.load(x_ptr + at)], out_ptr.dtype.element_ty, True, 1)
    tl.store(out_ptr + at, made)
