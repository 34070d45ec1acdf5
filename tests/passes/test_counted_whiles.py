"""Whiles that count, drawn: as fors they go round as often, and leave the same numbers."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from wspec import ir
from wspec.execute import run
from wspec.ir.verify import check_valid
from wspec.passes.counted_whiles import count_whiles

SETTINGS = hypothesis.settings(max_examples=150, deadline=None, database=None, derandomize=True)
BELOW, LEAST = {"slt": 2, "sle": 3}, {"sge": 5, "sgt": 4}
FLAGS = "<{overflowFlags = #arith.overflow<none>}>"
STORE = "<{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<i32>, i32) -> ()"


def text_of(tests: list[tuple[int, str, bool]], step: str) -> str:
    """A kernel that goes up from %first by %step and sums where it was; `tests`: predicate, bound, bound in front."""
    lines, held = [], ""
    for at, (kind, bound, turned) in enumerate(tests):
        sides = (bound, "%t") if turned else ("%t", bound)
        kind = {2: 4, 3: 5, 4: 2, 5: 3}[kind] if turned else kind
        lines.append(f'%c{at} = "arith.cmpi"({sides[0]}, {sides[1]}) <{{predicate = {kind} : i64}}> : (i32, i32) -> i1')
        if held:
            lines.append(f'%h{at} = "arith.andi"({held}, %c{at}) : (i1, i1) -> i1')
        held = f"%h{at}" if held else f"%c{at}"
    tested = "\n".join(lines)
    type = "(!tt.ptr<i32>, !tt.ptr<i32>, i32, i32, i32, i32) -> ()"
    return f""""builtin.module"() ({{
"tt.func"() <{{function_type = {type}, sym_name = "drawn"}}> ({{
^bb0(%p: !tt.ptr<i32>, %q: !tt.ptr<i32>, %first: i32, %least: i32, %end: i32, %by: i32):
  %zero = "arith.constant"() <{{value = 0 : i32}}> : () -> i32
  %three = "arith.constant"() <{{value = 3 : i32}}> : () -> i32
  %out:2 = "scf.while"(%zero, %first) ({{
  ^bb0(%sum: i32, %t: i32):
    {tested}
    "scf.condition"({held}, %t, %sum) : (i1, i32, i32) -> ()
  }}, {{
  ^bb0(%u: i32, %now: i32):
    %thrice = "arith.muli"(%now, %three) {FLAGS} : (i32, i32) -> i32
    %more = "arith.addi"(%thrice, %u) {FLAGS} : (i32, i32) -> i32
    %next = "arith.addi"(%u, {step}) {FLAGS} : (i32, i32) -> i32
    "scf.yield"(%more, %next) : (i32, i32) -> ()
  }}) : (i32, i32) -> (i32, i32)
  "tt.store"(%p, %out#0) {STORE}
  "tt.store"(%q, %out#1) {STORE}
  "tt.return"() : () -> ()
}}) : () -> ()
}}) {{"ttg.num-warps" = 4 : i32}} : () -> ()
"""


def values(module: ir.Operation, *given: int) -> list[int]:
    out, other = torch.full((1,), -1, dtype=torch.int32), torch.full((1,), -1, dtype=torch.int32)
    run(module, 1, [out, other, *given])
    return [int(out), int(other)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[tuple[int, str, bool]], str, tuple[int, int, int, int]]:
    by = draw(st.integers(1, 7)) * draw(st.sampled_from((1, -1)))
    ends = draw(st.lists(st.tuples(st.sampled_from(list(BELOW.values())), st.just("%end"), st.booleans()), max_size=2))
    begins = draw(
        st.lists(st.tuples(st.sampled_from(list(LEAST.values())), st.just("%least"), st.booleans()), max_size=2)
    )
    needed = ends if by > 0 else begins
    hypothesis.assume(needed and ends)
    numbers = tuple(draw(st.integers(-20, 20)) for _ in range(3))
    return draw(st.permutations([*ends, *begins])), "%by", (*numbers, by)


@SETTINGS
@hypothesis.given(cases())
def test_it_goes_round_as_often(case: tuple[list[tuple[int, str, bool]], str, tuple[int, int, int, int]]) -> None:
    tests, step, given = case
    text = text_of(tests, step)
    hypothesis.note(f"{text}\n{given}")
    module = ir.read(text)
    count_whiles(module)
    check_valid(module)
    assert {op.name for op in module.walk()} & {"scf.for", "scf.while"} == {"scf.for"}
    assert values(module, *given) == values(ir.read(text), *given)


def others() -> Iterator[tuple[str, str]]:
    good = text_of([(2, "%end", False)], "%by")
    yield "a step that varies", good.replace('"arith.addi"(%u, %by)', '"arith.addi"(%u, %now)')
    yield "no step", good.replace('"arith.addi"(%u, %by)', '"arith.muli"(%u, %by)')
    yield "a bound that is carried", good.replace('"arith.cmpi"(%t, %end)', '"arith.cmpi"(%t, %sum)')
    yield "equality", good.replace("predicate = 2", "predicate = 1")
    yield "no end above", text_of([(5, "%least", False)], "%by")
    yield "a step away from the end", text_of([(5, "%least", False)], "%three")


@pytest.mark.parametrize(("why", "text"), others(), ids=lambda one: one if len(one) < 40 else "")
def test_others_stay(why: str, text: str) -> None:
    module = ir.read(text)
    count_whiles(module)
    assert any(op.name == "scf.while" for op in module.walk()), why
