"""Kernels with odd structure, for the compiler's tests.

A comment `at: NAME` marks the line a remark must point at when a kernel is left alone (see `cases.py`).
"""

from __future__ import annotations

# mypy: ignore-errors
# The bodies of jit functions are read by Triton, which has no types to give their arguments.
import triton
import triton.language as tl

from tests.support import attention_kernels

# Those of the shape of attention are found here as well.
attention_grouped = attention_kernels.attention_grouped
attention_masked = attention_kernels.attention_masked
attention_offsets = attention_kernels.attention_offsets
attention_persistent = attention_kernels.attention_persistent
attention_two_loops = attention_kernels.attention_two_loops
attention_weighted = attention_kernels.attention_weighted
flattened = attention_kernels.flattened
gathered_keys = attention_kernels.gathered_keys
short_chain = attention_kernels.short_chain
three_dots = attention_kernels.three_dots


@triton.jit
def gemm(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # at: kernel
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):  # at: loop
        a = a_desc.load([row, i])
        b = b_desc.load([i, column])
        acc = tl.dot(a, b, acc)  # at: dot
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def gemm_transposed(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([column, i]).T, acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def a_transposed(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([i, row]).T, b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def both_transposed(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([i, row]).T, b_desc.load([column, i]).T, acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def persistent(
    a_desc, b_desc, c_desc, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FLATTEN: tl.constexpr
):
    columns = tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, BM) * columns, tl.num_programs(0), flatten=FLATTEN):
        row, column = tile // columns * BM, tile % columns * BN
        acc = tl.zeros([BM, BN], tl.float32)
        for i in tl.range(0, k, BK):
            acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
        c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def bias(a_desc, b_desc, c_ptr, bias_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    columns = column + tl.arange(0, BN)
    acc += tl.load(bias_ptr + columns, mask=columns < n, other=0.0)[None, :]
    at = (row + tl.arange(0, BM))[:, None] * n + columns[None, :]
    tl.store(c_ptr + at, acc.to(c_ptr.dtype.element_ty), mask=(columns < n)[None, :])


@triton.jit
def assumed(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    tl.assume(row >= 0)
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        tl.assume(i < k)
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    tl.assume(column >= 0)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def constant_trips(  # at: kernel
    a_desc, b_desc, c_desc, TRIPS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, TRIPS * BK, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([column, i]).T, acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def two_products(a_desc, b_desc, c_desc, x_desc, y_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    x = tl.zeros([BM, BN], tl.float32)
    y = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        a = a_desc.load([row, i])
        x = tl.dot(a, b_desc.load([i, column]), x)
        y = tl.dot(a, c_desc.load([i, column]), y)
    x_desc.store([row, column], x.to(x_desc.dtype))
    y_desc.store([row, column], (x * y).to(y_desc.dtype))


@triton.jit
def gated(a_desc, b_desc, c_desc, x_desc, y_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Two products of one of a batch of matrices. What is stored is brought to the rank of the batch, then rounded."""
    batch, row, column = tl.program_id(2), tl.program_id(0) * BM, tl.program_id(1) * BN
    x = tl.zeros([BM, BN], tl.float32)
    y = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        a = a_desc.load([batch, row, i]).reshape(BM, BK)
        x = tl.dot(a, b_desc.load([column, i]).T, x)
        y = tl.dot(a, c_desc.load([column, i]).T, y)
    x_desc.store([batch, row, column], x.reshape(1, BM, BN).to(x_desc.dtype))
    y_desc.store([batch, row, column], (x * y).reshape(1, BM, BN).to(y_desc.dtype))


@triton.jit
def store_between_loops(a_desc, b_desc, c_desc, x_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Both loops load the same tiles; the first one's result leaves while the second one's tiles may already come."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    x = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        x = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), x)
    x_desc.store([row, column], x.to(x_desc.dtype))
    y = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        y = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), y * 0.5)
    c_desc.store([row, column], (x + y).to(c_desc.dtype))


@triton.jit
def turned_once(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Warp groups share the first tile by its columns, and the one that is stored by its rows."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    a = a_desc.load([0, row]).T
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a, b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def stored_whole(a_desc, b_desc, c_desc, x_desc, x_ptr, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One tile does not depend on the products that warp groups share: one of them stores all of it."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    x_desc.store([row, column], acc.to(x_desc.dtype))
    columns = tl.load(x_ptr + tl.arange(0, BN))
    c_desc.store([row, column], tl.broadcast_to(columns[None, :], [BM, BN]))


@triton.jit
def sum_past_a_branch(a_desc, b_desc, c_desc, k, flag, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The product in the branch is waited for there, and with it the sum's."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    top = tl.zeros([BM], tl.float32)
    for i in tl.range(0, k, BK):
        if i < flag:
            top = tl.maximum(top, tl.max(tl.dot(a_desc.load([row, i]), b_desc.load([i, column])), 1))
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    c_desc.store([row, column], (acc + top[:, None]).to(c_desc.dtype))


@triton.jit
def load_in_branch(a_desc, b_desc, c_desc, k, flag, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        a = a_desc.load([row, i])
        if i < flag:
            b = b_desc.load([i, column])
        else:
            b = b_desc.load([i - flag, column])
        acc = tl.dot(a, b, acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def skipped_tiles(a_desc, b_desc, c_desc, k, flag, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        if i % flag == 0:
            acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def compute_in_branch(a_desc, b_desc, c_desc, k, flag, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        a = a_desc.load([row, i])
        b = b_desc.load([i, column])
        if i < flag:
            acc = tl.dot(a, b, acc)
        else:
            acc = acc * 0.5
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def branch_beside(a_desc, b_desc, c_desc, k, flag, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        if i == flag:
            acc = acc * 0.5
        else:
            acc = tl.exp2(acc)
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def dequantized_a(w_desc, x_desc, c_desc, scale_ptr, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    scale = tl.load(scale_ptr + row + tl.arange(0, BM))
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        w = w_desc.load([row, i]).to(tl.float16)
        acc = tl.dot(w, x_desc.load([i, column]), acc)
    c_desc.store([row, column], (acc * scale[:, None]).to(c_desc.dtype))


@triton.jit
def dequantized_b(a_desc, w_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        w = w_desc.load([i, column]).to(tl.float16)
        acc = tl.dot(a_desc.load([row, i]), w, acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def dequantized_turned(w_desc, x_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        w = tl.trans(w_desc.load([i, row])).to(tl.float16)
        acc = tl.dot(w, x_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def block_scales(a_desc, b_desc, c_desc, scale_ptr, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    rows = row + tl.arange(0, BM)
    for i in tl.range(0, k, BK):
        scale = tl.load(scale_ptr + rows * (k // BK) + i // BK)
        acc += tl.dot(a_desc.load([row, i]), b_desc.load([column, i]).T) * scale[:, None]
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def device_descriptors(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a_desc = tl.make_tensor_descriptor(a_ptr, [m, k], [k, 1], [BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, [k, n], [n, 1], [BK, BN])
    c_desc = tl.make_tensor_descriptor(c_ptr, [m, n], [n, 1], [BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def row_sums(a_desc, b_desc, out_ptr, k, AXIS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    sums = tl.sum(acc * acc, AXIS)  # at: reduce
    tl.store(out_ptr + tl.program_id(0) * sums.shape[0] + tl.arange(0, sums.shape[0]), sums)


@triton.jit
def atomics(a_desc, b_desc, c_ptr, n, k, USED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    at = c_ptr + (row + tl.arange(0, BM))[:, None] * n + (column + tl.arange(0, BN))[None, :]
    old = tl.atomic_add(at, acc)  # at: atomic
    if USED:
        tl.store(at + n * n, old)


@triton.jit
def counter(a_desc, b_desc, c_desc, count_ptr, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One atomic for the whole tile: only one replica may count."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))
    tl.atomic_add(count_ptr, 1)


@triton.jit
def while_loop(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    i = 0
    while i < k:
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
        i += BK
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def doubling(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    i = 0
    while i < k:  # at: while
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
        i += i + BK
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def early_return(a_desc, b_desc, c_desc, m, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    if row >= m:  # at: return
        return
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def pointers(a_ptr, b_ptr, c_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        a = tl.load(a_ptr + rows[:, None] * k + i + inner[None, :])  # at: load
        b = tl.load(b_ptr + (i + inner)[:, None] * n + columns[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], acc.to(c_ptr.dtype.element_ty))


@triton.jit
def one_pointer(a_ptr, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A comes through pointers, B through a descriptor."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows, inner = row + tl.arange(0, BM), tl.arange(0, BK)
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        a = tl.load(a_ptr + rows[:, None] * k + i + inner[None, :])
        acc = tl.dot(a, b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def block_barrier(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
        tl.debug_barrier()  # at: barrier
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def asked_for(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK, warp_specialize=True):  # at: loop
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def same_memory(a_desc, b_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        a = a_desc.load([row, i])  # at: load
        acc = tl.dot(a, b_desc.load([i, column]), acc)
    a_desc.store([row, column], acc.to(a_desc.dtype))


@triton.jit
def address_from_tile(a_desc, b_desc, c_desc, index_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    at = tl.max(tl.max(index_desc.load([row, 0]), 1), 0)  # at: needed
    for i in tl.range(0, k, BK):
        a = a_desc.load([row, at + i])  # at: load
        acc = tl.dot(a, b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def load_if_computed(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Whether there is another product depends on what the last one came to."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        if tl.max(tl.max(acc, 1), 0) < 64.0:
            a = a_desc.load([row, i])  # at: load
            acc = tl.dot(a, b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def paged(a_desc, b_desc, c_desc, table_ptr, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The place of each tile comes from a table in memory, as in paged attention."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        page = tl.load(table_ptr + i // BK)
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([page * BK, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit(noinline=True)
def _not_inlined(x):
    return x * 2 + 1


@triton.jit
def called(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, _not_inlined(i)]), b_desc.load([i, column]), acc)  # at: call
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def writes_in_loop(a_desc, b_desc, c_ptr, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Every iteration stores what it has so far, as a scan over chunks does."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    at = c_ptr + (row + tl.arange(0, BM))[:, None] * BN + tl.arange(0, BN)[None, :]
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
        tl.store(at + i * BN, acc)


@triton.jit
def table_written(a_desc, b_desc, c_desc, table_ptr, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        page = tl.load(table_ptr + i // BK)  # at: load
        tl.store(table_ptr + i // BK + 1, page + 1)
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([page * BK, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def read_twice(a_desc, b_desc, c_desc, s_ptr, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A feeds the dot and a sum of its rows."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    total = tl.zeros([BM], tl.float32)
    for i in tl.range(0, k, BK):
        a = a_desc.load([row, i])
        total += tl.sum(a.to(tl.float32), 1)
        acc = tl.dot(a, b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))
    tl.store(s_ptr + row + tl.arange(0, BM), total)


@triton.jit
def weighted(a_desc, b_desc, c_desc, x_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """As attention without the sum of its weights: its loop carries nothing but sums of products."""
    row = tl.program_id(0) * BM
    a = a_desc.load([row, 0])
    acc = tl.zeros([BM, BK], tl.float32)
    for i in tl.range(0, k, BN):
        weights = tl.math.exp2(tl.dot(a, b_desc.load([i, 0]).T))
        acc = tl.dot(weights.to(x_desc.dtype), x_desc.load([i, 0]), acc)
    c_desc.store([row, 0], acc.to(c_desc.dtype))


@triton.jit
def guarded(a_desc, b_desc, c_desc, m, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    if row < m:
        acc = tl.zeros([BM, BN], tl.float32)
        for i in tl.range(0, k, BK):
            acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
        c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def loop_in_branch(a_desc, b_desc, c_desc, flag, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    if flag > 64:
        for i in tl.range(0, k, BK):
            acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    else:
        for i in tl.range(0, k, BK):
            acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc * 0.5)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def nested_loops(a_desc, b_desc, c_desc, w_desc, k, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    out = tl.zeros([BM, BN], tl.float32)
    for j in tl.range(0, n, BN):
        acc = tl.zeros([BM, BN], tl.float32)
        for i in tl.range(0, k, BK):
            acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, j]), acc)
        out = tl.dot(acc.to(tl.float16), w_desc.load([j, column]), out)
    c_desc.store([row, column], out.to(c_desc.dtype))


@triton.jit
def dot_behind(a_desc, b_desc, c_desc, w_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    out = tl.dot(acc.to(tl.float16), w_desc.load([0, column]))
    c_desc.store([row, column], out.to(c_desc.dtype))


@triton.jit
def backwards(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(k - BK, -1, -BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def moving(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    at = 0
    for _ in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, at]), b_desc.load([at, column]), acc)
        at += BK
        if at >= k // 2:
            at = 0
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def twice_stored(a_desc, b_desc, c_desc, d_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))
    d_desc.store([row, column], (acc * acc).to(c_desc.dtype))


@triton.jit
def reduce_add(a_desc, b_desc, c_desc, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        acc = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]), acc)
    c_desc.atomic_add([row, column], acc.to(c_desc.dtype))


@triton.jit
def inline_asm(a_desc, b_desc, c_desc, k, PURE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, k, BK):
        s = tl.dot(a_desc.load([row, i]), b_desc.load([i, column]))
        acc += tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [s], tl.float32, PURE, 1)  # at: asm
    c_desc.store([row, column], acc.to(c_desc.dtype))
