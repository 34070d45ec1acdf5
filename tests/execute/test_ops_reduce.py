"""Reductions, scans and maps with a region."""

from __future__ import annotations

import pytest
import torch

from tests.execute.one_op import context, run, run_all, same
from wspec.execute.errors import ExecutionError
from wspec.execute.evaluate import evaluate
from wspec.ir import read


def region(args: str, body: str, end: str) -> str:
    return f"^bb0({args}):\n{body}\n{end}"


def binary(name: str, type: str = "f32", kind: str = "reduce") -> str:
    body = f'%s = "arith.{name}"(%x, %y) : ({type}, {type}) -> {type}'
    return region(f"%x: {type}, %y: {type}", body, f'"tt.{kind}.return"(%s) : ({type}) -> ()')


X = torch.tensor([[1.5, -2.0, 4.0, 0.25], [8.0, 1.0, -1.0, 3.0]])


def test_reduce() -> None:
    props = "axis = 1 : i32"
    found = run("tt.reduce", ["tensor<2x4xf32>"], "tensor<2xf32>", X, props=props, region=binary("addf"))
    assert same(found, torch.tensor([3.75, 11.0]))
    found = run("tt.reduce", ["tensor<2x4xf32>"], "tensor<4xf32>", X, props="axis = 0 : i32", region=binary("maxnumf"))
    assert same(found, torch.tensor([8.0, 1.0, 4.0, 3.0]))


def test_reduce_to_scalars() -> None:
    props, line = "axis = 0 : i32", torch.tensor([3, 5, 9, 1], dtype=torch.int32)
    assert run("tt.reduce", ["tensor<4xi32>"], "i32", line, props=props, region=binary("xori", "i32")) == 3 ^ 5 ^ 9 ^ 1
    found = run("tt.reduce", ["tensor<4xf32>"], "f32", X[0], props=props, region=binary("addf"))
    assert same(found, torch.tensor(3.75))
    bools = torch.tensor([False, True, False, False])
    assert run("tt.reduce", ["tensor<4xi1>"], "i1", bools, props=props, region=binary("ori", "i1")) == 1
    assert run("tt.reduce", ["tensor<1xi32>"], "i32", line[:1], props=props, region=binary("addi", "i32")) == 3


def test_reduce_in_the_type() -> None:
    """Partial sums are rounded to bf16: 256 + 1 is 256."""
    x = torch.tensor([256.0, 1.0, 1.0, 0.0], dtype=torch.bfloat16)
    sums = binary("addf", "bf16")
    found = run("tt.reduce", ["tensor<4xbf16>"], "bf16", x, props="axis = 0 : i32", region=sums)
    assert found.item() in (256.0, 258.0) and found.dtype == torch.bfloat16
    overflow = torch.tensor([2**31 - 1, 1], dtype=torch.int32)
    sums = binary("addi", "i32")
    assert run("tt.reduce", ["tensor<2xi32>"], "i32", overflow, props="axis = 0 : i32", region=sums) == -(2**31)


def test_reduce_of_odd_lengths() -> None:
    x = torch.arange(7, dtype=torch.int32)
    assert run("tt.reduce", ["tensor<7xi32>"], "i32", x, props="axis = 0 : i32", region=binary("addi", "i32")) == 21


def test_rows_do_not_matter_to_each_other() -> None:
    """A slice of a reduction is the reduction of a slice, bit by bit."""
    torch.manual_seed(0)
    x = torch.randn(16, 128)
    props = "axis = 1 : i32"
    whole = run("tt.reduce", ["tensor<16x128xf32>"], "tensor<16xf32>", x, props=props, region=binary("addf"))
    part = run("tt.reduce", ["tensor<4x128xf32>"], "tensor<4xf32>", x[8:12], props=props, region=binary("addf"))
    assert same(whole[8:12], part)


