"""Kernels of the kinds on which other specializers are known to fail, written anew from what their reports say.

Each asks for specialization as its reporter did (`tl.range(..., warp_specialize=True)`), and has what it must compute.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies of jit functions are read by Triton, which has no types to give their arguments.

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


@dataclass(frozen=True)
class Breaker:
    """A kernel and a launch of it. `report` is where it was first told of."""

    report: str
    kernel: Any
    arguments: Callable[[str], tuple[Any, ...]]  # on a device; outputs are zero
    constants: Mapping[str, Any]
    grid: tuple[int, ...]
    expected: Callable[[tuple[Any, ...]], Tensor]  # from the arguments
    output: int  # the position of what is written
    warps: int = 4
    stages: int = 3
    tolerance: float = 2e-2


def _normal(device: str, *shape: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(device)


# ------------------------------------------------------------------------ products through pointers


@triton.jit
def pointer_loop(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A loop with pointers and one product: the pass that lowers its tokens fails on the load."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, K, BK, warp_specialize=True):
        left = tl.load(a + rows[:, None] * K + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * N + columns[None, :])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))


@triton.jit
def carried_pointers(
    a, b, c, M, N, K, stride_a, stride_b, stride_c,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Tutorial 03's kind of product, its loop specialized."""
    number, wide = tl.program_id(0), tl.cdiv(N, BN)
    first = number // (GROUP * wide) * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    row, column = first + number % (GROUP * wide) % height, number % (GROUP * wide) // height
    tl.assume(row >= 0)
    tl.assume(column >= 0)
    tl.assume(stride_a > 0)
    tl.assume(stride_b > 0)
    rows, columns = (row * BM + tl.arange(0, BM)) % M, (column * BN + tl.arange(0, BN)) % N
    inner = tl.arange(0, BK)
    at_a, at_b = a + rows[:, None] * stride_a + inner[None, :], b + inner[:, None] * stride_b + columns[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for step in tl.range(0, tl.cdiv(K, BK), warp_specialize=True):
        left = tl.load(at_a, mask=inner[None, :] < K - step * BK, other=0.0)
        right = tl.load(at_b, mask=inner[:, None] < K - step * BK, other=0.0)
        total = tl.dot(left, right, total)
        at_a += BK
        at_b += BK * stride_b
    rows, columns = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * stride_c + columns[None, :], total.to(tl.float16), mask=inside)


