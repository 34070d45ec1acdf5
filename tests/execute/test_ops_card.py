"""What a card makes of edge cases is what the executor makes of them. Needs a Hopper GPU."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.execute import card_kernels as kernels
from wspec import bridge
from wspec.execute.launch import run
from wspec.ir import read

pytestmark = pytest.mark.gpu

INF, NAN = float("inf"), float("nan")
NAMES = {
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.float8_e5m2: "fp8e5",
}


def type_of(item: Any) -> str:
    return f"*{NAMES[item.dtype]}:16" if isinstance(item, torch.Tensor) else "i32"


def both(kernel: Any, tensors: Mapping[str, torch.Tensor], **constants: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(by the executor, by the card) of each tensor after one program of the kernel."""
    here, there = ([tensor.clone() for tensor in tensors.values()] for _ in range(2))
    source = bridge.from_signature(kernel, {name: type_of(x) for name, x in tensors.items()}, constants)
    run(read(bridge.ttgir(source)), 1, here)
    there = [tensor.cuda() for tensor in there]
    kernel[(1,)](*there, **constants)
    return [(mine, card.cpu()) for mine, card in zip(here, there, strict=True)]


def values_of(x: torch.Tensor) -> torch.Tensor:
    """As f64, or for integers as i64."""
    if x.dtype.is_floating_point:
        return (x.float() if x.dtype.itemsize == 1 else x).double()
    return x.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]).long()


def differences(mine: torch.Tensor, card: torch.Tensor, rows: int = 1, *inputs: torch.Tensor) -> list[str]:
    """Where the two differ in value or sign of zero, as lines."""
    a, b = values_of(mine).reshape(rows, -1), values_of(card).reshape(rows, -1)
    unlike = a != b
    if a.is_floating_point():
        unlike = (unlike | (a.signbit() != b.signbit())) & ~(a.isnan() & b.isnan())
    given = [values_of(x).flatten() for x in inputs]
    return [
        f"row {row}: {[x[at].item() for x in given]} -> {a[row, at].item()}, on the card {b[row, at].item()}"
        for row, at in unlike.nonzero().tolist()
    ]


def assert_same(lines: list[str]) -> None:
    assert not lines, "\n".join(lines[:100])


def padded(values: list[Any], dtype: torch.dtype, size: int) -> torch.Tensor:
    assert len(values) <= size
    wide = torch.float64 if dtype.is_floating_point and dtype.itemsize == 1 else dtype
    return torch.tensor(values + values[:1] * (size - len(values)), dtype=wide).to(dtype)


