"""Run by test_interpreted.py with TRITON_INTERPRET=1: the plain kernels' numbers on the CPU, as JSON on stdout.

The interpreter takes each program of a launch one after the other, with NumPy for tensors; it has no bfloat16.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton.runtime.interpreter as interpreter

from wspec.kernels import attention, elementwise, matmul


def allow_new_numpy() -> None:
    """Triton 3.6 makes a loop bound of an array of one element by int(), which NumPy 2.4 refuses."""
    original = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def error(out: torch.Tensor, reference: torch.Tensor) -> float:
    norm = float(reference.norm())
    return float((out.double() - reference).norm()) / (norm or 1.0)


def attend(
    batch: int,
    heads: int,
    kv_heads: int,
    seqlen_q: int,
    seqlen_k: int,
    causal: bool,
    config: attention.Config,
    scale: float = 0.125,
) -> dict[str, Any]:
    q = torch.randn(batch, seqlen_q, heads, 64, dtype=torch.float16).transpose(1, 2)
    k, v = (torch.randn(batch, kv_heads, seqlen_k, 64, dtype=torch.float16) for _ in range(2))
    out = torch.full_like(q, torch.nan)
    lse = torch.full(q.shape[:3], torch.nan)
    launch = attention.Launch.of(q, k, v, out, lse, causal=causal, scale=scale, config=config)
    attention.attention_fwd[launch.grid](*launch.args, **launch.meta)
    out_ref, lse_ref = attention.attention_reference(q, k, v, causal=causal, scale=scale, dtype=torch.float64)
    hidden = lse_ref == -torch.inf
    return {
        "error": error(out, out_ref),
        "lse_error": error(lse[~hidden], lse_ref[~hidden]),
        "hidden_rows": int(hidden.sum()),
        "hidden_exact": bool((lse[hidden] == -torch.inf).all()) and bool((out[hidden] == 0).all()),
    }


def multiply(m: int, n: int, k: int, variant: matmul.Variant, transposed: bool) -> dict[str, Any]:
    a = torch.randn(m, k, dtype=torch.float16)
    b = torch.randn(n, k, dtype=torch.float16).T if transposed else torch.randn(k, n, dtype=torch.float16)
    out = matmul.empty_output(a, b, torch.float16).fill_(torch.nan)
    launch = matmul.Launch.of(a, b, out, variant=variant, config=matmul.Config(64, 128, 32, 4, 3))
    matmul.plain_kernel(variant)[launch.grid](*launch.args, **launch.meta)
    return {"error": error(out, matmul.matmul_reference(a, b, dtype=torch.float64))}


def rowwise() -> dict[str, Any]:
    x = torch.randn(5, 1000)
    weight, bias = torch.randn(1000), torch.randn(1000)
    out = [torch.full_like(x, torch.nan) for _ in range(3)]
    elementwise.add_kernel[(5,)](x, x, out[0], x.numel(), BLOCK=1024)
    elementwise.softmax_kernel[(5,)](x, out[1], 1000, BLOCK=1024)
    elementwise.layer_norm_kernel[(5,)](x, weight, bias, out[2], 1000, 1e-5, BLOCK=256)
    return {
        "add": error(out[0], elementwise.add_reference(x, x).double()),
        "softmax": error(out[1], elementwise.softmax_reference(x).double()),
        "layer_norm": error(out[2], elementwise.layer_norm_reference(x, weight, bias).double()),
    }


PRODUCTS: tuple[tuple[matmul.Variant, tuple[int, int, int]], ...] = (
    ("descriptor", (100, 136, 72)),
    ("pointer", (100, 135, 77)),
    ("pointer", (1, 1, 1)),
)


def main() -> None:
    allow_new_numpy()
    torch.manual_seed(0)
    small, square = attention.Config(64, 32, 4, 2), attention.Config(64, 64, 4, 2)
    results = {
        "attention": {
            "full": attend(2, 4, 2, 100, 130, False, small),
            "causal": attend(1, 4, 1, 100, 130, True, small),
            "causal, square tile": attend(1, 2, 2, 128, 128, True, square),
            "causal, more queries than keys": attend(1, 2, 1, 130, 40, True, small),
            "one query, one key": attend(1, 2, 1, 1, 1, True, small),
            "one query": attend(1, 2, 1, 1, 77, True, small),
            "zero scale": attend(1, 1, 1, 40, 40, False, small, scale=0.0),
        },
        "matmul": {
            f"{variant} {'transposed' if transposed else 'straight'} {size}": multiply(*size, variant, transposed)
            for transposed in (False, True)
            for variant, size in PRODUCTS
        },
        "rowwise": rowwise(),
    }
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