# as Triton writes argmax, ties to the smaller index
ARGMAX = """\
^bb0(%x: f32, %i: i32, %y: f32, %j: i32):
  %same = "arith.cmpf"(%x, %y) <{predicate = 1 : i64}> : (f32, f32) -> i1
  %lower = "arith.cmpi"(%i, %j) <{predicate = 2 : i64}> : (i32, i32) -> i1
  %tie = "arith.andi"(%same, %lower) : (i1, i1) -> i1
  %more = "arith.cmpf"(%x, %y) <{predicate = 2 : i64}> : (f32, f32) -> i1
  %first = "arith.ori"(%more, %tie) : (i1, i1) -> i1
  %v = "arith.select"(%first, %x, %y) : (i1, f32, f32) -> f32
  %k = "arith.select"(%first, %i, %j) : (i1, i32, i32) -> i32
  "tt.reduce.return"(%v, %k) : (f32, i32) -> ()"""


def test_argmax() -> None:
    x = torch.tensor([[1.0, 7.0, 7.0, 2.0, 7.0, 0.0, 0.0, 0.0], [5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0]])
    index = torch.arange(8, dtype=torch.int32).expand(2, 8)
    types, results = ["tensor<2x8xf32>", "tensor<2x8xi32>"], ["tensor<2xf32>", "tensor<2xi32>"]
    value, at = run_all("tt.reduce", types, results, x, index, props="axis = 1 : i32", region=ARGMAX)
    assert value.tolist() == [7.0, 5.0] and at.tolist() == [1, 0] and at.dtype == torch.int32


@pytest.mark.parametrize("length", [1, 2, 7, 64])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(length: int, reverse: bool) -> None:
    x = torch.arange(1, 3 * length + 1, dtype=torch.int32).reshape(3, length)
    props = f"axis = 1 : i32, reverse = {str(reverse).lower()}"
    type = f"tensor<3x{length}xi32>"
    found = run("tt.scan", [type], type, x, props=props, region=binary("addi", "i32", "scan"))
    expected = x.flip(1).cumsum(1).flip(1) if reverse else x.cumsum(1)
    assert same(found, expected.to(torch.int32))


# (decay, state) of a linear recurrence: associative, and the order of its arguments matters
FIRST_ORDER = """\
^bb0(%d0: f32, %b0: f32, %d1: f32, %b1: f32):
  %a = "arith.mulf"(%d0, %d1) : (f32, f32) -> f32
  %m = "arith.mulf"(%b0, %d1) : (f32, f32) -> f32
  %b = "arith.addf"(%m, %b1) : (f32, f32) -> f32
  "tt.scan.return"(%a, %b) : (f32, f32) -> ()"""


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_keeps_the_order(reverse: bool) -> None:
    decay, x = torch.tensor([2.0, 0.5, 4.0, 1.0, 2.0, 0.25, 1.0, 2.0]), torch.arange(1.0, 9.0)
    states, state = [], 0.0
    for a, b in list(zip(decay.tolist(), x.tolist(), strict=True))[:: -1 if reverse else 1]:
        state = state * a + b
        states.append(state)
    type = "tensor<8xf32>"
    props = f"axis = 0 : i32, reverse = {str(reverse).lower()}"
    _, found = run_all("tt.scan", [type, type], [type, type], decay, x, props=props, region=FIRST_ORDER)
    assert found.tolist() == states[:: -1 if reverse else 1]


BRANCHES = """
%two = "arith.constant"() <{value = 2.0 : f32}> : () -> f32
%x, %y = "t.make"() : () -> (tensor<4xf32>, tensor<4xf32>)
%r = "tt.map_elementwise"(%x, %y) <{pack = 1 : i32}> ({
^bb0(%a: f32, %b: f32):
  %c = "arith.cmpf"(%a, %b) <{predicate = 2 : i64}> : (f32, f32) -> i1
  %s = "scf.if"(%c) ({
    %t = "arith.mulf"(%a, %two) : (f32, f32) -> f32
    "scf.yield"(%t) : (f32) -> ()
  }, {
    %half = "arith.constant"() <{value = 0.5 : f32}> : () -> f32
    %t = "arith.addf"(%b, %half) : (f32, f32) -> f32
    "scf.yield"(%t) : (f32) -> ()
  }) : (i1) -> f32
  "tt.map_elementwise.return"(%s) : (f32) -> ()
}) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
"""


