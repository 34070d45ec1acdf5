"""Which lists of operations are taken for the same, and what stands for what then."""

from __future__ import annotations

import pytest

from wspec.ir import read
from wspec.ir.core import Operation, Value
from wspec.ir.isomorphism import Match

LOOP = """
  %s{n} = "scf.for"(%lower, %upper, %step, %x{n}) ({{
  ^bb0(%i: i32, %a: f32):
    %b = "arith.{op}"(%a, %free) : (f32, f32) -> f32
    "scf.yield"(%b) : (f32) -> ()
  }}) : (i32, i32, i32, f32) -> f32
"""
HEAD = """
"t.function"() ({
^bb0(%lower: i32, %upper: i32, %step: i32, %free: f32, %x1: f32, %y1: f32, %x2: f32, %y2: f32, %g: f16):
"""


def halves(one: str, other: str) -> tuple[list[Value], list[Operation], list[Operation]]:
    """The block's arguments, and the operations before and behind the mark."""
    text = f'{HEAD}{one}\n"t.mark"() : () -> ()\n{other}\n}}) : () -> ()'
    block = next(op for op in read(text).walk() if op.name == "t.function").regions[0].block
    at = next(index for index, op in enumerate(block.ops) if op.name == "t.mark")
    return list(block.args), block.ops[:at], block.ops[at + 1 :]


def matched(one: str, other: str, ignore: frozenset[str] = frozenset()) -> Match | None:
    """With x1, y1 taken in by the first half and x2, y2 by the second; None when they differ."""
    args, first, second = halves(one, other)
    match = Match({args[4], args[5]}, {args[6], args[7]})
    return match if match.operations(first, second, ignore) else None


ADD = '%r{n} = "arith.addf"(%{a}, %{b}) : (f32, f32) -> f32'


def test_inputs_are_matched_as_they_are_met() -> None:
    one, other = ADD.format(n=1, a="x1", b="y1"), ADD.format(n=2, a="y2", b="x2")
    args, first, second = halves(one, other)
    match = Match({args[4], args[5]}, {args[6], args[7]})
    assert match.operations(first, second, frozenset())
    assert match.there[args[4]] is args[7] and match.there[args[5]] is args[6]
    assert match.operand(first[0].result, second[0].result)
    assert match.back[args[7]] is args[4]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("x1", "x1"), ("x2", "y2")),  # one input cannot stand for two
        (("x1", "y1"), ("x2", "x2")),
        (("x1", "free"), ("x2", "y2")),  # what both see is the same value or none
        (("x1", "free"), ("free", "x2")),
        (("x1", "y1"), ("x1", "y1")),  # not an input of the second
    ],
)
def test_operands_that_differ(one: tuple[str, str], other: tuple[str, str]) -> None:
    first, second = (ADD.format(n=n, a=pair[0], b=pair[1]) for n, pair in ((1, one), (2, other)))
    assert matched(first, second) is None


def test_what_both_see() -> None:
    assert matched(ADD.format(n=1, a="x1", b="free"), ADD.format(n=2, a="x2", b="free")) is not None


def test_results_lead_on() -> None:
    one = ADD.format(n=1, a="x1", b="y1") + '\n%t1 = "arith.mulf"(%r1, %x1) : (f32, f32) -> f32'
    other = ADD.format(n=2, a="x2", b="y2") + '\n%t2 = "arith.mulf"(%r2, %{}) : (f32, f32) -> f32'
    assert matched(one, other.format("x2")) is not None
    assert matched(one, other.format("y2")) is None


def test_regions() -> None:
    assert matched(LOOP.format(n=1, op="addf"), LOOP.format(n=2, op="addf")) is not None
    assert matched(LOOP.format(n=1, op="addf"), LOOP.format(n=2, op="mulf")) is None


def test_another_operation_length_type_or_attribute() -> None:
    one = ADD.format(n=1, a="x1", b="y1")
    assert matched(one, ADD.format(n=2, a="x2", b="y2").replace("addf", "mulf")) is None
    assert matched(one, "") is None and matched("", one.replace("r1", "r2")) is None
    assert matched(one, '%r2 = "arith.addf"(%g, %g) : (f16, f16) -> f16') is None
    marked = '%r{n} = "arith.addf"(%x{n}, %y{n}) {{mark = {n} : i32}} : (f32, f32) -> f32'
    assert matched(marked.format(n=1), marked.format(n=2)) is None
    assert matched(marked.format(n=1), marked.format(n=2), frozenset({"mark"})) is not None
    place = '%r{n} = "arith.addf"(%x{n}, %y{n}) <{{kind = {n} : i32}}> : (f32, f32) -> f32'
    assert matched(place.format(n=1), place.format(n=2), frozenset({"kind"})) is None, "properties always count"


def test_types_must_agree() -> None:
    args, _, _ = halves("", "")
    match = Match({args[4]}, {args[8]})
    assert not match.operand(args[4], args[8]) and not match.there


def test_pairs_are_one_to_one() -> None:
    args, _, _ = halves("", "")
    match = Match(set(), set())
    assert match.pair(args[4], args[6]) and match.pair(args[4], args[6])
    assert not match.pair(args[4], args[7]) and not match.pair(args[5], args[6])
    assert match.pair(args[5], args[7])
