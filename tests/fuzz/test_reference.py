"""The reference against torch, and its bounds against float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import bounded as nb
from tests.fuzz import data, hand, reference
from tests.fuzz.bounded import Array, Bounded
from tests.fuzz.case import Launch
from tests.fuzz.program import (
    Assign,
    Bin,
    Extent,
    For,
    If,
    Lit,
    Program,
    ProgramError,
    PtrStore,
    Reduce,
    TileStore,
    Var,
)

LAUNCHES = [Launch({"high": 2, "trips": trips}, trips, whole) for trips in (0, 1, 2, 5) for whole in (True, False)]


def run(program: Program, launch: Launch) -> tuple[dict[str, torch.Tensor], dict[str, reference.Memory]]:
    """(inputs, what the reference makes of them)."""
    return data.tensors(program, launch), data.expected(program, launch)


@pytest.mark.parametrize("launch", LAUNCHES, ids=str)
def test_product(launch: Launch) -> None:
    inputs, found = run(hand.product(), launch)
    k = launch.knobs["trips"] * hand.K
    exact = inputs["a"].double()[:, :k] @ inputs["b"].double()[:k]
    assert found["c"].written.all()
    np.testing.assert_allclose(found["c"].value, exact.numpy(), rtol=1e-12, atol=1e-12)
    single = (inputs["a"].float()[:, :k] @ inputs["b"].float()[:k]).double().numpy()
    assert (np.abs(single - found["c"].value) <= found["c"].error).all()
    assert not launch.whole or not found["c"].error.any(), "sums of small whole numbers are exact"
    assert found["c"].error.max() < 1e-3


@pytest.mark.parametrize("launch", LAUNCHES, ids=str)
def test_attention(launch: Launch) -> None:
    inputs, found = run(hand.attention(), launch)
    k = launch.knobs["trips"] * hand.K
    if k == 0:
        assert not found["out"].value.any() and not found["sums"].value.any()
        return
    scores = inputs["q"].double() @ inputs["keys"].double()[:k].T
    weights = torch.exp2(scores - scores.max(1, keepdim=True).values)
    out = weights @ inputs["values"].double()[:k] / weights.sum(1, keepdim=True)
    np.testing.assert_allclose(found["out"].value, out.numpy(), rtol=0.03, atol=0.03)  # weights are rounded to bf16
    np.testing.assert_allclose(found["sums"].value, weights.sum(1).numpy(), rtol=1e-9)
    assert found["out"].error.max() < 0.1


def test_tiles_that_stick_out() -> None:
    """Loads read zeros there, stores drop what would go there."""
    program = hand.product()
    cut = Extent((("high", hand.M),), -16)
    buffers = tuple(replace(b, dims=(cut, b.dims[1])) if b.name in "ac" else b for b in program.buffers)
    inputs, found = run(replace(program, buffers=buffers), LAUNCHES[4])
    assert found["c"].value.shape == (2 * hand.M - 16, hand.N)
    exact = inputs["a"].double() @ inputs["b"].double()
    np.testing.assert_array_equal(found["c"].value, exact.numpy())


def test_branches_and_scalars() -> None:
    """Every second iteration counts twice; the count is kept as a whole number, with C's division."""
    count = Var("count", hand.I32)
    odd = Bin("==", Bin("%", Bin("//", hand.STEP, hand.whole(hand.K)), hand.whole(2)), hand.whole(1))
    twice = If(
        odd, (Assign("count", Bin("+", count, hand.whole(2))),), (Assign("count", Bin("+", count, hand.whole(1))),)
    )
    program = hand.product()
    body = tuple(replace(s, body=(*s.body, twice)) if isinstance(s, For) else s for s in program.body)
    negative = Bin("//", Bin("-", hand.whole(0), count), hand.whole(2))
    body = (
        Assign("count", hand.whole(0)),
        *body,
        PtrStore("n", hand.whole(0), count),
        PtrStore("n", hand.whole(1), negative),
    )
    counter = replace(program.buffers[2], name="n", dtype="i32", dims=(Extent(constant=2),), access="pointer", box=())
    program = replace(program, body=body, buffers=(*program.buffers, counter))
    assert run(program, LAUNCHES[6])[1]["n"].value.tolist() == [7.0, -3.0]


