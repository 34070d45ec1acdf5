"""Control flow: loops, branches, calls, blocks; and loops that do not end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from wspec import ir
from wspec.execute import ExecutionError, Kernel, Limits, ProgramError, run

HEAD = '"builtin.module"() ({\n'
TAIL = '}) {"ttg.num-warps" = 4 : i32} : () -> ()\n'
CONSTANTS = """
  %c0 = "arith.constant"() <{value = 0 : i32}> : () -> i32
  %c1 = "arith.constant"() <{value = 1 : i32}> : () -> i32
  %c5 = "arith.constant"() <{value = 5 : i32}> : () -> i32
"""


def function(body: str, name: str = "small", rest: str = "") -> str:
    """A kernel of a pointer to i32, %p, and an i32, %n."""
    properties = f'<{{function_type = (!tt.ptr<i32>, i32) -> (), sym_name = "{name}"}}>'
    return (
        f'{HEAD}"tt.func"() {properties} ({{\n^bb0(%p: !tt.ptr<i32>, %n: i32):\n{CONSTANTS}{body}\n}}) : () -> ()\n'
        f"{rest}{TAIL}"
    )


STORE = """
  "tt.store"(%p, %out) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<i32>, i32) -> ()
  "tt.return"() : () -> ()
"""


def value(text: str, n: int, **more: Any) -> int:
    """What the kernel stores."""
    out = torch.full((1,), -1, dtype=torch.int32)
    run(ir.read(text), 1, [out, n], **more)
    return int(out)


def add(a: str, b: str, result: str) -> str:
    flags = "<{overflowFlags = #arith.overflow<none>}>"
    return f'  %{result} = "arith.addi"(%{a}, %{b}) {flags} : (i32, i32) -> i32\n'


def is_less(a: str, b: str, result: str) -> str:
    return f'  %{result} = "arith.cmpi"(%{a}, %{b}) <{{predicate = 2 : i64}}> : (i32, i32) -> i1\n'


SUM_OF_LOOP = f"""
  %out = "scf.for"(%c0, %n, %c1, %c5) ({{
  ^bb1(%i: i32, %before: i32):
  {add("before", "i", "after")}
    "scf.yield"(%after) : (i32) -> ()
  }}) : (i32, i32, i32, i32) -> i32
"""
FIBONACCI = f"""
  %out, %other = "scf.for"(%c0, %n, %c1, %c0, %c1) ({{
  ^bb1(%i: i32, %a: i32, %b: i32):
  {add("a", "b", "c")}
    "scf.yield"(%b, %c) : (i32, i32) -> ()
  }}) : (i32, i32, i32, i32, i32) -> (i32, i32)
"""
COUNT_TO = f"""
  %out = "scf.while"(%c0) ({{
  ^bb1(%before: i32):
  {is_less("before", "n", "go")}
    "scf.condition"(%go, %before) : (i1, i32) -> ()
  }}, {{
  ^bb2(%inside: i32):
  {add("inside", "c1", "next")}
    "scf.yield"(%next) : (i32) -> ()
  }}) : (i32) -> i32
"""
IF_ELSE = f"""
  {is_less("n", "c5", "small")}
  %out = "scf.if"(%small) ({{
    "scf.yield"(%n) : (i32) -> ()
  }}, {{
    "scf.yield"(%c5) : (i32) -> ()
  }}) : (i1) -> i32
"""
IF_ALONE = f"""
  {is_less("n", "c5", "small")}
  "scf.if"(%small) ({{
    "tt.store"(%p, %c1) <{{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}}> : (!tt.ptr<i32>, i32) -> ()
    "scf.yield"() : () -> ()
  }}, {{
  }}) : (i1) -> ()
  "tt.return"() : () -> ()
"""
BLOCKS = f"""
  {is_less("n", "c5", "small")}
  "cf.cond_br"(%small, %n, %c1, %c5)[^bb1, ^bb2] <{{operandSegmentSizes = array<i32: 1, 2, 1>}}>
    : (i1, i32, i32, i32) -> ()
