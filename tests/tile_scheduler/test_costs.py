"""What a tile costs: trip counts from scalar arithmetic, its form in files, what is not known."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import odd_cases, our_attention
from tests.support.compiling import plain_module
from tests.support.programs import function as parsed
from tests.support.programs import numbered, op_at
from tests.tile_scheduler.scalar_programs import WIDTHS, functions, interpreted, loops_of, numbers
from wspec.ir.core import Operation
from wspec.ir.numbering import id_of
from wspec.tile_scheduler import TileCost, tile_cost

ODD = {case.name: case for case in odd_cases()}
LARGEST = float(np.finfo(np.float32).max)


def cost_of(body: str, arguments: str = "%n: i32; %p: !tt.ptr<i32>") -> TileCost:
    """Of a function whose loops take 10 cycles an iteration."""
    function = parsed(body, arguments)
    return tile_cost(function, dict.fromkeys(all_loops(function), 10.0), 100.0)


def all_loops(function: Operation) -> list[int]:
    return [id_of(op) for op in function.walk() if op.name in ("scf.for", "scf.while")]


def loop(upper: str, inside: str = "", counter: str = "%i") -> str:
    """A loop from 0 in steps of 64."""
    return f"""
    "scf.for"(%c0, {upper}, %c64) ({{
    ^bb0({counter}: i32):{inside}
      "scf.yield"() : () -> ()
    }}) : (i32, i32, i32) -> () loc("loop")"""


PROGRAM_ID = """
    %x = "tt.get_program_id"() <{axis = 0 : i32}> : () -> i32
    %upper = "arith.muli"(%x, %n) <{overflowFlags = #arith.overflow<none>}> : (i32, i32) -> i32"""
READ = """
    %r = "tt.load"(%p) @READ : (!tt.ptr<i32>) -> i32"""


# ------------------------------------------------------------------------------------------- trip counts


def test_a_loop_whose_bounds_are_the_same_everywhere() -> None:
    cost = cost_of(loop("%n"))
    assert cost.uniform and cost.parameters == (0,) and not cost.unknown
    assert cost.evaluate((3, 2, 1), {0: 65}).tolist() == [[[120.0] * 3] * 2]


def test_a_loop_that_depends_on_the_program() -> None:
    cost = cost_of(PROGRAM_ID + loop("%upper"))
    found = cost.evaluate((4, 1, 2), {0: 100})
    assert not cost.uniform and found.dtype == np.float32
    assert found.tolist() == [[[100.0, 120.0, 140.0, 150.0]]] * 2


def test_loops_inside_each_other_are_multiplied() -> None:
    cost = cost_of(PROGRAM_ID + loop("%n", loop("%upper"), "%o"))
    outer, inner = cost.trips((3, 1, 1), {0: 128}).values()
    assert outer.tolist() == [[[2, 2, 2]]] and inner.tolist() == [[[0, 4, 8]]]
    assert cost.evaluate((3, 1, 1), {0: 128}).tolist() == [[[120.0, 160.0, 200.0]]]


def test_arguments_wrap_to_their_width() -> None:
    assert cost_of(loop("%n")).evaluate((1, 1, 1), {0: 2**32 + 64}).item() == 110.0
    assert cost_of(loop("%n")).evaluate((1, 1, 1), {0: 2**32 - 1}).item() == 100.0


def test_a_grid_without_tiles() -> None:
    assert cost_of(PROGRAM_ID + loop("%upper")).evaluate((3, 0, 2), {0: 1}).shape == (2, 0, 3)


def test_a_step_that_is_not_positive_runs_no_iteration() -> None:
    text = loop("%n").replace("%c64", "%n").replace("%c0, %n", "%c0, %c64")
    assert [cost_of(text).evaluate((1, 1, 1), {0: step}).item() for step in (0, -1, 64)] == [100.0, 100.0, 110.0]


def test_what_evaluate_needs() -> None:
    cost = cost_of(loop("%n"))
    with pytest.raises(ValueError, match="argument 0"):
        cost.evaluate((1, 1, 1), {})
    with pytest.raises(ValueError, match="grid"):
        cost.evaluate((1, -1, 1), {0: 1})


def test_what_tile_cost_refuses() -> None:
    function = parsed(loop("%n"), "%n: i32")
    with pytest.raises(ValueError, match="no operation 999"):
        tile_cost(function, {999: 1.0}, 0.0)
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="cannot stand here"):
            tile_cost(function, {id_of(op_at(function, "loop")): wrong}, 0.0)