def test_branches_and_constants_from_outside() -> None:
    op = read(BRANCHES).regions[0].block.ops[-1]
    (found,) = evaluate(op, (torch.tensor([1.0, 5.0, 0.0, 3.0]), torch.tensor([2.0, 2.0, 2.0, 3.0])), context())
    assert found.tolist() == [2.5, 10.0, 2.5, 3.5]


def test_map_in_packs() -> None:
    body = '%s = "arith.addi"(%a, %b) : (i32, i32) -> i32\n%p = "arith.muli"(%a, %d) : (i32, i32) -> i32'
    end = '"tt.map_elementwise.return"(%s, %p) : (i32, i32) -> ()'
    text = region("%a: i32, %b: i32, %c: i32, %d: i32", body, end)
    x, y = torch.tensor([[1, 2], [3, 4]], dtype=torch.int32), torch.tensor([[10, 20], [30, 40]], dtype=torch.int32)
    type = "tensor<2x2xi32>"
    found = run("tt.map_elementwise", [type, type], type, x, y, props="pack = 2 : i32", region=text)
    assert found.tolist() == [[3, 20], [7, 120]]


def test_map_to_two() -> None:
    body = '%s = "arith.addf"(%a, %b) : (f32, f32) -> f32\n%d = "arith.subf"(%a, %b) : (f32, f32) -> f32'
    text = region("%a: f32, %b: f32", body, '"tt.map_elementwise.return"(%s, %d) : (f32, f32) -> ()')
    type, x, y = "tensor<2xf32>", torch.tensor([1.0, 2.0]), torch.tensor([4.0, 8.0])
    total, less = run_all("tt.map_elementwise", [type, type], [type, type], x, y, props="pack = 1 : i32", region=text)
    assert total.tolist() == [5.0, 10.0] and less.tolist() == [-3.0, -6.0]


def test_a_region_of_constants() -> None:
    text = region(
        "%a: i32, %b: i32",
        '%c = "arith.constant"() <{value = 4 : i32}> : () -> i32',
        '"tt.reduce.return"(%c) : (i32) -> ()',
    )
    x = torch.zeros(2, 8, dtype=torch.int32)
    found = run("tt.reduce", ["tensor<2x8xi32>"], "tensor<2xi32>", x, props="axis = 1 : i32", region=text)
    assert found.tolist() == [4, 4]


@pytest.mark.parametrize(
    "body, says",
    [
        ('%s = "t.strange"(%x) : (f32) -> f32', "t.strange inside a region"),
        ('%p = "tt.make_range"() : () -> i32\n"gpu.barrier"() : () -> ()', "gpu.barrier inside a region"),
    ],
)
def test_what_cannot_run_on_tensors(body: str, says: str) -> None:
    text = region("%x: f32, %y: f32", body, '"tt.reduce.return"(%x) : (f32) -> ()')
    with pytest.raises(ExecutionError, match=says):
        run("tt.reduce", ["tensor<4xf32>"], "f32", X[0], props="axis = 0 : i32", region=text)


def test_histogram() -> None:
    x = torch.tensor([0, 3, 3, 1, 3, 0, 2, 99], dtype=torch.int32)
    inside = x < 4
    types = ["tensor<8xi32>", "tensor<8xi1>"]
    assert run("tt.histogram", types, "tensor<4xi32>", x, inside).tolist() == [2, 1, 1, 3]
    with pytest.raises(ExecutionError, match="a histogram of 4 bins counts a 99"):
        run("tt.histogram", types[:1], "tensor<4xi32>", x)
