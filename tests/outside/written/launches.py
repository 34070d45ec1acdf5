"""Launches of the kernels here: random tensors of sizes as models have them, and the tiles that an author would try."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from triton import cdiv
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.outside.written import attention, products, scans

Meta = dict[str, Any]
Grid = tuple[int, int, int]
BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn


@dataclass(frozen=True)
class Launch:
    """A kernel with what it is launched on."""

    kernel: Any
    grid: Grid
    arguments: tuple[Any, ...]
    outputs: tuple[torch.Tensor, ...]
    meta: Meta

    def __call__(self, kernel: Any = None) -> None:
        """Launch it, or another form of the kernel."""
        (self.kernel if kernel is None else kernel)[self.grid](*self.arguments, **self.meta)


@dataclass(frozen=True)
class Case:
    """A launch to be made on a device."""

    make: Callable[..., Launch]
    sizes: Mapping[str, Any]
    meta: Meta

    def __str__(self) -> str:
        tile = "x".join(str(value) for name, value in self.meta.items() if name in _TILES)
        sizes = " ".join(str(size).replace(", ", "x").strip("()") for size in self.sizes.values())
        causal = " causal" if self.meta.get("CAUSAL") else ""
        return f"{self.make.__name__} {sizes} {tile} w{self.meta['num_warps']}{causal}".replace("  ", " ")

    def on(self, device: str) -> Launch:
        torch.manual_seed(0)
        return self.make(_Tensors(device), dict(self.meta), **self.sizes)


_TILES = ("BM", "BN", "BK", "BH", "BT", "BV", "C", "D", "PAGE")


class _Tensors:
    """Random ones."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __call__(self, *shape: int, dtype: torch.dtype = BF16, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(*shape, device=self.device) * scale).to(dtype)

    def zeros(self, *shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
        return torch.zeros(*shape, device=self.device, dtype=dtype)

    def uniform(self, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, device=self.device)

    def whole(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.randint(low, high, shape, device=self.device, dtype=dtype)

    def table(self, numbers: list[int]) -> torch.Tensor:
        return torch.tensor(numbers, device=self.device, dtype=torch.int32)


# ------------------------------------------------------------------------------------------------- attention


def windowed(new: _Tensors, meta: Meta, batch: int, heads: int, shared: int, length: int, window: int) -> Launch:
    q, out = new(batch, heads, length, 128), new.zeros(batch, heads, length, 128)
    k, v = (new(batch, shared, length, 128) for _ in range(2))
    strides = [stride for one in (q, k, v, out) for stride in one.stride()[:3]]
    arguments = (q, k, v, out, *strides, heads, shared, length, window, 0.088, 30.0)
    return Launch(attention.windowed, (cdiv(length, meta["BM"]), batch * heads, 1), arguments, (out,), meta)


def backward_keys(new: _Tensors, meta: Meta, heads: int, length: int) -> Launch:
    q, k, v, do = (new(heads, length, meta["D"]) for _ in range(4))
    dk, dv = (torch.zeros_like(q) for _ in range(2))
    lse, delta = new.uniform(heads, length) + 8, new(heads, length, dtype=torch.float32)
    arguments = (q, k, v, do, dk, dv, lse, delta, q.stride(0), q.stride(1), length, 0.125)
    return Launch(attention.backward_keys, (length // meta["BN"], heads, 1), arguments, (dk, dv), meta)


def backward_queries(new: _Tensors, meta: Meta, heads: int, length: int) -> Launch:
    q, k, v, do = (new(heads, length, meta["D"]) for _ in range(4))
    dq = torch.zeros_like(q)
    lse, delta = new.uniform(heads, length) + 8, new(heads, length, dtype=torch.float32)
    arguments = (q, k, v, do, dq, lse, delta, q.stride(0), q.stride(1), length, 0.125)
    return Launch(attention.backward_queries, (length // meta["BM"], heads, 1), arguments, (dq,), meta)


def paged(new: _Tensors, meta: Meta, batch: int, queries: int, heads: int, pages: int) -> Launch:
    page, width = meta["PAGE"], meta["D"]
    k, v = (new(batch * pages, page, heads, width) for _ in range(2))
    q, out = new(batch, queries, heads, width), new.zeros(batch, queries, heads, width)
    table = torch.randperm(batch * pages, device=new.device).to(torch.int32).view(batch, pages)
    lengths = new.whole(page, pages * page, batch)
    arguments = (q, k, v, out, table, lengths, heads, pages, 0.1)
    return Launch(attention.paged, (queries // meta["BM"], heads, batch), arguments, (out,), meta)


def packed(new: _Tensors, meta: Meta, heads: int, group: int) -> Launch:
    """Six sequences, of 1 to 2,048 tokens."""
    ends, width, shared = [0, 513, 700, 2748, 2749, 4797, 6000], meta["D"], heads // group
    q, out = new(ends[-1], heads, width), new.zeros(ends[-1], heads, width)
    k, v = (new(ends[-1], shared, width) for _ in range(2))
    arguments = (q, k, v, out, new.table(ends), heads * width, width, shared * width, width, heads, group, 0.1)
    return Launch(attention.packed, (cdiv(2048, meta["BM"]), heads, len(ends) - 1), arguments, (out,), meta)


def block_sparse(new: _Tensors, meta: Meta, heads: int, length: int) -> Launch:
    q, k, v = (new(heads, length, meta["D"]) for _ in range(3))
    out, rows, blocks = torch.zeros_like(q), length // meta["BM"], length // meta["BN"]
    chosen = torch.stack([torch.randperm(blocks, device=new.device) for _ in range(rows)]).to(torch.int32)
    arguments = (q, k, v, out, chosen, new.whole(1, blocks // 2, rows), length, blocks, 0.1)
    return Launch(attention.block_sparse, (rows, heads, 1), arguments, (out,), meta)


def int8_keys(new: _Tensors, meta: Meta, heads: int, length: int) -> Launch:
    q = new(heads, length, meta["D"])
    k, v = (new.whole(-127, 127, heads, length, meta["D"], dtype=torch.int8) for _ in range(2))
    scales, out = [new.uniform(heads, length) / 100 for _ in range(2)], torch.zeros_like(q)
    arguments = (q, k, v, *scales, out, length, 0.1)
    return Launch(attention.int8_keys, (length // meta["BM"], heads, 1), arguments, (out,), meta)


def dropped_out(new: _Tensors, meta: Meta, heads: int, length: int) -> Launch:
    q, k, v, out = (new(heads * length, meta["D"]) for _ in range(4))
    boxes = [(q, "BM"), (k, "BN"), (v, "BN"), (out, "BM")]
    descriptors = [TensorDescriptor.from_tensor(one, [meta[side], meta["D"]]) for one, side in boxes]
    arguments = (*descriptors, new.uniform(heads) / 100, length, heads, 0.127, 0.1, 7)
    return Launch(attention.dropped_out, (length // meta["BM"], heads, 1), arguments, (out,), meta)


def in_stages(new: _Tensors, meta: Meta, batch: int, heads: int, length: int) -> Launch:
    q, k, v = (new(batch, heads, length, meta["D"]) for _ in range(3))
    out, lse = torch.zeros_like(q), new.zeros(batch, heads, length, dtype=torch.float32)
    arguments = (q, k, v, out, lse, *q.stride()[:3], heads, length, 0.127)
    return Launch(attention.in_stages, (length // meta["BM"], batch * heads, 1), arguments, (out, lse), meta)


def with_sinks(new: _Tensors, meta: Meta, heads: int, length: int, window: int) -> Launch:
    q, k, v = (new(heads, length, meta["D"]) for _ in range(3))
    out, sink = torch.zeros_like(q), new(heads)
    arguments = (q, k, v, out, sink, length * meta["D"], meta["D"], window, 0.1)
    return Launch(attention.with_sinks, (length // meta["BM"], heads, 1), arguments, (out,), meta)


def masked_blocks(new: _Tensors, meta: Meta, heads: int, length: int) -> Launch:
    q, k, v = (new(heads, length, meta["D"]) for _ in range(3))
    out, rows, blocks = torch.zeros_like(q), length // meta["BM"], length // meta["BN"]
    arguments = (q, k, v, out, new.whole(0, 2, rows, blocks), length * meta["D"], meta["D"], blocks, 0.1)
    return Launch(attention.masked_blocks, (rows, heads, 1), arguments, (out,), meta)


# -------------------------------------------------------------------------------------------------- products


def grouped(new: _Tensors, meta: Meta, columns: int, depth: int) -> Launch:
    """Eight groups, of none to 3,000 rows."""
    sizes = [1000, 17, 2048, 640, 0, 3000, 128, 513]
    begins = [sum(sizes[:at]) for at in range(len(sizes))]
    a, b, c = new(sum(sizes), depth), new(len(sizes), columns, depth), new.zeros(sum(sizes), columns)
    arguments = (a, b, c, new.table(sizes), new.table(begins), len(sizes), columns, depth)
    return Launch(products.grouped, (meta["SMS"], 1, 1), arguments, (c,), meta)


def batched_gelu(new: _Tensors, meta: Meta, batch: int, shape: tuple[int, int, int]) -> Launch:
    m, n, k = shape
    a, b, bias, c = new(batch, m, k), new(batch, k, n), new(n), new.zeros(batch, m, n)
    arguments = (a, b, bias, c, m, n, k, m * k, k, k * n, n, m * n, n)
    return Launch(products.batched_gelu, (cdiv(m, meta["BM"]), cdiv(n, meta["BN"]), batch), arguments, (c,), meta)


def swiglu(new: _Tensors, meta: Meta, shape: tuple[int, int, int]) -> Launch:
    m, n, k = shape
    x, gate, up, y = new(m, k), new(n, k, scale=0.05), new(n, k, scale=0.05), new.zeros(m, n)
    grid = (cdiv(m, meta["BM"]) * cdiv(n, meta["BN"]), 1, 1)
    return Launch(products.swiglu, grid, (x, gate, up, y, m, n, k), (y,), meta)


def fp8_blocks(new: _Tensors, meta: Meta, shape: tuple[int, int, int]) -> Launch:
    m, n, k = shape
    a, b, c = new(m, k, dtype=FP8), new(n, k, dtype=FP8), new.zeros(m, n)
    scales = new.uniform(m, k // 128), new.uniform(cdiv(n, 128), k // 128)
    grid = (cdiv(n, meta["BN"]), cdiv(m, meta["BM"]), 1)
    return Launch(products.fp8_blocks, grid, (a, b, c, *scales, m, n, k), (c,), meta)


def int8_scaled(new: _Tensors, meta: Meta, shape: tuple[int, int, int]) -> Launch:
    m, n, k = shape
    a, b = (new.whole(-127, 127, rows, k, dtype=torch.int8) for rows in (m, n))
    c, scales = new.zeros(m, n), (new.uniform(m) / 100, new.uniform(n) / 100)
    return Launch(products.int8_scaled, _tiles(shape, meta), (a, b, c, *scales, m, n, k), (c,), meta)


def split_k(new: _Tensors, meta: Meta, shape: tuple[int, int, int]) -> Launch:
    m, n, k = shape
    c = new.zeros(m, n, dtype=torch.float32)
    return Launch(
        products.split_k, (*_tiles(shape, meta)[:2], meta["SPLIT"]), (new(m, k), new(k, n), c, m, n, k), (c,), meta
    )


def convolution(new: _Tensors, meta: Meta, batch: int, side: int, channels: int, filters: int) -> Launch:
    x, w = new(batch, side, side, channels), new(3, 3, channels, filters, scale=0.05)
    y, places = new.zeros(batch, side, side, filters), batch * side * side
    arguments = (x, w, y, batch, side, side, channels, filters, side, side)
    return Launch(products.convolution, _tiles((places, filters, 0), meta), arguments, (y,), meta)


def log_sum_exp(new: _Tensors, meta: Meta, shape: tuple[int, int, int]) -> Launch:
    m, n, k = shape
    out = new.zeros(m, dtype=torch.float32)
    arguments = (new(m, k, scale=0.1), new(n, k, scale=0.1), out, m, n, k)
    return Launch(products.log_sum_exp, (cdiv(m, meta["BM"]), 1, 1), arguments, (out,), meta)


def tf32(new: _Tensors, meta: Meta, shape: tuple[int, int, int]) -> Launch:
    m, n, k = shape
    a, b = (new(rows, k, dtype=torch.float32) for rows in (m, n))
    c = new.zeros(m, n, dtype=torch.float32)
    return Launch(products.tf32, _tiles(shape, meta), (a, b, c, m, n, k), (c,), meta)


def gathered_experts(new: _Tensors, meta: Meta, experts: int, shape: tuple[int, int, int]) -> Launch:
    """Two experts for each token, drawn at random; each expert's rows are filled up to whole tiles."""
    tokens, n, k = shape
    count, names, which = tokens * meta["TOPK"], list[int](), list[int]()
    chosen = torch.randint(0, experts, (count,))
    for expert in range(experts):
        mine = (chosen == expert).nonzero().flatten().tolist()
        mine += [count] * (-len(mine) % meta["BM"])
        names, which = names + mine, which + [expert] * (len(mine) // meta["BM"])
    a, b, c = new(tokens, k), new(experts, n, k), new.zeros(count, n)
    arguments = (a, b, c, new.table(names), new.table(which), count, n, k)
    return Launch(products.gathered_experts, (n // meta["BN"], len(which), 1), arguments, (c,), meta)


def two_layers(new: _Tensors, meta: Meta, rows: int, depth: int, hidden: int) -> Launch:
    x, first, second = new(rows, depth, scale=0.1), new(depth, hidden, scale=0.1), new(hidden, meta["N"], scale=0.1)
    y = new.zeros(rows, meta["N"])
    return Launch(
        products.two_layers, (rows // meta["BM"], 1, 1), (x, first, second, y, rows, depth, hidden), (y,), meta
    )


def lower_triangle(new: _Tensors, meta: Meta, rows: int, depth: int) -> Launch:
    a, c, count = new(rows, depth), new.zeros(rows, rows), rows // meta["BM"]
    return Launch(products.lower_triangle, (count, count, 1), (a, c, rows, depth), (c,), meta)


def int4_groups(new: _Tensors, meta: Meta, shape: tuple[int, int, int]) -> Launch:
    m, n, k = shape
    weights, scales = new.whole(-(2**31), 2**31 - 1, k // 8, n), new(k // meta["GROUP"], n, scale=0.1)
    c = new.zeros(m, n)
    return Launch(products.int4_groups, _tiles(shape, meta), (new(m, k), weights, scales, c, m, n, k), (c,), meta)


def int4_pairs(new: _Tensors, meta: Meta, shape: tuple[int, int, int]) -> Launch:
    m, n, k = shape
    weights, scales = new.whole(-128, 127, n, k // 2, dtype=torch.int8), new(n, k // meta["BK"], scale=0.1)
    c = new.zeros(m, n)
    return Launch(products.int4_pairs, _tiles(shape, meta), (new(m, k), weights, scales, c, m, n, k), (c,), meta)


def mx_scaled(new: _Tensors, meta: Meta, shape: tuple[int, int, int]) -> Launch:
    m, n, k = shape
    a, b, c = new(m, k, dtype=FP8), new(n, k, dtype=FP8), new.zeros(m, n)
    sa, sb = (new.whole(120, 130, rows, k // 32, dtype=torch.uint8) for rows in (m, n))
    return Launch(products.mx_scaled, _tiles(shape, meta), (a, sa, b, sb, c, m, n, k), (c,), meta)


def normalized(new: _Tensors, meta: Meta, shape: tuple[int, int, int]) -> Launch:
    m, n, k = shape
    x, gain, w, y = new(m, k), new(k), new(n, k, scale=0.05), new.zeros(m, n)
    return Launch(products.normalized, _tiles(shape, meta), (x, gain, w, y, m, n, k, 1e-5), (y,), meta)


def device_descriptors(new: _Tensors, meta: Meta, shape: tuple[int, int, int]) -> Launch:
    m, n, k = shape
    c = new.zeros(m, n)
    return Launch(products.device_descriptors, (meta["SMS"], 1, 1), (new(m, k), new(n, k), c, m, n, k), (c,), meta)


def block_pointers(new: _Tensors, meta: Meta, shape: tuple[int, int, int]) -> Launch:
    m, n, k = shape
    c = new.zeros(m, n)
    return Launch(products.block_pointers, _tiles(shape, meta), (new(m, k), new(k, n), c, m, n, k, k, n, n), (c,), meta)


def added(new: _Tensors, meta: Meta, shape: tuple[int, int, int]) -> Launch:
    m, n, k = shape
    c, (rows, columns, _) = new.zeros(m, n), _tiles(shape, meta)
    return Launch(products.added, (rows * columns, 1, 1), (new(k, m), new(k, n), new(m, n), c, m, n, k), (c,), meta)


def _tiles(shape: tuple[int, int, int], meta: Meta) -> Grid:
    return cdiv(shape[0], meta["BM"]), cdiv(shape[1], meta["BN"]), 1


# ----------------------------------------------------------------------------------------------------- scans


def chunked_states(new: _Tensors, meta: Meta, heads: int, length: int) -> Launch:
    q, k = (new(heads, length, meta["D"], scale=0.1) for _ in range(2))
    v, out, decay = new(heads, length, meta["DV"]), new.zeros(heads, length, meta["DV"]), -new.uniform(heads) / 10
    arguments = (q, k, v, out, decay, length, 0.1)
    return Launch(scans.chunked_states, (meta["DV"] // meta["BV"], heads, 1), arguments, (out,), meta)


def chunk_scan(new: _Tensors, meta: Meta, heads: int, chunks: int) -> Launch:
    length = chunks * meta["CH"]
    c, b = (new(length, meta["DS"], scale=0.1) for _ in range(2))
    x, out = new(length, heads * meta["HD"]), new.zeros(length, heads * meta["HD"])
    dt, decay = new.uniform(heads, length), -new.uniform(heads, length).cumsum(1) / 100
    grid = (meta["CH"] // meta["BM"], chunks, heads)
    return Launch(scans.chunk_scan, grid, (c, b, x, dt, out, decay, chunks), (out,), meta)


def chunk_outputs(new: _Tensors, meta: Meta, batch: int, length: int) -> Launch:
    chunks, wide = cdiv(length, meta["BT"]), meta["V"]
    q, k = (new(batch, length, meta["K"], scale=0.1) for _ in range(2))
    v, out = new(batch, length, wide), new.zeros(batch, length, wide)
    state = new(batch, chunks, meta["K"], wide, scale=0.1)
    grid = (wide // meta["BV"], chunks, batch)
    return Launch(scans.chunk_outputs, grid, (q, k, v, state, out, length, 0.1), (out,), meta)


def gated_states(new: _Tensors, meta: Meta, heads: int, length: int) -> Launch:
    k, v = new(heads, length, meta["DK"]), new(heads, length, meta["DV"])
    gates = -new.uniform(heads, length, meta["DK"]).cumsum(1) / 100
    out = new.zeros(heads, cdiv(length, meta["BT"]), meta["DK"], meta["DV"])
    grid = (meta["DK"] // meta["BK"], meta["DV"] // meta["BV"], heads)
    return Launch(scans.gated_states, grid, (k, v, gates, out, length), (out,), meta)


# ----------------------------------------------------------------------------------------------------- cases


def _tile(rows: int, columns: int, depth: int, warps: int, stages: int = 3, **more: Any) -> Meta:
    return {"BM": rows, "BN": columns, "BK": depth, "num_warps": warps, "num_stages": stages, **more}


def _keys(rows: int, columns: int, width: int, warps: int, stages: int = 3, **more: Any) -> Meta:
    return {"BM": rows, "BN": columns, "D": width, "num_warps": warps, "num_stages": stages, **more}


def _of(make: Callable[..., Launch], sizes: list[dict[str, Any]], tiles: list[Meta]) -> list[Case]:
    return [Case(make, size, tile) for size in sizes for tile in tiles]


LARGE, SMALL = _tile(128, 128, 64, 8), _tile(64, 128, 64, 4)
WALKING = {"SMS": 132}
CASES: list[Case] = [
    *_of(windowed, [{"batch": 2, "heads": 16, "shared": 4, "length": 4096, "window": 1024},
                    {"batch": 1, "heads": 8, "shared": 8, "length": 3000, "window": 512}],
         [_keys(128, 64, 128, 8), _keys(64, 64, 128, 4), _keys(128, 128, 128, 8)]),
    *_of(backward_keys, [{"heads": 64, "length": 2048}], [_keys(64, 128, 64, 8, CAUSAL=True)]),
    *_of(backward_keys, [{"heads": 32, "length": 2048}], [_keys(64, 128, 128, 8, CAUSAL=False)]),
    *_of(backward_keys, [{"heads": 32, "length": 4096}], [_keys(32, 128, 64, 4, CAUSAL=True)]),
    *_of(backward_queries, [{"heads": 64, "length": 2048}], [_keys(128, 64, 64, 8, 2), _keys(128, 64, 128, 8, 2)]),
    *_of(backward_queries, [{"heads": 32, "length": 4096}], [_keys(128, 32, 64, 4, 2), _keys(64, 64, 128, 4, 2)]),
    *_of(paged, [{"batch": 8, "queries": 256, "heads": 16, "pages": 32}],
         [{"PAGE": page, "BM": 128, "D": width, "num_warps": 8, "num_stages": 3}
          for width, page in ((128, 64), (64, 128))]),
    *[Case(packed, {"heads": heads, "group": group}, _keys(*tile, width, warps, 2, DP=padded, CAUSAL=causal))
      for width, padded, heads, group, causal in (
          (128, 128, 16, 4, True), (96, 128, 16, 1, False), (64, 64, 32, 8, True), (256, 256, 8, 1, True))
      for *tile, warps in ((128, 64, 8), (64, 64, 4))],
    *_of(block_sparse, [{"heads": 16, "length": 4096}], [_keys(128, 64, 128, 8), _keys(64, 64, 128, 4)]),
    *_of(int8_keys, [{"heads": 16, "length": 4096}], [_keys(128, 128, 128, 8, 2), _keys(64, 64, 128, 4, 2)]),
    *_of(dropped_out, [{"heads": 32, "length": 2048}], [_keys(128, 128, 128, 8, 2), _keys(128, 64, 128, 8, 2)]),
    *[Case(in_stages, {"batch": 4, "heads": 16, "length": 4096}, _keys(*tile, width, warps, CAUSAL=causal))
      for width in (64, 128) for causal in (False, True)
      for *tile, warps in ((128, 64, 4), (128, 128, 8), (64, 64, 4))],
    *_of(with_sinks, [{"heads": 64, "length": 4096, "window": 512}],
         [_keys(128, 64, 64, 8, FIRST=64), _keys(64, 64, 128, 4, FIRST=64)]),
    *_of(masked_blocks, [{"heads": 32, "length": 4096}], [_keys(128, 64, 128, 8), _keys(64, 64, 64, 4)]),
    *_of(grouped, [{"columns": 3072, "depth": 2048}], [LARGE | WALKING, SMALL | WALKING]),
    *_of(batched_gelu, [{"batch": 8, "shape": (1024, 4096, 1024)}, {"batch": 3, "shape": (777, 1500, 2000)}],
         [LARGE, _tile(64, 128, 32, 4)]),
    *_of(swiglu, [{"shape": (4096, 5632, 2048)}, {"shape": (1900, 5632, 2048)}],
         [LARGE | {"GM": 8}, _tile(128, 64, 64, 4, GM=8)]),
    *_of(fp8_blocks, [{"shape": (4096, 4096, 4096)}, {"shape": (256, 7168, 2048)}],
         [_tile(128, 128, 128, 8), _tile(64, 128, 128, 4)]),
    *_of(int8_scaled, [{"shape": (4096, 4096, 4096)}], [_tile(128, 128, 128, 8), _tile(64, 128, 64, 4, 4)]),
    *_of(split_k, [{"shape": (512, 2048, 16384)}], [LARGE | {"SPLIT": 4}]),
    *_of(convolution, [{"batch": 16, "side": 56, "channels": 128, "filters": 256}],
         [LARGE | {"R": 3, "S": 3, "PAD": 1}]),
    *_of(log_sum_exp, [{"shape": (8192, 16000, 1024)}], [_tile(64, 256, 64, 8), LARGE]),
    *_of(tf32, [{"shape": (4096, 4096, 4096)}], [_tile(128, 128, 32, 8), _tile(64, 128, 32, 4, 4)]),
    *_of(gathered_experts, [{"experts": 16, "shape": (2048, 2816, 2048)}], [LARGE | {"TOPK": 2}, SMALL | {"TOPK": 2}]),
    *_of(two_layers, [{"rows": 16384, "depth": 1024, "hidden": 2048}],
         [{"N": 128, "BM": 128, "BH": 128, "BK": 64, "num_warps": 8, "num_stages": 3}]),
    *_of(lower_triangle, [{"rows": 4096, "depth": 4096}], [{"BM": 128, "BK": 64, "num_warps": 8, "num_stages": 3}]),
    *_of(int4_groups, [{"shape": (2048, 4096, 4096)}], [LARGE | {"GROUP": 128}]),
    *_of(int4_pairs, [{"shape": (2048, 4096, 4096)}, {"shape": (64, 4096, 4096)}], [_tile(64, 128, 128, 4)]),
    *_of(mx_scaled, [{"shape": (2048, 4096, 4096)}], [_tile(128, 128, 128, 8)]),
    *_of(normalized, [{"shape": (4096, 4096, 4096)}], [LARGE, SMALL]),
    *_of(device_descriptors, [{"shape": (4096, 4096, 4096)}, {"shape": (2000, 3000, 1504)}], [LARGE | WALKING]),
    *_of(block_pointers, [{"shape": (4096, 4096, 4096)}, {"shape": (2000, 3000, 1504)}],
         [LARGE, _tile(64, 128, 32, 4, 4)]),
    *_of(block_pointers, [{"shape": (300, 4000, 4096)}, {"shape": (64, 8192, 8192)}, {"shape": (2000, 1000, 40)}],
         [_tile(64, 128, 64, 4, 4)]),
    *_of(added, [{"shape": (4096, 4096, 2048)}, {"shape": (1000, 5000, 1024)}, {"shape": (777, 1111, 512)}],
         [_tile(128, 256, 64, 8, GM=8), _tile(64, 64, 64, 4, GM=8)]),
    Case(chunked_states, {"heads": 64, "length": 4096},
         {"C": 64, "D": 128, "DV": 128, "BV": 64, "num_warps": 4, "num_stages": 2}),
    Case(chunked_states, {"heads": 32, "length": 8192},
         {"C": 128, "D": 64, "DV": 128, "BV": 128, "num_warps": 8, "num_stages": 2}),
    *[Case(chunk_scan, {"heads": 32, "chunks": 16},
           {"sh": 2048, "CH": 256, "BM": rows, "BN": 64, "DS": 128, "HD": 64, "num_warps": 4, "num_stages": 3})
      for rows in (128, 64)],
    Case(chunk_outputs, {"batch": 64, "length": 4000},
         {"BT": 64, "BK": 64, "BV": 64, "K": 128, "V": 128, "H": 4, "num_warps": 4, "num_stages": 3}),
    *[Case(gated_states, {"heads": 64, "length": 4000},
           {"BT": 64, "DK": 128, "DV": 256, "BK": rows, "BV": 128, "num_warps": warps, "num_stages": stages})
      for rows, warps, stages in ((64, 4, 3), (128, 8, 2))],
]  # fmt: skip
