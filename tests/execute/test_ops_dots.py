"""Matrix products."""

from __future__ import annotations

import pytest
import torch

from tests.execute.one_op import run, same
from wspec.execute.dots import BF16X3, BF16X6, IEEE, STEP_BYTES, TF32, TF32X3, dot
from wspec.execute.errors import ExecutionError
from wspec.execute.rounding import round_to, truncate_tf32

FP8 = torch.float8_e4m3fn


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, FP8, torch.float8_e5m2])
def test_short_operands(dtype: torch.dtype) -> None:
    depth = STEP_BYTES // dtype.itemsize
    a, b, acc = torch.randn(32, depth).to(dtype), torch.randn(depth, 16).to(dtype), torch.randn(32, 16)
    exact = a.float().double() @ b.float().double()
    assert same(dot(a, b, acc), (exact + acc.double()).float())
    assert same(dot(a, b, None, dtype=torch.float16), round_to(exact, torch.float16))


@pytest.mark.parametrize("dtype", [torch.float16, FP8, torch.float32])
def test_a_product_is_rounded_at_each_step(dtype: torch.dtype) -> None:
    """So K may be divided between dots, and nothing changes."""
    a, b, acc = torch.randn(64, 128).to(dtype), torch.randn(128, 32).to(dtype), torch.randn(64, 32)
    whole = dot(a, b, acc)
    halves = dot(a[:, 64:], b[64:], dot(a[:, :64], b[:64], acc))
    steps, depth = acc, STEP_BYTES // dtype.itemsize
    for k in range(0, 128, depth):
        part = a[:, k : k + depth].float().double() @ b[k : k + depth].float().double()
        steps = (part + steps.double()).float()
    assert same(whole, halves) and same(whole, steps)
    once = (a.float().double() @ b.float().double() + acc.double()).float()
    assert not same(whole, once)
    torch.testing.assert_close(whole, once)


def test_a_slice_of_a_product() -> None:
    """16-bit products add up exactly, so slices agree bit by bit."""
    a, b = torch.randn(128, 64).bfloat16(), torch.randn(64, 128).bfloat16()
    acc = torch.randn(128, 128)
    assert same(dot(a, b, acc)[64:], dot(a[64:], b, acc[64:]))


def test_f16_accumulators() -> None:
    a, b = torch.full((16, 16), 200.0).half(), torch.full((16, 16), 200.0).half()
    assert dot(a, b, torch.zeros(16, 16, dtype=torch.float16))[0, 0] == torch.inf


def test_input_precision() -> None:
    a, b, acc = torch.randn(16, 8), torch.randn(8, 16), torch.randn(16, 16)  # one step
    exact = a.double() @ b.double() + acc.double()

    def error(precision: int) -> float:
        return float((dot(a, b, acc, input_precision=precision).double() - exact).abs().max())

    assert error(IEEE) < 1e-6 and error(TF32X3) < 1e-4 and error(BF16X6) < 1e-4
    assert error(BF16X3) < 1e-3 < error(TF32)
    short = truncate_tf32(a).double() @ truncate_tf32(b).double() + acc.double()
    assert same(dot(a, b, acc, input_precision=TF32), short.float())
    with pytest.raises(ExecutionError, match="input precision"):
        dot(a, b, acc, input_precision=9)


def test_tf32_truncates() -> None:
    a, b = torch.full((16, 16), 1.0 + 2.0**-10 + 2.0**-11), torch.eye(16)
    assert dot(a, b, torch.zeros(16, 16), input_precision=TF32)[0, 0].item() == 1.0 + 2.0**-10


def test_integers() -> None:
    a = torch.randint(-128, 128, (16, 32), dtype=torch.int8)
    b = torch.randint(-128, 128, (32, 16), dtype=torch.int8)
    acc = torch.full((16, 16), 2**31 - 1, dtype=torch.int32)
    exact = a.long() @ b.long() + acc.long()
    wrapped = (exact + 2**31) % 2**32 - 2**31
    assert (wrapped != exact).any()
    assert same(dot(a, b, acc), wrapped.int())
    with pytest.raises(ExecutionError, match="8-bit integers"):
        dot(a.int(), b.int(), acc)


