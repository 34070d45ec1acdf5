"""Kernels whose structure is not a loop of products alone: specialized they are proved, and compute what they did.

Tiles come through pointers, so that the executor can run both forms on ordinary tensors.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import wspec
from tests.support.verified import specialize
from wspec import bridge
from wspec.api import offline
from wspec.execute import Kernel, Random
from wspec.ir import read
from wspec.ir.core import Operation
from wspec.options import Options

OPTIONS = Options(gate="off", promote=False, persistent=False)
TYPES = {
    "a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "out_ptr": "*fp32:16", "s_ptr": "*fp32:16", "sizes_ptr": "*i32:16",
    "count": "i32", "step": "i32",
}  # fmt: skip
K = 64


@triton.jit
def sum_of_tiles(a_ptr, b_ptr, first, count, ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr):
    """count tiles of a, from the first on, times those of b."""
    i, k, j = tl.arange(0, ROWS), tl.arange(0, K), tl.arange(0, COLUMNS)
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for at in range(count):
        a = tl.load(a_ptr + ((first + at) * ROWS + i[:, None]) * K + k[None, :])
        b = tl.load(b_ptr + ((first + at) * K + k[:, None]) * COLUMNS + j[None, :])
        sums = tl.dot(a, b, sums)
    return sums


@triton.jit
def waits(
    a_ptr, b_ptr, out_ptr, s_ptr, sizes_ptr, count, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr
):
    """Threads read what others of them have stored."""
    i, j = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    sums = sum_of_tiles(a_ptr, b_ptr, 0, count, ROWS, COLUMNS, K)
    tl.store(s_ptr + i, tl.sum(sums, axis=1))
    tl.debug_barrier()
    others = tl.load(s_ptr + (ROWS - 1 - i))
    tl.store(out_ptr + i[:, None] * COLUMNS + j[None, :], sums + others[:, None])


@triton.jit
def groups(
    a_ptr, b_ptr, out_ptr, s_ptr, sizes_ptr, count, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr
):
    """Programs take tiles of groups of several sizes in turn, as a while."""
    i, j = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tile = tl.program_id(0)
    before = 0
    for group in range(4):
        size = tl.load(sizes_ptr + group)
        if size > 0:
            while tile >= before and tile < before + size:
                sums = sum_of_tiles(a_ptr, b_ptr, tile, count, ROWS, COLUMNS, K)
                tl.store(out_ptr + (tile * ROWS + i[:, None]) * COLUMNS + j[None, :], sums + group)
                tile += step
            before += size


@triton.jit
def begins(
    a_ptr, b_ptr, out_ptr, s_ptr, sizes_ptr, count, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr
):
    """Where a program begins, and how far it goes, are sums of numbers in memory."""
    i, j, g = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, 4)
    sizes = tl.load(sizes_ptr + g)
    program = tl.program_id(0)
    first = tl.sum(tl.where(g < program, sizes, 0))
    mine = tl.sum(tl.where(g == program, sizes, 0))
    sums = sum_of_tiles(a_ptr, b_ptr, first, mine, ROWS, COLUMNS, K)
    tl.store(out_ptr + (program * ROWS + i[:, None]) * COLUMNS + j[None, :], sums)


@triton.jit
def leaves(
    a_ptr, b_ptr, out_ptr, s_ptr, sizes_ptr, count, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr
):
    """Several tests, each of which may end a program."""
    i, j = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    program = tl.program_id(0)
    if program >= step:
        return
    size = tl.load(sizes_ptr + program)
    if size == 0:
        return
    sums = sum_of_tiles(a_ptr, b_ptr, program, size, ROWS, COLUMNS, K)
    tl.store(out_ptr + (program * ROWS + i[:, None]) * COLUMNS + j[None, :], sums)


@triton.jit
def follows(
    a_ptr, b_ptr, out_ptr, s_ptr, sizes_ptr, count, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr
):
    """A tile that is made of products is an operand of two later ones."""
    i, k, j = tl.arange(0, ROWS), tl.arange(0, K), tl.arange(0, COLUMNS)
    one = tl.zeros((ROWS, COLUMNS), tl.float32)
    other = tl.zeros((ROWS, COLUMNS), tl.float32)
    for at in range(count):
        a = tl.load(a_ptr + (at * ROWS + i[:, None]) * K + k[None, :])
        b = tl.load(b_ptr + (at * K + k[:, None]) * COLUMNS + j[None, :])
        made = tl.dot(a, b).to(tl.float16)
        one = tl.dot(a, made, one)
        other = tl.dot(tl.trans(a), made, other)
    tl.store(out_ptr + i[:, None] * COLUMNS + j[None, :], one + other)


CASES = {
    "a barrier": (waits, 128, 4, {}),
    "a barrier, eight warps": (waits, 128, 8, {}),
    "a counting while": (groups, 64, 4, {}),
    "reductions that decide": (begins, 64, 4, {}),
    "several returns": (leaves, 64, 4, {}),
    "64 rows for eight warps": (follows, 64, 8, {}),
    "operands made in shared memory": (follows, 64, 4, {}),
}


@functools.cache
def forms(name: str) -> tuple[Operation, Operation, bool]:
    """The kernel as it is and specialized, and whether its binary is proved."""
    kernel, rows, warps, _ = CASES[name]
    values = {"ROWS": rows, "COLUMNS": 64, "K": K}
    made = offline(kernel, TYPES, values, num_warps=warps)
    text = bridge.lower(made.source)[1]
    found = specialize(read(text), OPTIONS)
    assert found.module is not None, found.remarks
    report = wspec.offline(
        kernel, TYPES, values, num_warps=warps, gate="off", promote=False, persistent=False
    ).outcome()
    return read(text), found.module, report.specialized


def stored(module: Operation, rows: int, count: int, seed: int, schedule: Any = None) -> torch.Tensor:
    """What a launch of three programs leaves."""
    draw = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(16 * size * K, generator=draw).half() * 0.2 for size in (rows, 64))
    sizes = torch.randint(0, 4, (4,), generator=draw, dtype=torch.int32)
    out, sums = torch.zeros(16 * rows * 64), torch.zeros(rows)
    Kernel(module).run((3, 1, 1), [a, b, out, sums, sizes, count, 3], schedule=schedule)
    return out


@pytest.mark.parametrize("name", CASES)
def test_specialized_it_computes_the_same(name: str, fresh_cache: Any) -> None:
    plain, specialized, proved = forms(name)
    assert proved
    rows = CASES[name][1]
    for seed, count in ((0, 0), (1, 1), (2, 4)):
        expected = stored(plain, rows, count, seed)
        assert torch.equal(stored(specialized, rows, count, seed), expected)
        assert torch.equal(stored(specialized, rows, count, seed, Random(seed)), expected)
    assert expected.any()
