"""Conversions: every rounding against a search for the nearest number."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.execute.one_op import run, same
from wspec.execute.errors import ExecutionError
from wspec.execute.rounding import round_tf32, round_to, truncate_tf32

NAN, INF = math.nan, math.inf
FLOATS = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
}


def numbers_of(dtype: torch.dtype) -> np.ndarray:
    """All finite numbers of a short type, ascending, one zero; with their bits' parity."""
    bits = 8 * dtype.itemsize
    patterns = torch.arange(1 << bits, dtype=torch.int64).to(torch.int8 if bits == 8 else torch.int16)
    values = patterns.view(dtype).float().double()
    keep = values.isfinite() & ~((values == 0) & values.signbit())
    order = torch.argsort(values[keep])
    return np.stack([values[keep][order].numpy(), (patterns[keep][order] & 1).numpy()])


def nearest(values: np.ndarray, dtype: torch.dtype, saturate: bool) -> np.ndarray:
    """To nearest, ties to the even pattern, by search."""
    grid, parity = numbers_of(dtype)
    right = np.clip(np.searchsorted(grid, values), 1, len(grid) - 1)
    low, high = grid[right - 1], grid[right]
    up = (high - values < values - low) | ((high - values == values - low) & (parity[right] == 0))
    found = np.where(up, high, low)
    if not saturate:
        step = grid[-1] - grid[-2]
        found = np.where(np.abs(values) >= grid[-1] + step / 2, np.copysign(np.inf, values), found)
    return np.where(np.isnan(values), np.nan, found)


