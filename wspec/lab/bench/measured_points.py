"""The launches that docs/results has times of, as points to compare predictions with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from wspec.kernels.matmul import default_config
from wspec.lab.bench.attention_cases import HIDDEN, TOKENS
from wspec.lab.simulate.points import Point

_ATTENTION = re.compile(
    r"^\| (64|128|256) \| (full|causal) \| (bf16|fp16) \| (\d+) \| (\d+) \| ([^|]+) \| (\d+) \| ([^|]+) \|"
)
_ATTENTION_TILE = re.compile(r"(plain )?(\d+)x(\d+) w(\d+) s(\d+)")
_MATMUL = re.compile(r"^\| descriptor A (B|B\^T) (bf16|fp16) (\d+)x(\d+)x(\d+) \| (\d+) \| ([^|]+) \| (\d+) \|")
_MATMUL_TILE = re.compile(r"(\d+)x(\d+)x(\d+) w(\d+) s(\d+) g(\d+)")


def points_from_tables(path: Path) -> list[Point]:
    """Attention: what `attention` launched, and the best plain kernel. Products: those that were always specialized."""
    text = path.read_text(encoding="utf-8")
    products = text[text.find("specialized\nat `default_config`") :]
    return [*_attention(text), *_matmul(products)]


def _attention(text: str) -> Iterator[Point]:
    for line in text.splitlines():
        match = _ATTENTION.match(line)
        if match is None:
            continue
        dim, mask, dtype, length, plain, plain_tile, ours, our_tile = match.groups()
        for speed, tile, kind in ((plain, plain_tile, "plain"), (ours, our_tile, "specialized")):
            tiled = _ATTENTION_TILE.match(tile.strip())
            if tiled is None or (kind == "specialized" and tiled[1]):  # the plain kernel once more
                continue
            case = (int(dim), mask == "causal", dtype, int(length))
            yield attention_point(case, kind, tuple(map(int, tiled.groups()[1:])), float(speed))


def attention_point(case: tuple[int, bool, str, int], kind: str, tile: tuple[int, ...], tflops: float) -> Point:
    """(head dimension, causal, dtype, length), (rows, columns, warps, stages) of the tile."""
    dim, causal, dtype, length = case
    rows, columns, warps, stages = tile
    heads, batch = HIDDEN // dim, TOKENS // length
    flop = 4 * batch * heads * length * length * dim / (2 if causal else 1)
    types = {f"{name}_desc": f"tensordesc<{dtype}[1, 1, {rows}, {dim}]>" for name in "qo"}
    types |= {f"{name}_desc": f"tensordesc<{dtype}[1, 1, {columns}, {dim}]>" for name in "kv"}
    types |= {"lse_ptr": "*fp32:16", "scale_log2": "fp32"}
    types |= dict.fromkeys(("seqlen_q", "seqlen_k", "heads", "group"), "i32")
    mask = "causal" if causal else "full"
    return Point(
        name=f"D={dim} {mask} {dtype} S={length} {kind} {rows}x{columns} w{warps}",
        kernel="kernels/attention.py:attention_fwd",
        kind=kind,
        signature=types,
        constexprs={"BLOCK_M": rows, "BLOCK_N": columns, "HEAD_DIM": dim, "CAUSAL": causal},
        options={"num_warps": warps, "num_stages": stages},
        arguments={"seqlen_q": length, "seqlen_k": length, "heads": heads, "group": 1},
        grid=(-(-length // rows), heads, batch),
        ms=flop / tflops / 1e9,
    )


def _matmul(text: str) -> Iterator[Point]:
    for line in text.splitlines():
        match = _MATMUL.match(line)
        if match is None:
            continue
        order, dtype, *sizes, plain, plain_tile, ours = match.groups()
        m, n, k = map(int, sizes)
        tiled = _MATMUL_TILE.match(plain_tile.strip())
        assert tiled is not None, plain_tile
        config = default_config(m, n, "descriptor", order == "B^T")
        own = (config.block_m, config.block_n, config.block_k, config.num_warps, config.num_stages, config.group_m)
        both = (("plain", plain, tuple(map(int, tiled.groups()))), ("specialized", ours, own))
        for kind, speed, tile in both:
            yield matmul_point((m, n, k), order == "B^T", dtype, kind, tile, float(speed))


def matmul_point(
    sizes: tuple[int, int, int], transposed: bool, dtype: str, kind: str, tile: tuple[int, ...], tflops: float
) -> Point:
    """(m, n, k); (rows, columns, depth, warps, stages, rows of a group) of the tile."""
    m, n, k = sizes
    rows, columns, depth, warps, stages, group = tile
    b_box = f"{columns}, {depth}" if transposed else f"{depth}, {columns}"
    types = {
        "a_desc": f"tensordesc<{dtype}[{rows}, {depth}]>",
        "b_desc": f"tensordesc<{dtype}[{b_box}]>",
        "c_desc": f"tensordesc<{dtype}[{rows}, {columns}]>",
        **dict.fromkeys("mnk", "i32:16"),
    }
    shape = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "GROUP_M": group, "B_TRANSPOSED": transposed}
    order = "A B^T" if transposed else "A B"
    return Point(
        name=f"{order} {dtype} {m}x{n}x{k} {kind} {rows}x{columns}x{depth} w{warps}",
        kernel="kernels/matmul.py:matmul_descriptor_kernel",
        kind=kind,
        signature=types,
        constexprs=shape,
        options={"num_warps": warps, "num_stages": stages, "persistent": False},
        arguments={"m": m, "n": n, "k": k},
        grid=(-(-m // rows) * -(-n // columns), 1, 1),
        ms=2 * m * n * k / tflops / 1e9,
    )


def quantized_point(sizes: tuple[int, int, int], kind: str, tile: tuple[int, ...]) -> Point:
    """C [m, n] = A [m, k] W^T, W of int8; (rows of A, rows of W, depth, warps, stages) of the tile."""
    m, n, k = sizes
    rows, columns, depth, warps, stages = tile
    types = {
        "a_desc": f"tensordesc<bf16[{rows}, {depth}]>",
        "w_desc": f"tensordesc<i8[{columns}, {depth}]>",
        "scale_ptr": "*fp32:16",
        "c_desc": f"tensordesc<bf16[1, {rows}, {columns}]>",
        **dict.fromkeys(("n", "k_part"), "i32:16"),
    }
    return Point(
        name=f"int8 {m}x{n}x{k} {kind} {rows}x{columns}x{depth} w{warps}",
        kernel="kernels/quantized.py:int8_weights_kernel",
        kind=kind,
        signature=types,
        constexprs={"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth},
        options={"num_warps": warps, "num_stages": stages},
        arguments={"n": n, "k_part": k},
        grid=(-(-n // columns), -(-m // rows), 1),
        ms=0.0,
    )
