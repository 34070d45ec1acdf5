"""The exponentials that exp2_on_fma moves: the polynomial over all floats, in whole tiles, and in attention."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.test_programs import FOLDER, outputs
from tests.support.minimax import exp2_polynomial
from wspec.execute import Kernel, one_thread
from wspec.execute.asm import parse
from wspec.ir import read
from wspec.passes.exp2_on_fma import COEFFICIENTS, assembly
from wspec.plan.exponentials import ERROR_BITS, GROUP, INSTRUCTIONS

Floats = npt.NDArray[np.float32]
LOWEST_NORMAL = np.float32(-125.5)  # below, results are 0


@functools.cache
def kernel(moved: int, size: int) -> Kernel:
    """Stores 2^x of `size` numbers, every thread of one warp holding whole groups."""
    asm = assembly(moved)
    constraints = ",".join(["=f"] * GROUP + ["f"] * GROUP)
    layout = "#ttg.blocked<{sizePerThread = [8], threadsPerWarp = [32], warpsPerCTA = [1], order = [0]}>"
    at, floats, pointers = (f"tensor<{size}x{one}, {layout}>" for one in ("i32", "f32", "!tt.ptr<f32>"))
    return Kernel(read(f"""
"builtin.module"() ({{
  "tt.func"() <{{function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), sym_name = "f", sym_visibility = "public"}}> ({{
  ^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
    %i = "tt.make_range"() <{{end = {size} : i32, start = 0 : i32}}> : () -> {at}
    %xs = "tt.splat"(%x) : (!tt.ptr<f32>) -> {pointers}
    %ys = "tt.splat"(%y) : (!tt.ptr<f32>) -> {pointers}
    %from = "tt.addptr"(%xs, %i) : ({pointers}, {at}) -> {pointers}
    %to = "tt.addptr"(%ys, %i) : ({pointers}, {at}) -> {pointers}
    %v = "tt.load"(%from) <{{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32, isVolatile = false, operandSegmentSizes = array<i32: 1, 0, 0>}}> : ({pointers}) -> {floats}
    %p = "tt.elementwise_inline_asm"(%v) <{{asm_string = "{asm}", constraints = "{constraints}", packed_element = {GROUP} : i32, pure = true}}> : ({floats}) -> {floats}
    "tt.store"(%to, %p) <{{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}}> : ({pointers}, {floats}) -> ()
    "tt.return"() : () -> ()
  }}) {{noinline = false}} : () -> ()
}}) {{"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 1 : i32, ttg.target = "cuda:90", "ttg.threads-per-warp" = 32 : i32}} : () -> ()
"""))  # fmt: skip  # noqa: E501


def computed(x: Floats, moved: int = GROUP) -> Floats:
    """2^x by the assembly, any number of elements."""
    size = max(256, 1 << (len(x) - 1).bit_length())
    given_x, made = torch.zeros(size), torch.full((size,), torch.nan)
    given_x[: len(x)] = torch.from_numpy(x)
    with one_thread():
        kernel(moved, size).run((1,), [given_x, made])
    found: Floats = made[: len(x)].numpy()
    return found


def assert_right(x: Floats, y: Floats) -> None:
    """The bound and the special cases that the pass states."""
    assert not np.isnan(y[~np.isnan(x)]).any() and np.isnan(y[np.isnan(x)]).all()
    assert (y[x <= LOWEST_NORMAL] == 0).all()
    assert np.isposinf(y[x >= 128]).all()
    inside = (x > LOWEST_NORMAL) & (x < 128)
    exact = np.exp2(x[inside].astype(np.float64))
    assert np.isfinite(y[inside]).all()
    if inside.any():
        assert np.abs(y[inside] / exact - 1).max() <= 2.0**-ERROR_BITS


def test_every_kind_of_float() -> None:
    """Every pattern of the upper 16 bits, with the lowest ones all 0, all 1 and at random."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    lower = np.random.default_rng(0).integers(0, 1 << 16, len(upper), dtype=np.uint32)
    for bits in (upper, upper | 0xFFFF, upper | lower):
        x = bits.view(np.float32)
        assert_right(x, computed(x))


def test_the_range_that_gives_numbers_densely() -> None:
    x = np.linspace(-130, 130, 1 << 18).astype(np.float32)
    assert_right(x, computed(x))
    small = np.linspace(-1, 1, 1 << 18).astype(np.float32)
    assert_right(small, computed(small))


@given(st.lists(st.floats(width=32), min_size=1, max_size=64))
def test_any_floats(values: list[float]) -> None:
    x = np.array(values, dtype=np.float32)
    assert_right(x, computed(x))


def test_halves_and_ends() -> None:
    """Where rounding to a whole number has a tie, and where the range ends."""
    points = np.array([*np.arange(-127, 129, 0.5), 127.5, 128], dtype=np.float32)
    x = np.concatenate([points, *(np.nextafter(points, np.float32(way)) for way in (-np.inf, np.inf))])
    assert_right(x, computed(x))


def test_whole_numbers_are_exact() -> None:
    x = np.arange(-125, 128, dtype=np.float32)
    assert np.array_equal(computed(x), np.exp2(x.astype(np.float64)).astype(np.float32))


@pytest.mark.parametrize("moved", range(GROUP + 1))
def test_the_last_ones_of_each_group_move(moved: int) -> None:
    x = np.linspace(-20, 1, 1024).astype(np.float32)
    on_unit, on_fma = computed(x, 0).reshape(-1, GROUP), computed(x).reshape(-1, GROUP)
    found = computed(x, moved).reshape(-1, GROUP)
    assert np.array_equal(found[:, : GROUP - moved], on_unit[:, : GROUP - moved])
    assert np.array_equal(found[:, GROUP - moved :], on_fma[:, GROUP - moved :])
    assert not np.array_equal(on_unit, on_fma)


def test_the_polynomial_is_the_best_one() -> None:
    best, error = exp2_polynomial(len(COEFFICIENTS) - 1)
    assert error < 2.0**-23
    assert [float(np.float32(2 * value)) for value in best] == list(COEFFICIENTS[-2::-1])


def test_the_model_counts_the_instructions() -> None:
    for moved in range(GROUP + 1):
        assert len(parse(assembly(moved))) == moved * INSTRUCTIONS + GROUP - moved


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_a_chain_of_products_is_as_exact_as_before(trips: int) -> None:
    """The specialized kernel with a quarter of the exponentials moved, against the plain one and float64."""
    draw = torch.Generator().manual_seed(trips)
    q, k, v = ((torch.randn(64 * n, 64, generator=draw) / 4).half() for n in (1, max(trips, 1), max(trips, 1)))
    keys = slice(64 * trips)
    exact = torch.exp2(q.double() @ k[keys].double().T) @ v[keys].double()

    def run(text: str) -> torch.Tensor:
        out = torch.full((64, 64), torch.nan, dtype=torch.float16)
        with one_thread():
            Kernel(read(text)).run((1,), {"q_desc": q, "k_desc": k, "v_desc": v, "o_desc": out, "n": 64 * trips})
        return out.double()

    plain, found = run((FOLDER / "exponentials" / "input.ttgir").read_text()), run(outputs("exponentials")["finish"])
    assert float((found - exact).abs().max()) <= 1.1 * float((plain - exact).abs().max())
