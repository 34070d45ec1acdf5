"""`python -m wspec.lab.bench.chains`: a persistent product and attention, plain, specialized, and as chains of three
tasks.

As in `wspec.lab.bench.quantized`, the best tile of each kind is chosen briefly and then timed in shuffled rounds; every
kernel that is timed is checked against float32 first.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import wspec
from wspec.kernels import attention, persistent
from wspec.kernels.matmul import Config, empty_output, matmul_reference
from wspec.lab.bench.accuracy import Error
from wspec.lab.bench.environment import environment, require_hopper
from wspec.lab.bench.precompile import precompile
from wspec.lab.bench.timing import Timing, Variant, fastest, measure

KINDS = ("plain", "single", "chain")
ALLOWED = 0.01
TILES = [Config(128, 128, 64, 8, 4), Config(128, 256, 64, 8, 3), Config(128, 256, 64, 8, 4), Config(128, 128, 64, 4, 4)]
ATTENTION_TILES = [attention.Config(128, 64, 4, 3), attention.Config(128, 128, 8, 2), attention.Config(64, 64, 4, 3)]


@dataclass(frozen=True, slots=True)
class Subject:
    """One problem: how to launch a kernel at a tile, its tiles, its reference."""

    name: str
    flops: int
    kernel: Any
    tiles: tuple[Any, ...]
    launch: Callable[[Any], Any]
    out: torch.Tensor
    reference: Callable[[], torch.Tensor]


@functools.cache
def function(kernel: Any, kind: str) -> Any:
    """A kernel as one of KINDS."""
    if kind == "plain":
        return kernel
    return wspec.compile(chain="on" if kind == "chain" else "off", gate="off")(kernel)


def product(m: int, n: int, k: int, device: torch.device) -> Subject:
    """A W^T by the persistent kernel."""
    draw = torch.Generator(device).manual_seed(0)
    a, weight = (torch.randn(rows, k, device=device, dtype=torch.bfloat16, generator=draw) for rows in (m, n))
    out = empty_output(a, weight.T, a.dtype)
    return Subject(
        f"persistent {m}x{n}x{k}", 2 * m * n * k, persistent.matmul_persistent_kernel, tuple(TILES),
        lambda tile: persistent.Launch.of(a, weight, out, config=tile), out, lambda: matmul_reference(a, weight.T),
    )  # fmt: skip


def attend(length: int, head_dim: int, device: torch.device, tokens: int = 16384) -> Subject:
    """Attention forward without a mask, hidden size 2048."""
    draw = torch.Generator(device).manual_seed(0)
    batch, heads = max(1, tokens // length), 2048 // head_dim
    shape = (batch, heads, length, head_dim)
    q, k, v = (torch.randn(shape, device=device, dtype=torch.bfloat16, generator=draw) for _ in range(3))
    out, lse = torch.empty_like(q), torch.empty(shape[:3], device=device)

    def launch(tile: Any) -> Any:
        return attention.Launch.of(q, k, v, out, lse, causal=False, scale=head_dim**-0.5, config=tile)

    def reference() -> torch.Tensor:
        return attention.attention_reference(q, k, v, causal=False, scale=head_dim**-0.5, dtype=torch.float32)[0]

    flops = 4 * batch * heads * length * length * head_dim
    tiles = tuple(ATTENTION_TILES)
    return Subject(f"attention D={head_dim} S={length}", flops, attention.attention_fwd, tiles, launch, out, reference)


def _make(which: str, numbers: tuple[int, ...], kind: str, tile: Any) -> tuple[Any, Any]:
    """For `precompile`: small tensors on the CPU."""
    make: Callable[..., Subject] = product if which == "product" else attend
    subject = make(*numbers, torch.device("cpu"))
    return function(subject.kernel, kind), subject.launch(tile)


def compile_all(head_dims: list[int]) -> None:
    """Every kernel into the cache, in parallel; says what failed."""
    makes = [functools.partial(_make, "product", (256, 256, 256), kind, tile) for kind in KINDS for tile in TILES]
    for dim in head_dims:
        makes += [functools.partial(_make, "attend", (64, dim), kind, t) for kind in KINDS for t in ATTENTION_TILES]
    for made, failure in zip(makes, precompile(makes), strict=True):
        if failure is not None:
            print(f"{made.args}: {failure[:200]}", file=sys.stderr)


def run(subject: Subject, rounds: int) -> dict[str, Any]:
    """Times of the best tile of each kind."""
    reference = subject.reference()
    best: list[Variant] = []
    sweep: dict[str, float] = {}
    for kind in KINDS:
        made = [_variant(subject, kind, tile, reference) for tile in subject.tiles]
        variants = {variant.name: variant for variant in made if variant is not None}
        if variants:
            timings = measure(list(variants.values()), rounds=3, window_ms=2.0, graph=True)
            sweep |= {name: timing.median_us for name, timing in timings.items()}
            best.append(variants[fastest(timings, 1)[0]])
    final = measure(best, rounds=rounds, window_ms=4.0, graph=True)
    _show(subject, final)
    return {"case": subject.name, "us": {name: t.median_us for name, t in final.items()}, "sweep": sweep}


def _variant(subject: Subject, kind: str, tile: Any, reference: torch.Tensor) -> Variant | None:
    kernel, launch = function(subject.kernel, kind), subject.launch(tile)
    try:
        if kind != "plain" and kernel.outcome(*launch.args, **launch.meta).reason is not None:
            return None
        subject.out.fill_(torch.nan)
        launch.run(kernel)
    except Exception as failure:  # too much shared memory, found out at load
        print(f"{subject.name} {kind} {tile}: {str(failure)[:120]}", file=sys.stderr)
        return None
    error = Error.of(subject.out, reference).relative
    if not error < ALLOWED:
        raise SystemExit(f"{subject.name} {kind} {tile}: WRONG, relative error {error:.3g}")
    return Variant(f"{kind} {tile}", (functools.partial(launch.run, kernel),))


def _show(subject: Subject, timings: dict[str, Timing]) -> None:
    plain = next((timing for name, timing in timings.items() if name.startswith("plain")), None)
    for name, timing in timings.items():
        ratio = f"{timing.speedup_over(plain):.3f}" if plain is not None else "-"
        rate = subject.flops / timing.median_us / 1e6
        print(
            f"{subject.name:28} {name:34} {timing.median_us:9.1f} us {rate:6.0f} TFLOP/s  x plain {ratio}", flush=True
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    compile_all([64])
    device = require_hopper()
    products = [(4096, 4096, 1024), (4096, 4096, 4096), (8192, 8192, 8192), (8192, 8192, 1024)]
    results = [run(product(*sizes, device), options.rounds) for sizes in products]
    results += [run(attend(length, 64, device), options.rounds) for length in (1024, 4096)]
    if options.json is not None:
        options.json.write_text(json.dumps({"environment": environment(), "results": results}, indent=1, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