def test_double_and_batches() -> None:
    a, b, acc = (torch.randn(3, 16, 16, dtype=torch.float64) for _ in range(3))
    torch.testing.assert_close(dot(a, b, acc), torch.baddbmm(acc, a, b), rtol=1e-13, atol=1e-13)


def test_nan_and_infinities() -> None:
    a, b = torch.zeros(16, 16).bfloat16(), torch.ones(16, 16).bfloat16()
    a[0, 0], a[1, 0], b[0, 0] = torch.inf, torch.nan, 0.0
    found = dot(a, b, torch.zeros(16, 16))
    assert found[0, 0].isnan() and found[0, 1] == torch.inf and found[1].isnan().all() and (found[2:] == 0).all()


def test_an_accumulator_or_a_type() -> None:
    with pytest.raises(ExecutionError, match="type of its result"):
        dot(torch.ones(16, 16), torch.ones(16, 16), None)


def test_the_operation() -> None:
    a, b, acc = torch.randn(16, 32), torch.randn(32, 16), torch.randn(16, 16)
    types = ["tensor<16x32xf32>", "tensor<32x16xf32>", "tensor<16x16xf32>"]
    for precision in (TF32, IEEE):
        props = f"inputPrecision = {precision} : i32, maxNumImpreciseAcc = 0 : i32"
        found = run("tt.dot", types, types[2], a, b, acc, props=props)
        assert same(found, dot(a, b, acc, input_precision=precision))


# ---------------------------------------------------------------------------------------- 4 bits, scales

FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


@pytest.mark.parametrize("axis", [0, 1])
def test_fp4(axis: int) -> None:
    codes = torch.arange(16).reshape(2, 8) if axis else torch.arange(16).reshape(2, 8).T
    low, high = (codes[:, ::2], codes[:, 1::2]) if axis else (codes[::2], codes[1::2])
    packed = (low | (high << 4)).to(torch.uint8).view(torch.int8)
    source = "x".join(map(str, packed.shape))
    target = "x".join(map(str, codes.shape))
    found = run(
        "ttg.fp4_to_fp", [f"tensor<{source}xi8>"], f"tensor<{target}xbf16>", packed, props=f"axis = {axis} : i32"
    )
    assert same(found, torch.tensor(FP4)[codes].bfloat16())


def test_scaled_dot() -> None:
    codes, scale = torch.randint(0, 16, (16, 64)), torch.randint(120, 134, (16, 2))
    packed = (codes[:, ::2] | (codes[:, 1::2] << 4)).to(torch.uint8).view(torch.int8)
    b, c = torch.randn(64, 8).bfloat16(), torch.randn(16, 8)
    a = torch.tensor(FP4)[codes].double() * (2.0 ** (scale.double() - 127)).repeat_interleave(32, 1)
    types = ["tensor<16x32xi8>", "tensor<64x8xbf16>", "tensor<16x8xf32>", "tensor<16x2xi8>"]
    props = (
        "a_elem_type = 4 : i32, b_elem_type = 5 : i32, fastMath = false, lhs_k_pack = true, rhs_k_pack = true, "
        "operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>"
    )
    bytes = scale.to(torch.uint8).view(torch.int8)
    found = run("tt.dot_scaled", types, types[2], packed, b, c, bytes, props=props)
    assert same(found, (a @ b.double() + c.double()).float())


def test_both_scaled() -> None:
    a, b = torch.randn(16, 64).to(FP8), torch.randn(64, 8).to(torch.float8_e5m2)
    scale_a, scale_b = (torch.randint(125, 130, (size, 2)) for size in (16, 8))
    scale_a[0, 0] = 255
    left = a.float().double() * (2.0 ** (scale_a.double() - 127)).repeat_interleave(32, 1)
    right = b.float().double() * (2.0 ** (scale_b.double() - 127)).repeat_interleave(32, 1).T
    types = ["tensor<16x64xf8E4M3FN>", "tensor<64x8xf8E5M2>", "tensor<16x8xf32>", "tensor<16x2xi8>", "tensor<8x2xi8>"]
    props = "a_elem_type = 0 : i32, b_elem_type = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1>"
    bytes = [scale.to(torch.uint8).view(torch.int8) for scale in (scale_a, scale_b)]
    found = run("tt.dot_scaled", types, types[2], a, b, torch.zeros(16, 8), *bytes, props=props)
    assert found[0].isnan().all()
    assert same(found[1:], (left @ right)[1:].float())
