"""Which kernels are compiled for what in the round-trip tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triton.experimental.gluon import language as gl

from tests.roundtrip import kernels_dots as dots
from tests.roundtrip import kernels_gluon as gluon
from tests.roundtrip import kernels_values as values
from tests.roundtrip.stages import Case
from wspec.bridge.versions import INSTALLED
from wspec.kernels import attention, elementwise, matmul

ALL = ("ttir", "before", "final", "cf", "llvm")
OURS = ("ttir", "before", "final", "specialized")
F32 = {"x_ptr": "*fp32:16", "out_ptr": "*fp32:16"}
TILE = {"BM": 128, "BN": 128, "BK": 64}


def _desc(rows: int, columns: int, dtype: str = "fp16") -> str:
    return f"tensordesc<{dtype}[{rows}, {columns}]>"


def cases() -> list[Case]:
    """Every case of the suite, by unique name."""
    found = [*_value_cases(), *_dot_cases(), *_attention_cases(), *_gluon_cases(), *_own_cases()]
    assert len({case.name for case in found}) == len(found)
    return found


def _value_cases() -> Iterator[Case]:
    both = {**F32, "n": "i32"}
    yield Case("add", values.add, {**both, "y_ptr": "*fp32:16"}, {"BLOCK": 1024}, ALL)
    yield Case("add_i8", values.add, {"x_ptr": "*i8", "y_ptr": "*i8", "out_ptr": "*i8", "n": "i64:16"}, {"BLOCK": 64})
    yield Case("softmax", values.softmax, both, {"BLOCK": 512}, ALL)
    yield Case("softmax_wide", values.softmax, {**both, "n": "i32:16"}, {"BLOCK": 8192, "num_warps": 16})
    half = {"x_ptr": "*bf16:16", "weight_ptr": "*bf16:16", "out_ptr": "*bf16:16", "n": "i32:16", "eps": "fp32"}
    yield Case("layer_norm", values.layer_norm, half, {"BLOCK": 1024, "num_warps": 8})
    yield Case("special_floats", values.special_floats, {"out_ptr": "*fp32:16"}, {"BLOCK": 128}, ALL)
    yield Case("special_halfs", values.special_floats, {"out_ptr": "*fp16:16"}, {"BLOCK": 128})
    yield Case("special_doubles", values.special_floats, {"out_ptr": "*fp64:16"}, {"BLOCK": 128})
    yield Case("atomics", values.atomics, {"x_ptr": "*fp32:16", "lock_ptr": "*i32:16"}, {"BLOCK": 128}, ALL)
    yield Case("scans", values.scans, F32, {"M": 16, "N": 64})
    yield Case("sorting", values.sorting, F32, {"BLOCK": 64})
    ints = {"x_ptr": "*i32:16", "out_ptr": "*i32:16"}
    yield Case("histogram", values.histogram, ints, {"BLOCK": 512, "BINS": 64})
    yield Case("gather", values.gather, {**F32, "index_ptr": "*i32:16"}, {"M": 32, "N": 64})
    yield Case("shapes", values.shapes, F32, {"M": 32, "N": 64})
    yield Case("inline_asm", values.inline_asm, ints, {"BLOCK": 128}, ALL)
    yield Case("printing", values.printing, {"x_ptr": "*i32:16", "n": "i32"}, {"BLOCK": 128, "debug": True})
    float8 = {"x_ptr": "*fp8e4nv:16", "out_ptr": "*fp8e5:16", "half_ptr": "*fp16:16"}
    yield Case("float8", values.float8, float8, {"BLOCK": 256})
    yield Case("calls", values.calls, {"x_ptr": "*fp32:16", "scale": "fp32"}, {"BLOCK": 128}, ALL)
    yield Case("branches", values.branches, {"x_ptr": "*fp32:16", "n": "i32", "flag": "i32"}, {"BLOCK": 128}, ALL)
    yield Case("early_return", values.early_return, {"x_ptr": "*i32", "n": "i32"}, {"BLOCK": 128}, ALL)
    loops = {"x_ptr": "*fp32:16", "rows": "i32", "columns": "i32:16"}
    yield Case("nested_loops", values.nested_loops, loops, {"BLOCK": 256})
    yield Case("integers", values.integers, {**ints, "y_ptr": "*i32:16", "out_ptr": "*i64:16"}, {"BLOCK": 128})
    yield Case("transcendental", values.transcendental, {**F32, "out_ptr": "*bf16:16"}, {"BLOCK": 128})
    yield Case("random", values.random, {"out_ptr": "*fp32:16", "seed": "i64"}, {"BLOCK": 128})
    if INSTALLED.release != "3.9":  # which has none any more
        yield Case("block_pointers", values.block_pointers, {**F32, "M": "i64", "N": "i64"}, {"BLOCK": 32})
    yield Case("static_range", values.static_range, {"x_ptr": "*fp16:16", "stride": "i32:1"}, {"BLOCK": 32})
    yield Case("mapped", values.mapped, F32, {"BLOCK": 128})


def _dot_cases() -> Iterator[Case]:
    pointers = {"a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "c_ptr": "*fp16:16", "M": "i32", "N": "i32:16", "K": "i32:16"}
    act: dict[str, Any] = {**TILE, "ACT": True}
    yield Case("gemm", dots.gemm_pointers, pointers, {**act, "num_warps": 8, "num_stages": 4}, ALL)
    yield Case("gemm_small", dots.gemm_pointers, pointers, {"BM": 16, "BN": 16, "BK": 32, "ACT": False})
    tf32 = {**pointers, "a_ptr": "*fp32:16", "b_ptr": "*fp32:16", "c_ptr": "*fp32:16"}
    yield Case("gemm_tf32", dots.gemm_pointers, tf32, {**act, "BK": 32})
    fp8 = {**pointers, "a_ptr": "*fp8e4nv:16", "b_ptr": "*fp8e4nv:16"}
    yield Case("gemm_fp8", dots.gemm_pointers, fp8, {**act, "num_stages": 3})
    host = {"a": _desc(128, 64), "b": _desc(64, 128), "c_ptr": "*fp32:16", "N": "i32:16", "K": "i32:16"}
    yield Case("gemm_desc", dots.gemm_descriptors, host, {**TILE, "WS": False, "num_warps": 8})
    yield Case("gemm_ws", dots.gemm_descriptors, host, {**TILE, "WS": True, "num_warps": 4}, ALL)
    device = {**pointers, "K": "i32:16"}
    yield Case("gemm_persistent", dots.gemm_persistent, device, {**TILE, "num_warps": 8})
    yield Case("chained", dots.chained, {"a_ptr": "*fp32:16", "out_ptr": "*fp32:16"}, {"B": 64})
    yield Case("batched", dots.batched, {"a_ptr": "*fp16:16", "out_ptr": "*fp32:16"}, {"B": 2, "N": 32})
    mx = {"a_ptr": "*u8:16", "s_ptr": "*u8:16", "b_ptr": "*bf16:16", "out_ptr": "*fp32:16"}
    yield Case("scaled", dots.scaled, mx, {"M": 64, "N": 64, "K": 128})
    rows = {"desc": _desc(32, 64), "rows_ptr": "*i32:16", "out_ptr": "*fp32:16", "K": "i32:16"}
    yield Case("gather_rows", dots.gather_rows, rows, {"ROWS": 32, "COLUMNS": 64})
    state = {"k_ptr": "*bf16:16", "v_ptr": "*bf16:16", "h_ptr": "*bf16:16", "length": "i32"}
    yield Case("chunk_state", dots.chunk_state, state, {"D": 64, "BT": 64})
    int8 = {"a_ptr": "*fp16:16", "w_ptr": "*i8:16", "scale_ptr": "*fp32:16", "out_ptr": "*fp32:16", "K": "i32:16"}
    yield Case("int8_weights", dots.int8_weights, int8, {**TILE, "BM": 64})


def _attention_cases() -> Iterator[Case]:
    for head in (64, 128):
        for causal in (False, True):
            blocks = {"q_desc": _desc(128, head), "k_desc": _desc(64, head), "v_desc": _desc(64, head)}
            types = {**blocks, "o_desc": _desc(128, head), "scale": "fp32", "length": "i32"}
            constexprs = {"BM": 128, "BN": 64, "D": head, "CAUSAL": causal, "WS": False}
            name = f"attention_{head}{'_causal' if causal else ''}"
            yield Case(name, dots.attention, types, {**constexprs, "num_warps": 8})
    ws = {**constexprs, "CAUSAL": False, "WS": True, "num_warps": 4}
    yield Case("attention_ws", dots.attention, {**types, "o_desc": "*fp16:16"}, ws, ALL)


def _gluon_cases() -> Iterator[Case]:
    shared = gl.NVMMASharedLayout(128, 16, 2)
    desc = f"tensordesc<fp16[128, 64],{shared!r}>"
    types = {"a": desc, "b": f"tensordesc<fp16[64, 128],{shared!r}>", "c": f"tensordesc<fp16[128, 128],{shared!r}>"}
    stages = ("gluon", "cf", "llvm")
    yield Case("gluon_gemm", gluon.specialized_gemm, {**types, "K": "i32"}, {"BK": 64, "DEPTH": 3}, stages)
    yield Case("gluon_layouts", gluon.layouts, {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}, {}, stages)


def _own_cases() -> Iterator[Case]:
    """The project's kernels."""
    count = {"x_ptr": "*fp16:16", "out_ptr": "*fp16:16"}
    yield Case("our_add", elementwise.add_kernel, {**count, "y_ptr": "*fp16:16", "count": "i64"}, {"BLOCK": 1024})
    yield Case("our_softmax", elementwise.softmax_kernel, {**count, "columns": "i32"}, {"BLOCK": 1024})
    norm = {**count, "weight_ptr": "*fp16:16", "bias_ptr": "*fp16:16", "columns": "i32:16", "eps": "fp32"}
    yield Case("our_layer_norm", elementwise.layer_norm_kernel, norm, {"BLOCK": 1024})
    yield from _own_matmuls()
    for head in (64, 128, 256):
        for causal in (False, True):
            yield _own_attention(head, causal, "bf16" if causal else "fp16")


