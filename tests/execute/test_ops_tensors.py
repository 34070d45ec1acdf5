"""Constants, shapes, ranges, selection, the grid."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.execute.one_op import context, operation, run, run_all, same
from wspec.execute.errors import ExecutionError
from wspec.execute.evaluate import evaluate
from wspec.ir import read

NAN, INF = math.nan, math.inf
FP8 = torch.float8_e4m3fn


def constant(text: str, type: str) -> Any:
    return run("arith.constant", [], type, props=f"value = {text} : {type}")


@pytest.mark.parametrize(
    "text, type, expected",
    [
        ("7", "i32", 7),
        ("-1", "i64", -1),
        ("255", "i8", -1),
        ("5", "index", 5),
        ("1.500000e+00", "f32", torch.tensor(1.5)),
        ("0xFF800000", "f32", torch.tensor(-INF)),
        ("0x7FC0", "bf16", torch.tensor(NAN, dtype=torch.bfloat16)),
        ("-0.000000e+00", "f16", torch.tensor(-0.0, dtype=torch.float16)),
        ("0x7FF0000000000000", "f64", torch.tensor(INF, dtype=torch.float64)),
        ("1.000000e+00", "f8E5M2", torch.tensor(1.0).to(torch.float8_e5m2)),
    ],
)
def test_scalar_constants(text: str, type: str, expected: Any) -> None:
    found = constant(text, type)
    assert same(found, expected) if isinstance(expected, torch.Tensor) else found == expected


def test_bool_constants() -> None:
    assert run("arith.constant", [], "i1", props="value = true") == 1
    assert run("arith.constant", [], "i1", props="value = false") == 0


@pytest.mark.parametrize(
    "text, type, expected",
    [
        ("dense<0xFF800000>", "tensor<2x2xf32>", torch.full((2, 2), -INF)),
        ("dense<0.693147182>", "tensor<3xf32>", torch.full((3,), 0.693147182)),
        ("dense<true>", "tensor<2xi1>", torch.tensor([True, True])),
        ("dense<[true, false]>", "tensor<2xi1>", torch.tensor([True, False])),
        ("dense<-3>", "tensor<2xi16>", torch.full((2,), -3, dtype=torch.int16)),
        ("dense<[[1, 2], [3, -4]]>", "tensor<2x2xi64>", torch.tensor([[1, 2], [3, -4]])),
        ("dense<[1.0, 0x7FC00000]>", "tensor<2xf32>", torch.tensor([1.0, NAN])),
        ("dense<[[5]]>", "tensor<1x1xi32>", torch.tensor([[5]], dtype=torch.int32)),
        ('dense<"0x0000803F000000C0">', "tensor<2xf32>", torch.tensor([1.0, -2.0])),
        ('dense<"0x0100FFFF">', "tensor<2xi16>", torch.tensor([1, -1], dtype=torch.int16)),
        ("dense<1.000000e+00>", "tensor<2xf8E4M3FN>", torch.ones(2).to(FP8)),
        ("dense<0x7F>", "tensor<2xf8E4M3FN>", torch.full((2,), NAN).to(FP8)),
    ],
)
def test_dense_constants(text: str, type: str, expected: torch.Tensor) -> None:
    assert same(constant(text, type), expected)


def test_constants_of_no_known_form() -> None:
    with pytest.raises(ExecutionError, match="cannot read"):
        run("arith.constant", [], "f32", props="value = #t.strange<1>")


def test_splats() -> None:
    assert same(run("tt.splat", ["f32"], "tensor<2x3xf32>", torch.tensor(2.5)), torch.full((2, 3), 2.5))
    assert same(run("tt.splat", ["i32"], "tensor<4xi32>", 7), torch.full((4,), 7, dtype=torch.int32))
    assert same(run("tt.splat", ["i1"], "tensor<2xi1>", 1), torch.tensor([True, True]))
    assert run("tt.splat", ["!tt.ptr<f32>"], "tensor<2x!tt.ptr<f32>>", 1 << 40).tolist() == [1 << 40] * 2
    assert run("tt.unsplat", ["tensor<1x1xi32>"], "i32", torch.tensor([[9]], dtype=torch.int32)) == 9
    assert same(run("tt.unsplat", ["tensor<1xf32>"], "f32", torch.tensor([0.5])), torch.tensor(0.5))


GRID = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
FULL = "tensor<2x3x4xf32>"


def test_shapes() -> None:
    assert same(run("tt.expand_dims", [FULL], "tensor<2x1x3x4xf32>", GRID, props="axis = 1 : i32"), GRID[:, None])
    one = GRID[:, :1]
    assert same(run("tt.broadcast", ["tensor<2x1x4xf32>"], FULL, one), one.expand(2, 3, 4))
    turned = run("tt.trans", [FULL], "tensor<4x2x3xf32>", GRID, props="order = array<i32: 2, 0, 1>")
    assert same(turned, GRID.permute(2, 0, 1)) and turned[3, 1, 2] == GRID[1, 2, 3]
    assert same(run("tt.reshape", ["tensor<4x2x3xf32>"], "tensor<8x3xf32>", turned), turned.contiguous().view(8, 3))
    assert same(run("tt.reshape", [FULL], "tensor<24xf32>", GRID, props="allow_reorder"), GRID.flatten())
    assert run("ttg.convert_layout", [FULL], FULL, GRID) is GRID


def test_halves() -> None:
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    pair = "tensor<2xf32>"
    joined = run("tt.join", [pair, pair], "tensor<2x2xf32>", a, b)
    assert joined.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    first, second = run_all("tt.split", ["tensor<2x2xf32>"], [pair, pair], joined)
    assert same(first, a) and same(second, b)
    assert run_all("tt.split", ["tensor<2xi32>"], ["i32", "i32"], torch.tensor([5, 6], dtype=torch.int32)) == (5, 6)
    assert run("tt.cat", [pair, pair], "tensor<4xf32>", a, b).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_eight_bit_floats_move() -> None:
    a, b = torch.tensor([1.0, -2.0]).to(FP8), torch.tensor([0.5, 448.0]).to(FP8)
    pair, four = "tensor<2xf8E4M3FN>", "tensor<4xf8E4M3FN>"
    assert run("tt.cat", [pair, pair], four, a, b).float().tolist() == [1.0, -2.0, 0.5, 448.0]
    assert run("tt.join", [pair, pair], "tensor<2x2xf8E4M3FN>", a, b).float().tolist() == [[1.0, 0.5], [-2.0, 448.0]]
    chosen = run("arith.select", ["tensor<2xi1>", pair, pair], pair, torch.tensor([True, False]), a, b)
    assert chosen.float().tolist() == [1.0, 448.0]
    index = torch.tensor([1, 1], dtype=torch.int32)
    types = [pair, "tensor<2xi32>"]
    assert run("tt.gather", types, pair, a, index, props="axis = 0 : i32").float().tolist() == [-2.0, -2.0]


def test_ranges() -> None:
    found = run("tt.make_range", [], "tensor<4xi32>", props="end = 12 : i32, start = 8 : i32")
    assert same(found, torch.tensor([8, 9, 10, 11], dtype=torch.int32))


def test_gather() -> None:
    x, index = torch.arange(6.0).reshape(2, 3), torch.tensor([[2, 0], [1, 1]], dtype=torch.int32)
    types = ["tensor<2x3xf32>", "tensor<2x2xi32>"]
    assert run("tt.gather", types, "tensor<2x2xf32>", x, index, props="axis = 1 : i32").tolist() == [[2, 0], [4, 4]]
    with pytest.raises(ExecutionError, match="a gather of element 2 of 2"):
        run("tt.gather", types, "tensor<2x2xf32>", x, index, props="axis = 0 : i32")


def test_select() -> None:
    a, b, pick = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), torch.tensor([False, True])
    pair = "tensor<2xf32>"
    assert run("arith.select", ["tensor<2xi1>", pair, pair], pair, pick, a, b).tolist() == [3.0, 2.0]
    assert run("arith.select", ["i1", pair, pair], pair, 1, a, b) is a
    assert run("arith.select", ["i1", "i32", "i32"], "i32", 0, 5, 6) == 6


def test_poison_is_zero() -> None:
    assert run("ub.poison", [], "i32") == 0
    assert same(run("ub.poison", [], "tensor<2xf16>"), torch.zeros(2, dtype=torch.float16))


def test_the_grid() -> None:
    within = replace(context(), program=(3, 4, 5), grid=(10, 11, 12))
    for axis in range(3):
        props, dim = f"axis = {axis} : i32", f"dimension = #gpu<dim {'xyz'[axis]}>"
        assert run("tt.get_program_id", [], "i32", props=props, within=within) == 3 + axis
        assert run("tt.get_num_programs", [], "i32", props=props, within=within) == 10 + axis
        assert run("gpu.block_id", [], "index", props=dim, within=within) == 3 + axis
        assert run("gpu.grid_dim", [], "index", props=dim, within=within) == 10 + axis
        assert run("gpu.cluster_id", [], "index", props=dim, within=within) == 3 + axis
        assert run("gpu.cluster_block_id", [], "index", props=dim, within=within) == 0
    assert run("ttng.cluster_id", [], "i32") == 0


def test_threads_of_a_block() -> None:
    text = (
        '"builtin.module"() ({\n%x = "gpu.block_dim"() {dimension = #gpu<dim x>} : () -> index\n}) {MARKS} : () -> ()'
    )
    for marks, threads in (
        ('"ttg.num-warps" = 4 : i32', 128),
        ('"ttg.num-warps" = 4 : i32, "ttg.total-num-warps" = 12 : i32', 384),
    ):
        op = read(text.replace("MARKS", marks)).regions[0].block.ops[0]
        assert evaluate(op, (), context()) == (threads,)


@pytest.mark.parametrize("name", ["gpu.thread_id", "gpu.lane_id", "ttg.warp_id"])
def test_threads_are_not_told_apart(name: str) -> None:
    with pytest.raises(ExecutionError, match="differs between the threads"):
        run(name, [], "i32", props="dimension = #gpu<dim x>")


def test_values_of_constants_are_shared() -> None:
    """Evaluating a constant again costs nothing: the same tensor."""
    op, here = operation("arith.constant", [], ["tensor<4xf32>"], "value = dense<1.0> : tensor<4xf32>"), context()
    assert evaluate(op, (), here)[0] is evaluate(op, (), here)[0]
