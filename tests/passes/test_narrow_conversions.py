"""Vectors change their layout before they become tiles, and what is computed stays the same."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from wspec import bridge
from wspec.api import offline
from wspec.execute import Kernel
from wspec.execute.arguments import parameters
from wspec.ir import read
from wspec.ir.core import Operation
from wspec.ir.types import TensorType
from wspec.ir.verify import check_valid
from wspec.passes.narrow_conversions import narrow_conversions

TYPES = {"a": "*fp16:16", "b": "*fp16:16", "rows": "*fp32:16", "columns": "*fp32:16", "out": "*fp16:16", "k": "i32:16"}


def result(kernel: Operation, shapes: dict[str, tuple[int, ...]]) -> torch.Tensor:
    """`out` after one block in the executor, of the same numbers each time."""
    numbers = torch.Generator().manual_seed(0)
    given = {name: torch.randn(shape, generator=numbers) for name, shape in shapes.items()}
    given = {name: one if name in ("rows", "columns") else one.half() for name, one in given.items()}
    ready = Kernel(kernel)
    ready.run((1, 1, 1), {one.name: {**given, "k": 64}[one.name] for one in parameters(ready.function)})
    return given["out"]


@triton.jit
def scaled(a, b, rows, columns, out, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, KIND: tl.constexpr):
    """Scales of rows and columns: behind the loop, in each iteration, or the scales' own tile is stored."""
    m, n, at = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        product = tl.dot(
            tl.load(a + m[:, None] * k + first + at[None, :]), tl.load(b + (first + at)[:, None] * BN + n[None, :])
        )
        if KIND == 1:
            place = first // BK
            product = product * tl.load(rows + m * 2 + place)[:, None] * tl.load(columns + n * 2 + place)[None, :]
        total += product
    if KIND == 2:  # what is computed of both
        same = tl.load(rows + m)[:, None] * 2.0 > tl.load(columns + n)[None, :]
        total = tl.where(same, total, 0.0)
    elif KIND == 0:
        total = total * tl.load(rows + m)[:, None] * tl.load(columns + n)[None, :]
    tl.store(out + m[:, None] * BN + n[None, :], total.to(tl.float16))


def wide_one(op: Operation) -> bool:
    """Is it a tile whose layout is changed?"""
    return isinstance(op.result.type, TensorType) and len(op.result.type.shape) == 2


def wide(module: Operation) -> int:
    """Bytes of the tiles whose layout is changed, but for what is stored at last."""
    types = [op.result.type for op in module.walk() if op.name == "ttg.convert_layout"]
    tiles = [type for type in types if isinstance(type, TensorType) and len(type.shape) == 2]
    return sum(type.shape[0] * type.shape[1] * 4 for type in tiles if str(type.element) in ("f32", "i1"))


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_scales_of_rows_and_columns(kind: int) -> None:
    made = offline(scaled, TYPES, {"BM": 128, "BN": 256, "BK": 32, "KIND": kind}, num_warps=8, num_stages=3)
    text = bridge.lower(made.source)[1]
    module, plain = read(text), read(text)
    narrow_conversions(module)
    check_valid(module)
    assert wide(plain) >= 128 * 256 * 4 and wide(module) == 0
    again = read(text)
    narrow_conversions(again)
    assert sum(1 for _ in again.walk()) <= sum(1 for _ in plain.walk()) + 4  # nothing is left of the other tiles

    shapes = {"a": (128, 64), "b": (64, 256), "rows": (256,), "columns": (512,), "out": (128, 256)}
    assert torch.equal(result(module, shapes), result(plain, shapes))


@triton.jit
def loaded(a, b, rows, columns, out, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, KIND: tl.constexpr):
    """A tile that is loaded is no vector."""
    m, n, at = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.dot(tl.load(a + m[:, None] * k + at[None, :]), tl.load(b + at[:, None] * BN + n[None, :]))
    total += tl.load(rows + m[:, None] * BN + n[None, :])
    tl.store(out + m[:, None] * BN + n[None, :], total.to(tl.float16))


def test_tiles_that_are_loaded_stay() -> None:
    made = offline(loaded, TYPES, {"BM": 128, "BN": 256, "BK": 32, "KIND": 0}, num_warps=8, num_stages=3)
    text = bridge.lower(made.source)[1]
    module = read(text)
    narrow_conversions(module)
    assert wide(module) == wide(read(text)) > 0


