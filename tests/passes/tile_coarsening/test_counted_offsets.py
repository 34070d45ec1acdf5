"""Offsets that loops carry are what they were, in every iteration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wspec import ir
from wspec.ir.core import Block, Operation, Value
from wspec.ir.verify import verify
from wspec.passes.tile_coarsening.counted_offsets import count_offsets, is_same

LOOP = """
"builtin.module"() ({{
  "tt.func"() <{{function_type = (i32, i32, i32) -> (), sym_name = "kernel"}}> ({{
  ^bb0(%start: i32, %lower: i32, %upper: i32):
    %first = "arith.constant"() <{{value = {lower} : i32}}> : () -> i32
    %step = "arith.constant"() <{{value = {step} : i32}}> : () -> i32
    %by = "arith.constant"() <{{value = {by} : i32}}> : () -> i32
    %sum = "arith.addi"(%start, %lower) <{{overflowFlags = #arith.overflow<none>}}> : (i32, i32) -> i32
    %end:2 = "scf.for"(%{begin}, %upper, %step, %{offset}, %start) ({{
    ^bb0(%i: i32, %at: i32, %other: i32):
      "test.use"(%at, %other) : (i32, i32) -> ()
      %next = "arith.addi"({added}) <{{overflowFlags = #arith.overflow<none>}}> : (i32, i32) -> i32
      %more = "arith.muli"(%other, %by) <{{overflowFlags = #arith.overflow<none>}}> : (i32, i32) -> i32
      "scf.yield"(%next, %more) : (i32, i32) -> ()
    }}) : (i32, i32, i32, i32, i32) -> (i32, i32)
    "test.use"({after}) : (i32) -> ()
    "tt.return"() : () -> ()
  }}) : () -> ()
}}) : () -> ()
"""
DEFAULTS = {"lower": 0, "step": 4, "by": 4, "begin": "first", "offset": "start", "added": "%at, %by", "after": "%end#1"}
BITS = 1 << 32


def loop_of(**changes: object) -> tuple[Operation, Operation]:
    module = ir.read(LOOP.format(**{**DEFAULTS, **changes}))
    return module, next(op for op in module.walk() if op.name == "scf.for")


def used(module: Operation, arguments: tuple[int, int, int]) -> list[tuple[int, ...]]:
    """The numbers that each `test.use` is given, one after the other."""
    function = next(op for op in module.walk() if op.name == "tt.func")
    block = function.regions[0].block
    values: dict[Value, int] = dict(zip(block.args, arguments, strict=True))
    found: list[tuple[int, ...]] = []

    def run(block: Block) -> None:
        for op in block.ops:
            given = [values[v] for v in op.operands]
            match op.name:
                case "test.use":
                    found.append(tuple(given))
                case "arith.constant":
                    values[op.result] = op.result.number or 0
                case "arith.addi" | "arith.subi" | "arith.muli":
                    a, b = given
                    values[op.result] = {"addi": a + b, "subi": a - b, "muli": a * b}[op.name[6:]] % BITS
                case "scf.for":
                    body, carried = op.regions[0].block, given[3:]
                    for at in range(*given[:3]):
                        values.update(zip(body.args, [at, *carried], strict=True))
                        run(body)
                        carried = [values[v] for v in body.terminator.operands]
                    values.update(zip(op.results, carried, strict=True))

    run(block)
    return found


COUNTED = [
    {}, {"by": 8}, {"by": -4}, {"lower": 8}, {"added": "%by, %at"}, {"begin": "lower"}, {"begin": "lower", "by": 12},
    {"begin": "lower", "offset": "sum"}, {"begin": "lower", "offset": "sum", "by": 8},
]  # fmt: skip


@given(
    st.sampled_from(COUNTED),
    st.tuples(st.integers(0, BITS - 1), st.integers(0, 40), st.integers(0, 60)),
)
def test_they_are_the_same_numbers(changes: dict[str, object], arguments: tuple[int, int, int]) -> None:
    module, loop = loop_of(**changes)
    expected = used(module, arguments)
    count_offsets(loop)
    assert len(loop.results) == 1 and not verify(module)
    assert used(module, arguments) == expected


def test_a_place_beside_the_loops_first_needs_no_difference() -> None:
    """`start + lower` at first, and a step each: `start + i`."""
    module, loop = loop_of(begin="lower", offset="sum")
    count_offsets(loop)
    assert not any(op.name == "arith.subi" for op in module.walk())


@pytest.mark.parametrize(
    "changes",
    [
        {"by": 6},  # no whole steps
        {"after": "%end#0"},  # read behind the loop
        {"added": "%at, %i"}, {"added": "%at, %upper"},  # by no constant
        {"added": "%other, %by"},  # another one's
        {"step": 0},
    ],
)  # fmt: skip
def test_others_stay(changes: dict[str, object]) -> None:
    module, loop = loop_of(**changes)
    before = ir.print_module(module)
    count_offsets(loop)
    assert ir.print_module(module) == before


def test_values_by_the_same_arithmetic_are_the_same() -> None:
    module, _ = loop_of()
    again, _ = loop_of()
    ops = {op.name: op for op in module.walk() if op.name.startswith("arith.")}
    add, mul = ops["arith.addi"].result, ops["arith.muli"].result
    assert is_same(add, add) and not is_same(add, mul)
    assert not is_same(add, next(op for op in again.walk() if op.name == "arith.addi").result), "other arguments"