^bb1(%a: i32, %b: i32):
  {add("a", "b", "sum")}
  "cf.br"(%sum)[^bb2] : (i32) -> ()
^bb2(%out: i32):
"""
REGION = f"""
  %out = "scf.execute_region"() ({{
  {is_less("n", "c5", "small")}
    "cf.cond_br"(%small)[^bb1, ^bb2] <{{operandSegmentSizes = array<i32: 1, 0, 0>}}> : (i1) -> ()
  ^bb1:
    "scf.yield"(%n) : (i32) -> ()
  ^bb2:
    "scf.yield"(%c5) : (i32) -> ()
  }}) : () -> i32
"""
SWITCH = """
  %index = "arith.index_cast"(%n) : (i32) -> index
  %out = "scf.index_switch"(%index) <{cases = array<i64: 3, 9>}> ({
    "scf.yield"(%c0) : (i32) -> ()
  }, {
    "scf.yield"(%c1) : (i32) -> ()
  }, {
    "scf.yield"(%c5) : (i32) -> ()
  }) : (index) -> i32
"""
CASES: Mapping[str, tuple[str, dict[int, int]]] = {
    "for": (SUM_OF_LOOP + STORE, {0: 5, 1: 5, 4: 11, -3: 5}),
    "for with two values": (FIBONACCI + STORE, {0: 0, 1: 1, 10: 55}),
    "while": (COUNT_TO + STORE, {0: 0, 7: 7}),
    "if": (IF_ELSE + STORE, {3: 3, 9: 5}),
    "if alone": (IF_ALONE, {3: 1, 9: -1}),
    "blocks": (BLOCKS + STORE, {3: 4, 9: 5}),
    "execute_region": (REGION + STORE, {3: 3, 9: 5}),
    "switch": (SWITCH + STORE, {3: 1, 9: 5, 4: 0}),
}


@pytest.mark.parametrize("name", CASES)
def test_control_flow(name: str) -> None:
    body, expected = CASES[name]
    assert {n: value(function(body), n) for n in expected} == expected


CALLEE = f"""
"tt.func"() <{{function_type = (i32) -> i32, sym_name = "twice", sym_visibility = "private"}}> ({{
^bb0(%x: i32):
  {add("x", "x", "r")}
  "tt.return"(%r) : (i32) -> ()
}}) : () -> ()
"""
CALL = '  %once = "tt.call"(%n) <{callee = @twice}> : (i32) -> i32\n' + (
    '  %out = "tt.call"(%once) <{callee = @twice}> : (i32) -> i32\n'
)


def test_calls() -> None:
    assert value(function(CALL + STORE, rest=CALLEE), 5) == 20


def test_a_function_that_is_not_there() -> None:
    with pytest.raises(ExecutionError, match="the module has no function 'twice'"):
        value(function(CALL + STORE), 5)


FOREVER = """
  "scf.while"() ({
    %go = "arith.constant"() <{value = true}> : () -> i1
    "scf.condition"(%go) : (i1) -> ()
  }, {
    "scf.yield"() : () -> ()
  }) : () -> ()
  "tt.return"() : () -> ()
"""
LONG = """
  %far = "arith.constant"() <{value = 2147483647 : i32}> : () -> i32
  "scf.for"(%c0, %far, %c1) ({
  ^bb1(%i: i32):
    "scf.yield"() : () -> ()
  }) : (i32, i32, i32) -> ()
  "tt.return"() : () -> ()
