"""Float arithmetic: what happens with NaN, zeros, rounding and ties."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.execute.one_op import run, same

INF, NAN = math.inf, math.nan
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, INF, -INF, NAN, 1e-40]
PAIRS = list(itertools.product(SPECIAL, repeat=2))
TYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def pair(name: str, a: list[float], b: list[float], dtype: str = "f32", props: str = "", to: str = "") -> torch.Tensor:
    type = f"tensor<{len(a)}x{dtype}>"
    items = (torch.tensor(values, dtype=TYPES[dtype]) for values in (a, b))
    found: torch.Tensor = run(name, [type, type], f"tensor<{len(a)}x{to or dtype}>", *items, props=props)
    return found


def _larger(a: float, b: float) -> float:
    """With +0 above -0."""
    return max((a, math.copysign(1, a)), (b, math.copysign(1, b)))[0]


def _smaller(a: float, b: float) -> float:
    return -_larger(-a, -b)


def _numbers(choose: Callable[[float, float], float]) -> Callable[[float, float], float]:
    """NaN loses."""
    return lambda a, b: b if math.isnan(a) else a if math.isnan(b) else choose(a, b)


def _strict(choose: Callable[[float, float], float]) -> Callable[[float, float], float]:
    """NaN wins."""
    return lambda a, b: NAN if math.isnan(a) or math.isnan(b) else choose(a, b)


@pytest.mark.parametrize(
    "name, truth",
    [
        ("maximumf", _strict(_larger)),
        ("minimumf", _strict(_smaller)),
        ("maxnumf", _numbers(_larger)),
        ("minnumf", _numbers(_smaller)),
    ],
)
@pytest.mark.parametrize("dtype", TYPES)
def test_minima_and_maxima(name: str, truth: Callable[[float, float], float], dtype: str) -> None:
    found = pair(f"arith.{name}", [a for a, _ in PAIRS], [b for _, b in PAIRS], dtype)
    assert same(found, torch.tensor([truth(a, b) for a, b in PAIRS], dtype=TYPES[dtype]))


def test_clamp() -> None:
    x, low, high = torch.tensor([-5.0, 0.5, 9.0, NAN]), torch.full((4,), -1.0), torch.full((4,), 2.0)
    types = ["tensor<4xf32>"] * 3
    found = run("tt.clampf", types, types[0], x, low, high, props="propagateNan = 0 : i32")
    assert same(found, torch.tensor([-1.0, 0.5, 2.0, -1.0]))
    found = run("tt.clampf", types, types[0], x, low, high, props="propagateNan = 65535 : i32")
    assert same(found, torch.tensor([-1.0, 0.5, 2.0, NAN]))


# name of the predicate, what it says of two numbers, what it says when one is NaN
PREDICATES: list[tuple[Callable[[float, float], bool], bool]] = [
    (lambda a, b: False, False),
    (lambda a, b: a == b, False),
    (lambda a, b: a > b, False),
    (lambda a, b: a >= b, False),
    (lambda a, b: a < b, False),
    (lambda a, b: a <= b, False),
    (lambda a, b: a != b, False),
    (lambda a, b: True, False),
    (lambda a, b: a == b, True),
    (lambda a, b: a > b, True),
    (lambda a, b: a >= b, True),
    (lambda a, b: a < b, True),
    (lambda a, b: a <= b, True),
    (lambda a, b: a != b, True),
    (lambda a, b: False, True),
    (lambda a, b: True, True),
]


@pytest.mark.parametrize("predicate", range(16))
def test_comparisons(predicate: int) -> None:
    of_numbers, of_nan = PREDICATES[predicate]
    truth = [of_nan if math.isnan(a) or math.isnan(b) else of_numbers(a, b) for a, b in PAIRS]
    props = f"predicate = {predicate} : i64"
    found = pair("arith.cmpf", [a for a, _ in PAIRS], [b for _, b in PAIRS], "f32", props, "i1")
    assert same(found, torch.tensor(truth))
    one = run("arith.cmpf", ["f32", "f32"], "i1", torch.tensor(1.0), torch.tensor(NAN), props=props)
    assert isinstance(one, int) and one == of_nan


def test_arithmetic() -> None:
    assert same(pair("arith.addf", [0.1, INF, -0.0], [0.2, -INF, -0.0]), torch.tensor([0.1 + 0.2, NAN, -0.0]))
    assert same(pair("arith.subf", [1.0, INF], [0.75, INF]), torch.tensor([0.25, NAN]))
    assert same(pair("arith.mulf", [3.0, -0.0], [0.5, 2.0]), torch.tensor([1.5, -0.0]))
    assert same(pair("arith.divf", [1.0, 1.0, 0.0], [3.0, -0.0, 0.0]), torch.tensor([1 / 3, -INF, NAN]))
    assert same(pair("arith.remf", [7.5, -7.5, 5.0], [2.0, 2.0, INF]), torch.tensor([1.5, -1.5, 5.0]))
    assert same(pair("tt.precise_divf", [1.0], [3.0]), torch.tensor([1 / 3]))
    type = "tensor<3xf32>"
    assert same(run("arith.negf", [type], type, torch.tensor([0.0, -2.0, NAN])), torch.tensor([-0.0, 2.0, NAN]))


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_short_floats_round_once(dtype: str) -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(4096).to(TYPES[dtype]) for _ in range(2))
    for name, operator in (("addf", np.add), ("subf", np.subtract), ("mulf", np.multiply)):
        type = f"tensor<4096x{dtype}>"
        exact = operator(a.double().numpy(), b.double().numpy())  # has all digits
        assert same(run(f"arith.{name}", [type, type], type, a, b), torch.from_numpy(exact).float().to(TYPES[dtype]))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_fma_rounds_once(dtype: str) -> None:
    torch.manual_seed(1)
    a, b, c = (torch.randn(2000).to(TYPES[dtype]) for _ in range(3))
    c[:1000] = (-(a[:1000] * b[:1000])).to(TYPES[dtype])  # cancels to what rounding took
    if dtype == "f32":  # a tie that only the addend breaks: rounding twice loses it
        a[0], b[0], c[0] = 1.0 + 2.0**-12, 1.0 + 2.0**-12, 2.0**-60
        a[1], b[1], c[1] = 1.0 + 2.0**-12, 1.0 + 2.0**-12, -(2.0**-60)
    type = f"tensor<2000x{dtype}>"
    found = run("math.fma", [type] * 3, type, a, b, c)
    steps = torch.finfo(TYPES[dtype]).eps
    for x, y, z, r in zip(a.tolist(), b.tolist(), c.tolist(), found.tolist(), strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        near = torch.tensor([r], dtype=TYPES[dtype])
        beside = [torch.nextafter(near, torch.tensor([way], dtype=TYPES[dtype])).item() for way in (INF, -INF)]
        assert all(abs(Fraction(r) - exact) <= abs(Fraction(other) - exact) for other in beside), (x, y, z, steps)


def test_fma_in_double() -> None:
    type = "tensor<3xf64>"
    x = torch.tensor([1.0 + 2.0**-30, 3.0, 1e300], dtype=torch.float64)
    y = torch.tensor([1.0 - 2.0**-30, 5.0, 1e300], dtype=torch.float64)
    z = torch.tensor([-1.0, 0.5, 1.0], dtype=torch.float64)
    assert run("math.fma", [type] * 3, type, x, y, z).tolist() == [-(2.0**-60), 15.5, INF]


def test_roundings_to_integers() -> None:
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -2.5, 0.49999997, -0.2, 8388609.0, INF, NAN])
    type = "tensor<10xf32>"
    truth = {
        "round": [1.0, 2.0, 3.0, -1.0, -3.0, 0.0, -0.0, 8388609.0, INF, NAN],
        "roundeven": [0.0, 2.0, 2.0, -0.0, -2.0, 0.0, -0.0, 8388609.0, INF, NAN],
        "floor": [0.0, 1.0, 2.0, -1.0, -3.0, 0.0, -1.0, 8388609.0, INF, NAN],
        "ceil": [1.0, 2.0, 3.0, -0.0, -2.0, 1.0, -0.0, 8388609.0, INF, NAN],
        "trunc": [0.0, 1.0, 2.0, -0.0, -2.0, 0.0, -0.0, 8388609.0, INF, NAN],
    }
    for name, expected in truth.items():
        assert same(run(f"math.{name}", [type], type, x), torch.tensor(expected)), name


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "acos": lambda x: math.acos(x - 1),
    "acosh": lambda x: math.acosh(x + 1),
    "asin": lambda x: math.asin(x - 1),
    "atanh": lambda x: math.atanh(x - 1),
    "cbrt": np.cbrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "exp2": lambda x: 2.0**x,
    **{name: getattr(math, name) for name in ("asinh", "atan", "cos", "cosh", "erf", "erfc", "exp", "expm1", "log")},
    **{name: getattr(math, name) for name in ("log10", "log1p", "log2", "sin", "sinh", "sqrt", "tan", "tanh")},
}
SHIFTED = {"acos": -1, "acosh": 1, "asin": -1, "atanh": -1}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_functions(name: str, dtype: str) -> None:
    x = [0.1, 0.3, 0.75, 1.0, 1.3, 1.9]
    values = torch.tensor([value + SHIFTED.get(name, 0) for value in x], dtype=TYPES[dtype])
    type = f"tensor<6x{dtype}>"
    exact = torch.tensor([FUNCTIONS[name](value) for value in x], dtype=torch.float64)
    found = run(f"math.{name}", [type], type, values)
    assert found.dtype == TYPES[dtype]
    torch.testing.assert_close(found.double(), exact, rtol=1e-13 if dtype == "f64" else 5e-6, atol=1e-6)


def test_functions_of_two() -> None:
    assert same(pair("math.copysign", [1.0, -2.0, NAN], [-0.0, 3.0, 1.0]), torch.tensor([-1.0, 2.0, NAN]))
    torch.testing.assert_close(pair("math.atan2", [1.0, -1.0], [-1.0, 0.0]), torch.tensor([2.3561945, -1.5707964]))
    torch.testing.assert_close(pair("math.powf", [2.0, 9.0], [0.5, -1.5]), torch.tensor([2**0.5, 1 / 27]))
    held = [torch.tensor(values) for values in ([-2.0, 0.5, NAN], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0])]
    assert same(run("math.clampf", ["tensor<3xf32>"] * 3, "tensor<3xf32>", *held), torch.tensor([0.0, 0.5, NAN]))
    types = ["tensor<3xf32>", "tensor<3xi32>"]
    base, power = torch.tensor([2.0, -3.0, 5.0]), torch.tensor([-2, 3, 0], dtype=torch.int32)
    assert run("math.fpowi", types, types[0], base, power).tolist() == [0.25, -27.0, 1.0]


def test_kinds_of_numbers() -> None:
    x, types = torch.tensor([1.0, INF, -INF, NAN]), (["tensor<4xf32>"], "tensor<4xi1>")
    assert run("math.isfinite", *types, x).tolist() == [True, False, False, False]
    assert run("math.isinf", *types, x).tolist() == [False, True, True, False]
    assert run("math.isnan", *types, x).tolist() == [False, False, False, True]
    assert run("math.isnan", ["f32"], "i1", torch.tensor(NAN)) == 1
