"""Problems drawn at random, and the kernels and tiles that people might run them with.

The draw depends on the seed alone. Products have sizes that are multiples of 8, so that rows are multiples of 16 bytes
and every class of them up to 4096 is there; attention has few or many heads, and 128 to 16384 keys.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from wspec.lab.bench import drawn_kernels
from wspec.lab.bench.model_plans import Shape, Tensors
from wspec.lab.simulate.points import Point

Tile = tuple[int, ...]
"""Of a product: rows, columns, depth, warps, stages; of attention: queries, keys, warps, stages."""
GROUP = 8
SMS = 132
SHARED = 227 * 1024  # bytes a block may have
REGISTERS = 192  # of a thread, that the tiles of a loop may take
SHORTEST, LONGEST = 8e-5, 2e-3
"""Seconds that a launch takes at least, by what a card can: long enough for the host to keep ahead."""
FLOPS, BANDWIDTH = 6e14, 4e12
HALF = 2  # bytes of an element


@dataclass(frozen=True, slots=True)
class _Launch:
    """What `kernel[grid](*args, **meta)` needs."""

    grid: tuple[int, ...]
    args: tuple[Any, ...]
    meta: dict[str, Any]

    def run(self, kernel: Any) -> None:
        kernel[self.grid](*self.args, **self.meta)


def _meta(point: Point) -> dict[str, Any]:
    return {**point.constexprs, **point.options}


def _kernel(name: str) -> str:
    return f"{drawn_kernels.__name__}:{name}"


def _both(shape: str, point: dict[str, Any], tile: str) -> Iterator[Point]:
    """Triton's own kernel at this tile, the specialized one, and what a program gets that only asks for `wspec`."""
    for kind in ("plain", "specialized", "default"):
        yield Point(name=f"{shape} {kind} {tile}", kind=kind, shape=shape, ms=0.0, **point)


def _integers(**values: int) -> dict[str, str]:
    """Types of a signature, as Triton specializes them."""
    return {name: "i32:16" if value % 16 == 0 else "i32" for name, value in values.items()}


# ------------------------------------------------------------------------------------------------- products


@dataclass(frozen=True, slots=True)
class DrawnProduct(Shape):
    """C [m, n] = A [m, k] B in bf16, by the kernel `form`; B lies as [n, k] with `by_rows`, else as [k, n]."""

    form: str  # "product_tma" or "product_persistent"
    m: int
    n: int
    k: int
    by_rows: bool
    tiles: tuple[Tile, ...]

    def __str__(self) -> str:
        order = "A B^T" if self.by_rows else "A B"
        return f"{self.form.removeprefix('product_')} {order} {self.m}x{self.n}x{self.k}"

    @property
    def bytes(self) -> int:
        return HALF * (self.m * self.k + self.k * self.n + self.m * self.n)

    @property
    def pitches(self) -> dict[str, int]:
        wide = self.k if self.by_rows else self.n
        return {"a_desc": HALF * self.k, "b_desc": HALF * wide, "c_desc": HALF * self.n}

    def points(self) -> list[Point]:
        return [point for tile in self.tiles for point in _both(str(self), self._point(tile), _in_words(tile))]

    def _point(self, tile: Tile) -> dict[str, Any]:
        rows, columns, depth, warps, stages = tile
        box = (columns, depth) if self.by_rows else (depth, columns)
        types = {"a_desc": f"tensordesc<bf16[{rows}, {depth}]>", "b_desc": f"tensordesc<bf16[{box[0]}, {box[1]}]>"}
        types["c_desc"] = f"tensordesc<bf16[{rows}, {columns}]>"
        shape = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "GROUP": GROUP, "B_BY_ROWS": self.by_rows}
        count = math.ceil(self.m / rows) * math.ceil(self.n / columns)
        heights, widths = product_sizes(self.m, self.n, self.k, self.by_rows)
        return {
            "kernel": _kernel(self.form),
            "signature": types | _integers(M=self.m, N=self.n, K=self.k),
            "constexprs": shape,
            "options": {"num_warps": warps, "num_stages": stages},
            "arguments": {"M": self.m, "N": self.n, "K": self.k},
            "grid": (min(SMS, count) if self.form == "product_persistent" else count, 1, 1),
            "pitches": self.pitches,
            "heights": heights,
            "widths": widths,
        }

    def inputs(self, device: torch.device, seed: int) -> Tensors:
        draw = torch.Generator(device).manual_seed(seed)
        sizes = ((self.m, self.k), (self.n, self.k) if self.by_rows else (self.k, self.n))
        a, b = (torch.randn(*size, device=device, dtype=torch.bfloat16, generator=draw) for size in sizes)
        return a, b

    def launch(self, inputs: Tensors, point: Point) -> tuple[Any, torch.Tensor]:
        a, b = inputs
        out = torch.empty(self.m, self.n, dtype=a.dtype, device=a.device)
        at = point.constexprs
        boxes = ((at["BLOCK_M"], at["BLOCK_K"]), (at["BLOCK_K"], at["BLOCK_N"]), (at["BLOCK_M"], at["BLOCK_N"]))
        boxes = (boxes[0], boxes[1][::-1] if self.by_rows else boxes[1], boxes[2])
        descriptors = [_descriptor(tensor, box) for tensor, box in zip((a, b, out), boxes, strict=True)]
        return _Launch(point.grid, (*descriptors, self.m, self.n, self.k), _meta(point)), out

    def on_cpu(self, point: Point) -> Any:
        sizes = ((self.m, self.k), (self.n, self.k) if self.by_rows else (self.k, self.n))
        a, b = (torch.empty(*size, dtype=torch.bfloat16) for size in sizes)
        return self.launch((a, b), point)[0]

    def plain_kernel(self) -> Any:
        return getattr(drawn_kernels, self.form)


