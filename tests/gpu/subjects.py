"""The emitted kernels that tools and endurance runs launch, with runtime sizes drawn at random."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import wspec
from wspec.kernels import attention, matmul

POOL_ELEMENTS = 1 << 23  # of each operand: 16 MiB


class Pool:
    """Random operands and room for results on a device, made once; problems take their tensors from it.

    The numbers are drawn on the CPU and copied, so that no kernel but the one looked at runs on the card.
    """

    def __init__(self, device: str, elements: int = POOL_ELEMENTS) -> None:
        self.elements = elements
        generator = torch.Generator().manual_seed(0)
        self.operands = [torch.randn(elements, generator=generator).to(torch.bfloat16).to(device) for _ in range(3)]
        self.room = torch.zeros(elements, dtype=torch.bfloat16).to(device)
        self.rows = torch.zeros(elements // 16, dtype=torch.float32).to(device)

    def operand(self, number: int, *shape: int) -> Tensor:
        return self.operands[number][: math.prod(shape)].view(shape)

    def result(self, *shape: int) -> Tensor:
        return self.room[: math.prod(shape)].view(shape)

    def row_result(self, *shape: int) -> Tensor:
        return self.rows[: math.prod(shape)].view(shape)


@dataclass(frozen=True, slots=True)
class Problem:
    """One launch. `expected(device)` gives float32 values of `out`, worked out there."""

    sizes: str
    run: Callable[[], None]
    out: Tensor
    expected: Callable[[str], Tensor]


@dataclass(frozen=True, slots=True)
class Subject:
    """An emitted kernel. `draw(pool, random, limit)` gives a problem with no size above `limit`."""

    name: str
    draw: Callable[[Pool, random.Random, int], Problem]


def subjects(only: str = "") -> list[Subject]:
    """Attention of every head dimension, with and without a mask, and matrix products; names that contain `only`."""
    found = [
        Subject(f"attention-d{head_dim}-{'causal' if causal else 'full'}-{tile.block_m}x{tile.block_n}", draw)
        for head_dim, tile in ATTENTION
        for causal in (False, True)
        for draw in (functools.partial(_attention, head_dim=head_dim, causal=causal, tile=tile),)
    ]
    found += [
        Subject(f"matmul-{'turned' if turned else 'straight'}-{tile.block_m}x{tile.block_n}x{tile.block_k}", draw)
        for tile in MATMUL
        for turned in (False, True)
        for draw in (functools.partial(_matmul, turned=turned, tile=tile),)
    ]
    return [one for one in found if only in one.name]


ATTENTION = (
    (64, attention.Config(64, 64, 4, 2)),
    (64, attention.Config(128, 128, 8, 2)),
    (128, attention.Config(64, 128, 4, 2)),
    (128, attention.Config(128, 128, 8, 2)),
    (256, attention.Config(128, 64, 8, 2)),
)
MATMUL = (
    matmul.Config(64, 64, 64, num_warps=4, num_stages=2),
    matmul.Config(128, 128, 64, num_warps=4, num_stages=3),
    matmul.Config(128, 64, 128, num_warps=8, num_stages=3),
    matmul.Config(128, 256, 64, num_warps=8, num_stages=3),
)


@functools.cache
def emitted(plain: Any) -> Any:
    """The kernel under `wspec.compile`, specialized whatever it gains; launching raises where it is left alone."""
    return wspec.compile(plain, gate="off", strict=True, remarks="off")


def _length(draw: random.Random, limit: int) -> int:
    """Any length, short ones as often as long ones."""
    return min(limit, int(2 ** draw.uniform(0, math.log2(limit + 1))))


def _attention(
    pool: Pool, draw: random.Random, limit: int, *, head_dim: int, causal: bool, tile: attention.Config
) -> Problem:
    group, kv_heads = draw.choice((1, 1, 2, 4)), draw.choice((1, 2, 3))
    heads, queries, keys = kv_heads * group, _length(draw, limit), _length(draw, limit)
    room = pool.elements // (heads * max(queries, keys) * head_dim)
    batch = max(1, min(draw.randint(1, 4), room))
    q = pool.operand(0, batch, heads, queries, head_dim)
    k, v = (pool.operand(number, batch, kv_heads, keys, head_dim) for number in (1, 2))
    out, lse = pool.result(*q.shape), pool.row_result(batch, heads, queries)
    scale = 1.0 / math.sqrt(head_dim)
    launch = attention.Launch.of(q, k, v, out, lse, causal=causal, scale=scale, config=tile)

    def expected(device: str) -> Tensor:
        return attention.attention_reference(q.to(device), k.to(device), v.to(device), causal=causal)[0]

    sizes = f"B={batch} Hq={heads} Hk={kv_heads} Sq={queries} Sk={keys}"
    return Problem(sizes, lambda: launch.run(emitted(attention.attention_fwd)), out, expected)


def _matmul(pool: Pool, draw: random.Random, limit: int, *, turned: bool, tile: matmul.Config) -> Problem:
    m, n, k = (_length(draw, limit) for _ in range(3))
    n, k = -(-n // 16) * 16, -(-k // 16) * 16
    a = pool.operand(0, m, k)
    b = pool.operand(1, n, k).T if turned else pool.operand(1, k, n)
    out = pool.result(m, n)
    launch = matmul.Launch.of(a, b, out, variant="descriptor", config=tile)

    def expected(device: str) -> Tensor:
        return matmul.matmul_reference(a.to(device), b.to(device))

    return Problem(f"M={m} N={n} K={k}", lambda: launch.run(emitted(matmul.matmul_descriptor_kernel)), out, expected)