@settings(max_examples=150, deadline=None)
@given(functions(), st.data())
def test_as_an_interpreter_counts(function: Operation, data: st.DataObject) -> None:
    """Every tile, every loop; also after a round trip through numbers, texts and lists."""
    loops = loops_of(function)
    cost = tile_cost(function, {at: 0.25 + at for at in loops}, 7.0)
    assert not cost.unknown and TileCost.from_data(cost.to_data()) == cost
    grid = data.draw(st.tuples(*[st.integers(1, 3)] * 3))
    values = {index: data.draw(numbers(bits)) for index, bits in WIDTHS.items()}
    counts, costs = cost.trips(grid, values), cost.evaluate(grid, values)
    for z, y, x in np.ndindex(grid[::-1]):
        expected = interpreted(function, grid, (x, y, z), values)
        assert {at: int(count[z, y, x]) for at, count in counts.items()} == expected
        total = sum(((0.25 + at) * count for at, count in sorted(expected.items())), start=7.0)
        assert costs[z, y, x] == pytest.approx(min(total, LARGEST), rel=1e-6)
    if cost.uniform:
        assert all(count.min() == count.max() for count in counts.values())
    assert set(cost.parameters) <= set(WIDTHS)


# ---------------------------------------------------------------------------------------- what is not known

DEPENDS = {
    "memory": (READ + loop("%r"), "tt.load"),
    "a counter": (loop("%n", loop("%o"), "%o"), "counter"),
    "a carried value": (
        """
    %s = "scf.for"(%c0, %n, %c64, %c0) ({
    ^bb0(%i: i32, %v: i32):
      "scf.yield"(%i) : (i32) -> ()
    }) : (i32, i32, i32, i32) -> i32"""
        + loop("%s"),
        "scf.for",
    ),
    "a branch": (
        READ
        + """
    %q = "arith.cmpi"(%r, %n) <{predicate = 2 : i64}> : (i32, i32) -> i1
    "scf.if"(%q) ({"""
        + loop("%n")
        + """
      "scf.yield"() : () -> ()
    }, {
    }) : (i1) -> ()""",
        "tt.load",
    ),
    "a float": (
        """
    %f = "arith.sitofp"(%n) : (i32) -> f32
    %g = "arith.fptosi"(%f) : (f32) -> i32"""
        + loop("%g"),
        "arith.fptosi",
    ),
}


@pytest.mark.parametrize("name", DEPENDS)
def test_a_loop_that_depends_on(name: str) -> None:
    """It counts as one iteration, and the reason is said."""
    body, reason = DEPENDS[name]
    cost = cost_of(body)
    (said,) = cost.unknown.values()
    assert reason in said
    others = sum(10.0 * count.item() for count in cost.trips((1, 1, 1), {0: 128}).values())
    assert cost.evaluate((1, 1, 1), {0: 128}).item() == 110.0 + others
    assert TileCost.from_data(cost.to_data()) == cost


@pytest.mark.parametrize(("name", "reason"), [("while_loop", "scf.while"), ("early_return", "behind a branch")])
def test_loops_of_kernels_that_do_not_count(name: str, reason: str) -> None:
    function = numbered(plain_module(ODD[name]))
    cost = tile_cost(function, dict.fromkeys(all_loops(function), 10.0), 1.0)
    assert [reason in said for said in cost.unknown.values()] == [True]
    assert cost.uniform and cost.parameters == () and cost.scalars == ()


def test_nothing_is_kept_of_a_loop_that_is_not_known() -> None:
    """Its lower bound depends on the program, its upper one on memory."""
    cost = cost_of(READ + PROGRAM_ID + loop("%r").replace("%c0", "%upper"))
    assert cost.unknown and cost.uniform and cost.scalars == ()


def test_a_branch_decides_whether_its_loop_runs() -> None:
    body = """
    %q = "arith.cmpi"(%x, %c64) <{predicate = 2 : i64}> : (i32, i32) -> i1
    "scf.if"(%q) ({
      "scf.yield"() : () -> ()
    }, {"""
    cost = cost_of(PROGRAM_ID + body + loop("%n") + '\n"scf.yield"() : () -> ()\n}) : (i1) -> ()')
    assert cost.evaluate((66, 1, 1), {0: 64})[0, 0].tolist() == [100.0] * 64 + [110.0] * 2


# --------------------------------------------------------------------------------------------------- kernels


