"""Launches for test_structures.py: inputs, grid and what must come out, for each kernel of tests/support/kernels.py.

A builder has the name of its kernel. It takes a tile, a size, a device and the kernel's other constexprs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn, "fp32": torch.float32}
GUARD = 4096  # elements after each output that nothing may touch

Expected = Callable[[], Tensor | tuple[Tensor, ...]]
"""Each output in float64, NaN where nothing is to be written."""


@dataclass(frozen=True, slots=True)
class Tile:
    """[m, n] results from products k deep; in attention m queries by n keys, k numbers a head."""

    m: int
    n: int
    k: int
    warps: int
    dtype: str = "fp16"
    out: str = ""  # the type of C; empty: that of the operands, but fp16 for fp8
    stages: int = 2

    def __str__(self) -> str:
        out = f"-{self.out}" if self.out else ""
        return f"{self.m}x{self.n}x{self.k}-w{self.warps}-{self.dtype}{out}"


@dataclass(frozen=True, slots=True)
class Size:
    """Iterations of the inner loop, and how many tiles the result is high and wide."""

    trips: int
    rows: int
    columns: int

    @property
    def tiles(self) -> int:
        return self.rows * self.columns

    def __str__(self) -> str:
        return f"{self.trips} iterations, {self.rows} x {self.columns} tiles"


class Output:
    """A tensor a kernel writes, followed by room that must stay as it is."""

    def __init__(self, initial: Tensor) -> None:
        self.initial = initial
        self.flat = initial.new_empty(initial.numel() + GUARD)
        self.tensor = self.flat[: initial.numel()].view(initial.shape)
        self.reset()

    def reset(self) -> None:
        """As before the launch: the initial values, and NaN (or -1) behind them."""
        self.flat.fill_(torch.nan if self.flat.is_floating_point() else -1)
        self.tensor.copy_(self.initial)

    def bits(self) -> Tensor:
        """A copy of everything, to be compared bit by bit."""
        return self.flat.view(torch.uint8).clone()

    def guard_is_whole(self) -> bool:
        guard = self.flat[self.initial.numel() :]
        return bool((guard.isnan() if self.flat.is_floating_point() else guard == -1).all())


@dataclass(frozen=True, slots=True)
class Launch:
    """`kernel[grid](*args, **meta)`, the tensors it writes, and what they must hold then."""

    grid: tuple[int, ...]
    args: tuple[Any, ...]
    meta: dict[str, Any]
    outputs: tuple[Output, ...]
    expected: Expected


def normal(device: str, *shape: int, dtype: str = "fp16", scale: float = 1.0) -> Tensor:
    return (torch.randn(shape, device=device) * scale).to(DTYPES[dtype])


def integers(device: str, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int8) -> Tensor:
    return torch.randint(low, high, shape, device=device).to(dtype)


def poisoned(device: str, *shape: int, dtype: str) -> Output:
    return Output(torch.full(shape, torch.nan, dtype=DTYPES[dtype], device=device))


def desc(tensor: Tensor | Output, *block: int) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(tensor.tensor if isinstance(tensor, Output) else tensor, list(block))


# ------------------------------------------------------------------------------------------------- products


class Product:
    """A [m, k] times B [k, n] into C [m, n]; the last tile of each dimension is cut short unless `exact`."""

    def __init__(self, tile: Tile, size: Size, device: str, *, exact: bool = False) -> None:
        cut = 0 if exact else 16
        self.tile, self.device = tile, device
        self.m, self.n = size.rows * tile.m - cut, size.columns * tile.n - cut
        self.k = size.trips * tile.k - (cut if size.trips else 0)
        self.inner = self.k or tile.k  # a tensor cannot be empty
        self.a = normal(device, self.m, self.inner, dtype=tile.dtype)
        self.b = self.factor(self.inner, self.n)
        self.c = poisoned(device, self.m, self.n, dtype=tile.out or ("fp16" if tile.dtype == "fp8" else tile.dtype))
        self.a_desc, self.b_desc = desc(self.a, tile.m, tile.k), desc(self.b, tile.k, tile.n)
        self.c_desc = desc(self.c, tile.m, tile.n)
        self.abc = self.a_desc, self.b_desc, self.c_desc
        self.grid: tuple[int, ...] = (size.rows, size.columns)

    def factor(self, *shape: int) -> Tensor:
        """Numbers that keep a sum over k products at about 1; fp8 has no room for that."""
        scale = 1.0 if self.tile.dtype == "fp8" else self.inner**-0.5
        return normal(self.device, *shape, dtype=self.tile.dtype, scale=scale)

    def truth(self, a: Tensor | None = None, b: Tensor | None = None) -> Tensor:
        """A B in float64, over the first k."""
        a, b = self.a if a is None else a, self.b if b is None else b
        return a.double()[:, : self.k] @ b.double()[: self.k]

    def fold(self, step: Callable[[Tensor, int, Tensor], Tensor]) -> Tensor:
        """`step(accumulator, start, A B of the step)` over the loop, in float64."""
        found = torch.zeros(self.m, self.n, device=self.device, dtype=torch.float64)
        for start in range(0, self.k, self.tile.k):
            part = slice(start, min(start + self.tile.k, self.k))
            found = step(found, start, self.a[:, part].double() @ self.b[part].double())
        return found

    def launch(
        self, *args: Any, expected: Expected | None = None, outputs: tuple[Output, ...] = (), **constexprs: Any
    ) -> Launch:
        """Into C alone and A B expected, unless said otherwise."""
        tile = self.tile
        meta = {"BM": tile.m, "BN": tile.n, "BK": tile.k, "num_warps": tile.warps, "num_stages": tile.stages}
        return Launch(self.grid, args, {**meta, **constexprs}, outputs or (self.c,), expected or self.truth)


def gemm(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device)
    return p.launch(*p.abc, p.k)


while_loop = block_barrier = asked_for = gemm


def doubling(tile: Tile, size: Size, device: str) -> Launch:
    """Of K the tiles 0, 1, 3, 7 and so on."""
    p = Product(tile, size, device)

    def step(found: Tensor, start: int, part: Tensor) -> Tensor:
        tiles = start // tile.k + 1
        return found + part if tiles & (tiles - 1) == 0 else found

    return p.launch(*p.abc, p.k, expected=lambda: p.fold(step))


def gemm_transposed(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device)
    stored = p.factor(p.n, p.inner)
    return p.launch(p.a_desc, desc(stored, tile.n, tile.k), p.c_desc, p.k, expected=lambda: p.truth(b=stored.T))


def a_transposed(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device)
    stored = normal(device, p.inner, p.m, dtype=tile.dtype)
    return p.launch(desc(stored, tile.k, tile.m), p.b_desc, p.c_desc, p.k, expected=lambda: p.truth(a=stored.T))


def persistent(tile: Tile, size: Size, device: str, FLATTEN: bool) -> Launch:
    p = Product(tile, size, device)
    p.grid = (size.tiles // 3 + 1,)
    return p.launch(*p.abc, p.m, p.n, p.k, FLATTEN=FLATTEN)


def bias(tile: Tile, size: Size, device: str) -> Launch:
    """The kernel writes whole tiles of rows, but no more than n columns."""
    p = Product(tile, size, device)
    c, row = poisoned(device, size.rows * tile.m, p.n, dtype="fp32"), normal(device, p.n, dtype="fp32")
    below = torch.zeros(size.rows * tile.m - p.m, p.n, device=device, dtype=torch.float64)
    args = p.a_desc, p.b_desc, c.tensor, row, p.n, p.k
    return p.launch(*args, outputs=(c,), expected=lambda: torch.cat([p.truth(), below]) + row.double())


def constant_trips(tile: Tile, size: Size, device: str, TRIPS: int) -> Launch:
    p = Product(tile, Size(TRIPS, size.rows, size.columns), device)
    stored = p.factor(p.n, p.inner)
    args = p.a_desc, desc(stored, tile.n, tile.k), p.c_desc
    return p.launch(*args, expected=lambda: p.truth(b=stored.T), TRIPS=TRIPS)


def both_transposed(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device)
    a, b = normal(device, p.inner, p.m, dtype=tile.dtype), p.factor(p.n, p.inner)
    args = desc(a, tile.k, tile.m), desc(b, tile.n, tile.k), p.c_desc, p.k
    return p.launch(*args, expected=lambda: p.truth(a=a.T, b=b.T))


def store_between_loops(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device)
    x = poisoned(device, p.m, p.n, dtype=tile.out or tile.dtype)
    args = p.a_desc, p.b_desc, p.c_desc, desc(x, tile.m, tile.n), p.k

    def expected() -> tuple[Tensor, Tensor]:
        return p.truth() + p.fold(lambda found, start, product: 0.5 * found + product), p.truth()

    return p.launch(*args, outputs=(p.c, x), expected=expected)


def two_products(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device)
    other, y = p.factor(p.inner, p.n), poisoned(device, p.m, p.n, dtype=tile.out or tile.dtype)
    args = p.a_desc, p.b_desc, desc(other, tile.k, tile.n), p.c_desc, desc(y, tile.m, tile.n), p.k
    return p.launch(*args, outputs=(p.c, y), expected=lambda: (p.truth(), p.truth() * p.truth(b=other)))


def load_in_branch(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device)
    flag = size.trips // 2 * tile.k
    at = torch.arange(p.inner, device=device)
    rows = torch.where(at < flag, at, at - flag)
    return p.launch(*p.abc, p.k, flag, expected=lambda: p.truth(b=p.b[rows]))


def skipped_tiles(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device)
    flag = (2 + size.trips % 2) * tile.k
    return p.launch(*p.abc, p.k, flag, expected=lambda: p.fold(lambda acc, i, x: acc if i % flag else acc + x))


def compute_in_branch(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device)
    flag = max(1, size.trips - 2) * tile.k  # beyond it the sum is halved, twice at most
    return p.launch(*p.abc, p.k, flag, expected=lambda: p.fold(lambda acc, i, x: acc + x if i < flag else acc * 0.5))


def branch_beside(tile: Tile, size: Size, device: str) -> Launch:
    """Each step adds about -2, so that exp2 of the sum stays small."""
    p = Product(tile, size, device, exact=True)
    p.a.abs_()
    p.b.copy_(-normal(device, p.inner, p.n, dtype=tile.dtype, scale=3 / tile.k).abs())
    flag = size.trips // 2 * tile.k

    def step(acc: Tensor, start: int, product: Tensor) -> Tensor:
        return (acc * 0.5 if start == flag else torch.exp2(acc)) + product

    return p.launch(*p.abc, p.k, flag, expected=lambda: p.fold(step))


def dequantized_a(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device, exact=True)
    w, scale = integers(device, -127, 128, p.m, p.inner), normal(device, p.m, dtype="fp32", scale=0.01)
    args = desc(w, tile.m, tile.k), p.b_desc, p.c_desc, scale, p.k
    return p.launch(*args, expected=lambda: p.truth(a=w) * scale.double()[:, None])


def dequantized_b(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device)
    w = integers(device, -8, 8, p.inner, p.n)
    return p.launch(p.a_desc, desc(w, tile.k, tile.n), p.c_desc, p.k, expected=lambda: p.truth(b=w))


def dequantized_turned(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device)
    w = integers(device, -8, 8, p.inner, p.m)
    return p.launch(desc(w, tile.k, tile.m), p.b_desc, p.c_desc, p.k, expected=lambda: p.truth(a=w.T))


def block_scales(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device, exact=True)
    stored = p.factor(p.n, p.inner)
    scale = normal(device, p.m, p.inner // tile.k, dtype="fp32", scale=0.1)
    each = scale.repeat_interleave(tile.k, 1)
    args = p.a_desc, desc(stored, tile.n, tile.k), p.c_desc, scale, p.k
    return p.launch(*args, expected=lambda: p.truth(a=p.a.double() * each, b=stored.T))


def device_descriptors(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device)
    return p.launch(p.a, p.b, p.c.tensor, p.m, p.n, p.k)


def row_sums(tile: Tile, size: Size, device: str, AXIS: int) -> Launch:
    p = Product(tile, Size(size.trips, size.tiles, 1), device, exact=True)
    out = poisoned(device, size.tiles * (tile.n if AXIS == 0 else tile.m), dtype="fp32")

    def expected() -> Tensor:
        squares = p.truth().square()
        return squares.sum(1) if AXIS == 1 else squares.view(-1, tile.m, tile.n).sum(1).flatten()

    return p.launch(p.a_desc, p.b_desc, out.tensor, p.k, AXIS=AXIS, outputs=(out,), expected=expected)


def atomics(tile: Tile, size: Size, device: str, USED: bool) -> Launch:
    """Two blocks add the same numbers to each tile: their order does not matter. USED: one, and what was there."""
    p = Product(tile, Size(size.trips, size.rows, size.rows * tile.m // tile.n), device, exact=True)
    p.grid = (*p.grid, 1 if USED else 2)
    before = normal(device, p.m, p.n, dtype="fp32")
    c = Output(torch.cat([before, torch.full_like(before, torch.nan)]) if USED else before)

    def expected() -> Tensor:
        after = before + p.truth() * p.grid[2]
        return torch.cat([after, before.double()]) if USED else after

    return p.launch(p.a_desc, p.b_desc, c.tensor, p.n, p.k, USED=USED, outputs=(c,), expected=expected)


def counter(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device)
    count = Output(torch.zeros(1, device=device, dtype=torch.int32))
    total = torch.full((1,), size.tiles, device=device, dtype=torch.float64)
    return p.launch(*p.abc, count.tensor, p.k, outputs=(p.c, count), expected=lambda: (p.truth(), total))


def early_return(tile: Tile, size: Size, device: str) -> Launch:
    """Blocks of rows past the middle return."""
    p = Product(tile, size, device, exact=True)
    rows = size.rows // 2 * tile.m
    past = torch.full((p.m - rows, p.n), torch.nan, device=device, dtype=torch.float64)
    return p.launch(*p.abc, rows, p.k, expected=lambda: torch.cat([p.truth()[:rows], past]))


def pointers(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device, exact=True)
    return p.launch(p.a, p.b, p.c.tensor, p.n, p.k)


def one_pointer(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device, exact=True)
    return p.launch(p.a, p.b_desc, p.c_desc, p.k)


def same_memory(tile: Tile, size: Size, device: str) -> Launch:
    """Each block of rows replaces the first columns of its own A."""
    p = Product(tile, Size(size.trips, size.tiles, 1), device, exact=True)
    a = Output(p.a)
    args = desc(a, tile.m, tile.k), p.b_desc, p.k
    return p.launch(*args, outputs=(a,), expected=lambda: torch.cat([p.truth(), p.a.double()[:, tile.n :]], 1))


def address_from_tile(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device, exact=True)
    at = 16
    shifted = normal(device, p.m, p.inner + at, dtype=tile.dtype)
    index = integers(device, 0, at, p.m, 16, dtype=torch.int32)
    index[:: tile.m, 0] = at
    args = desc(shifted, tile.m, tile.k), p.b_desc, p.c_desc, desc(index, tile.m, 16), p.k
    return p.launch(*args, expected=lambda: p.truth(a=shifted[:, at:]))


def load_if_computed(tile: Tile, size: Size, device: str) -> Launch:
    """Sums stay far below what would end the products."""
    p = Product(tile, size, device)
    return p.launch(*p.abc, p.k)


def paged(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device, exact=True)
    table = torch.randperm(p.inner // tile.k, device=device).to(torch.int32)
    rows = (table[:, None] * tile.k + torch.arange(tile.k, device=device)).flatten()
    return p.launch(*p.abc, table, p.k, expected=lambda: p.truth(b=p.b[rows]))


def writes_in_loop(tile: Tile, size: Size, device: str) -> Launch:
    """One tile, the sums after each step below each other (tile.m == tile.k); all blocks write the same."""
    p = Product(tile, Size(size.trips, 1, 1), device, exact=True)
    p.grid = (1, 1, size.tiles)
    c = poisoned(device, p.inner, tile.n, dtype="fp32")

    def expected() -> Tensor:
        sums: list[Tensor] = []

        def step(acc: Tensor, start: int, product: Tensor) -> Tensor:
            sums.append(acc + product)
            return sums[-1]

        p.fold(step)
        return torch.cat(sums) if sums else c.initial.double()

    return p.launch(p.a_desc, p.b_desc, c.tensor, p.k, outputs=(c,), expected=expected)


# ------------------------------------------------------------------------------------------------ attention

SCALE = 0.15


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """softmax(q k^T SCALE ln 2) v in float64, a thousand rows at a time; NaN without keys."""
    if not len(k):
        return torch.full_like(q, torch.nan, dtype=torch.float64)
    parts = []
    for start in range(0, len(q), 1024):
        rows = torch.arange(start, min(start + 1024, len(q)), device=q.device)
        end = min(int(rows[-1]) + 1, len(k)) if causal else len(k)
        scores = q[rows].double() @ k[:end].double().T * SCALE
        if causal:
            scores.masked_fill_(torch.arange(end, device=q.device) > rows[:, None], -torch.inf)
        p = torch.exp2(scores - scores.amax(1, keepdim=True))
        parts.append(p @ v[:end].double() / p.sum(1, keepdim=True))
    return torch.cat(parts)


class Attention:
    """q [queries, D], k and v [keys, D]; the output is poisoned with NaN, or 1 where NaN is what must come out."""

    def __init__(self, tile: Tile, device: str, queries: int, keys: int) -> None:
        counts = queries, max(keys, tile.n), max(keys, tile.n)  # a tensor cannot be empty
        self.q, self.k, self.v = (normal(device, rows, tile.k, dtype=tile.dtype) for rows in counts)
        self.tile, self.keys, self.o = tile, keys, Output(torch.full_like(self.q, torch.nan if keys else 1.0))
        self.o_desc = desc(self.o, tile.m, tile.k)

    def truth(self, causal: bool = False) -> Tensor:
        return attend(self.q, self.k[: self.keys], self.v[: self.keys], causal)

    def launch(self, grid: tuple[int, ...], *args: Any, expected: Expected | None = None, **constexprs: Any) -> Launch:
        """`args` follow q, k and v."""
        m, n, d = self.tile.m, self.tile.n, self.tile.k
        meta = {"BM": m, "BN": n, "D": d, "num_warps": self.tile.warps, "num_stages": self.tile.stages, **constexprs}
        descs = desc(self.q, m, d), desc(self.k, n, d), desc(self.v, n, d)
        return Launch(grid, (*descs, *args), meta, (self.o,), expected or self.truth)


def three_dots(tile: Tile, size: Size, device: str) -> Launch:
    x = Attention(tile, device, size.tiles * tile.m - 16, size.trips * tile.n)
    x.o.initial.fill_(torch.nan)
    w = normal(device, tile.n, tile.n, dtype=tile.dtype, scale=0.05)

    def expected() -> Tensor:
        found = torch.zeros_like(x.q, dtype=torch.float64)
        for start in range(0, x.keys, tile.n):
            keys, values = (t[start : start + tile.n].double() for t in (x.k, x.v))
            found += x.q.double() @ keys.T @ w.double() @ values
        return found

    return x.launch((size.tiles,), desc(w, tile.n, tile.n), x.o_desc, x.keys, expected=expected)


def attention_masked(tile: Tile, size: Size, device: str, CAUSAL: bool, cut: int = 16) -> Launch:
    """The last tiles of queries and of keys are `cut` rows short."""
    queries = size.tiles * tile.m - cut
    x = Attention(tile, device, queries, queries if CAUSAL else max(size.trips * tile.n - cut, 0))
    args = x.o_desc, SCALE, x.keys
    return x.launch((size.tiles,), *args, CAUSAL=CAUSAL, expected=lambda: x.truth(CAUSAL))


def attention_two_loops(tile: Tile, size: Size, device: str) -> Launch:
    x = Attention(tile, device, size.tiles * tile.m - 16, size.tiles * tile.m - 16)
    return x.launch((size.tiles,), x.o_desc, SCALE, x.keys, expected=lambda: x.truth(True))


def attention_offsets(tile: Tile, size: Size, device: str) -> Launch:
    """Two heads."""
    length = size.tiles * tile.m
    x = Attention(tile, device, 2 * length, 2 * length)

    def expected() -> Tensor:
        heads = (slice(0, length), slice(length, 2 * length))
        return torch.cat([attend(x.q[one], x.k[one], x.v[one], True) for one in heads])

    return x.launch((size.tiles, 2), x.o_desc, SCALE / 1.44269504, length, expected=expected)


def attention_grouped(tile: Tile, size: Size, device: str) -> Launch:
    """Four heads of queries to one of keys, and as many heads as give the number of tiles asked for."""
    length, group = size.trips * tile.n, 4
    tiles = length // tile.m
    heads = -(-size.tiles // (tiles * group)) * group
    x = Attention(tile, device, heads * length, heads // group * length)

    def expected() -> Tensor:
        q, k, v = (t.view(-1, length, tile.k) for t in (x.q, x.k, x.v))
        return torch.cat([attend(q[head], k[head // group], v[head // group], False) for head in range(heads)])

    return x.launch((tiles, heads), x.o_desc, SCALE, length, group, expected=expected)


def attention_persistent(tile: Tile, size: Size, device: str) -> Launch:
    x = Attention(tile, device, size.tiles * tile.m - 16, size.trips * tile.n)
    return x.launch((size.tiles // 3 + 1,), x.o_desc, SCALE, x.keys, size.tiles)


def attention_weighted(tile: Tile, size: Size, device: str) -> Launch:
    """What a tile of keys gave is weighted once for each tile behind it; the sums of the softmax are not."""
    rows = size.tiles * tile.m
    x = Attention(tile, device, rows - 16, size.trips * tile.n)
    weights = torch.rand(rows, device=device) / 2 + 0.5

    def expected() -> Tensor:
        if not x.keys:
            return x.truth()
        scores = x.q.double() @ x.k.double().T * SCALE
        p = torch.exp2(scores - scores.amax(1, keepdim=True))
        behind = size.trips - 1 - torch.arange(x.keys, device=device) // tile.n
        return (p * weights[: len(x.q), None].double() ** behind) @ x.v.double() / p.sum(1, keepdim=True)

    args = x.o_desc, SCALE, weights, x.keys, size.tiles
    return x.launch((size.tiles // 3 + 1,), *args, expected=expected)
