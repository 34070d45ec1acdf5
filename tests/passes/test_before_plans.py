"""What is done to a kernel before a plan is made: early returns are nested, idle barriers go, boxes are shared."""

from __future__ import annotations

from typing import Any

import pytest
import triton
import triton.language as tl

from wspec import bridge
from wspec.api import offline
from wspec.ir import read
from wspec.ir.core import Operation
from wspec.ir.types import MemDescType, TensorType
from wspec.ir.verify import check_valid
from wspec.passes.boxed_operands import share_boxed_operands
from wspec.passes.early_returns import nest_returns
from wspec.passes.idle_barriers import drop_idle_barriers

TYPES = {"a_ptr": "*fp32", "b_ptr": "*fp32", "n": "i32"}


@triton.jit
def returns(a_ptr, b_ptr, n, BLOCK: tl.constexpr, TWICE: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    if first >= n:
        return
    place = first + tl.arange(0, BLOCK)
    if TWICE and first == 0:
        tl.store(b_ptr + place, 0.0)
        return
    tl.store(b_ptr + place, tl.load(a_ptr + place))


@triton.jit
def waits(a_ptr, b_ptr, n, BLOCK: tl.constexpr, SAME: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(b_ptr + place, tl.load(a_ptr + place))
    tl.debug_barrier()
    if SAME:
        tl.store(b_ptr + place, tl.load(b_ptr + place + 1))


@triton.jit
def boxes(a, b, out, n, MIDDLE: tl.constexpr):
    """Rows of one head, which is the middle dimension, or of one batch, which is the first."""
    total = tl.zeros((64, 64), tl.float32)
    left = (a.load([n, 1, 0]) if MIDDLE else a.load([1, n, 0])).reshape(64, 64)
    for at in range(n):
        total = tl.dot(left, b.load([at * 64, 0]), total)
    place = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(out + place, total)


def module_of(kernel: Any, types: dict[str, str] = TYPES, **values: int) -> Operation:
    return read(bridge.lower(offline(kernel, types, values).source)[1])


@pytest.mark.parametrize("twice", [0, 1])
def test_returns_are_nested(twice: int) -> None:
    module = module_of(returns, BLOCK=128, TWICE=twice)
    function = next(op for op in module.walk() if op.name == "tt.func")
    assert len(function.regions[0].blocks) > 1
    nest_returns(module)
    check_valid(module)
    names = [op.name for op in module.walk()]
    assert names.count("tt.return") == 1 and names.count("scf.if") == 1 + twice and names.count("tt.store") == 1 + twice
    bridge.reparse(print_of(module))


@pytest.mark.parametrize("same", [0, 1])
def test_a_barrier_stays_where_threads_read_what_others_wrote(same: int) -> None:
    module = module_of(waits, BLOCK=128, SAME=same)
    before = sum("barrier" in op.name for op in module.walk())
    drop_idle_barriers(module)
    assert before == 1 and sum("barrier" in op.name for op in module.walk()) == same


@pytest.mark.parametrize("middle", [0, 1])
def test_left_operands_are_read_where_their_boxes_are(middle: int) -> None:
    box = "64, 1, 64" if middle else "1, 64, 64"
    types = {"a": f"tensordesc<fp16[{box}]>", "b": "tensordesc<fp16[64, 64]>", "out": "*fp32:16", "n": "i32"}
    module = module_of(boxes, types, MIDDLE=middle)
    dot = next(op for op in module.walk() if op.name == "ttng.warp_group_dot")
    assert isinstance(dot.operands[0].type, TensorType if middle else MemDescType), "Triton shares the other one itself"
    share_boxed_operands(module)
    check_valid(module)
    assert isinstance(dot.operands[0].type, MemDescType)
    assert "tt.reshape" not in {op.name for op in module.walk()}
    bridge.reparse(print_of(module))


def print_of(module: Operation) -> str:
    from wspec.ir import print_module

    return print_module(module)
