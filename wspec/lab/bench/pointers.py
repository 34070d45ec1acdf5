"""`python -m wspec.lab.bench.pointers`: kernels written with pointers, plain and specialized, beside torch's.

The plain kernel and ours each have the best of the same configurations. Every result is compared with the plain
kernel's of the same configuration, and ratios are within interleaved rounds (`timing`).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
import triton

import wspec
from wspec.lab.bench import pointer_kernels
from wspec.lab.bench.environment import NoGpu, environment, require_hopper
from wspec.lab.bench.report import Table, console, geometric_mean, number, write_json
from wspec.lab.bench.timing import Variant, measure

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
    scale = dim**-0.5 * 1.4426950408889634

    def launch(kernel: Any, meta: dict[str, int]) -> torch.Tensor:
        out = torch.empty_like(q)
        grid = (triton.cdiv(length, meta["BLOCK_M"]), batch * heads)
        kernel[grid](q, k, v, out, scale, *q.stride()[:3], heads, length, DIM=dim, CAUSAL=causal, **meta)
        return out

    def theirs() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    name = f"attention {'causal' if causal else 'full'} D={dim} S={length}"
    return Case(name, pointer_kernels.attention, launch, theirs, ROWS)


def _made(at: int) -> Case:
    """A case by its number."""
    return product_case(*PRODUCTS[at]) if at < len(PRODUCTS) else attention_case(*ATTENTION[at - len(PRODUCTS)])


def compile_all(case: Case) -> None:
    """Launch the case's kernels once in every configuration."""
    for kernel in (case.kernel, wspec.compile(case.kernel, remarks="off")):
        for meta in case.configurations:
            with contextlib.suppress(triton.OutOfResources):
                case.launch(kernel, meta)


def contest(case: Case, rounds: int) -> dict[str, Any]:
    """Errors and ratios of one case."""
    ours = wspec.compile(case.kernel, remarks="off")
    expected = case.theirs().float()
    variants, wrong = [], 0.0
    for at, meta in enumerate(case.configurations):
        results = {}
        for name, kernel in (("plain", case.kernel), ("ours", ours)):
            try:
                results[name] = case.launch(kernel, meta)
                torch.cuda.synchronize()
            except triton.OutOfResources:
                continue
            variants.append(Variant(f"{name} {at}", (functools.partial(case.launch, kernel, meta),)))
            wrong = max(wrong, (results[name].float() - expected).abs().max().item())
        if len(results) == 2 and not torch.allclose(results["plain"], results["ours"], rtol=2e-2, atol=2e-2):
            wrong = float("inf")
    variants.append(Variant("torch", (case.theirs,)))
    first = measure(variants, rounds=3, graph=True)
    best = {
        kind: min((name for name in first if name.startswith(kind)), key=lambda name: first[name].median_us)
        for kind in ("plain", "ours")
    }
    kept = [one for one in variants if one.name in (*best.values(), "torch")]
    found = measure(kept, rounds=rounds, graph=True)
    specialized = [name for name in best.values() if name.startswith("ours")]
    mine, plain = found[specialized[0]], found[best["plain"]]
    return {
        "case": case.name, "error": wrong, "plain": best["plain"], "ours": best["ours"], "us": mine.median_us,
        "over_plain": mine.speedup_over(plain), "over_torch": mine.speedup_over(found["torch"]),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """0 if all results are right."""
    parser = argparse.ArgumentParser(prog="python -m wspec.lab.bench.pointers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="(default %(default)s)")
    parser.add_argument("--json", default="pointers.json", metavar="FILE")
    parser.add_argument("--jobs", type=int, default=8, help="cases compiled at a time (default %(default)s)")
    parser.add_argument("--compile", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    try:
        require_hopper()
    except NoGpu as error:
        print(error, file=sys.stderr)
        return 2
    if options.compile is not None:
        compile_all(_made(options.compile))
        return 0
    count = len(PRODUCTS) + len(ATTENTION)
    with ThreadPoolExecutor(options.jobs) as pool:  # into Triton's cache, side by side
        command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, "--compile"]
        list(pool.map(lambda at: subprocess.run([*command, str(at)], check=False), range(count)))
    rows = []
    for at in range(count):
        rows.append(contest(_made(at), options.rounds))
        print(rows[-1], flush=True)
    write_json(options.json, {"environment": environment(), "cases": rows})
    columns = ("case", "us", "x plain", "x torch", "largest error", "plain's", "ours")
    table = [
        (r["case"], number(r["us"], 1), number(r["over_plain"], 3), number(r["over_torch"], 3), number(r["error"], 4),
         r["plain"], r["ours"])
        for r in rows
    ]  # fmt: skip
    Table("Kernels written with pointers", columns, tuple(table)).show(console())
    print(f"geometric mean over plain {geometric_mean([r['over_plain'] for r in rows]):.3f}")
    return int(any(r["error"] > 1.0 for r in rows))


if __name__ == "__main__":
    sys.exit(main())