def test_what_is_not_written_is_kept() -> None:
    program = hand.product()
    body = tuple(s for s in program.body if not isinstance(s, TileStore))
    memory = run(replace(program, body=body), LAUNCHES[4])[1]["c"]
    assert not memory.written.any() and np.isnan(memory.value).all()


def test_outside_of_a_tensor() -> None:
    program = hand.attention()
    body = tuple(
        replace(s, index=Bin("+", s.index, hand.whole(1))) if isinstance(s, PtrStore) else s for s in program.body
    )
    with pytest.raises(ProgramError, match="outside sums"):
        run(replace(program, body=body), LAUNCHES[4])


def test_rounding_decides() -> None:
    """A branch on a sum that is only known to a few bits."""
    total = Reduce("sum", Reduce("sum", hand.ACC, 1), 0)
    program = hand.product()
    branch = If(Bin("==", total, total), (Assign("acc", Bin("*", hand.ACC, Lit(0.5))),))
    with pytest.raises(reference.Unsure):
        run(replace(program, body=(*program.body, branch)), LAUNCHES[5])


# ---------------------------------------------------------------------------------------------------- bounds

single = st.floats(-1e4, 1e4, width=32)
arrays = st.lists(single, min_size=8, max_size=8).map(lambda numbers: np.array(numbers, np.float32))
OPERATIONS: dict[str, tuple[Callable[[Bounded, Bounded], Bounded], Callable[[Array, Array], Array]]] = {
    "add": (nb.add, np.add),
    "subtract": (nb.subtract, np.subtract),
    "multiply": (nb.multiply, np.multiply),
    "divide": (nb.divide, np.divide),
    "maximum": (nb.maximum, np.fmax),
    "minimum": (nb.minimum, np.fmin),
}


def off(array: np.ndarray, by: np.ndarray) -> Bounded:
    """Numbers that are not quite known: `array` is one of the things they may be."""
    value, by = array.astype(np.float64), by.astype(np.float64)
    lost = np.where(by == 0, 0.0, 2.0**-50 * (np.abs(value) + np.abs(by)))  # what the sum may have rounded off
    return Bounded(value + by, np.abs(by) + lost)


@settings(deadline=None, max_examples=200)
@given(arrays, arrays, arrays, arrays, st.sampled_from(sorted(OPERATIONS)))
def test_bounds_hold(a: np.ndarray, b: np.ndarray, da: np.ndarray, db: np.ndarray, name: str) -> None:
    bounded, single = OPERATIONS[name]
    found = bounded(off(a, da * 1e-6), off(b, db * 1e-6))
    with np.errstate(all="ignore"):
        actual = np.asarray(single(a, b), np.float64)
        near = np.abs(actual - found.value) <= found.error
    assert (near | np.isinf(found.error)).all()


@settings(deadline=None, max_examples=200)
@given(arrays, arrays, st.sampled_from(["fp16", "bf16", "fp8e5", "fp8e4nv"]))
def test_casts_hold(a: np.ndarray, da: np.ndarray, dtype: str) -> None:
    a, da = a % 200, da * 1e-5
    found = nb.cast(off(a, da), dtype)
    actual = nb.to_dtype(a.astype(np.float64), dtype)
    assert (np.abs(actual - found.value) <= found.error).all()


def test_what_may_be_infinite_is_unknown_after_a_factor_of_zero() -> None:
    """Infinity times 0 is NaN; float64 has no infinity there."""
    huge = nb.multiply(nb.exact([2.0**100]), nb.exact([2.0**100]))
    assert huge.value == 2.0**200 and np.isinf(huge.error)
    assert np.isinf(nb.multiply(huge, nb.exact([0.0])).error) and np.isinf(nb.multiply(nb.exact([0.0]), huge).error)