@pytest.mark.parametrize(
    ("head", "lengths"), [(64, (1000, 1000)), (128, (4096, 4096)), (128, (300, 777)), (256, (9, 5))]
)
def test_causal_attention(head: int, lengths: tuple[int, int]) -> None:
    case = our_attention(head, True, "bf16")
    function = numbered(plain_module(case))
    whole, masked = loops_of(function)
    cost = tile_cost(function, {whole: 1000.0, masked: 1300.0}, 2000.0)
    assert not cost.uniform and not cost.unknown
    (seqlen_q, seqlen_k), (rows, keys) = lengths, (case.values["BLOCK_M"], case.values["BLOCK_N"])
    assert len(cost.parameters) == 2
    values = dict(zip(cost.parameters, lengths, strict=True))
    tiles = -(-seqlen_q // rows)
    expected = []
    for tile in reversed(range(tiles)):
        seen = tile * rows + seqlen_k - seqlen_q
        full = max(seen + 1, 0) // keys * keys
        expected.append((full // keys, max(0, -(-(min(seen + rows, seqlen_k) - full) // keys))))
    counts = cost.trips((tiles, 2, 3), values)
    for z, y in np.ndindex(3, 2):
        found = zip(counts[whole][z, y].tolist(), counts[masked][z, y].tolist(), strict=True)
        assert list(found) == expected
    costs = [2000.0 + 1000.0 * full + 1300.0 * part for full, part in expected]
    assert cost.evaluate((tiles, 2, 3), values)[2, 1].tolist() == costs


def test_full_attention_is_uniform() -> None:
    function = numbered(plain_module(our_attention(128, False, "bf16")))
    cost = tile_cost(function, dict.fromkeys(loops_of(function), 1.0), 0.0)
    assert cost.uniform and len(cost.parameters) == 1
    assert np.unique(cost.evaluate((4, 3, 2), {cost.parameters[0]: 1000})).tolist() == [8.0]


@pytest.mark.parametrize("grid", [(32768, 1, 1), (64, 16, 32)])
def test_many_tiles_are_fast(grid: tuple[int, int, int]) -> None:
    function = numbered(plain_module(our_attention(128, True, "bf16")))
    cost = tile_cost(function, dict.fromkeys(loops_of(function), 1.0), 0.0)
    values = dict.fromkeys(cost.parameters, 128 * grid[0])
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        cost.evaluate(grid, values)
        times.append(time.perf_counter() - begin)
    assert min(times) < 10e-3  # 0.1 to 2 ms


# ------------------------------------------------------------------------------------------------------ data

SAMPLE = cost_of(PROGRAM_ID + loop("%n", loop("%upper"), "%o"))

WRONG: Mapping[str, Any] = {
    "no field": lambda d: d.pop("fixed"),
    "another field": lambda d: d.update(more=1),
    "no number": lambda d: d.update(fixed="1"),
    "true is no number": lambda d: d.update(fixed=True),
    "a negative number": lambda d: d.update(fixed=-1.0),
    "not finite": lambda d: d.update(fixed=float("nan")),
    "far too large": lambda d: d.update(fixed=10**400),
    "no list": lambda d: d.update(scalars={}),
    "a short scalar": lambda d: d["scalars"][0].pop(),
    "no scalar": lambda d: d["scalars"].__setitem__(0, "constant"),
    "an operation nobody knows": lambda d: d["scalars"][0].__setitem__(0, "addf"),
    "no bits": lambda d: d["scalars"][0].__setitem__(1, 0),
    "too many bits": lambda d: d["scalars"][0].__setitem__(1, 65),
    "a constant too large": lambda d: d["scalars"].__setitem__(0, ["constant", 32, 2**31, []]),
    "an operand too many": lambda d: d["scalars"][0][3].append(0),
    "an operand after it": lambda d: d["scalars"].append(["addi", 32, 0, [0, len(d["scalars"])]]),
    "an operand that is none": lambda d: d["scalars"].append(["addi", 32, 0, [0, -1]]),
    "a fourth axis": lambda d: d["scalars"].append(["program_id", 32, 3, []]),
    "no such predicate": lambda d: d["scalars"].append(["cmpi", 1, 10, [0, 0]]),
    "a negative argument": lambda d: d["scalars"].append(["argument", 32, -1, []]),
    "a loop twice": lambda d: d["loops"].append(d["loops"][0]),
    "no factors": lambda d: d["loops"][0].update(factors=[]),
    "known and not": lambda d: d["loops"][0].update(unknown="why"),
    "a factor nobody knows": lambda d: d["loops"][0].update(factors=[["sum", 0]]),
    "bounds that do not exist": lambda d: d["loops"][0].update(factors=[["trips", 0, 0, 99, False]]),
    "a sign that is none": lambda d: d["loops"][0].update(factors=[["trips", 0, 0, 0, 0]]),
    "a branch that is none": lambda d: d["loops"][0].update(factors=[["branch", 0, None]]),
}


@pytest.mark.parametrize("name", WRONG)
def test_data_that_is_wrong(name: str) -> None:
    data = SAMPLE.to_data()
    WRONG[name](data)
    with pytest.raises(ValueError, match="a tile's cost"):
        TileCost.from_data(data)


@pytest.mark.parametrize(
    "data", ["", [], None, {}, {"fixed": float("inf")}, 10**5000], ids=lambda data: type(data).__name__
)
def test_data_that_is_something_else(data: Any) -> None:
    with pytest.raises(ValueError, match="a tile's cost"):
        TileCost.from_data(data)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_data_is_refused_or_can_be_evaluated(data: st.DataObject) -> None:
    text = json.dumps(SAMPLE.to_data())
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, min(at + 4, len(text))))
    damaged = text[:at] + data.draw(st.text('0123456789-.,[]{}" truefalsn', max_size=4)) + text[end:]
    try:
        cost = TileCost.from_data(json.loads(damaged))
    except ValueError:
        return
    assert cost.evaluate((2, 3, 4), dict.fromkeys(cost.parameters, 5)).shape == (4, 3, 2)
    assert TileCost.from_data(cost.to_data()) == cost


def test_data_keeps_what_was_evaluated() -> None:
    text = json.dumps(SAMPLE.to_data())
    again = TileCost.from_data(json.loads(text))
    assert again == SAMPLE and hash(again) == hash(SAMPLE)
    assert json.dumps(again.to_data()) == text