@triton.jit
def used_twice(a, b, rows, columns, out, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, KIND: tl.constexpr):
    """A tile that is made before a loop, and used in it, in a branch of it, behind it, and stored as it is."""
    m, n, at = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    scales = tl.load(rows + m)[:, None] * tl.load(columns + n)[None, :] + 1.0
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        product = tl.dot(
            tl.load(a + m[:, None] * k + first + at[None, :]), tl.load(b + (first + at)[:, None] * BN + n[None, :])
        )
        if first > 0:
            product = product * scales
        total += product / scales
        scales = scales + tl.load(columns + n)[None, :] if KIND == 1 else scales
    tl.store(out + m[:, None] * BN + n[None, :], (total + scales).to(tl.float16))
    tl.store(out + BM * BN + m[:, None] * BN + n[None, :], scales.to(tl.float16))


@pytest.mark.parametrize("kind", [0, 1])
def test_a_tile_of_two_layouts_in_and_around_a_loop(kind: int) -> None:
    """Where a loop changes the tile it is none of vectors."""
    made = offline(used_twice, TYPES, {"BM": 64, "BN": 128, "BK": 32, "KIND": kind}, num_warps=4, num_stages=3)
    text = bridge.lower(made.source)[1]
    module, plain = read(text), read(text)
    narrow_conversions(module)
    check_valid(module)
    changed = sum(1 for op in module.walk() if op.name == "ttg.convert_layout" and wide_one(op))
    before = sum(1 for op in plain.walk() if op.name == "ttg.convert_layout" and wide_one(op))
    assert changed < before if kind == 0 else changed <= before

    shapes = {"a": (64, 64), "b": (64, 128), "rows": (64,), "columns": (128,), "out": (128, 128)}
    assert torch.equal(result(module, shapes), result(plain, shapes))


OF_A_NUMBER = """
"builtin.module"() ({{
  "tt.func"() <{{function_type = (i32, !tt.ptr<i32>) -> (), sym_name = "kernel", sym_visibility = "public"}}> ({{
  ^bb0(%arg0: i32, %arg1: !tt.ptr<i32>):
    %0 = "tt.splat"(%arg0) : (i32) -> tensor<1x32xi32, #blocked>
    %1 = "tt.broadcast"(%0) : (tensor<1x32xi32, #blocked>) -> tensor<32x32xi32, #blocked>
    {0}
    %3 = "ttg.convert_layout"(%2{1}) : (tensor<32x32xi32, #blocked>) -> tensor<32x32xi32, #other>
    %4 = "tt.splat"(%arg1) : (!tt.ptr<i32>) -> tensor<32x32x!tt.ptr<i32>, #other>
    "tt.store"(%4, %3) <{{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}}> : \
(tensor<32x32x!tt.ptr<i32>, #other>, tensor<32x32xi32, #other>) -> ()
    "tt.return"() : () -> ()
  }}) : () -> ()
}}) : () -> ()
"""
TILE = "tensor<32x32xi32, #blocked>"
LAYOUT = "#ttg.blocked<{{sizePerThread = [1, {0}], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}}>"


FLAGS = 'libname = "", libpath = "", pure = PURE, symbol = "f"'
CALLED = f'%2 = "tt.extern_elementwise"(%1) <{{{FLAGS}}}> : ({TILE}) -> {TILE}'


@pytest.mark.parametrize(
    ("made", "at", "stays"),
    [
        (f'%2 = "arith.addi"(%1, %1) : ({TILE}, {TILE}) -> {TILE}', "", False),
        (f'%2:2 = "arith.mulsi_extended"(%1, %1) : ({TILE}, {TILE}) -> ({TILE}, {TILE})', "#1", True),
        (CALLED.replace("PURE", "true"), "", False),
        (CALLED.replace("PURE", "false"), "", True),
    ],
)
def test_what_is_done_once_and_has_one_result(made: str, at: str, stays: bool) -> None:
    text = OF_A_NUMBER.format(made, at).replace("#blocked", LAYOUT.format(4)).replace("#other", LAYOUT.format(1))
    module = read(text)
    narrow_conversions(module)
    names = [op.name for op in module.walk()]
    assert ("ttg.convert_layout" in names) == stays
    assert len(names) == (9 if stays else 8)