"""


@pytest.mark.parametrize("body", [FOREVER, LONG])
def test_loops_that_do_not_end(body: str) -> None:
    with pytest.raises(
        ProgramError, match="more than 1000 operations in one program of the grid: a loop that does not"
    ):
        value(function(body), 5, limits=Limits(operations=1000))


def test_a_step_of_zero() -> None:
    with pytest.raises(ProgramError, match="the step of a loop is 0"):
        value(function(SUM_OF_LOOP.replace("%n, %c1, %c5", "%n, %c0, %c5") + STORE), 5)


def test_unsigned_bounds() -> None:
    text = SUM_OF_LOOP.replace('"scf.for"(%c0, %n, %c1, %c5)', '"scf.for"(%n, %c0, %c1, %c5) <{unsignedCmp}>')
    assert value(function(text + STORE), -2) == 5, "from 4294967294 to 0 is nothing"
    text = SUM_OF_LOOP.replace('"scf.for"(%c0, %n, %c1, %c5)', '"scf.for"(%c0, %n, %n, %c5) <{unsignedCmp}>')
    assert value(function(text + STORE), -2) == 5, "one iteration, of 0"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('  "strange.op"() : () -> ()\n', "an operation that the executor does not know: strange.op"),
        ('  "ttng.tmem_alloc"() : () -> ()\n', "does not know: ttng.tmem_alloc"),
    ],
)
def test_unknown_operations(body: str, message: str) -> None:
    with pytest.raises(ExecutionError, match=message):
        Kernel(ir.read(function(body + '  "tt.return"() : () -> ()\n')))


def test_unknown_terminators() -> None:
    with pytest.raises(ExecutionError, match=r"llvm.unreachable"):
        value(function('  "llvm.unreachable"() : () -> ()\n'), 5)


def test_clusters_are_refused() -> None:
    text = function('  "tt.return"() : () -> ()\n').replace(
        '"ttg.num-warps"', '"ttg.num-ctas" = 2 : i32, "ttg.num-warps"'
    )
    with pytest.raises(ExecutionError, match="clusters of several blocks are not supported"):
        Kernel(ir.read(text))


PROGRAM = """
  %id = "tt.get_program_id"() <{axis = 0 : i32}> : () -> i32
  %row = "tt.get_program_id"() <{axis = 1 : i32}> : () -> i32
  %wide = "tt.get_num_programs"() <{axis = 0 : i32}> : () -> i32
  %start = "arith.muli"(%row, %wide) <{overflowFlags = #arith.overflow<none>}> : (i32, i32) -> i32
  %at = "arith.addi"(%start, %id) <{overflowFlags = #arith.overflow<none>}> : (i32, i32) -> i32
  %to = "tt.addptr"(%p, %at) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
  "tt.store"(%to, %at) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<i32>, i32) -> ()
  "tt.return"() : () -> ()
"""


def test_every_program_of_the_grid_runs() -> None:
    out = torch.full((6,), -1, dtype=torch.int32)
    result = run(ir.read(function(PROGRAM)), (3, 2), [out, 0])
    assert out.tolist() == [0, 1, 2, 3, 4, 5] and result.programs == 6


def test_chosen_programs_run() -> None:
    out = torch.full((6,), -1, dtype=torch.int32)
    run(ir.read(function(PROGRAM)), (3, 2), [out, 0], programs=[(1, 0, 0), (2, 1, 0)])
    assert out.tolist() == [-1, 1, -1, -1, -1, 5]


def test_the_error_names_the_program() -> None:
    with pytest.raises(ProgramError, match=r"program=\(2, 0, 0\)") as caught:
        run(ir.read(function(PROGRAM)), 3, [torch.zeros(2, dtype=torch.int32), 0])
    assert caught.value.replay.program == (2, 0, 0)


@pytest.mark.parametrize("grid", [(1, 1, 1, 1), (), (-1,), (1.5,)])
def test_grids_that_are_none(grid: Any) -> None:
    with pytest.raises(ExecutionError, match="a grid is one to three sizes"):
        run(ir.read(function('  "tt.return"() : () -> ()\n')), grid, [torch.zeros(1, dtype=torch.int32), 0])
