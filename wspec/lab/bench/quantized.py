"""`python -m wspec.lab.bench.quantized`: products with int8 and int4 weights, plain, specialized, and as chains of
tasks.

For each case every kernel at every tile of a grid is compared briefly; the best of each kind are then timed against
each other in shuffled rounds, with cuBLAS on the weights in bfloat16 beside them. A sample is a CUDA graph of many
launches, as a decoding step is, adding the parts of K included. Every kernel that is timed is checked
against float32 first, and so is a graph in which each product takes the last one's result.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from wspec.kernels.quantized import SMS, Config, Launch, default_config, plain_kernel, specialized_kernel
from wspec.kernels.weights import dequantize_int4, int4_reference, int8_reference, quantize_int4, quantize_int8
from wspec.lab.bench.accuracy import Error
from wspec.lab.bench.by_hand import started_by_hand
from wspec.lab.bench.environment import environment, require_hopper
from wspec.lab.bench.in_a_row import same_in_a_row
from wspec.lab.bench.precompile import precompile
from wspec.lab.bench.timing import Run, Timing, Variant, fastest, input_sets, measure

CUBLAS = "cuBLAS bf16"
DEFAULT = "default"
KINDS = ("plain", "by hand", "single", "chain", DEFAULT)
ALLOWED = 0.01  # relative error, ||C - reference|| / ||reference||; bfloat16 results give about 0.002


@dataclass(frozen=True, slots=True)
class Case:
    """C [m, n] = A [m, k] W^T with weights of `bits`."""

    bits: int
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"int{self.bits} {self.m}x{self.n}x{self.k}"

    @property
    def weight_bytes(self) -> int:
        return self.n * self.k * self.bits // 8


@dataclass(frozen=True, slots=True)
class Entry:
    """Triton's kernel ("plain"), the same started early by hand, specialized without a third task ("single") or with
    one ("chain"), at a tile; what is launched when nothing is said ("default"). The last three start early as well."""

    kind: str
    config: Config
    depth: int | None = None  # of the rings of values
    warps: int | None = None  # of the third task

    def __str__(self) -> str:
        chain = f" d{self.depth} h{self.warps}" if self.depth else ""
        return f"{self.kind} {self.config}{chain}"

    @property
    def specialized(self) -> bool:
        return self.kind in ("single", "chain", DEFAULT)

    def function(self, bits: int, blocks: int | None) -> Any:
        """The jit function, for launches of `blocks` blocks an SM."""
        if self.kind == "plain":
            return plain_kernel(bits)
        if self.kind == "by hand":
            return started_by_hand(bits)
        if self.kind == DEFAULT:
            return specialized_kernel(bits, blocks)
        chain: dict[str, Any] = {"chain": "off"}
        if self.kind == "chain":
            chain = {"chain": "on", "value_depth": self.depth, "helper_warps": self.warps}
        return specialized_kernel(bits, blocks, gate="off", **chain)

    def blocks(self, case: Case) -> int | None:
        """What the compiler is told."""
        if not self.specialized or self.config.blocks:
            return self.config.blocks
        return 1 if _waves(case, self.config) <= 1 else None


def _waves(case: Case, config: Config) -> float:
    """Blocks of a launch for each SM."""
    return -(-case.n // config.block_n) * -(-case.m // config.block_m) * config.parts / SMS


TILES = ((64, 64, 4), (64, 128, 4), (128, 128, 4), (128, 128, 8))
"""Rows of W, depth and warps."""


def entries(case: Case) -> list[Entry]:
    """The tiles tried: a row block for the case, K divided as long as four blocks an SM or fewer come of it. Kernels
    without a third task are also told of two blocks an SM, where there are two or the next launch can start there."""
    heights = (128, 256) if case.m >= 256 else (min(128, max(16, case.m)),)
    found = [Entry(DEFAULT, default_config(case.m, case.n, case.k * case.bits // 8, case.bits))]
    for kind, block_m, (block_n, block_k, warps) in itertools.product(KINDS[:-1], heights, TILES):
        if block_m * block_n > 128 * 32 * warps:  # registers for the accumulator
            continue
        ours = kind in ("single", "chain")
        if ours and (block_n != 16 * warps or (kind == "chain" and block_n > 64 and block_m < 128)):
            continue
        if kind == "by hand" and warps > 4:  # never the best of them
            continue
        deep = not ours and (block_n, block_k) == (64, 128)
        for stages, parts in itertools.product((3, 5) if deep else (3,), (1, 2, 4, 8)):
            tiles = case.n // block_n * -(-case.m // block_m)
            steps = case.k // block_k // (3 - case.bits // 4)
            if not ((parts == 1 or tiles * parts <= 4 * SMS) and steps % parts == 0):
                continue
            config = Config(block_m, block_n, block_k, warps, stages, parts)
            found.append(Entry(kind, config))
            if kind == "single" and tiles * parts <= 2 * SMS and block_m * block_n <= 64 * 128:
                found.append(Entry(kind, replace(config, blocks=2)))
    return found


Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def make_inputs(case: Case, device: torch.device, seed: int) -> Tensors:
    """A, the weights and their scales."""
    draw = torch.Generator(device).manual_seed(seed)
    a = torch.randn(case.m, case.k, device=device, dtype=torch.bfloat16, generator=draw)
    weight = torch.randn(case.n, case.k, device=device, generator=draw)
    return a, *(quantize_int8(weight) if case.bits == 8 else quantize_int4(weight))


def make_launch(case: Case, inputs: Tensors, config: Config) -> Launch:
    return (Launch.int8 if case.bits == 8 else Launch.int4)(*inputs, config=config)


def launch_on_cpu(entry: Entry, bits: int, blocks: int | None = None) -> tuple[Any, Launch]:
    """A launch for `precompile`, of sizes that specialize as the timed ones do."""
    case = Case(bits, 16, 256, 4096)
    launch = make_launch(case, make_inputs(case, torch.device("cpu"), 0), entry.config)
    return entry.function(bits, blocks), _with_pdl(entry, launch)


def _with_pdl(entry: Entry, launch: Launch) -> Launch:
    return replace(launch, meta={**launch.meta, "launch_pdl": True}) if entry.kind == "by hand" else launch


def _kernel_key(entry: Entry, case: Case) -> tuple[Any, ...]:
    config = entry.config
    tile = (config.block_m, config.block_n, config.block_k, config.num_warps, config.num_stages)
    return (case.bits, entry.kind, entry.depth, entry.warps, *tile, config.parts > 1, entry.blocks(case))


def compile_all(cases: list[Case]) -> None:
    """Every kernel into the cache, in parallel; says what failed."""
    begin = time.monotonic()
    keys = {
        _kernel_key(entry, case): (entry, case.bits, entry.blocks(case)) for case in cases for entry in entries(case)
    }
    failures = precompile([functools.partial(launch_on_cpu, *made) for made in keys.values()])
    for (entry, bits, _), failure in zip(keys.values(), failures, strict=True):
        if failure is not None:
            print(f"int{bits} {entry}: {failure[:200]}", file=sys.stderr)
    print(f"compiled {len(keys)} kernels in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


def _variant(case: Case, sets: list[Tensors], entry: Entry, reference: torch.Tensor) -> Variant | None:
    """The entry as something to time, after a check of its result; None where it cannot be had."""
    kernel = entry.function(case.bits, entry.blocks(case))
    early = entry.kind != "plain"
    try:
        launches = [_with_pdl(entry, make_launch(case, inputs, entry.config)) for inputs in sets]
        if entry.specialized and kernel.outcome(*launches[0].args, **launches[0].meta).reason is not None:
            return None
        error = Error.of(launches[0].run(kernel, early), reference).relative
    except Exception as failure:  # too much shared memory, found out at load
        print(f"{case} {entry}: {str(failure)[:120]}", file=sys.stderr)
        return None
    if not error < ALLOWED:
        raise SystemExit(f"{case} {entry}: WRONG, relative error {error:.3g}")
    return Variant(str(entry), (_burst([functools.partial(launch.run, kernel, early) for launch in launches]),))


def _check_in_a_row(case: Case, sets: list[Tensors], entry: Entry) -> None:
    """Raises SystemExit where products of each other's results are not those of launches that wait for each other."""
    kernel = entry.function(case.bits, entry.blocks(case))
    weights = [(weight, scale / case.k**0.5) for _, weight, scale in sets]  # results as large as A

    def step(a: torch.Tensor, number: int, early: bool = entry.kind != "plain") -> torch.Tensor:
        launch = make_launch(case, (a, *weights[number % len(weights)]), entry.config)
        return _with_pdl(entry, launch).run(kernel, early)

    if not same_in_a_row(step, functools.partial(step, early=False), [a for a, *_ in sets[:2]], steps=12):
        raise SystemExit(f"{case} {entry}: WRONG, products in a row differ from products that wait for each other")