def test_a_sum_whose_parts_overflow_is_unknown() -> None:
    """In some order infinity is on the way, though not in the sum."""
    parts = np.array([[3e38, 3e38, -3e38, -3e38]])
    assert nb.total(nb.exact(parts), 1).value == 0 and np.isinf(nb.total(nb.exact(parts), 1).error)
    assert np.isinf(nb.product(nb.exact(parts), nb.exact(np.ones((4, 1))), None, False).error)
    assert nb.total(nb.exact(parts / 4), 1).error < 1e33


@settings(deadline=None, max_examples=100)
@given(st.lists(arrays, min_size=4, max_size=4), st.lists(arrays, min_size=4, max_size=4), st.booleans())
def test_products_hold(left: list[np.ndarray], right: list[np.ndarray], tf32: bool) -> None:
    a, b = np.stack(left), np.stack(right).T.copy()
    found = nb.product(nb.exact(a), nb.exact(b), None, tf32)
    cut = [(x.view(np.int32) & ~0x1FFF).view(np.float32) if tf32 else x for x in (a, b)]
    actual = cut[0][:, ::-1] @ cut[1][::-1]
    assert (np.abs(actual - found.value) <= found.error).all()


def test_what_is_added_to_a_product_may_come_first() -> None:
    """Triton makes it what the dot begins with; so sums on the way may be larger than the result."""
    a, b, other = np.array([[4096.0, -4096.0]]), np.array([[2048.0], [2048.0]]), np.array([[0.25]])
    found = nb.product(nb.exact(a), nb.exact(b), None, tf32=False)
    assert found.value == 0 and found.error == 0
    fused = np.float32(np.float32(other + a[0, 0] * b[0]) + a[0, 1] * b[1])
    assert fused == 0
    for total in (nb.add(found, nb.exact(other)), nb.add(nb.exact(other), found)):
        assert total.value == other and np.abs(fused - total.value) <= total.error
    whole = nb.add(nb.product(nb.exact(a / 4), nb.exact(b), None, tf32=False), nb.exact(np.array([[3.0]])))
    assert whole.value == 3 and whole.error == 0
    assert nb.add(nb.maximum(found, found), nb.exact(other)).error == 0, "which is no product any more"


def test_exactness() -> None:
    """No error where float32 makes none, in whatever order it adds; one where it may."""
    small, third = nb.exact([[0.5, -2.0, 3.0]]), nb.exact(np.array([[1 / 3, 2 / 3, 1.0]], np.float32))
    assert nb.total(small, 1).sure and not nb.total(third, 1).sure
    assert nb.product(small, nb.exact([[1.0], [2.0], [0.25]]), None, True).sure
    assert not nb.product(small, nb.exact(np.array([[1 / 3], [2.0], [0.25]], np.float32)), None, False).sure
    large = nb.exact([[2.0**24, 1.0, 1.0]])
    assert not nb.total(large, 1).sure
    assert nb.multiply(small, nb.exact(0.25)).sure and nb.cast(small, "fp8e5").sure
    unsure = Bounded(np.array([0.45]), np.array([1e-8]))
    assert nb.add(unsure, nb.exact(0.5)).error[0] > 2.9e-8, "what is not known is rounded, whatever it looks like"


def test_choices_that_are_not_sure() -> None:
    x = Bounded(np.array([1.0, 5.0]), np.array([0.5, 0.5]))
    truth = nb.compare("<", x, nb.exact(1.2))
    assert truth.value.tolist() == [1.0, 0.0] and truth.error.tolist() == [1.0, 0.0]
    chosen = nb.select(truth, nb.exact([10.0, 10.0]), nb.exact([4.0, 4.0]))
    assert chosen.value.tolist() == [10.0, 4.0] and chosen.error.tolist() == [6.0, 0.0]
