"""Launches of kernels that are written with pointers, and what torch has for them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton

from wspec.lab.bench import loaded_kernels, pointer_kernels

LOG2_E = 1.4426950408889634
Launch = Callable[[Any, dict[str, int]], torch.Tensor]  # of a kernel, with a configuration
TILES = (
    {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP": 8, "num_warps": 8, "num_stages": 3},
    {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8, "num_warps": 8, "num_stages": 4},
    {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8, "num_warps": 4, "num_stages": 3},
)
ROWS = (
    {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8, "num_stages": 2},
    {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3},
    {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 4, "num_stages": 3},
)
PRODUCTS = (
    (4096, 4096, 4096, False), (8192, 8192, 8192, False), (4096, 4096, 4096, True), (4000, 5008, 3000, False),
    (2304, 6400, 7168, False), (1000, 1000, 1000, False),
)  # fmt: skip
ATTENTION = ((4096, 128, False), (4096, 128, True), (4096, 64, False), (3000, 128, False), (1000, 64, True))

PACKED = (((4096,) * 4, 128, True), ((3000, 1, 0, 517, 8191), 128, True), ((2000,) * 8, 64, False))
"""Lengths of sequences, head dimension, causal."""
EXPERTS = ((8, 16384, 4096, 2048), (64, 8192, 2048, 2048))
"""Experts, rows, columns, depth."""
PAGED = (((2048,) * 4, (4096,) * 4, 128), ((1000, 1, 64, 3000), (1000, 7000, 64, 5001), 128))
"""New tokens and tokens of each sequence, head dimension."""


@dataclass(frozen=True)
class Case:
    """A launch, what torch has for it, and the configurations to try."""

    name: str
    kernel: Any
    launch: Launch
    theirs: Callable[[], torch.Tensor]
    configurations: Sequence[dict[str, int]]


def product_case(m: int, n: int, k: int, turned: bool) -> Case:
    """A B, or A B^T."""
    draw = torch.Generator("cuda").manual_seed(m)
    a = torch.randn(m, k, device="cuda", generator=draw).bfloat16()
    b = torch.randn(n, k, device="cuda", generator=draw).bfloat16().T if turned else None
    b = torch.randn(k, n, device="cuda", generator=draw).bfloat16() if b is None else b

    def launch(kernel: Any, meta: dict[str, int]) -> torch.Tensor:
        c = torch.empty(m, n, device="cuda", dtype=a.dtype)
        grid = (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)
        kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), **meta)
        return c

    name = f"product {m}x{n}x{k}{' B^T' if turned else ''}"
    return Case(name, pointer_kernels.product, launch, lambda: torch.mm(a, b), TILES)


def attention_case(length: int, dim: int, causal: bool) -> Case:
    """16,384 tokens or fewer, hidden size 2,048."""
    batch, heads = max(1, 16384 // length), 2048 // dim
    draw = torch.Generator("cuda").manual_seed(length)
    q, k, v = (torch.randn(batch, heads, length, dim, device="cuda", generator=draw).bfloat16() for _ in range(3))
    scale = dim**-0.5 * LOG2_E

    def launch(kernel: Any, meta: dict[str, int]) -> torch.Tensor:
        out = torch.empty_like(q)
        grid = (triton.cdiv(length, meta["BLOCK_M"]), batch * heads)
        kernel[grid](q, k, v, out, scale, *q.stride()[:3], heads, length, DIM=dim, CAUSAL=causal, **meta)
        return out

    def theirs() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    name = f"attention {'causal' if causal else 'full'} D={dim} S={length}"
    return Case(name, pointer_kernels.attention, launch, theirs, ROWS)


def packed_case(lengths: Sequence[int], dim: int, causal: bool, device: str = "cuda", hidden: int = 2048) -> Case:
    """Attention within sequences that lie behind each other; half as many heads of keys as of queries."""
    heads, tokens, begins = hidden // dim, sum(lengths), [0, *itertools.accumulate(lengths)]
    q, k, v = (_drawn(device, tokens, count, dim) for count in (heads, heads // 2, heads // 2))
    starts = _integers(begins, device)

    def launch(kernel: Any, meta: dict[str, int]) -> torch.Tensor:
        out = torch.empty_like(q)
        grid = (triton.cdiv(max(lengths), meta["BLOCK_M"]), heads, len(lengths))
        kernel[grid](
            q, k, v, out, starts, dim**-0.5 * LOG2_E, q.stride(0), k.stride(0), D=dim, SHARED=2, CAUSAL=causal, **meta
        )
        return out

    def theirs() -> torch.Tensor:
        ranges = [slice(begin, end) for begin, end in itertools.pairwise(begins)]
        return torch.cat([_attention(q[one], k[one], v[one], causal) for one in ranges])

    name = f"packed {'causal' if causal else 'full'} D={dim} {len(lengths)} sequences, {tokens} tokens"
    return Case(name, loaded_kernels.packed_attention, launch, theirs, ROWS)


def experts_case(count: int, rows: int, columns: int, depth: int, device: str = "cuda") -> Case:
    """A product for each expert, of numbers of rows that differ; one has none, and two tiles have no expert."""
    weights = torch.rand(count, generator=torch.Generator().manual_seed(count))
    weights[count // 2] = 0
    sizes = (weights / weights.sum() * rows).int().tolist()
    begins = [0, *itertools.accumulate(sizes)]
    x, w = _drawn(device, sum(sizes), depth), _drawn(device, count, columns, depth)
    ends = _integers(begins[1:], device)

    @functools.cache
    def tables(side: int) -> tuple[torch.Tensor, torch.Tensor]:
        tiles = [(at, begins[at] + first) for at, n in enumerate(sizes) for first in range(0, n, side)]
        which, where = zip(*tiles, (-1, 0), (-1, 0), strict=True)
        return _integers(which, device), _integers(where, device)

    def launch(kernel: Any, meta: dict[str, int]) -> torch.Tensor:
        y = torch.empty(sum(sizes), columns, dtype=x.dtype, device=device)
        which, where = tables(meta["BLOCK_M"])
        grid = (which.numel(), triton.cdiv(columns, meta["BLOCK_N"]))
        given = {name: value for name, value in meta.items() if name != "GROUP"}
        pitches = x.stride(0), *w.stride()[:2], y.stride(0)
        kernel[grid](x, w, y, which, where, ends, columns, depth, *pitches, **given)
        return y

    def theirs() -> torch.Tensor:
        ranges = itertools.pairwise(begins)
        return torch.cat([x[begin:end] @ w[at].T for at, (begin, end) in enumerate(ranges)])

    return Case(f"experts {count}: {rows}x{columns}x{depth}", loaded_kernels.experts, launch, theirs, TILES)


def paged_case(
    new: Sequence[int], lengths: Sequence[int], dim: int, device: str = "cuda", hidden: int = 2048, page: int = 64
) -> Case:
    """Causal attention of new tokens to sequences whose keys lie in pages, in any order."""
    heads, counts = hidden // dim, [-(-n // page) for n in lengths]
    begins = [0, *itertools.accumulate(new)]
    q = _drawn(device, sum(new), heads, dim)
    k, v = (_drawn(device, sum(counts), page, heads // 2, dim) for _ in range(2))
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(1)).int()
    listed: Sequence[torch.Tensor] = torch.split(order, counts)
    table = torch.full((len(new), max(counts)), -1, dtype=torch.int32)
    for row, its in zip(table, listed, strict=True):
        row[: its.numel()] = its
    pages, mine = table.to(device), [one.long().to(device) for one in listed]
    starts, ends = _integers(begins, device), _integers(lengths, device)

    def launch(kernel: Any, meta: dict[str, int]) -> torch.Tensor:
        out = torch.empty_like(q)
        grid = (triton.cdiv(max(new), meta["BLOCK_M"]), heads, len(new))
        kernel[grid](
            q, k, v, out, starts, ends, pages, dim**-0.5 * LOG2_E, table.shape[1], q.stride(0), *k.stride()[:2],
            D=dim, SHARED=2, PAGE=page, **{name: value for name, value in meta.items() if name != "BLOCK_N"},
        )  # fmt: skip
        return out

    def theirs() -> torch.Tensor:
        parts = []
        for (begin, end), length, one in zip(itertools.pairwise(begins), lengths, mine, strict=True):
            keys, values = (held[one].flatten(0, 1)[:length] for held in (k, v))
            parts.append(_attention(q[begin:end], keys, values, True))
        return torch.cat(parts)

    name = f"paged D={dim} {len(new)} sequences, {sum(new)} of {sum(lengths)} tokens"
    return Case(name, loaded_kernels.paged_attention, launch, theirs, ROWS)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Of q [new, heads, D] to k, v [tokens, half as many heads, D]; the new ones are the last."""
    new, tokens = q.shape[0], k.shape[0]
    if not new:
        return torch.empty_like(q)
    seen = torch.ones(new, tokens, dtype=torch.bool, device=q.device).tril(tokens - new) if causal else None
    heads, keys, values = (one.transpose(0, 1)[None] for one in (q, *(_shared(two) for two in (k, v))))
    return torch.nn.functional.scaled_dot_product_attention(heads, keys, values, seen)[0].transpose(0, 1)


def _shared(heads: torch.Tensor) -> torch.Tensor:
    """Each head twice."""
    return heads.repeat_interleave(2, 1)


def _drawn(device: str, *shape: int) -> torch.Tensor:
    draw = torch.Generator(device).manual_seed(sum(shape))
    return torch.randn(*shape, device=device, generator=draw).bfloat16()


def _integers(numbers: Sequence[int], device: str) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32, device=device)
