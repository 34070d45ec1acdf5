"""Functions of libdevice, and inline assembly."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from tests.execute.one_op import run, run_all, same
from wspec.execute.asm import parse
from wspec.execute.errors import ExecutionError
from wspec.execute.libdevice import FUNCTIONS

INF, NAN = math.inf, math.nan


def external(symbol: str, result: str, *values: torch.Tensor) -> torch.Tensor:
    names = {torch.float32: "f32", torch.float64: "f64", torch.int32: "i32", torch.int64: "i64"}
    types = [f"tensor<{len(value)}x{names[value.dtype]}>" for value in values]
    props = f'libname = "", libpath = "", pure = true, symbol = "{symbol}"'
    found: torch.Tensor = run(
        "tt.extern_elementwise", types, f"tensor<{len(values[0])}x{result}>", *values, props=props
    )
    return found


UNARY: dict[str, Callable[[float], float]] = {
    **{name: getattr(math, name) for name in ("acos", "asin", "atan", "cos", "cosh", "erf", "erfc", "exp", "expm1")},
    **{name: getattr(math, name) for name in ("log", "log10", "log1p", "log2", "sin", "sinh", "sqrt", "tan", "tanh")},
    **{name: getattr(math, name) for name in ("asinh", "atanh", "fabs", "lgamma", "floor", "ceil", "trunc")},
    "tgamma": math.gamma,
    "exp2": lambda x: 2**x,
    "exp10": lambda x: 10**x,
    "rsqrt": lambda x: x**-0.5,
    "cbrt": lambda x: x ** (1 / 3),
    "rcbrt": lambda x: x ** (-1 / 3),
    "sinpi": lambda x: math.sin(math.pi * x),
    "cospi": lambda x: math.cos(math.pi * x),
    "normcdf": lambda x: 0.5 * math.erfc(-x / math.sqrt(2)),
    "erfcx": lambda x: math.exp(x * x) * math.erfc(x),
}


@pytest.mark.parametrize("name", UNARY)
def test_functions(name: str) -> None:
    x = [0.1, 0.25, 0.7, 0.95]
    exact = torch.tensor([UNARY[name](value) for value in x], dtype=torch.float64)
    double = external(f"__nv_{name}", "f64", torch.tensor(x, dtype=torch.float64))
    torch.testing.assert_close(double, exact, rtol=1e-12, atol=1e-14)
    single = external(f"__nv_{name}f", "f32", torch.tensor(x))
    torch.testing.assert_close(single.double(), exact, rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize("name, inverse", [("erfinv", "erf"), ("erfcinv", "erfc"), ("normcdfinv", "normcdf")])
def test_inverses(name: str, inverse: str) -> None:
    x = torch.tensor([0.1, 0.5, 0.9])
    torch.testing.assert_close(external(f"__nv_{inverse}f", "f32", external(f"__nv_{name}f", "f32", x)), x)


def test_functions_of_several() -> None:
    a, b, c = torch.tensor([2.0, -7.5, NAN]), torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.5, 1.0, 1.0])
    truth = {
        "powf": [8.0, 56.25, NAN],
        "fmodf": [2.0, -1.5, NAN],
        "remainderf": [-1.0, 0.5, NAN],
        "fmaxf": [3.0, 2.0, 1.0],
        "fminf": [2.0, -7.5, 1.0],
        "fdimf": [0.0, 0.0, NAN],
        "hypotf": [13**0.5, (7.5**2 + 4) ** 0.5, NAN],
        "fast_fdividef": [2 / 3, -3.75, NAN],
        "fmul_rn": [6.0, -15.0, NAN],
    }
    for name, expected in truth.items():
        torch.testing.assert_close(external(f"__nv_{name}", "f32", a, b), torch.tensor(expected), equal_nan=True)
    assert same(external("__nv_fmaf", "f32", a, b, c), torch.tensor([6.5, -14.0, NAN]))
    torch.testing.assert_close(external("__nv_norm3df", "f32", a[:2], b[:2], c[:2])[0], torch.tensor(13.25**0.5))
    assert external("__nv_ldexpf", "f32", a[:2], torch.tensor([3, -1], dtype=torch.int32)).tolist() == [16.0, -3.75]
    assert external("__nv_powif", "f32", a[:2], torch.tensor([3, 2], dtype=torch.int32)).tolist() == [8.0, 56.25]


def test_remainders() -> None:
    for x, y in [(5.0, 2.0), (7.0, 2.0), (-5.0, 2.0), (6.0, -4.0), (1.0, INF), (-4.0, 2.0), (2.5, 1.0), (3.5, 1.0)]:
        found = external("__nv_remainder", "f64", *(torch.tensor([v], dtype=torch.float64) for v in (x, y)))
        assert same(found, torch.tensor([math.remainder(x, y)], dtype=torch.float64)), (x, y)


def test_integers_and_bits() -> None:
    i, x = torch.tensor([12, -1, 0], dtype=torch.int32), torch.tensor([1.5, -2.5, NAN])
    assert external("__nv_popc", "i32", i).tolist() == [2, 32, 0]
    assert external("__nv_clz", "i32", i).tolist() == [28, 0, 32]
    assert external("__nv_ffs", "i32", i).tolist() == [3, 1, 0]
    assert external("__nv_popcll", "i32", i.long()).tolist() == [2, 64, 0]
    assert external("__nv_umulhi", "i32", i, i).tolist() == [0, -2, 0]
    assert external("__nv_float_as_int", "i32", x)[:2].tolist() == [0x3FC00000, 0xC0200000 - 2**32]
    assert same(external("__nv_int_as_float", "f32", external("__nv_float_as_int", "i32", x)), x)
    assert external("__nv_isnanf", "i32", x).tolist() == [0, 0, 1]
    assert external("__nv_float2int_rn", "i32", x).tolist() == [2, -2, 0]
    assert external("__nv_float2int_rd", "i32", x).tolist() == [1, -3, 0]
    assert external("__nv_float2uint_ru", "i32", x).tolist() == [2, 0, 0]
    assert external("__nv_double2ll_rz", "i64", x[:2].double()).tolist() == [1, -2]
    assert external("__nv_uint2float_rn", "f32", i).tolist() == [12, 2.0**32, 0]
    assert external("__nv_llroundf", "i64", x[:2]).tolist() == [2, -3]
    assert external("__nv_llrintf", "i64", x[:2]).tolist() == [2, -2]
    assert same(external("__nv_saturatef", "f32", x), torch.tensor([1.0, 0.0, 0.0]))
    assert same(external("__nv_saturatef", "f32", torch.tensor([-0.0, 0.25])), torch.tensor([0.0, 0.25]))
    assert external("__nv_ilogbf", "i32", torch.tensor([8.0, 0.3])).tolist() == [3, -2]


def test_a_scalar() -> None:
    props = 'symbol = "__nv_sqrtf"'
    assert same(run("tt.extern_elementwise", ["f32"], "f32", torch.tensor(9.0), props=props), torch.tensor(3.0))
    assert run("tt.extern_elementwise", ["i32"], "i32", -1, props='symbol = "__nv_popc"') == 32


def test_unknown_functions() -> None:
    with pytest.raises(ExecutionError, match="does not know: __nv_fadd_rz"):
        external("__nv_fadd_rz", "f32", torch.ones(2), torch.ones(2))
    with pytest.raises(ExecutionError, match="__nv_popcll gives"):
        external("__nv_popcll", "i64", torch.ones(2, dtype=torch.int64))
    assert all(symbol.startswith("__nv_") for symbol in FUNCTIONS)


# ------------------------------------------------------------------------------------------------ assembly

MLIR = {torch.float32: "f32", torch.int32: "i32", torch.int64: "i64", torch.float16: "f16", torch.bfloat16: "bf16"}
MLIR |= {torch.int8: "i8", torch.float64: "f64", torch.float8_e4m3fn: "f8E4M3FN", torch.int16: "i16"}


def assembly(text: str, constraints: str, result: str, *values: torch.Tensor, pack: int = 1) -> torch.Tensor:
    escaped = text.replace("\\", "\\\\").replace('"', "\\22").replace("\n", "\\0A").replace("\t", "\\09")
    types = [f"tensor<{value.numel()}x{MLIR[value.dtype]}>" for value in values]
    count = values[0].numel() if values else 1
    props = f'asm_string = "{escaped}", constraints = "{constraints}", packed_element = {pack} : i32, pure = true'
    found: torch.Tensor = run("tt.elementwise_inline_asm", types, f"tensor<{count}x{result}>", *values, props=props)
    return found


X = torch.tensor([0.5, -1.0, 20.0, NAN])
WHOLE = torch.tensor([7, -1, 2**31 - 1, 0x12345678], dtype=torch.int32)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("ex2.approx.f32 $0, $1;", torch.exp2(X)),
        ("ex2.approx.ftz.f32 $0, $1;", torch.exp2(X)),
        ("tanh.approx.f32 $0, $1;", torch.tanh(X)),
        ("rcp.approx.ftz.f32 $0, $1;", 1 / X),
        ("lg2.approx.f32 $0, $1;", torch.log2(X)),
        ("rsqrt.approx.f32 $0, $1;", torch.rsqrt(X)),
        ("sqrt.rn.f32 $0, $1;", torch.sqrt(X)),
        ("fma.rn.f32 $0, $1, 2.0, 0f3F800000;", X * 2 + 1),
        ("mul.f32 $0, $1, -1.5;", X * -1.5),
        ("max.f32 $0, $1, 0f00000000;", torch.tensor([0.5, 0.0, 20.0, 0.0])),
        ("max.NaN.f32 $0, $1, 0.0;", torch.tensor([0.5, 0.0, 20.0, NAN])),
        ("add.sat.f32 $0, $1, 0.25;", torch.tensor([0.75, 0.0, 1.0, 0.0])),
        ("cvt.rna.tf32.f32 $0, $1;", X),
        ("cvt.rmi.f32.f32 $0, $1;", torch.tensor([0.0, -1.0, 20.0, NAN])),
        ("abs.f32 $0, $1;", X.abs()),
        ("{ .reg .f32 t; mul.f32 t, $1, $1; // squared\n\tsub.f32 $0, t, $1; }", X * X - X),
        ("/* nothing */ mov.f32 $0, $1;", X),
    ],
)
def test_float_assembly(text: str, expected: torch.Tensor) -> None:
    assert same(assembly(text, "=f,f", "f32", X), expected)
    assert same(assembly(text, "=r,r", "f32", X), expected)


# as real kernels have it
SOFTPLUS = """{
        .reg .pred p;
        setp.gt.f32  p, $1, 15.;
        @p  mov.f32  $0, $1;
        @!p ex2.approx.ftz.f32 $0, $1;
        @!p add.f32            $0, $0, 1.0;
        @!p lg2.approx.ftz.f32 $0, $0;
    }"""


def test_predicates() -> None:
    expected = torch.where(X > 15, X, torch.log2(torch.exp2(X) + 1))
    assert same(assembly(SOFTPLUS, "=r, r", "f32", X), expected)


def low(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize(
    "text, truth",
    [
        ("{ .reg .b32 t; mov.b32 t, $1; add.u32 $0, t, 1; }", lambda x: x + 1),
        ("mad.lo.s32 $0, $1, 3, 5;", lambda x: x * 3 + 5),
        ("mul.hi.u32 $0, $1, 0x10000;", lambda x: (x % 2**32) >> 16),
        ("shr.u32 $0, $1, 4;", lambda x: (x % 2**32) >> 4),
        ("shr.s32 $0, $1, 40;", lambda x: x >> 31),
        ("shl.b32 $0, $1, 8;", lambda x: x << 8),
        ("and.b32 $0, $1, 0xff00ff00;", lambda x: x & 0xFF00FF00),
        ("not.b32 $0, $1;", lambda x: ~x),
        ("lop3.b32 $0, $1, 0x0f0f0f0f, 0x00ff00ff, 0xea;", lambda x: (x & 0x0F0F0F0F) | 0x00FF00FF),
        ("prmt.b32 $0, $1, 0, 0x0123;", lambda x: int.from_bytes((x % 2**32).to_bytes(4, "little"), "big")),
        ("popc.b32 $0, $1;", lambda x: (x % 2**32).bit_count()),
        ("min.u32 $0, $1, 100;", lambda x: min(x % 2**32, 100)),
        ("min.s32 $0, $1, 100;", lambda x: min(x, 100)),
        ("div.u32 $0, $1, 10;", lambda x: (x % 2**32) // 10),
        ("rem.s32 $0, $1, 10;", lambda x: int(math.fmod(x, 10))),
        ("{.reg .pred p; setp.lo.u32 p, $1, 100; selp.b32 $0, 1, 2, p;}", lambda x: 1 if x % 2**32 < 100 else 2),
        ("{.reg .pred p, q; setp.lt.s32 p|q, $1, 8; selp.s32 $0, 1, 2, q;}", lambda x: 2 if x < 8 else 1),
        ("cvt.s32.s8 $0, $1;", lambda x: (x + 128) % 256 - 128),
        ("cvt.u32.u16 $0, $1;", lambda x: x % 65536),
    ],
)
def test_integer_assembly(text: str, truth: Callable[[int], int]) -> None:
    assert assembly(text, "=r,r", "i32", WHOLE).tolist() == [low(truth(value)) for value in WHOLE.tolist()]


def test_wide_products() -> None:
    found = assembly("mul.wide.s32 $0, $1, $1;", "=l,r", "i64", WHOLE)
    assert found.tolist() == [value * value for value in WHOLE.tolist()]


def test_pairs_in_a_register() -> None:
    x = torch.tensor([1.5, -2.0, 3.0, 0.25], dtype=torch.float16)
    assert same(assembly("add.f16x2 $0, $1, $1;", "=r,r", "f16", x, pack=2), x + x)
    swap = "{.reg .b16 a, b; mov.b32 {a, b}, $1; mov.b32 $0, {b, a};}"
    assert assembly(swap, "=r,r", "f16", x, pack=2).tolist() == [-2.0, 1.5, 0.25, 3.0]
    assert same(assembly("neg.f16 $0, $1;", "=h,h", "f16", x), -x)
    short = assembly("cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r", "bf16", X[:2], pack=2)
    assert same(short, X[:2].bfloat16())


def test_packs_of_eight_bits() -> None:
    """To fp8 two at a time, and back, as kernels do it."""
    x = torch.tensor([1.0, 500.0, -3.0, 0.1, 2.0, -448.0, 0.5, 8.0])
    both = "cvt.rn.satfinite.e4m3x2.f32 a, $2, $1; cvt.rn.satfinite.e4m3x2.f32 b, $4, $3;"
    to = f"{{.reg .b16 a, b; {both} mov.b32 $0, {{a, b}};}}"
    found = assembly(to, "=r,r,r,r,r", "f8E4M3FN", x, pack=4)
    assert same(found.float(), x.clamp(-448, 448).to(torch.float8_e4m3fn).float())
    back = "{.reg .b16 a, b; mov.b32 {a, b}, $2; cvt.rn.f16x2.e4m3x2 $0, a; cvt.rn.f16x2.e4m3x2 $1, b;}"
    assert same(assembly(back, "=r,=r,r", "f16", found, pack=4), found.half())


def test_several_results_and_none() -> None:
    props = 'asm_string = "add.s32 $0, $2, 1; sub.s32 $1, $2, 1;", constraints = "=r,=r,r", packed_element = 1 : i32'
    type = "tensor<2xi32>"
    x = torch.tensor([5, 6], dtype=torch.int32)
    more, less = run_all("tt.elementwise_inline_asm", [type], [type, type], x, props=props)
    assert more.tolist() == [6, 7] and less.tolist() == [4, 5]
    props = 'asm_string = "mov.u32 $0, 7;", constraints = "=r", packed_element = 1 : i32'
    assert run("tt.elementwise_inline_asm", [], "i32", props=props) == 7
    props = 'asm_string = "add.f32 $0, $1, $1;", constraints = "=f,f", packed_element = 1 : i32'
    assert same(run("tt.elementwise_inline_asm", ["f32"], "f32", torch.tensor(2.5), props=props), torch.tensor(5.0))


def test_a_tied_register() -> None:
    assert assembly("add.s32 $0, $0, 1;", "=r,0", "i32", WHOLE[:1]).tolist() == [8]


@pytest.mark.parametrize(
    "text, says",
    [
        ("mov.u32 $0, %laneid;", "reads %laneid"),
        ("bar.sync 9, 128;", "inline assembly with bar.sync"),
        ("ld.global.b32 $0, [$1];", "cannot run: ld.global"),
        ("st.global.b32 [$1], $1;", "cannot run: st.global"),
        ("add.s32 $0, $1, t;", "reads t, which nothing has written"),
        ("frobnicate.f32 $0, $1;", "inline assembly with frobnicate.f32"),
        ("add.s64 $0, $1, $1;", "reads 4 bytes as .s64"),
        ("nonsense", "the text ends within something"),
        ("again: bra again;", "with branches"),
        ("mov.b128 $0, $1;", "the type .b128"),
        ("setp.dwim.s32 p, $1, 1; selp.b32 $0, 1, 2, p;", "setp.dwim.s32"),
    ],
)
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(ExecutionError, match=says.replace(".", r"\.")):
        assembly(text, "=r,r", "i32", WHOLE)


def test_registers_must_fit() -> None:
    with pytest.raises(ExecutionError, match="2 outputs for 1 registers"):
        assembly("mov.b32 $0, $2;", "=r,=r,r", "i32", WHOLE)
    with pytest.raises(ExecutionError, match="2 inputs for 1 registers"):
        assembly("mov.b32 $0, $1;", "=r,r,r", "i32", WHOLE)


def test_parsing() -> None:
    first, second = parse("{ .reg .b32 a<2>;\n @!p1 mov.b32 {a0, a1}, $1; // end\n lop3.b32 $0, b0, a0, 0xf8; }")
    assert (first.opcode, first.targets, first.sources) == (("mov", "b32"), ("a0#1", "a1#1"), ("$1",))
    assert (first.guard, first.unless) == ("p1", True)
    assert second.sources == ("b0", "a0#1", "0xf8") and second.guard == ""
