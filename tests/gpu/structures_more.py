"""The rest of `structures.py`: loops in odd places, tiles used twice, and writes of other kinds.

A builder has the name of its kernel here too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tests.gpu.structures import SCALE, Attention, Launch, Output, Product, Size, Tile, desc, normal, poisoned

# ---------------------------------------------------------------------------------------------------- loops


def guarded(tile: Tile, size: Size, device: str) -> Launch:
    """Blocks of rows past the middle do nothing."""
    p = Product(tile, size, device)
    rows = size.rows // 2 * tile.m
    past = torch.full((p.m - rows, p.n), torch.nan, device=device, dtype=torch.float64)
    return p.launch(*p.abc, rows, p.k, expected=lambda: torch.cat([p.truth()[:rows], past]))


def loop_in_branch(tile: Tile, size: Size, device: str) -> Launch:
    """The first loop runs where the number of iterations is odd, the other where it is even."""
    p = Product(tile, size, device)
    decay, flag = (1.0, 80) if size.trips % 2 else (0.5, 64)
    return p.launch(*p.abc, flag, p.k, expected=lambda: p.fold(lambda acc, start, x: acc * decay + x))


def nested_loops(tile: Tile, size: Size, device: str) -> Launch:
    """(A B) W, with as few as no iterations of the outer loop too."""
    p = Product(tile, size, device)
    outer = (3, 0, 2, 4)[min(size.trips, 3)]
    n = max(outer * tile.n - 16, 0)
    inner = n or tile.n
    b, w = p.factor(p.inner, inner), normal(device, inner, p.n, dtype=tile.dtype, scale=inner**-0.5)
    args = p.a_desc, desc(b, tile.k, tile.n), p.c_desc, desc(w, tile.n, tile.n), p.k, n
    return p.launch(*args, expected=lambda: p.truth(b=b)[:, :n] @ w.double()[:n])


def dot_behind(tile: Tile, size: Size, device: str) -> Launch:
    """Each tile of A B times one of W."""
    p = Product(tile, size, device)
    w = normal(device, tile.n, p.n, dtype=tile.dtype, scale=tile.n**-0.5)

    def expected() -> Tensor:
        pairs = zip(*(torch.split(t, tile.n, 1) for t in (p.truth(), w.double())), strict=True)
        return torch.cat([product @ factor[: product.shape[1]] for product, factor in pairs], 1)

    return p.launch(*p.abc, desc(w, tile.n, tile.n), p.k, expected=expected)


def backwards(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device, exact=True)
    return p.launch(*p.abc, p.k)


def moving(tile: Tile, size: Size, device: str) -> Launch:
    """The tiles of the first half of k, over and over."""
    p = Product(tile, size, device)
    half = max(-(-(p.k // 2) // tile.k), 1)  # tiles that start in it, or the first one
    visits = [i % half * tile.k for i in range(size.trips)]
    return p.launch(*p.abc, p.k, expected=lambda: p.fold(lambda acc, start, x: acc + visits.count(start) * x))


def short_chain(tile: Tile, size: Size, device: str, TRIPS: int) -> Launch:
    x = Attention(tile, device, size.tiles * tile.m - 16, TRIPS * tile.n)
    return x.launch((size.tiles,), x.o_desc, SCALE, TRIPS=TRIPS)


# ----------------------------------------------------------------------------------------- loads and stores


def table_written(tile: Tile, size: Size, device: str) -> Launch:
    """Pages 1, 2, ... as the table says already: what a block reads does not depend on who wrote it."""
    p = Product(tile, size, device, exact=True)
    b = p.factor(p.inner + tile.k, p.n)
    table = Output(torch.arange(1, size.trips + 2, device=device, dtype=torch.int32))
    args = p.a_desc, desc(b, tile.k, tile.n), p.c_desc, table.tensor, p.k
    return p.launch(*args, outputs=(p.c, table), expected=lambda: (p.truth(b=b[tile.k :]), table.initial.double()))


def read_twice(tile: Tile, size: Size, device: str) -> Launch:
    """Every block of a row of tiles writes the same sums; those of the rows that are not there are 0."""
    p = Product(tile, size, device)
    sums = poisoned(device, size.rows * tile.m, dtype="fp32")

    def expected() -> tuple[Tensor, Tensor]:
        below = torch.zeros(size.rows * tile.m - p.m, device=device, dtype=torch.float64)
        return p.truth(), torch.cat([p.a.double()[:, : p.k].sum(1), below])

    return p.launch(*p.abc, sums.tensor, p.k, outputs=(p.c, sums), expected=expected)


def twice_stored(tile: Tile, size: Size, device: str) -> Launch:
    p = Product(tile, size, device)
    d = poisoned(device, p.m, p.n, dtype=tile.out or tile.dtype)
    args = *p.abc, desc(d, tile.m, tile.n), p.k
    return p.launch(*args, outputs=(p.c, d), expected=lambda: (p.truth(), p.truth().square()))


def reduce_add(tile: Tile, size: Size, device: str) -> Launch:
    """Two blocks add the same numbers to each tile: their order does not matter."""
    p = Product(tile, size, device)
    p.grid = (*p.grid, 2)
    c = Output(normal(device, p.m, p.n, dtype=tile.out or tile.dtype))
    args = p.a_desc, p.b_desc, desc(c, tile.m, tile.n), p.k
    return p.launch(*args, outputs=(c,), expected=lambda: c.initial.double() + 2 * p.truth())


def inline_asm(tile: Tile, size: Size, device: str, PURE: bool) -> Launch:
    p = Product(tile, size, device)
    return p.launch(*p.abc, p.k, PURE=PURE, expected=lambda: p.fold(lambda acc, start, x: acc + torch.exp2(x)))
