"""Examples of launches on the CPU: inputs, grid, what must come out, and how far off it may be.

An example is a function of what a kernel is compiled for (the types of its signature, its constexprs), a seed, and
sizes. Specs name it (`example = "examples.attention"`), and `wspec run` launches it on its executor.

Every output comes with its value in float64 and, for each element, a bound on the error of a kernel that is right. The
bounds are sums of terms that each stand for one rounding; u is the unit roundoff of a type: 2^-8 for bfloat16, 2^-11
for float16, 2^-24 for float32. They are worst cases, so a right kernel stays below, often far; a tile that is missing,
doubled or taken from the wrong place exceeds them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from wspec.kernels.attention import LOG2_E, attention_reference
from wspec.kernels.matmul import matmul_reference
from wspec.kernels.weights import dequantize_int4, int4_reference, int8_reference, quantize_int4, quantize_int8

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor that the kernel writes; `expected` and `bound` are float64, of its shape."""

    tensor: Tensor
    expected: Tensor
    bound: Tensor  # of the absolute error, for each element


class Outputs(Mapping[str, Output]):
    """Outputs by name, made when the first of them is asked for: some uses of an example have no need of them.

    `make` must not read what a launch may write to.
    """

    def __init__(self, make: Callable[[], Mapping[str, Output]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> Mapping[str, Output]:
        return self._make()

    def __getitem__(self, name: str) -> Output:
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


@dataclass(frozen=True, slots=True)
class Example:
    """One launch. Tensors stand for pointers and for descriptors, whose blocks the kernel knows."""

    grid: tuple[int, ...]
    arguments: Mapping[str, Any]  # by the names of the kernel's parameters
    outputs: Mapping[str, Output]


def unit_roundoff(dtype: torch.dtype) -> float:
    """The largest relative error of rounding to the nearest number of that type, above its underflow."""
    return torch.finfo(dtype).eps / 2


def smallest_error(dtype: torch.dtype) -> float:
    """The largest absolute error of rounding where numbers underflow: half of the smallest one."""
    return torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps / 2


SINGLE = unit_roundoff(torch.float32)


# -------------------------------------------------------------------------------------------------- attention


def attention(
    types: Mapping[str, str],
    constexprs: Mapping[str, Any],
    seed: int,
    *,
    batch: int = 1,
    heads: int = 2,
    kv_heads: int = 1,
    seqlen_q: int = 0,
    seqlen_k: int = 0,
) -> Example:
    """`attention_fwd`; by default grouped queries, and lengths that end within a tile: 0 chooses them by the tile."""
    dtype, head_dim = _dtype(types["q_desc"]), int(constexprs["HEAD_DIM"])
    block_m, block_n, causal = constexprs["BLOCK_M"], constexprs["BLOCK_N"], bool(constexprs["CAUSAL"])
    seqlen_q, seqlen_k = seqlen_q or block_m + 29, seqlen_k or 5 * block_n + 17
    draw = torch.Generator().manual_seed(seed)
    q = _normal(draw, (batch, heads, seqlen_q, head_dim), dtype)
    k, v = (_normal(draw, (batch, kv_heads, seqlen_k, head_dim), dtype) for _ in range(2))
    out, lse = torch.full_like(q, math.nan), torch.full((batch, heads, seqlen_q), math.nan)
    scale = head_dim**-0.5
    arguments = {
        "q_desc": q, "k_desc": k, "v_desc": v, "o_desc": out, "lse_ptr": lse, "scale_log2": scale * LOG2_E,
        "seqlen_q": seqlen_q, "seqlen_k": seqlen_k, "heads": heads, "group": heads // kv_heads,
    }  # fmt: skip
    kept_q, kept_k, kept_v = q.clone(), k.clone(), v.clone()

    def outputs() -> Mapping[str, Output]:
        given = (kept_q, kept_k, kept_v)
        expected, expected_lse = attention_reference(*given, causal=causal, scale=scale, dtype=torch.float64)
        bound, lse_bound = attention_bounds(*given, expected, expected_lse, causal, scale)
        return {"o_desc": Output(out, expected, bound), "lse_ptr": Output(lse, expected_lse, lse_bound)}

    return Example((-(-seqlen_q // block_m), heads, batch), arguments, Outputs(outputs))


def attention_bounds(
    q: Tensor, k: Tensor, v: Tensor, expected: Tensor, expected_lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Bounds on the errors of the output and of its log-sum-exp, for float32 accumulation and P rounded to q's type.

    With P the softmax and A = P |v|, the output's error is at most

        u A                 P is rounded to the operands' type before it is multiplied by v
        + u |out|           the output is rounded
        + 2 e A             P has a relative error of e = ln 2 (D + 8) 2^-23 t: scores are sums of D products in
                            float32, at most t = scale log2(e) max |q| |k|^T; once in P and once in its sum
        + (Sk + 8) 2^-23 A  sums over Sk keys in float32
        + Sk s max |v|      P below the operands' smallest numbers; s is the error there

    and that of the log-sum-exp, which P's rounding does not touch, at most e + (Sk + 8) 2^-23 (1 + |lse|).
    """
    keys, head_dim = k.shape[2], q.shape[3]
    u, tiny = unit_roundoff(q.dtype), smallest_error(q.dtype)
    spread, _ = attention_reference(q, k, v.abs(), causal=causal, scale=scale, dtype=torch.float64)
    wide = k.double().repeat_interleave(q.shape[1] // k.shape[1], 1)
    score = float((q.double().abs() @ wide.abs().mT).amax()) * scale * LOG2_E if keys else 0.0
    exponent = math.log(2) * (head_dim + 8) * 2 * SINGLE * score
    sums = (keys + 8) * 2 * SINGLE
    largest = float(v.abs().max()) if keys else 0.0
    bound = (u + 2 * exponent + sums) * spread + u * expected.abs() + keys * tiny * largest + tiny
    return bound, exponent + sums * (1 + torch.nan_to_num(expected_lse, neginf=0.0).abs())


# --------------------------------------------------------------------------------------------- matrix products


def matmul(
    types: Mapping[str, str], constexprs: Mapping[str, Any], seed: int, *, m: int = 0, n: int = 0, k: int = 0
) -> Example:
    """`matmul_descriptor_kernel` and `matmul_pointer_kernel`; sizes that end within a tile: 0 chooses them by the tile.

    The kernels are compiled for sizes that are multiples of 16.
    """
    block_m, block_n, block_k = (int(constexprs[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    m, n, k = m or block_m + 48, n or block_n + 32, k or 5 * block_k + 16
    by_pointers = "a_ptr" in types
    end = "ptr" if by_pointers else "desc"
    dtype, result = _dtype(types[f"a_{end}"]), _dtype(types[f"c_{end}"])
    draw = torch.Generator().manual_seed(seed)
    a, b = _normal(draw, (m, k), dtype), _normal(draw, (k, n), dtype)
    c = torch.full((m, n), math.nan, dtype=result)
    given = b.T.contiguous() if constexprs.get("B_TRANSPOSED") else b
    arguments = {f"a_{end}": a, f"b_{end}": given, f"c_{end}": c, "m": m, "n": n, "k": k}
    if by_pointers:
        strides = {"am": a.stride(0), "ak": 1, "bk": b.stride(0), "bn": 1, "cm": c.stride(0), "cn": 1}
        arguments |= {f"stride_{name}": stride for name, stride in strides.items()}
    kept_a, kept_b = a.clone(), b.clone()

    def outputs() -> Mapping[str, Output]:
        expected = matmul_reference(kept_a, kept_b, dtype=torch.float64)
        return {f"c_{end}": Output(c, expected, matmul_bound(kept_a, kept_b, expected, result))}

    return Example((-(-m // block_m) * -(-n // block_n),), arguments, Outputs(outputs))


def gathered(
    types: Mapping[str, str], constexprs: Mapping[str, Any], seed: int, *, m: int = 0, n: int = 0, k: int = 0
) -> Example:
    """`gathered_matmul_kernel` on more rows than are gathered, some of them more than once; sizes as of `matmul`."""
    block_m, block_n, block_k = (int(constexprs[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    m, n, k = m or block_m + 45, n or block_n + 32, k or 5 * block_k + 16
    dtype, result = _dtype(types["a_ptr"]), _dtype(types["c_desc"])
    draw = torch.Generator().manual_seed(seed)
    a, b = _normal(draw, (2 * m, k), dtype), _normal(draw, (k, n), dtype)
    index = torch.randint(2 * m, (m,), generator=draw, dtype=torch.int32)
    c = torch.full((m, n), math.nan, dtype=result)
    arguments = {"a_ptr": a, "index_ptr": index, "b_desc": b, "c_desc": c, "m": m, "k": k, "stride_am": k}
    kept_a, kept_b = a[index.long()], b.clone()

    def outputs() -> Mapping[str, Output]:
        expected = matmul_reference(kept_a, kept_b, dtype=torch.float64)
        return {"c_desc": Output(c, expected, matmul_bound(kept_a, kept_b, expected, result))}

    return Example((-(-m // block_m), -(-n // block_n)), arguments, Outputs(outputs))


def matmul_bound(a: Tensor, b: Tensor, expected: Tensor, result: torch.dtype) -> Tensor:
    """u |C| for rounding the result, and k 2^-23 |A| |B| for sums of k products in float32."""
    sums = a.shape[1] * 2 * SINGLE * (a.double().abs() @ b.double().abs())
    return unit_roundoff(result) * expected.abs() + sums + smallest_error(result)


def persistent(
    types: Mapping[str, str], constexprs: Mapping[str, Any], seed: int, *, m: int = 0, n: int = 0, k: int = 0
) -> Example:
    """`matmul_persistent_kernel` on fewer programs than there are tiles."""
    block_m, block_n, block_k = (int(constexprs[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    m, n, k = m or 2 * block_m + 48, n or block_n + 32, k or 3 * block_k + 16
    dtype, result = _dtype(types["a_desc"]), _dtype(types["c_desc"])
    draw = torch.Generator().manual_seed(seed)
    a, weight = _normal(draw, (m, k), dtype), _normal(draw, (n, k), dtype)
    c = torch.full((m, n), math.nan, dtype=result)
    arguments = {"a_desc": a, "b_desc": weight, "c_desc": c, "m": m, "n": n, "k": k}
    expected = matmul_reference(a, weight.T, dtype=torch.float64)
    output = Output(c, expected, matmul_bound(a, weight.T, expected, result))
    return Example((2,), arguments, {"c_desc": output})


# ----------------------------------------------------------------------------------------- quantized weights


def int8_weights(
    types: Mapping[str, str], constexprs: Mapping[str, Any], seed: int, *, m: int = 0, n: int = 0, k: int = 0
) -> Example:
    """`int8_weights_kernel`; sizes that end within a tile: 0 chooses them by the tile. A sum of two parts where the
    kernel writes float32."""
    block_m, block_n, block_k = (int(constexprs[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    m, n, k = m or block_m + 5, n or block_n + 48, k or 5 * block_k + 16
    draw, result = torch.Generator().manual_seed(seed), _dtype(types["c_desc"])
    a = _normal(draw, (m, k), torch.bfloat16)
    q, scale = quantize_int8(_normal(draw, (n, k), torch.float32))
    parts = 2 if result is torch.float32 else 1
    k_part = -(-k // (block_k * parts)) * block_k
    c = torch.full((parts, m, n), math.nan, dtype=result)
    arguments = {"a_desc": a, "w_desc": q, "scale_ptr": scale, "c_desc": c, "n": n, "k_part": k_part}
    pieces = [slice(part * k_part, (part + 1) * k_part) for part in range(parts)]
    expected = torch.stack([int8_reference(a[:, at], q[:, at], scale, dtype=torch.float64) for at in pieces])
    weight = q.double() * scale.double()[:, None]
    bounds = [matmul_bound(a[:, at], weight[:, at].T, expected[i], result) for i, at in enumerate(pieces)]
    output = Output(c, expected, torch.stack(bounds) + SINGLE * expected.abs())
    return Example((-(-n // block_n), -(-m // block_m), parts), arguments, {"c_desc": output})


def int4_weights(
    types: Mapping[str, str], constexprs: Mapping[str, Any], seed: int, *, m: int = 0, n: int = 0, groups: int = 6
) -> Example:
    """`int4_weights_kernel`. The product of a number and its scale is rounded to bfloat16: u |A| |W| more."""
    block_m, block_n, group = (int(constexprs[name]) for name in ("BLOCK_M", "BLOCK_N", "GROUP"))
    m, n, k = m or block_m + 5, n or block_n + 48, groups * group
    draw, result = torch.Generator().manual_seed(seed), _dtype(types["c_desc"])
    a = _normal(draw, (m, k), torch.bfloat16)
    q, scale = quantize_int4(_normal(draw, (n, k), torch.float32), group)
    c = torch.full((1, m, n), math.nan, dtype=result)
    sizes = {"n": n, "k_half": k // 2, "k_part": k // 2}
    arguments = {"a_desc": a, "w_desc": q, "scale_ptr": scale, "c_desc": c, **sizes}
    expected = int4_reference(a, q, scale, dtype=torch.float64)
    weight = dequantize_int4(q, scale, torch.float64)
    bound = matmul_bound(a, weight.T, expected, result)
    bound += unit_roundoff(torch.bfloat16) * (a.double().abs() @ weight.abs().T)
    return Example(
        (-(-n // block_n), -(-m // block_m), 1), arguments, {"c_desc": Output(c, expected[None], bound[None])}
    )


# ------------------------------------------------------------------------------------------------ elementwise


def add(types: Mapping[str, str], constexprs: Mapping[str, Any], seed: int, *, count: int = 2512) -> Example:
    """`add_kernel`. One rounding: u |x + y|. The variants are compiled for counts that are multiples of 16."""
    dtype = _dtype(types["x_ptr"])
    draw = torch.Generator().manual_seed(seed)
    x, y = _normal(draw, (count,), dtype), _normal(draw, (count,), dtype)
    out = torch.full_like(x, math.nan)
    expected = x.double() + y.double()
    bound = unit_roundoff(dtype) * expected.abs() + smallest_error(dtype)
    arguments = {"x_ptr": x, "y_ptr": y, "out_ptr": out, "count": count}
    return Example((-(-count // constexprs["BLOCK"]),), arguments, {"out_ptr": Output(out, expected, bound)})


def softmax(
    types: Mapping[str, str], constexprs: Mapping[str, Any], seed: int, *, rows: int = 3, columns: int = 1008
) -> Example:
    """`softmax_kernel`. Relative errors: of the difference in the exponent, of exp, of the sum, of the quotient, of the
    result's type: (2 max |x| + columns + 8) 2^-23 + u."""
    dtype = _dtype(types["x_ptr"])
    draw = torch.Generator().manual_seed(seed)
    x = _normal(draw, (rows, columns), dtype)
    out = torch.full_like(x, math.nan)
    expected = x.double().softmax(-1)
    relative = (2 * float(x.abs().max()) + columns + 8) * 2 * SINGLE + unit_roundoff(dtype)
    bound = relative * expected + smallest_error(dtype)
    arguments = {"x_ptr": x, "out_ptr": out, "columns": columns}
    return Example((rows,), arguments, {"out_ptr": Output(out, expected, bound)})


def layer_norm(
    types: Mapping[str, str], constexprs: Mapping[str, Any], seed: int, *, rows: int = 2, columns: int = 4800
) -> Example:
    """`layer_norm_kernel`. With y = (x - mean) / deviation, sums over the columns in float32 give y an error of at most
    (columns + 8) 2^-23 (2 max |y| + |y|); that times |weight|, and roundings of the result."""
    dtype, eps = _dtype(types["x_ptr"]), 1e-5
    draw = torch.Generator().manual_seed(seed)
    x = _normal(draw, (rows, columns), dtype)
    weight, bias = _normal(draw, (columns,), dtype), _normal(draw, (columns,), dtype)
    out = torch.full_like(x, math.nan)
    exact = x.double()
    centred = exact - exact.mean(-1, keepdim=True)
    y = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    expected = y * weight.double() + bias.double()
    sums = (columns + 8) * 2 * SINGLE * (2 * y.abs().amax(-1, keepdim=True) + y.abs())
    rounded = (unit_roundoff(dtype) + 4 * SINGLE) * (expected.abs() + (y * weight.double()).abs())
    bound = sums * weight.double().abs() + rounded + smallest_error(dtype)
    arguments = {"x_ptr": x, "weight_ptr": weight, "bias_ptr": bias, "out_ptr": out, "columns": columns, "eps": eps}
    return Example((rows,), arguments, {"out_ptr": Output(out, expected, bound)})


def _normal(draw: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=draw).to(dtype)


def _dtype(text: str) -> torch.dtype:
    """Of the elements of `*bf16:16` or `tensordesc<bf16[64, 64]>`."""
    found = re.match(r"(?:\*k?|tensordesc<)(\w+)", text.strip())
    if found is None or found[1] not in DTYPES:
        raise ValueError(f"{text!r}: an example has elements of {', '.join(DTYPES)}")
    return DTYPES[found[1]]
