"""Loops that Triton has fused are two again, and store the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from wspec import bridge
from wspec.api import offline
from wspec.execute import Kernel
from wspec.ir import read
from wspec.ir.core import Operation
from wspec.ir.verify import check_valid
from wspec.passes.unfused_loops import unfuse_loops

TYPES = {"a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "c_ptr": "*fp32:16", "m": "i32", "n": "i32", "k": "i32"}
BLOCK = 64


@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, m, n, k, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr, SECOND: tl.constexpr, ADDED: tl.constexpr
):
    """Programs walk over tiles; SECOND: the tile's number is counted again for its end."""
    across = tl.cdiv(n, BLOCK)
    tiles = tl.cdiv(m, BLOCK) * across
    inner = tl.arange(0, BLOCK)
    again = tl.program_id(0) - PROGRAMS
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        rows = (tile // across) * BLOCK + inner
        columns = (tile % across) * BLOCK + inner
        rows = tl.where(rows < m, rows, 0)
        sums = tl.zeros((BLOCK, BLOCK), tl.float32)
        for at in range(tl.cdiv(k, BLOCK)):
            deep = at * BLOCK + inner
            a = tl.load(a_ptr + rows[:, None] * k + deep[None, :], mask=inner[None, :] < k - at * BLOCK, other=0.0)
            b = tl.load(b_ptr + deep[:, None] * n + columns[None, :], mask=(deep[:, None] < k) & (columns[None, :] < n))
            sums = tl.dot(a, b, sums)
        if ADDED:
            sums += tile
        again += PROGRAMS
        place = again if SECOND else tile
        i = (place // across) * BLOCK + inner
        j = (place % across) * BLOCK + inner
        inside = (i[:, None] < m) & (j[None, :] < n)
        tl.store(c_ptr + i[:, None] * n + j[None, :], sums, mask=inside)


def loops_of(module: Operation) -> list[list[Operation]]:
    """The loops around each product."""
    return [[op for op in dot.ancestors() if op.name == "scf.for"] for dot in module.walk() if "dot" in dot.name]


def stored(module: Operation, m: int, n: int, k: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(m + n + k)
    a, b = torch.randn(m, k, generator=draw).half(), torch.randn(k, n, generator=draw).half()
    c = torch.zeros(m, n)
    Kernel(module).run((3, 1, 1), [a, b, c, m, n, k])
    return c


@pytest.mark.parametrize(("second", "added"), [(False, False), (True, False), (True, True)])
def test_two_loops_store_what_one_did(second: bool, added: bool) -> None:
    values: dict[str, Any] = {"BLOCK": BLOCK, "PROGRAMS": 3, "SECOND": second, "ADDED": added}
    text = bridge.lower(offline(product, TYPES, values, num_warps=4).source)[1]
    module = read(text)
    assert all(len(loops) == 1 for loops in loops_of(module)), "Triton has not fused them"
    unfuse_loops(module)
    check_valid(module)
    assert [len(loops) for loops in loops_of(module)] == [2]
    assert not any(op.name == "scf.if" for (inner, *_) in loops_of(module) for op in inner.walk())
    for sizes in ((64, 64, 64), (200, 130, 136), (320, 192, 8)):
        assert torch.equal(stored(module, *sizes), stored(read(text), *sizes))


def test_other_loops_stay() -> None:
    values = {"BLOCK": BLOCK, "PROGRAMS": 3, "SECOND": True, "ADDED": False}
    text = bridge.lower(offline(product, TYPES, values, num_warps=4).source)[1]
    for what, instead in (("arith.ceildivsi", "arith.divsi"), ("arith.maxsi", "arith.minsi")):
        assert what in text
        module = read(text.replace(what, instead))
        unfuse_loops(module)
        found = [len(loops) for loops in loops_of(module)]
        assert found == ([2] if what == "arith.ceildivsi" else [1])  # the rounds may be any number, the length not