def _descriptor(tensor: torch.Tensor, box: Sequence[int]) -> TensorDescriptor:
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), list(box))


def _in_words(tile: Tile) -> str:
    return f"{'x'.join(map(str, tile[:-2]))} w{tile[-2]} s{tile[-1]}"


# ------------------------------------------------------------------------------------------------ attention


@dataclass(frozen=True, slots=True)
class DrawnAttention(Shape):
    """Forward, bf16, heads of all batches below each other in one matrix."""

    dim: int
    causal: bool
    batch: int
    heads: int
    length: int
    tiles: tuple[Tile, ...]

    def __str__(self) -> str:
        mask = "causal" if self.causal else "full"
        return f"attention D={self.dim} {mask} {self.batch}x{self.heads}x{self.length}"

    @property
    def bytes(self) -> int:
        return 4 * HALF * self.batch * self.heads * self.length * self.dim

    def points(self) -> list[Point]:
        return [point for tile in self.tiles for point in _both(str(self), self._point(tile), _in_words(tile))]

    def _point(self, tile: Tile) -> dict[str, Any]:
        rows, columns, warps, stages = tile
        types = {f"{name}_desc": f"tensordesc<bf16[{rows}, {self.dim}]>" for name in "qo"}
        types |= {f"{name}_desc": f"tensordesc<bf16[{columns}, {self.dim}]>" for name in "kv"}
        types |= {"lse_ptr": "*fp32:16", "scale": "fp32"}
        return {
            "kernel": _kernel("attention"),
            "signature": types | _integers(heads=self.heads, LENGTH=self.length),
            "constexprs": {"BLOCK_M": rows, "BLOCK_N": columns, "DIM": self.dim, "CAUSAL": self.causal},
            "options": {"num_warps": warps, "num_stages": stages},
            "arguments": {"heads": self.heads, "LENGTH": self.length},
            "grid": (self.length // rows, self.batch * self.heads, 1),
            "pitches": {f"{name}_desc": HALF * self.dim for name in "qkvo"},
        }

    def inputs(self, device: torch.device, seed: int) -> Tensors:
        draw = torch.Generator(device).manual_seed(seed)
        rows = self.batch * self.heads * self.length
        made = (torch.randn(rows, self.dim, device=device, dtype=torch.bfloat16, generator=draw) for _ in range(3))
        return tuple(made)

    def launch(self, inputs: Tensors, point: Point) -> tuple[Any, torch.Tensor]:
        q, k, v = inputs
        out = torch.empty_like(q)
        lse = torch.empty(len(q), dtype=torch.float32, device=q.device)
        rows, columns = point.constexprs["BLOCK_M"], point.constexprs["BLOCK_N"]
        tensors = ((q, rows), (k, columns), (v, columns), (out, rows))
        descriptors = [_descriptor(tensor, (height, self.dim)) for tensor, height in tensors]
        scale = self.dim**-0.5 * math.log2(math.e)
        return _Launch(point.grid, (*descriptors, lse, scale, self.heads, self.length), _meta(point)), out

    def on_cpu(self, point: Point) -> Any:
        rows = self.batch * self.heads * self.length
        q, k, v = (torch.empty(rows, self.dim, dtype=torch.bfloat16) for _ in range(3))
        return self.launch((q, k, v), point)[0]

    def plain_kernel(self) -> Any:
        return drawn_kernels.attention


# ------------------------------------------------------------------------------------------------- the draw


def drawn_shapes(seed: int, products: int = 11, attentions: int = 9, tiles: int = 3) -> list[Shape]:
    """Of every seed other ones, with so many tiles each. One more or less of a sort leaves the others as they are."""
    found: list[Shape] = [_product(random.Random(f"product {seed} {at}"), at, tiles) for at in range(products)]
    return found + [_attention(random.Random(f"attention {seed} {at}"), at, tiles) for at in range(attentions)]


def _product(draw: random.Random, at: int, tiles: int) -> Shape:
    by_rows, form = draw.random() < 0.5, draw.choice(("product_tma", "product_persistent"))
    while True:
        m, n, k = (_ragged(draw, low, high) for low, high in ((512, 16384), (512, 16384), (256, 16384)))
        if at % 2:  # half of them as they are in models: multiples of 64 elements
            m, n, k = (max(256, round(size / 256) * 256) for size in (m, n, k))
        if _is_timely(2 * m * n * k, HALF * (m * k + n * k + m * n)):
            break
    grid = [
        (rows, columns, depth, warps, stages)
        for rows in (64, 128) for columns in (64, 128, 256) for depth in (32, 64, 128)
        for warps in (4, 8) for stages in (2, 3, 4)
        if rows * columns <= 128 * 32 * warps and HALF * stages * depth * (rows + columns) + 2048 <= SHARED
        and HALF * rows * columns <= SHARED and rows * columns >= 32 * 32 * warps
    ]  # fmt: skip
    return DrawnProduct(form, m, n, k, by_rows, tuple(draw.sample(grid, tiles)))


def _ragged(draw: random.Random, low: int, high: int) -> int:
    """A size whose rows are an odd multiple of a power of two of bytes, 16 to 4096, that is drawn first."""
    unit = 1 << draw.randint(3, 11)
    size = math.exp(draw.uniform(math.log(low), math.log(high)))
    return unit * (2 * round(size / unit / 2 - 0.5) + 1)


def _is_timely(flop: float, moved: float) -> bool:
    return SHORTEST <= max(flop / FLOPS, moved / BANDWIDTH) <= LONGEST


def _attention(draw: random.Random, at: int, tiles: int) -> Shape:
    dim, causal, length = 64 << (at % 2), at // 2 % 2 > 0, 128 * max(1, round(2 ** draw.uniform(0, 7)))
    while True:
        batch, heads = 2 ** draw.randint(0, 9), draw.choice((1, 4, 8, 12, 16, 32, 40))
        flop = 4 * batch * heads * length**2 * dim / (1 + causal)
        if _is_timely(flop, 4 * HALF * batch * heads * length * dim):
            break
    grid = [
        (rows, columns, warps, stages)
        for rows in (64, 128) for columns in (64, 128) for warps in (4, 8) for stages in (2, 3, 4)
        if rows >= 16 * warps and rows * (dim + columns) <= REGISTERS * 32 * warps
        and HALF * dim * (rows + 2 * stages * columns) + 2048 <= SHARED and columns <= length
    ]  # fmt: skip
    return DrawnAttention(dim, causal, batch, heads, length, tuple(draw.sample(grid, min(tiles, len(grid)))))


def moved_here(point: Point) -> Point:
    """A point of a file, whose kernel is looked for where it is now; older files do not say sizes."""
    at, heights, widths = point.arguments, point.heights, point.widths
    if "b_desc" in point.signature:
        by_rows = bool(point.constexprs["B_BY_ROWS"])
        heights, widths = product_sizes(int(at["M"]), int(at["N"]), int(at["K"]), by_rows)
    return replace(point, kernel=_kernel(point.kernel.rpartition(":")[2]), heights=heights, widths=widths)


def product_sizes(m: int, n: int, k: int, by_rows: bool) -> tuple[dict[str, int], dict[str, int]]:
    """Rows and columns of the matrices of a product, by their descriptors."""
    heights = {"a_desc": m, "b_desc": n if by_rows else k, "c_desc": m}
    return heights, {"a_desc": k, "b_desc": k if by_rows else n, "c_desc": n}
