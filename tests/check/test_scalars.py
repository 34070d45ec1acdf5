"""Integer arithmetic as the machine does it, and what of an operand matters."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wspec.check import scalars
from wspec.ir import Builder, Operation
from wspec.ir.builder import PREDICATES
from wspec.ir.core import Block
from wspec.ir.types import I1, I32, ScalarType

I8 = ScalarType("i8")
BINARY = ("addi", "subi", "muli", "divsi", "divui", "remsi", "remui", "andi", "ori", "xori", "shli", "shrsi", "shrui",
          "maxsi", "minsi", "maxui", "minui")  # fmt: skip


def _binary(name: str, type: ScalarType = I32) -> Operation:
    block = Block()
    values = [block.add_arg(type) for _ in range(2)]
    op = Builder(block).binary(name, *values).op
    assert op is not None
    return op


def _cast(name: str, source: ScalarType, target: ScalarType) -> Operation:
    block = Block()
    return Builder(block).create(name, [block.add_arg(source)], [target])


def _value(op: Operation, *operands: int) -> int:
    function = scalars.function(op)
    assert function is not None
    return function(*operands)


@pytest.mark.parametrize(
    ("name", "left", "right", "result"),
    [
        ("divsi", -7, 2, -3),
        ("remsi", -7, 2, -1),
        ("remsi", 7, -2, 1),
        ("divui", -1, 2, (1 << 31) - 1),
        ("remui", -1, 3, ((1 << 32) - 1) % 3),
        ("shrsi", -8, 1, -4),
        ("shrui", -8, 1, (1 << 31) - 4),
        ("shli", 3, 4, 48),
        ("andi", -1, 3, 3),
        ("xori", 1, 1, 0),
        ("ori", 4, 1, 5),
        ("maxsi", -1, 1, 1),
        ("maxui", -1, 1, -1),
        ("minui", -1, 1, 1),
    ],
)
def test_results(name: str, left: int, right: int, result: int) -> None:
    assert _value(_binary(f"arith.{name}"), left, right) == result


@pytest.mark.parametrize("predicate", PREDICATES)
def test_comparisons(predicate: str) -> None:
    """Unsigned ones take a negative number for a large one."""
    block = Block()
    op = Builder(block).compare(predicate, block.add_arg(I32), block.add_arg(I32)).op
    assert op is not None
    for left, right in itertools.product((-2, -1, 0, 1, 2), repeat=2):
        a, b = (left % 2**32, right % 2**32) if predicate.startswith("u") else (left, right)
        order = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
        assert _value(op, left, right) == order[predicate[-2:]]


@pytest.mark.parametrize(
    ("name", "source", "target", "operand", "result"),
    [
        ("arith.extsi", I1, I32, 1, -1),
        ("arith.extui", I1, I32, 1, 1),
        ("arith.extsi", I8, I32, -3, -3),
        ("arith.extui", I8, I32, -3, 253),
        ("arith.trunci", I32, I1, 5, 1),
        ("arith.trunci", I32, I8, 200, -56),
    ],
)
def test_casts(name: str, source: ScalarType, target: ScalarType, operand: int, result: int) -> None:
    assert _value(_cast(name, source, target), operand) == result


def test_division_by_nothing_does_not_stop_the_checker() -> None:
    assert isinstance(_value(_binary("arith.divsi"), 3, 0), int)


def test_what_is_not_integer_arithmetic_is_not_known() -> None:
    block = Block()
    values = [block.add_arg(ScalarType("f32")) for _ in range(2)]
    op = Builder(block).create("arith.addf", values, [ScalarType("f32")])
    assert scalars.function(op) is None


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(BINARY), st.integers(2, 12), st.integers(0, 9), st.integers(0, 40), st.integers(0, 5))
def test_operands_alike_in_what_matters_give_results_alike(
    name: str, modulus: int, right: int, left: int, turns: int
) -> None:
    """x >= 0 and x + m give results that are equal by `modulus`, when m is what is said to matter of x."""
    op = _binary(f"arith.{name}")
    wanted, _ = scalars.operand_moduli(op, modulus, (None, right))
    if wanted == scalars.EXACT:
        return
    step = wanted * turns
    results = [_value(op, left + more, right) for more in (0, step)]
    assert results[0] % modulus == results[1] % modulus


@pytest.mark.parametrize("name", BINARY)
def test_what_does_not_matter_asks_for_nothing(name: str) -> None:
    found = scalars.operand_moduli(_binary(f"arith.{name}"), scalars.NOTHING, (None, 3))
    assert found == (scalars.NOTHING, scalars.NOTHING)


def test_moduli_join() -> None:
    assert scalars.join(4, 6) == 12
    assert scalars.join(scalars.NOTHING, 5) == 5
    assert scalars.join(scalars.EXACT, 5) == scalars.EXACT
    assert scalars.join(scalars.LIMIT - 1, scalars.LIMIT - 3) == scalars.EXACT