BURST = 24  # launches of one CUDA graph


def _burst(runs: Sequence[Run]) -> Run:
    """BURST launches or a few more, on all input sets in turn: what is between two launches in a graph of many, as a
    decoding step is one."""
    return lambda: [run() for _ in range(-(-BURST // len(runs))) for run in runs]


def _each(timings: dict[str, Timing], sets: Mapping[str, int]) -> dict[str, Timing]:
    """Of one launch instead of a burst."""
    counts = {name: -(-BURST // many) * many for name, many in sets.items()}
    return {name: Timing(tuple(t / counts[name] for t in timing.samples_us)) for name, timing in timings.items()}


def _cublas(case: Case, sets: list[Tensors]) -> Variant:
    weights = [
        weight.to(torch.bfloat16) if case.bits == 8 else dequantize_int4(weight, scale).to(torch.bfloat16)
        for _, weight, scale in sets[:2]
    ]
    products = tuple(functools.partial(torch.matmul, sets[i][0], weights[i].T) for i in range(len(weights)))
    return Variant(CUBLAS, (_burst(products),))


def run_case(case: Case, device: torch.device, rounds: int) -> dict[str, Any]:
    """Times of the best tile of each kind, and of cuBLAS."""
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    sets = [make_inputs(case, device, seed) for seed in range(input_sets(case.weight_bytes, l2_bytes, 6))]
    reference = (int8_reference if case.bits == 8 else int4_reference)(*sets[0])
    best: list[Variant] = []
    sweep: dict[str, float] = {}
    for kind in KINDS:
        tried = {str(entry): entry for entry in entries(case) if entry.kind == kind}
        made = [_variant(case, sets, entry, reference) for entry in tried.values()]
        variants = {variant.name: variant for variant in made if variant is not None}
        if variants:
            timings = measure(list(variants.values()), rounds=3, window_ms=0.3, graph=True)
            timings = _each(timings, dict.fromkeys(timings, len(sets)))
            sweep |= {name: timing.median_us for name, timing in timings.items()}
            best.append(variants[fastest(timings, 1)[0]])
            _check_in_a_row(case, sets, tried[best[-1].name])
    final = measure([*best, _cublas(case, sets)], rounds=rounds, window_ms=1.0, graph=True)
    final = _each(final, {name: 2 if name == CUBLAS else len(sets) for name in final})
    _show(case, final)
    return {"case": str(case), "us": {name: timing.median_us for name, timing in final.items()}, "sweep": sweep}


def _show(case: Case, timings: dict[str, Timing]) -> None:
    plain = next((timing for name, timing in timings.items() if name.startswith("plain")), None)
    for name, timing in timings.items():
        ratio = f"{timing.speedup_over(plain):.3f}" if plain is not None else "-"
        rate = case.weight_bytes / timing.median_us / 1e6
        print(f"{case!s:24} {name:34} {timing.median_us:8.1f} us  {rate:5.2f} TB/s  x plain {ratio}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bits", type=int, nargs="+", default=[8, 4])
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 64, 128, 256])
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192], help="N and K, which are alike")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cases = [Case(b, m, size, size) for b in options.bits for size in options.sizes for m in options.rows]
    compile_all(cases)
    device = require_hopper()
    found = environment()
    print({key: value for key, value in found.items() if key != "nvidia_smi"}, flush=True)
    results = []
    for case in cases:
        results.append(run_case(case, device, options.rounds))
        if options.json is not None:
            options.json.write_text(json.dumps({"environment": found, "results": results}, indent=1, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