@triton.jit
def loops_around(x, y, out, SIZE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One operand by a descriptor of the kernel's own, one by pointers, two loops around: wrong numbers elsewhere."""
    described = tl.make_tensor_descriptor(y, [SIZE, SIZE], [SIZE, 1], [BK, BN])
    for row in tl.range(0, SIZE, BM):
        for column in tl.range(0, SIZE, BN):
            rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
            total = tl.zeros((BM, BN), tl.float32)
            for start in tl.range(0, SIZE, BK, warp_specialize=True):
                left = tl.load(x + rows[:, None] * SIZE + (start + tl.arange(0, BK))[None, :])
                total = tl.dot(left, described.load([start, column]), total)
            tl.store(out + rows[:, None] * SIZE + columns[None, :], total.to(tl.float16))


@triton.jit
def once_round(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A loop that goes round once: elsewhere nobody gives the first buffer back."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, K, BK, warp_specialize=True):
        total = tl.dot(a.load([row, start]), b.load([start, column]), total)
    c.store([row, column], total.to(tl.float16))


@triton.jit
def small_tiles(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Tiles of 16 x 16 float32, which no wgmma takes."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, K, BK, warp_specialize=True):
        total = tl.dot(a.load([row, start]), b.load([start, column]), total)
    c.store([row, column], total)


@triton.jit
def written_operand(a, b, scale, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """B is scaled on its way: what a task writes needs a fence before wgmma reads it."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, K, BK, warp_specialize=True):
        factor = tl.load(scale + start + tl.arange(0, BK))
        right = (b.load([start, column]) * factor[:, None]).to(tl.float16)
        total = tl.dot(a.load([row, start]), right, total)
    c.store([row, column], total.to(tl.float16))


@triton.jit
def before_and_in_the_loop(p, s, a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product before the loop begins the sum that the loop goes on with, as in a chunked scan."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.dot(p.load([row, 0]), s.load([0, column]))
    total = total * 0.5
    for start in tl.range(0, K, BK, warp_specialize=True):
        total = tl.dot(a.load([row, start]), b.load([start, column]), total)
    c.store([row, column], total.to(tl.float16))


# ------------------------------------------------------------------------------------------- attention


@triton.jit
def varlen(
    q, k, v, o, ends, HEADS, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Sequences behind each other, tiles of three dimensions: elsewhere a pass meets what it does not know."""
    sequence, head = tl.program_id(1) // HEADS, tl.program_id(1) % HEADS
    begin, end = tl.load(ends + sequence), tl.load(ends + sequence + 1)
    row = begin + tl.program_id(0) * BM
    if row < end:
        queries = q.load([row, head, 0]).reshape(BM, D)
        most, total = tl.full((BM,), float("-inf"), tl.float32), tl.zeros((BM,), tl.float32)
        out = tl.zeros((BM, D), tl.float32)
        for start in tl.range(begin, end, BN, warp_specialize=True):
            start = tl.multiple_of(start, 1)
            keys = k.load([start, head, 0]).reshape(BN, D)
            scores = tl.dot(queries, keys.T) * scale
            scores = tl.where((start + tl.arange(0, BN))[None, :] < end, scores, float("-inf"))
            now = tl.maximum(most, tl.max(scores, 1))
            parts = tl.exp2(scores - now[:, None])
            again = tl.exp2(most - now)
            total = total * again + tl.sum(parts, 1)
            out = out * again[:, None]
            values = v.load([start, head, 0]).reshape(BN, D)
            out = tl.dot(parts.to(values.dtype), values, out)
            most = now
        out = out / total[:, None]
        rows = row + tl.arange(0, BM)
        at = o + rows[:, None] * (HEADS * D) + head * D + tl.arange(0, D)[None, :]
        tl.store(at, out.to(tl.float16), mask=rows[:, None] < end)


@triton.jit
def walking(q, k, v, o, LENGTH: tl.constexpr, PAIRS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
            D: tl.constexpr, BLOCKS: tl.constexpr):  # fmt: skip
    """Blocks that walk, with descriptors of their own; the outer loop is the one to be specialized."""
    q_at = tl.make_tensor_descriptor(q, [PAIRS, LENGTH, D], [LENGTH * D, D, 1], [1, BM, D])
    k_at = tl.make_tensor_descriptor(k, [PAIRS, LENGTH, D], [LENGTH * D, D, 1], [1, BN, D])
    v_at = tl.make_tensor_descriptor(v, [PAIRS, LENGTH, D], [LENGTH * D, D, 1], [1, BN, D])
    o_at = tl.make_tensor_descriptor(o, [PAIRS, LENGTH, D], [LENGTH * D, D, 1], [1, BM, D])
    high: tl.constexpr = LENGTH // BM
    for tile in tl.range(tl.program_id(0), high * PAIRS, BLOCKS, warp_specialize=True):
        pair, row = tile // high, tile % high * BM
        queries = q_at.load([pair, row, 0]).reshape(BM, D)
        most, total = tl.full((BM,), float("-inf"), tl.float32), tl.zeros((BM,), tl.float32)
        out = tl.zeros((BM, D), tl.float32)
        for start in tl.range(0, LENGTH, BN):
            keys = k_at.load([pair, start, 0]).reshape(BN, D)
            scores = tl.dot(queries, tl.permute(keys, [1, 0]))
            now = tl.maximum(most, tl.max(scores, 1) * 0.18)
            parts = tl.exp2(scores * 0.18 - now[:, None])
            again = tl.exp2(most - now)
            total = total * again + tl.sum(parts, 1)
            out = out * again[:, None]
            out = tl.dot(parts.to(tl.float16), v_at.load([pair, start, 0]).reshape(BN, D), out)
            most = now
        o_at.store([pair, row, 0], (out / total[:, None]).to(tl.float16).reshape(1, BM, D))


@triton.jit
def two_loops(q, k, v, o, LENGTH, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Causal: whole tiles in one loop, those of the diagonal in a second one."""
    row, pair = tl.program_id(0) * BM, tl.program_id(1)
    queries = q.load([pair * LENGTH + row, 0])
    rows = row + tl.arange(0, BM)
    most, total = tl.full((BM,), float("-inf"), tl.float32), tl.zeros((BM,), tl.float32)
    out = tl.zeros((BM, D), tl.float32)
    for start in tl.range(0, row, BN, warp_specialize=True):
        scores = tl.dot(queries, k.load([pair * LENGTH + start, 0]).T) * scale
        now = tl.maximum(most, tl.max(scores, 1))
        parts, again = tl.exp2(scores - now[:, None]), tl.exp2(most - now)
        total, out = total * again + tl.sum(parts, 1), out * again[:, None]
        out = tl.dot(parts.to(tl.float16), v.load([pair * LENGTH + start, 0]), out)
        most = now
    for start in tl.range(row, row + BM, BN, warp_specialize=True):
        scores = tl.dot(queries, k.load([pair * LENGTH + start, 0]).T) * scale
        scores = tl.where(rows[:, None] >= (start + tl.arange(0, BN))[None, :], scores, float("-inf"))
        now = tl.maximum(most, tl.max(scores, 1))
        parts, again = tl.exp2(scores - now[:, None]), tl.exp2(most - now)
        total, out = total * again + tl.sum(parts, 1), out * again[:, None]
        out = tl.dot(parts.to(tl.float16), v.load([pair * LENGTH + start, 0]), out)
        most = now
    o.store([pair * LENGTH + row, 0], (out / total[:, None]).to(tl.float16))


@triton.jit
def odd_rows(q, k, do, o, lse, delta, LENGTH, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """A backward's dV + dK of one block of keys; rows of lse and delta have LENGTH float32, of any length."""
    pair, column = tl.program_id(1), tl.program_id(0) * BN
    columns = column + tl.arange(0, BN)
    keys = k.load([pair, column, 0]).reshape(BN, D)
    total = tl.zeros((BN, D), tl.float32)
    for start in tl.range(0, LENGTH, BM, warp_specialize=True):
        rows = start + tl.arange(0, BM)
        queries = q.load([pair, start, 0]).reshape(BM, D)
        outer = do.load([pair, start, 0]).reshape(BM, D)
        normal = tl.load(lse + pair * LENGTH + rows, mask=rows < LENGTH, other=float("inf"))
        mean = tl.load(delta + pair * LENGTH + rows, mask=rows < LENGTH, other=0.0)
        scores = tl.exp2(tl.dot(keys, queries.T) * scale - normal[None, :])
        scores = tl.where((columns[:, None] < LENGTH) & (rows[None, :] < LENGTH), scores, 0.0)
        total = tl.dot(scores.to(tl.float16), outer, total)
        total = tl.dot((scores * mean[None, :]).to(tl.float16), queries, total)
    at = o + (pair * LENGTH + columns)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(at, total.to(tl.float16), mask=columns[:, None] < LENGTH)


# ------------------------------------------------------------------------------------------ the launches

TILE = {"BM": 128, "BN": 128, "BK": 64}
TRITON, TILELANG = "triton-lang/triton#", "tile-ai/tilelang#"


def _attention(q: Tensor, k: Tensor, v: Tensor, factor: float, causal: bool = False) -> Tensor:
    """softmax(Q K^T factor) V; factor without log2(e)."""
    scores = q.double() @ k.double().transpose(-1, -2) * factor
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
    return scores.softmax(-1) @ v.double()


def _described(tensor: Tensor, *box: int) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(tensor, list(box))


def _plain(m: int, n: int, k: int) -> Callable[[str], tuple[Any, ...]]:
    return lambda device: (
        _normal(device, m, k), _normal(device, k, n, seed=1), torch.zeros(m, n, dtype=torch.float16, device=device),
    )  # fmt: skip


def _through_pointers(device: str) -> tuple[Any, ...]:
    return (*_plain(256, 256, 320)(device), 256, 320)


def _carried(device: str) -> tuple[Any, ...]:
    m, n, k = 384, 512, 304
    return (*_plain(m, n, k)(device), m, n, k, k, n, n)


def _boxes(m: int, n: int, k: int, tile: Mapping[str, int]) -> Callable[[str], tuple[Any, ...]]:
    def made(device: str) -> tuple[Any, ...]:
        a, b, c = _plain(m, n, k)(device)
        box = (tile["BM"], tile["BK"]), (tile["BK"], tile["BN"]), (tile["BM"], tile["BN"])
        return (*(_described(one, *shape) for one, shape in zip((a, b, c), box, strict=True)), n, k)

    return made


def _small(device: str) -> tuple[Any, ...]:
    a, b = (_normal(device, 64, 64, dtype=torch.float32, seed=seed) for seed in range(2))
    c = torch.zeros(64, 64, device=device)
    return (*(_described(one, 16, 16) for one in (a, b, c)), 64)


def _scaled(device: str) -> tuple[Any, ...]:
    a, b, c, n, k = _boxes(256, 256, 320, TILE)(device)
    return a, b, _normal(device, 320, dtype=torch.float32, seed=2), c, n, k


def _two_sums(device: str) -> tuple[Any, ...]:
    a, b, c, _, k = _boxes(256, 256, 320, TILE)(device)
    p, s = _normal(device, 256, 64, seed=3), _normal(device, 64, 256, seed=4)
    return _described(p, 128, 64), _described(s, 64, 128), a, b, c, k


def _product(arguments: tuple[Any, ...]) -> Tensor:
    a, b = (one.base if isinstance(one, TensorDescriptor) else one for one in arguments[:2])
    return a.double() @ b.double()


ENDS = (0, 130, 131, 387, 512)


def _sequences(device: str) -> tuple[Any, ...]:
    q, k, v = (_normal(device, ENDS[-1], 2, 64, seed=seed) for seed in range(3))
    out = torch.zeros_like(q)
    boxes = [_described(one, 128 if one is q else 64, 1, 64) for one in (q, k, v)]
    return (*boxes, out, torch.tensor(ENDS, dtype=torch.int32, device=device), 2, 0.125 * 1.4426950408889634)


def _each_sequence(arguments: tuple[Any, ...]) -> Tensor:
    q, k, v = (one.base.transpose(0, 1) for one in arguments[:3])
    parts = [_attention(q[:, i:j], k[:, i:j], v[:, i:j], 0.125) for i, j in itertools.pairwise(ENDS)]
    return torch.cat(parts, 1).transpose(0, 1)


def _heads(device: str) -> tuple[Any, ...]:
    q, k, v = (_normal(device, 6, 512, 64, seed=seed) for seed in range(3))
    return q, k, v, torch.zeros_like(q)


def _all_heads(arguments: tuple[Any, ...]) -> Tensor:
    q, k, v = arguments[:3]
    return _attention(q, k, v, 0.18 / 1.4426950408889634)


def _flat(device: str) -> tuple[Any, ...]:
    q, k, v = (_normal(device, 2 * 512, 64, seed=seed) for seed in range(3))
    boxes = [_described(one, *((128, 64) if one is q else (64, 64))) for one in (q, k, v)]
    return (*boxes, _described(torch.zeros_like(q), 128, 64), 512, 0.125 * 1.4426950408889634)


def _causal(arguments: tuple[Any, ...]) -> Tensor:
    q, k, v = (one.base.reshape(2, 512, 64) for one in arguments[:3])
    return _attention(q, k, v, 0.125, causal=True).reshape(1024, 64)


def _odd(device: str) -> tuple[Any, ...]:
    length = 250
    q, k, do = (_normal(device, 3, length, 64, seed=seed) for seed in range(3))
    out = torch.zeros_like(k)
    lse = torch.logsumexp(q.float() @ k.float().transpose(-1, -2) * 0.125, -1) * 1.4426950408889634
    delta = _normal(device, 3, length, dtype=torch.float32, seed=5)
    boxes = [_described(one, 1, size, 64) for one, size in ((q, 64), (k, 128), (do, 64))]
    return (*boxes, out, lse.contiguous(), delta, length, 0.125 * 1.4426950408889634)


def _backward(arguments: tuple[Any, ...]) -> Tensor:
    q, k, do = (one.base.double() for one in arguments[:3])
    lse, delta, scale = arguments[4].double(), arguments[5].double(), arguments[7]
    parts = torch.exp2(k @ q.transpose(-1, -2) * scale - lse[:, None, :])
    return parts @ do + (parts * delta[:, None, :]) @ q


DEEP = {**TILE, "BK": 128}
HEAD = {"BM": 128, "BN": 64, "D": 64}
BREAKERS: dict[str, Breaker] = {
    "pointer_loop": Breaker(TRITON + "9728", pointer_loop, _through_pointers, TILE, (2, 2), _product, 2),
    "two_loops": Breaker(TRITON + "9728", two_loops, _flat, HEAD, (4, 2), _causal, 3),
    "carried_pointers": Breaker(
        TRITON + "10284", carried_pointers, _carried, {**TILE, "GROUP": 8}, (12,), _product, 2, warps=8
    ),
    "loops_around": Breaker(
        TRITON + "8311", loops_around, _plain(256, 256, 256), {**TILE, "SIZE": 256}, (1,), _product, 2
    ),
    "varlen": Breaker(TRITON + "8260", varlen, _sequences, HEAD, (3, 8), _each_sequence, 3),
    "walking": Breaker(
        TRITON + "8072", walking, _heads, {**HEAD, "LENGTH": 512, "PAIRS": 6, "BLOCKS": 5}, (5,), _all_heads, 3,
        warps=8,
    ),
    "small_tiles": Breaker(
        TRITON + "7354", small_tiles, _small, {"BM": 16, "BN": 16, "BK": 16}, (4, 4), _product, 2, tolerance=0.1
    ),
    "before_and_in_the_loop": Breaker(
        TILELANG + "2547", before_and_in_the_loop, _two_sums, TILE, (2, 2),
        lambda given: 0.5 * _product(given) + _product(given[2:]), 4,
    ),
    "once_round": Breaker(TILELANG + "2566", once_round, _boxes(256, 256, 128, DEEP), DEEP, (2, 2), _product, 2),
    "odd_rows": Breaker(TILELANG + "2567", odd_rows, _odd, {"BM": 64, "BN": 128, "D": 64}, (2, 3), _backward, 3),
    "written_operand": Breaker(
        TILELANG + "2634", written_operand, _scaled, TILE, (2, 2),
        lambda given: given[0].base.double() @ (given[1].base.double() * given[2].double()[:, None]), 3,
    ),
}  # fmt: skip


def output(breaker: Breaker, arguments: tuple[Any, ...]) -> Tensor:
    """What a launch has written."""
    found = arguments[breaker.output]
    tensor = found.base if isinstance(found, TensorDescriptor) else found
    assert isinstance(tensor, Tensor)
    return tensor