def _own_attention(head: int, causal: bool, dtype: str) -> Case:
    columns = 64 if head == 256 else 128
    q, kv = f"tensordesc<{dtype}[1, 1, 128, {head}]>", f"tensordesc<{dtype}[1, 1, {columns}, {head}]>"
    types = {"q_desc": q, "k_desc": kv, "v_desc": kv, "o_desc": q, "lse_ptr": "*fp32:16", "scale_log2": "fp32"}
    types.update(dict.fromkeys(("seqlen_q", "seqlen_k", "heads", "group"), "i32"))
    values = {"BLOCK_M": 128, "BLOCK_N": columns, "HEAD_DIM": head, "CAUSAL": causal, "num_warps": 8}
    name = f"our_attention_{head}{'_causal' if causal else ''}"
    return Case(name, attention.attention_fwd, types, values, OURS)


def _own_matmuls() -> Iterator[Case]:
    sizes = {"m": "i32", "n": "i32:16", "k": "i32:16"}
    blocks = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8}
    for turned in (False, True):
        b = _desc(256, 64) if turned else _desc(64, 256)
        types = {"a_desc": _desc(128, 64), "b_desc": b, "c_desc": _desc(128, 256), **sizes}
        name = f"our_matmul{'_transposed' if turned else ''}"
        yield Case(name, matmul.matmul_descriptor_kernel, types, {**blocks, "B_TRANSPOSED": turned}, OURS)
    pointers = {"a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "c_ptr": "*fp16:16", **sizes}
    strides = {"stride_am": "i32:16", "stride_ak": "i32:1", "stride_bk": "i32:16", "stride_bn": "i32:1"}
    strides.update(stride_cm="i32:16", stride_cn="i32:1")
    yield Case("our_matmul_pointers", matmul.matmul_pointer_kernel, {**pointers, **strides}, blocks)
