"""Arithmetic on arrays gives what the executor gives one pair at a time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.execute.one_op import context, operation
from wspec.execute.evaluate import evaluate
from wspec.ir.builder import PREDICATES
from wspec.tile_scheduler.integers import BINARY, LIMIT, Array, compared, product, trips, wrapped, wrapped_int

WIDTHS = (1, 8, 32, 64)


def pairs(bits: int) -> tuple[list[int], Array, Array]:
    """The values near the edges of a width, and all pairs of them."""
    half = 1 << (bits - 1)
    near = [0, 1, 2, 3, 5, 31, 32, 33, 63, 64, 100, half // 3, half - 2, half - 1, half, half + 1, half * 3 // 2]
    values = sorted({wrapped_int(sign * number, bits) for number in near for sign in (1, -1)})
    a, b = np.meshgrid(np.array(values, np.int64), np.array(values, np.int64), indexing="ij")
    return values, a, b


def executed(name: str, bits: int, result: int, *operands: int, props: str = "") -> int:
    op = operation(name, [f"i{bits}"] * len(operands), [f"i{result}"], props)
    as_executor = tuple(value & 1 for value in operands) if bits == 1 else operands
    (found,) = evaluate(op, as_executor, context())
    assert isinstance(found, int)
    return wrapped_int(found, result)


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("name", sorted(BINARY))
def test_two_operands(name: str, bits: int) -> None:
    values, a, b = pairs(bits)
    with np.errstate(all="ignore"):
        found = wrapped(BINARY[name](a, b, bits), bits)
    assert found.tolist() == [[executed(f"arith.{name}", bits, bits, x, y) for y in values] for x in values]


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("predicate", range(len(PREDICATES)))
def test_comparisons(predicate: int, bits: int) -> None:
    values, a, b = pairs(bits)
    props = f"predicate = {predicate} : i64"
    expected = [[executed("arith.cmpi", bits, 1, x, y, props=props) for y in values] for x in values]
    assert compared(predicate, a, b, bits).tolist() == expected


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("bits", [32, 64])
def test_trip_counts(bits: int, unsigned: bool) -> None:
    values, lower, upper = pairs(bits)
    whole = 1 << bits
    for step in values:
        found = trips(lower, upper, np.array(step), bits, unsigned).tolist()
        for row, x in zip(found, values, strict=True):
            for count, y in zip(row, values, strict=True):
                low, high, by = (v % whole if unsigned else v for v in (x, y, step))
                assert count == min(LIMIT, max(0, -((low - high) // by)) if by > 0 else 0)


def test_products_stop_at_the_limit() -> None:
    counts = [0, 1, 3, 1 << 31, (1 << 40) + 1, LIMIT]
    a, b = np.meshgrid(np.array(counts, np.int64), np.array(counts, np.int64), indexing="ij")
    assert product(a, b).tolist() == [[min(x * y, LIMIT) for y in counts] for x in counts]
