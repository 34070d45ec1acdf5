"""Ordinary kernels whose numbers hang on whether a caller passes one tensor for two arguments."""

from __future__ import annotations

# mypy: ignore-errors
# The bodies of jit functions are read by Triton, which has no types to give their arguments.
import triton
import triton.language as tl


@triton.jit
def bound_elsewhere(a_desc, b_desc, c_desc, bound_ptr, next_ptr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Loads how often its loop runs, and stores how often the next kernel's will."""
    count = tl.load(bound_ptr)
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, count):
        acc = tl.dot(a_desc.load([0, i * BK]), b_desc.load([i * BK, 0]), acc)
    tl.store(next_ptr, count + 1)
    c_desc.store([0, 0], acc.to(c_desc.dtype))


@triton.jit
def bound_here(a_desc, b_desc, c_desc, bound_ptr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The same through one argument."""
    count = tl.load(bound_ptr)  # at: load
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, count):
        acc = tl.dot(a_desc.load([0, i * BK]), b_desc.load([i * BK, 0]), acc)
    tl.store(bound_ptr, count + 1)  # at: store
    c_desc.store([0, 0], acc.to(c_desc.dtype))


@triton.jit
def bound_volatile(a_desc, b_desc, c_desc, bound_ptr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Others may write how often it runs, at any time."""
    count = tl.load(bound_ptr, volatile=True)  # at: load
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, count):
        acc = tl.dot(a_desc.load([0, i * BK]), b_desc.load([i * BK, 0]), acc)
    c_desc.store([0, 0], acc.to(c_desc.dtype))


@triton.jit
def added_in_place(a_desc, b_desc, sum_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Each group of warps loads and stores the rows that are its own."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    places = sum_ptr + (row + tl.arange(0, BM))[:, None] * n + (column + tl.arange(0, BN))[None, :]
    tl.store(places, tl.load(places) + acc)


@triton.jit
def added_one_row_down(a_desc, b_desc, sum_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Each group of warps loads a row that another one stores."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    places = sum_ptr + (row + tl.arange(0, BM))[:, None] * n + (column + tl.arange(0, BN))[None, :]
    above = tl.load(places)  # at: load
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    tl.store(places + n, above + acc)  # at: store


@triton.jit
def stored_over_input(a_ptr, b_ptr, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Each iteration stores what a later one loads."""
    rows, inner, columns = tl.arange(0, BM)[:, None], tl.arange(0, BK), tl.arange(0, BN)[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        a = tl.load(a_ptr + rows * 1024 + (i + inner)[None, :])
        acc = tl.dot(a, tl.load(b_ptr + (i + inner)[:, None] * BN + columns), acc)
        tl.store(a_ptr + rows * 1024 + i + BK + columns, acc.to(tl.float16))


@triton.jit
def pointer_product(a_ptr, b_ptr, c_ptr, n, k, first, scale, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product through pointers; A begins so many elements behind."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    columns, inner = tl.program_id(1) * BN + tl.arange(0, BN)[None, :], tl.arange(0, BK)
    a, b = a_ptr + first + rows * k + inner[None, :], b_ptr + inner[:, None] * n + columns
    acc = tl.zeros([BM, BN], tl.float32)
    for _ in tl.range(0, k, BK):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BK
        b += BK * n
    tl.store(c_ptr + rows * n + columns, (acc * scale).to(tl.float16))