def samples(dtype: torch.dtype) -> torch.Tensor:
    """f32 numbers: every number of the type, all the middles, their neighbours, large ones, special ones."""
    grid = numbers_of(dtype)[0]
    grid = grid[:: max(1, len(grid) // 4000)]
    middles = (grid[1:] + grid[:-1]) / 2
    exact = torch.from_numpy(
        np.concatenate([grid, middles, [grid[-1] * 1.01, grid[-1] * 1.2, -3e38, 3e38, 1e-42]])
    ).float()
    up, down = (torch.nextafter(exact, torch.tensor(way)) for way in (INF, -INF))
    return torch.cat([exact, up, down, torch.tensor([INF, -INF, NAN])])


@pytest.mark.parametrize("name", ["f16", "bf16", "f8E4M3FN", "f8E5M2"])
def test_to_nearest(name: str) -> None:
    dtype, fp8 = FLOATS[name], name.startswith("f8")
    values = samples(dtype)
    expected = nearest(values.double().numpy(), dtype, saturate=fp8)
    type, target = f"tensor<{len(values)}xf32>", f"tensor<{len(values)}x{name}>"
    found = run("tt.fp_to_fp", [type], target, values, props="rounding = 1 : i32")
    np.testing.assert_array_equal(found.double().numpy(), expected)
    assert same(found.double().signbit() | found.double().isnan(), values.signbit() | values.isnan())
    if not fp8:
        assert same(run("arith.truncf", [type], target, values), found)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_towards_zero(name: str) -> None:
    dtype, values = FLOATS[name], samples(FLOATS[name])
    grid = numbers_of(dtype)[0]
    x = values.double().numpy()
    at = np.clip(np.searchsorted(grid, np.abs(np.nan_to_num(x)), side="right") - 1, 0, None)
    expected = np.where(np.isnan(x), np.nan, np.where(np.isinf(x), x, np.copysign(grid[at], x)))
    types = [f"tensor<{len(values)}xf32>"], f"tensor<{len(values)}x{name}>"
    found = run("tt.fp_to_fp", *types, values, props="rounding = 0 : i32")
    np.testing.assert_array_equal(found.double().numpy(), expected)


def test_from_double_in_one_rounding() -> None:
    """By way of f32 the first would become a tie, and the second go up."""
    values = torch.tensor([1 + 2**-8 + 2**-40, 1 + 2**-8 - 2**-40, 1 + 2**-8, NAN, 1e300], dtype=torch.float64)
    found = run("arith.truncf", ["tensor<5xf64>"], "tensor<5xbf16>", values)
    assert same(found.float(), torch.tensor([1 + 2**-7, 1.0, 1.0, NAN, INF]))
    half = torch.tensor([1 + 2**-11 + 2**-40, 1 + 2**-11], dtype=torch.float64)
    assert run("arith.truncf", ["tensor<2xf64>"], "tensor<2xf16>", half).tolist() == [1 + 2**-10, 1.0]


@pytest.mark.parametrize("source", ["f8E4M3FN", "f8E5M2", "f16", "bf16"])
@pytest.mark.parametrize("target", ["f16", "bf16", "f32", "f64"])
def test_to_wider(source: str, target: str) -> None:
    values = torch.from_numpy(numbers_of(FLOATS[source])[0]).to(FLOATS[source])
    types = [f"tensor<{len(values)}x{source}>"], f"tensor<{len(values)}x{target}>"
    found = run("tt.fp_to_fp", *types, values)
    expected = nearest(values.double().numpy(), FLOATS[target], False) if target[-2:] == "16" else values.double()
    np.testing.assert_array_equal(found.double().numpy(), np.asarray(expected))


def test_fp8_keeps_nan() -> None:
    values = torch.tensor([NAN, INF, -INF, 1e9])
    for name in ("f8E4M3FN", "f8E5M2"):
        found = run("tt.fp_to_fp", ["tensor<4xf32>"], f"tensor<4x{name}>", values, props="rounding = 1 : i32").float()
        largest = torch.finfo(FLOATS[name]).max
        assert same(found, torch.tensor([NAN, largest, -largest, largest]))


def test_e5m2_to_bfloat16_loses_infinity() -> None:
    """As Triton's conversion for Hopper does; seen on an H200."""
    values = torch.tensor([0x7C, 0x7D, 0x7E, -0x04, 0x01, -0x80]).to(torch.int8).view(torch.float8_e5m2)
    found = run("tt.fp_to_fp", ["tensor<6xf8E5M2>"], "tensor<6xbf16>", values)
    assert same(found.float(), torch.tensor([65536.0, 81920.0, 98304.0, -65536.0, 2.0**-16, -0.0]))
    assert run("tt.fp_to_fp", ["tensor<6xf8E5M2>"], "tensor<6xf16>", values)[0] == INF


def test_tf32() -> None:
    one = 1.0 + 2.0**-10  # the last digit that tf32 has
    x = torch.tensor([one + 2.0**-11, 1.0 + 2.0**-11, -(1.0 + 2.0**-11), 1.0 + 2.0**-12, INF, NAN])
    assert same(truncate_tf32(x)[:4], torch.tensor([one, 1.0, -1.0, 1.0]))
    assert same(round_tf32(x), torch.tensor([1.0 + 2.0**-9, one, -one, 1.0, INF, NAN]))


def test_float_to_signed() -> None:
    x = torch.tensor([2.9, -2.9, 3e9, -3e9, NAN, INF, 2147483520.0, -2147483648.0])
    found = run("arith.fptosi", ["tensor<8xf32>"], "tensor<8xi32>", x)
    assert found.tolist() == [2, -2, 2**31 - 1, -(2**31), 0, 2**31 - 1, 2147483520, -(2**31)]
    found = run("arith.fptosi", ["tensor<8xf32>"], "tensor<8xi64>", x)
    assert found.tolist()[:6] == [2, -2, 3000000000, -3000000000, -(2**63), 2**63 - 1]
    found = run("arith.fptosi", ["tensor<8xf32>"], "tensor<8xi8>", x.clamp(-300, 300))
    assert found.tolist() == [2, -2, 300 - 256, -300 + 256, 0, 44, 44, -44]  # by way of 16 bits
    assert run("arith.fptosi", ["f32"], "i32", torch.tensor(-7.99)) == -7
    assert run("arith.fptosi", ["f64"], "i32", torch.tensor(NAN, dtype=torch.float64)) == -(2**31)


def test_float_to_unsigned() -> None:
    x = torch.tensor([2.9, -2.9, 3e9, 5e9, NAN, 4294967040.0])
    found = run("arith.fptoui", ["tensor<6xf32>"], "tensor<6xi32>", x)
    assert [value % 2**32 for value in found.tolist()] == [2, 0, 3000000000, 2**32 - 1, 0, 4294967040]
    wide = torch.tensor([2.0**63, 2.0**64, 1.0, 1.5e19], dtype=torch.float64)
    found = run("arith.fptoui", ["tensor<4xf64>"], "tensor<4xi64>", wide)
    assert [value % 2**64 for value in found.tolist()] == [2**63, 2**64 - 1, 1, 15 * 10**18]
    assert run("arith.fptoui", ["f32"], "i8", torch.tensor(200.0)) == 200 - 256


def test_integer_to_float() -> None:
    big = torch.tensor([2**31 - 1, -(2**31), 16777217, -1], dtype=torch.int32)
    types = ["tensor<4xi32>"], "tensor<4xf32>"
    assert run("arith.sitofp", *types, big).tolist() == [2.0**31, -(2.0**31), 16777216.0, -1.0]
    assert run("arith.uitofp", *types, big).tolist() == [2.0**31, 2.0**31, 16777216.0, 2.0**32]
    wide = torch.tensor([2**60 + 2**36 + 1, -1], dtype=torch.int64)  # one above a tie: a second rounding would lose it
    assert run("arith.sitofp", ["tensor<2xi64>"], "tensor<2xf32>", wide).tolist() == [2.0**60 + 2.0**37, -1.0]
    assert run("arith.uitofp", ["tensor<2xi64>"], "tensor<2xf64>", wide).tolist()[1] == 2.0**64
    bools = torch.tensor([True, False])
    assert run("arith.uitofp", ["tensor<2xi1>"], "tensor<2xf32>", bools).tolist() == [1.0, 0.0]
    assert run("arith.sitofp", ["tensor<2xi1>"], "tensor<2xbf16>", bools).tolist() == [-1.0, 0.0]
    assert run("arith.sitofp", ["tensor<4xi32>"], "tensor<4xf16>", big).tolist() == [INF, -INF, INF, -1.0]
    one = run("arith.sitofp", ["i32"], "f32", 3)
    assert same(one, torch.tensor(3.0))


def test_bitcasts() -> None:
    x = torch.tensor([1.0, -0.0])
    found = run("arith.bitcast", ["tensor<2xf32>"], "tensor<2xi32>", x)
    assert found.tolist() == [0x3F800000, -(2**31)]
    assert same(run("tt.bitcast", ["tensor<2xi32>"], "tensor<2xf32>", found), x)
    fp8 = run("tt.bitcast", ["tensor<2xi8>"], "tensor<2xf8E5M2>", torch.tensor([0x3C, -128], dtype=torch.int8))
    assert same(fp8.float(), torch.tensor([1.0, -0.0]))
    assert run("arith.bitcast", ["f32"], "i32", torch.tensor(1.0)) == 0x3F800000
    assert same(run("arith.bitcast", ["i32"], "f32", 0x3F800000), torch.tensor(1.0))
    assert run("tt.bitcast", ["!tt.ptr<f32>"], "!tt.ptr<i8>", 4096) == 4096
    with pytest.raises(ExecutionError, match="a bitcast of f32 to i8"):
        run("tt.bitcast", ["tensor<2xf32>"], "tensor<8xi8>", x)


def test_addresses() -> None:
    assert run("tt.addptr", ["!tt.ptr<f16>", "i32"], "!tt.ptr<f16>", 1 << 40, -3) == (1 << 40) - 6
    pointers, offsets = torch.tensor([100, 200]), torch.tensor([2**31 - 1, -1], dtype=torch.int32)
    types = ["tensor<2x!tt.ptr<f64>>", "tensor<2xi32>"]
    found = run("tt.addptr", types, types[0], pointers, offsets)
    assert found.tolist() == [100 + 8 * (2**31 - 1), 192]
    assert run("tt.ptr_to_int", ["!tt.ptr<f16>"], "i64", 77) == 77
    assert run("tt.int_to_ptr", ["tensor<2xi64>"], types[0], pointers).tolist() == [100, 200]


def test_unknown_types_are_errors() -> None:
    with pytest.raises(ExecutionError, match="no values of type f8E4M3B11FNUZ"):
        run("tt.fp_to_fp", ["tensor<2xf32>"], "tensor<2xf8E4M3B11FNUZ>", torch.ones(2))


def test_no_rounding_is_needed() -> None:
    x = torch.tensor([1.5])
    assert round_to(x, torch.float32) is x
    assert round_to(x, torch.float64, "rtz").item() == 1.5