def pairs(values: list[Any], dtype: torch.dtype, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = zip(*itertools.product(values, repeat=2), strict=True)
    return padded(list(first), dtype, size), padded(list(second), dtype, size)


def whole(bits: int) -> list[int]:
    top = 1 << (bits - 1)
    return [-top, 1 - top, -8, -7, -2, -1, 0, 1, 2, 3, 7, bits - 1, bits, top // 3, top - 2, top - 1]


SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = {torch.int8: torch.uint8, torch.int16: torch.uint16, torch.int32: torch.uint32, torch.int64: torch.uint64}


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
@pytest.mark.parametrize("signed", [True, False])
def test_integers(dtype: torch.dtype, signed: bool) -> None:
    x, y = pairs(whole(8 * dtype.itemsize), dtype, 256)
    if dtype == torch.int64 or (dtype == torch.int8 and not signed):
        # A quotient by zero is no value: of i64 it has 32 bits set or 64, of u8 it spills into the next element.
        y = torch.where(y == 0, torch.ones_like(y), y)
    if not signed:
        x, y = x.view(UNSIGNED[dtype]), y.view(UNSIGNED[dtype])
    out = torch.zeros(12 * 256, dtype=x.dtype)
    (*_, found) = both(kernels.integers, {"x_ptr": x, "y_ptr": y, "out_ptr": out}, N=256)
    assert_same(differences(*found, 12, x, y))


@pytest.mark.parametrize("dtype", [torch.uint32, torch.uint64], ids=str)
def test_upper_halves(dtype: torch.dtype) -> None:
    x, y = (
        part.view(dtype)
        for part in pairs(whole(8 * dtype.itemsize), {4: torch.int32, 8: torch.int64}[dtype.itemsize], 256)
    )
    (*_, found) = both(kernels.wide_products, {"x_ptr": x, "y_ptr": y, "out_ptr": torch.zeros(256, dtype=dtype)}, N=256)
    assert_same(differences(*found, 1, x, y))


REAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, 1e-3, 7e4, -7e4, INF, -INF, NAN, 0.333]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_floats(dtype: torch.dtype) -> None:
    x, y = pairs(REAL, dtype, 256)
    (*_, found) = both(kernels.floats, {"x_ptr": x, "y_ptr": y, "out_ptr": torch.zeros(10 * 256, dtype=dtype)}, N=256)
    assert_same(differences(*found, 10, x, y))


def test_floats_in_single() -> None:
    x, y = pairs(REAL, torch.float32, 256)
    torch.manual_seed(0)
    z = torch.where(torch.rand(256) < 0.5, -(x * y), torch.randn(256)).nan_to_num(0.25)
    tensors = {"x_ptr": x, "y_ptr": y, "z_ptr": z, "out_ptr": torch.zeros(15 * 256)}
    (*_, found) = both(kernels.floats_single, tensors, N=256)
    assert_same(differences(*found, 15, x, y))


def test_approximations() -> None:
    x = torch.cat([torch.linspace(0.01, 0.99, 100), torch.linspace(1, 8, 28)])
    (*_, (mine, card)) = both(kernels.approximate, {"x_ptr": x, "out_ptr": torch.zeros(20 * 128)}, N=128)
    rows = zip(mine.view(20, 128), card.view(20, 128), strict=True)
    close = [torch.allclose(a, b, rtol=3e-6, atol=1e-6, equal_nan=True) for a, b in rows]
    assert close == [True] * 20


CASTS_FROM_FLOAT = [*SIGNED, *UNSIGNED.values(), torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
EDGES = [0.0, -0.0, 0.5, -0.5, 1.5, -1.99, 127.5, 128.0, 200.7, 255.9, 300.0, -128.9, -129.0, 32767.5, 40000.0, 65504.0]
EDGES += [
    65519.9,
    65520.0,
    70000.0,
    -70000.0,
    2147483520.0,
    2147483648.0,
    3e9,
    4294967040.0,
    5e9,
    -3e9,
    1e19,
    2e19,
    -1e19,
]
EDGES += [INF, -INF, NAN, 448.0, 464.0, 480.0, 57344.0, 61440.0, 1e-8, 6e-8, -1e-8, 1.0625, 1.1875, 1e38, 3e38, 2.0**-9]
EDGES += [2.0**-10, 2.0**-10 * 1.01, 2.0**-16, 2.0**-17, 2.0**-17 * 1.01, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11]


@pytest.mark.parametrize("to", [*CASTS_FROM_FLOAT, torch.float64], ids=str)
@pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_casts_of_floats(source: torch.dtype, to: torch.dtype) -> None:
    if source == torch.float64 and to.is_floating_point and to.itemsize == 1:
        pytest.skip("Triton has no such conversion")
    x = padded(EDGES, source, 64)
    out = torch.zeros(64, dtype=to)
    (*_, found) = both(kernels.cast, {"x_ptr": x, "out_ptr": out}, N=64)
    assert_same(differences(*found, 1, x))


@pytest.mark.parametrize("source", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("to", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_casts_of_fp8(source: torch.dtype, to: torch.dtype) -> None:
    x = torch.arange(256).to(torch.uint8).view(source)
    (*_, found) = both(kernels.cast, {"x_ptr": x, "out_ptr": torch.zeros(256, dtype=to)}, N=256)
    assert_same(differences(*found, 1, x))


@pytest.mark.parametrize("source", [*SIGNED, *UNSIGNED.values()], ids=str)
@pytest.mark.parametrize(
    "to", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int64], ids=str
)
def test_casts_of_integers(source: torch.dtype, to: torch.dtype) -> None:
    bits = 8 * source.itemsize
    odd = [16777217, 2049, 257, 131329, 2**31 - 64, 2**60 + 2**36 + 1]
    values = whole(bits) + [value for value in odd if value < 1 << (bits - 1)]
    x = padded(values, SIGNED[source.itemsize.bit_length() - 1], 32).view(source)
    (*_, found) = both(kernels.cast, {"x_ptr": x, "out_ptr": torch.zeros(32, dtype=to)}, N=32)
    assert_same(differences(*found, 1, x))


@pytest.mark.parametrize("to", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", ["rtz", "rtne"])
def test_rounding_modes(to: torch.dtype, mode: str) -> None:
    x = padded(EDGES, torch.float32, 64)
    (*_, found) = both(kernels.cast_down, {"x_ptr": x, "out_ptr": torch.zeros(64, dtype=to)}, N=64, MODE=mode)
    assert_same(differences(*found, 1, x))


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.float32, torch.int64], ids=str)
def test_masked_loads(dtype: torch.dtype) -> None:
    x = (torch.arange(256) % 100 + 1).to(dtype)
    (*_, found) = both(kernels.masked, {"x_ptr": x, "out_ptr": torch.zeros(512, dtype=dtype)}, N=256)
    assert_same(differences(*found, 2))


TILES = {"desc": "tensordesc<fp32[16, 32]>", "out_ptr": "*fp32:16", "row": "i32", "column": "i32"}
KINDS = ("add", "max", "min", "and", "or", "xor", "xchg", "cas")


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32, torch.int64, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("apart", [True, False])
def test_atomics(dtype: torch.dtype, kind: str, apart: bool) -> None:
    """Each on its own address; or many on few, where only what is left in the end is certain."""
    real = dtype.is_floating_point
    missing = ("and", "or", "xor", "cas") if dtype == torch.float32 else () if not real else KINDS[1:]
    if kind in missing:
        pytest.skip("Triton has no such operation")
    if not apart and kind in ("xchg", "cas"):
        pytest.skip("depends on the order")
    index = torch.arange(128, dtype=torch.int32) if apart else torch.arange(128, dtype=torch.int32) % 5
    x = (torch.arange(128) % 7 - 3).to(torch.int64)
    value = (torch.arange(128) % 11 - 5).to(torch.int64)
    x, value = (
        part.to(dtype) if real else part.to(SIGNED[dtype.itemsize.bit_length() - 1]).view(dtype) for part in (x, value)
    )
    tensors = {"x_ptr": x, "index_ptr": index, "value_ptr": value, "before_ptr": torch.zeros_like(x)}
    after, _, _, before = both(kernels.atomics, tensors, N=128, KIND=kind)
    assert_same(differences(*after, 1, x, value))
    if apart:
        assert_same(differences(*before, 1, x, value))


def test_reductions() -> None:
    x = torch.randint(-8, 8, (64, 128), generator=torch.Generator().manual_seed(0)).float() / 4
    x[0], x[1], x[2, 5], x[3, 3], x[4] = NAN, -INF, NAN, INF, 0.0
    (*_, found) = both(kernels.reductions, {"x_ptr": x, "out_ptr": torch.zeros(5 * 64)}, M=64, N=128)
    mine, card = (part.view(5, 64).clone() for part in found)
    for part in (mine, card):
        part[2:4, [0, 2]] = 0  # the place of the largest of NaNs depends on the order
    assert_same(differences(mine, card, 5))


DOTS = [
    (torch.float16, torch.float32, None),
    (torch.bfloat16, torch.float32, None),
    (torch.float16, torch.float16, None),
    (torch.float8_e4m3fn, torch.float32, None),
    (torch.float8_e5m2, torch.float32, None),
    (torch.int8, torch.int32, None),
    (torch.float32, torch.float32, "tf32"),
    (torch.float32, torch.float32, "tf32x3"),
    (torch.float32, torch.float32, "ieee"),
]


@pytest.mark.parametrize("warps", [4, 1])
@pytest.mark.parametrize("dtype, to, precision", DOTS, ids=str)
def test_dots(dtype: torch.dtype, to: torch.dtype, precision: str | None, warps: int) -> None:
    """Small integers are exact in every type; random numbers nearly so. One warp takes the older instructions."""
    generator = torch.Generator().manual_seed(0)
    small = [torch.randint(-4, 5, shape, generator=generator).float().to(dtype) for shape in ((64, 64), (64, 32))]
    constants = {"M": 64, "N": 32, "K": 64, "P": precision, "num_warps": warps}
    out = torch.zeros(64 * 32, dtype=to)
    (*_, found) = both(kernels.matmul, {"a_ptr": small[0], "b_ptr": small[1], "out_ptr": out}, **constants)
    assert_same(differences(*found))
    if dtype == torch.int8:
        return
    a, b = (torch.randn(shape, generator=generator).to(dtype) for shape in ((64, 64), (64, 32)))
    (*_, (mine, card)) = both(kernels.matmul, {"a_ptr": a, "b_ptr": b, "out_ptr": out}, **constants)
    error = float((mine.double() - card.double()).norm() / mine.double().norm())
    limit = 2e-3 if to == torch.float16 else 1e-3 if dtype.itemsize == 1 else 1e-5 if precision == "tf32x3" else 2e-6
    assert error < limit


def test_tf32_reads_the_upper_bits() -> None:
    """One nonzero product a result, so that each shows how its operand was rounded."""
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(64, 64, generator=generator), torch.eye(64)[:, :32].contiguous()
    constants = {"M": 64, "N": 32, "K": 64, "P": "tf32"}
    for warps in (4, 1):
        tensors = {"a_ptr": a, "b_ptr": b, "out_ptr": torch.zeros(64 * 32)}
        (*_, found) = both(kernels.matmul, tensors, **constants, num_warps=warps)
        assert_same(differences(*found))


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("at", [(0, 0), (5, 36), (-3, -8), (20, 40), (30, -28), (40, 0)], ids=str)
def test_blocks(at: tuple[int, int], padding: str) -> None:
    x = torch.arange(32 * 64, dtype=torch.float32).reshape(32, 64)
    source = bridge.from_signature(kernels.tiles, TILES, {"M": 16, "N": 32})
    mine, loaded = x.clone(), torch.zeros(16, 32)
    desc = TensorDescriptor.from_tensor(mine, [16, 32], padding=padding)
    run(read(bridge.ttgir(source)), 1, [desc, loaded, *at])
    card, there = x.cuda(), loaded.cuda().zero_()
    desc = TensorDescriptor.from_tensor(card, [16, 32], padding=padding)
    kernels.tiles[(1,)](desc, there, *at, M=16, N=32)
    assert_same(differences(loaded, there.cpu()))
    assert_same(differences(mine, card.cpu()))


# Assembly, and as what to compare its results.
TEXTS = [
    ("add.u32 $0, $1, 1;", torch.int32),
    ("mul.hi.u32 $0, $1, 0x10001;", torch.int32),
    ("mul.hi.s32 $0, $1, 0x10001;", torch.int32),
    ("mad.lo.s32 $0, $1, 3, 5;", torch.int32),
    ("shr.u32 $0, $1, 40;", torch.int32),
    ("shr.s32 $0, $1, 40;", torch.int32),
    ("shl.b32 $0, $1, 33;", torch.int32),
    ("lop3.b32 $0, $1, 0x0f0f0f0f, 0x00ff00ff, 0xea;", torch.int32),
    ("lop3.b32 $0, $1, 0x0f0f0f0f, 0x00ff00ff, 0x1b;", torch.int32),
    ("prmt.b32 $0, $1, 0x81828384, 0x0c7f;", torch.int32),
    ("prmt.b32 $0, $1, 0, 0x0123;", torch.int32),
    ("popc.b32 $0, $1;", torch.int32),
    ("clz.b32 $0, $1;", torch.int32),
    ("min.u32 $0, $1, 100;", torch.int32),
    ("max.s32 $0, $1, 100;", torch.int32),
    ("div.s32 $0, $1, 10;", torch.int32),
    ("rem.u32 $0, $1, 10;", torch.int32),
    ("cvt.s32.s8 $0, $1;", torch.int32),
    ("cvt.u32.u16 $0, $1;", torch.int32),
    ("cvt.rni.s32.f32 $0, $1;", torch.int32),
    ("cvt.rmi.s32.f32 $0, $1;", torch.int32),
    ("cvt.rzi.u32.f32 $0, $1;", torch.int32),
    ("cvt.rna.tf32.f32 $0, $1;", torch.float32),
    ("cvt.rn.f32.s32 $0, $1;", torch.float32),
    ("cvt.rpi.f32.f32 $0, $1;", torch.float32),
    ("add.sat.f32 $0, $1, 0f3E800000;", torch.float32),
    ("max.NaN.f32 $0, $1, 0f00000000;", torch.float32),
    ("min.f32 $0, $1, 0f80000000;", torch.float32),
    ("mul.f16x2 $0, $1, $1;", torch.float16),
    ("neg.bf16x2 $0, $1;", torch.bfloat16),
    ("cvt.rn.bf16x2.f32 $0, $1, 0f3F800000;", torch.bfloat16),
    ("{.reg .pred p, q; setp.lt.s32 p|q, $1, 8; selp.s32 $0, 1, 2, q;}", torch.int32),
    ("{.reg .pred p; setp.ltu.f32 p, $1, 0f3F800000; selp.s32 $0, 1, 2, p;}", torch.int32),
    ("{.reg .b16 a, b; mov.b32 {a, b}, $1; mov.b32 $0, {b, a};}", torch.int32),
    ("{.reg .b16 h, z; mov.b16 z, 0; cvt.rn.satfinite.e4m3x2.f32 h, $1, $1; mov.b32 $0, {h, z};}", torch.float8_e4m3fn),
    ("{.reg .b16 h, z; mov.b16 z, 0; cvt.rn.satfinite.e5m2x2.f32 h, $1, $1; mov.b32 $0, {h, z};}", torch.float8_e5m2),
]


@pytest.mark.parametrize("text, kind", TEXTS, ids=[text for text, _ in TEXTS])
def test_assembly(text: str, kind: torch.dtype) -> None:
    real = torch.tensor([*REAL, 500.0, 1e6, 2.0**-9, 3.4e38, -5e-5, 8.5]).view(torch.int32)
    x = padded([*whole(32), *real.tolist(), 0x12345678, 0x3C003C00], torch.int32, 64)
    out = torch.zeros(64, dtype=torch.int32)
    (*_, (mine, card)) = both(kernels.assembly, {"x_ptr": x, "out_ptr": out}, N=64, TEXT=text)
    lines = differences(mine.view(kind), card.view(kind))
    assert not lines, f"of {x.tolist()}: {lines}"
