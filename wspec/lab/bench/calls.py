"""`python -m wspec.lab.bench.calls`: what a call of `attention()` takes, from one short sequence to many long ones.

Where a problem is small the host decides, so two times are measured of every case: the *wall* time of one of many calls
in a row, made on ordinary tensors by a host that waits for the card behind the last one, and the *card's* own, of CUDA
graphs replayed. Beside ours run FlashAttention-3's operator (FA3_ROOT), torch's `scaled_dot_product_attention` and the
plain Triton kernel as anyone launches it, at the best of a few tiles. All take turns, and a ratio is the median of the
ratios within rounds. Every result is compared with torch's.
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from wspec.kernels.attention import Config, Launch, attention, attention_fwd, plain_configs, tiles
from wspec.lab.bench.attention import Entry, launch_on_cpu
from wspec.lab.bench.attention_cases import Case, Kind, make_inputs
from wspec.lab.bench.calls_report import OURS, Measured, ahead, line, tables
from wspec.lab.bench.environment import NoGpu, environment, require_hopper
from wspec.lab.bench.peers import fa3_call
from wspec.lab.bench.precompile import precompile
from wspec.lab.bench.report import console, write_json
from wspec.lab.bench.timing import Timing, Variant, fastest, input_sets, measure, orders
from wspec.lab.bench.watchdog import Watchdog

BATCHES = (1, 2, 8, 512)
SEQLENS = (50, 150, 300, 1024, 4096)
HEAD_DIMS = (64, 128)
HEADS = 16

PLAIN_TILES = (Config(64, 64, 4, 3), Config(64, 128, 4, 2), Config(128, 64, 4, 2), Config(64, 32, 4, 3))
"""The plain kernel's: what was its best in docs/results/attention.md at these head dimensions, for most lengths."""

SURE_OF_WALL_US = 1000.0
"""Of calls that take the card longer the host's part cannot be seen: the wall time is the card's."""

TOLERANCE = 2e-2
"""Of bf16: root mean square of the difference from torch's over that of torch's."""

HANG_S = 60.0

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compute attention. `make(q, k, v, causal)`: a call of it on these, whose result is no more laid out
    anew than its users see; `output`: that result as [B, H, S, D]."""

    name: str
    make: Callable[..., Call]
    output: Callable[[Any], torch.Tensor] = lambda result: result


# ----------------------------------------------------------------------------------------------------------- ways


def plain_call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, tile: Config) -> Call:
    """The plain Triton kernel as anyone launches it: memory for what comes out, descriptors, `kernel[grid](...)`."""

    def call() -> torch.Tensor:
        out = torch.empty_like(q)
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        made = Launch.of(q, k, v, out, lse, causal=causal, scale=q.shape[-1] ** -0.5, config=tile)
        attention_fwd[made.grid](*made.args, **made.meta)
        return out

    return call


def ways() -> list[Way]:
    """Ours, and the libraries; the plain kernel comes in several tiles (`plain_ways`)."""
    found = [
        Way(OURS, lambda q, k, v, causal: functools.partial(attention, q, k, v, causal=causal)),
        Way("SDPA", lambda q, k, v, causal: functools.partial(scaled_dot_product_attention, q, k, v, is_causal=causal)),
    ]
    root = os.environ.get("FA3_ROOT")
    if root:
        found.append(Way("FA3", functools.partial(fa3_call, root), lambda result: result[0].transpose(1, 2)))
    return found


def plain_ways(head_dim: int) -> list[Way]:
    """The plain kernel in each of its tiles."""
    fitting = [tile for tile in PLAIN_TILES if tile in plain_configs(head_dim)]
    return [Way(str(tile), functools.partial(plain_call, tile=tile)) for tile in fitting]


def entries(kind: Kind) -> list[Entry]:
    """What of Triton's has to be compiled for a kind. A launch of ours may choose teams of three at a low tile."""
    found = [Entry("plain", tile) for tile in PLAIN_TILES if tile in plain_configs(kind.head_dim)]
    for tile in tiles(kind.head_dim):
        teams = (1, 3) if tile.num_warps == 4 else (1,)
        found += [Entry("specialized", replace(tile, coarsening=team)) for team in teams]
    return found


# ----------------------------------------------------------------------------------------------------------- time


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is looked for meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def wall(variants: Sequence[Variant], rounds: int, window_ms: float, wait: Callable[[], None]) -> dict[str, Timing]:
    """Name -> wall time of a call in microseconds, one sample a round: calls that take about `window_ms` in a row, each
    round in an order of its own. `wait`: until the card has done all it was given, which belongs to the sample."""
    counts = [_calls_in(variant, window_ms, wait) for variant in variants]
    samples: list[list[float]] = [[] for _ in variants]
    with uncollected():
        for order in orders(len(variants), rounds):
            for at in order:
                samples[at].append(_row_us(variants[at], counts[at], wait))
    return {variant.name: Timing(tuple(found)) for variant, found in zip(variants, samples, strict=True)}


def _calls_in(variant: Variant, window_ms: float, wait: Callable[[], None]) -> int:
    """At least one, a multiple of the number of input sets where there are more."""
    sets = len(variant.runs)
    once = _row_us(variant, sets, wait)
    once = min(once, _row_us(variant, sets, wait)) if once < 1e3 * window_ms else once
    return sets * max(1, min(1000 // sets, int(1e3 * window_ms / max(once * sets, 1e-3) + 0.5)))


def _row_us(variant: Variant, calls: int, wait: Callable[[], None]) -> float:
    sets = len(variant.runs)
    wait()
    begin = time.perf_counter_ns()
    for at in range(calls):
        variant.runs[at % sets]()
    wait()
    return (time.perf_counter_ns() - begin) / calls / 1e3


def rounds_for(once_us: float, seconds: float, variants: int, window_ms: float, most: int) -> int:
    """How many rounds fit into `seconds`, between three and `most`."""
    sample = max(once_us * 1e-6, window_ms * 1e-3)
    return max(3, min(most, int(seconds / (sample * variants))))


# -------------------------------------------------------------------------------------------------------- one case


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Root mean square of the difference over that of what is expected, of the first and the last batch row."""
    rows = sorted({0, expected.shape[0] - 1})
    mine, theirs = found[rows].float(), expected[rows].float()
    return float((mine - theirs).square().mean().sqrt() / theirs.square().mean().sqrt())


def measured(case: Case, device: torch.device, options: argparse.Namespace) -> Measured:
    """Both times of every way, and how far our result is from torch's."""
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    inputs = [make_inputs(case, device, options.seed + at) for at in range(input_sets(case.bytes, l2_bytes))]
    causal = case.kind.causal

    def variant(way: Way) -> Variant:
        runs = tuple(way.make(*tensors, causal) for tensors in inputs)
        for run in runs:
            for _ in range(2):  # the second time it is a known launch
                run()
        return Variant(way.name, runs)

    others = {way.name: way for way in ways()}
    made = {name: variant(way) for name, way in others.items()}
    found = {name: others[name].output(one.runs[0]()) for name, one in made.items()}
    far = {name: apart(result, found["SDPA"]) for name, result in found.items() if name != "SDPA"}
    del found
    once = max(_row_us(one, 1, torch.cuda.synchronize) for one in made.values())
    tile, plain = _best_plain(case, variant, graph=once < SURE_OF_WALL_US)
    far["plain"] = apart(plain.runs[0](), others["SDPA"].output(made["SDPA"].runs[0]()))  # type: ignore[arg-type]
    contest = [*made.values(), plain]
    rounds = rounds_for(once, options.seconds, len(contest), options.window_ms, options.rounds)
    walls = wall(contest, rounds, options.window_ms, torch.cuda.synchronize)
    cards = None
    if min(timing.median_us for timing in walls.values()) < SURE_OF_WALL_US:
        cards = measure(contest, rounds=rounds, window_ms=options.window_ms, graph=True)
    return Measured(case, tile, walls, cards, far)


def _best_plain(case: Case, variant: Callable[[Way], Variant], graph: bool) -> tuple[str, Variant]:
    """The plain kernel's fastest tile, and its calls. graph: time replays, which take no host."""
    made = [variant(way) for way in plain_ways(case.kind.head_dim)]
    tile = fastest(measure(made, rounds=3, window_ms=0.3, graph=graph), 1)[0]
    (best,) = [one for one in made if one.name == tile]
    return tile, Variant("plain", best.runs)


def cases(options: argparse.Namespace) -> list[Case]:
    """The cheapest first, so that a run that is cut short has most of them."""
    masks = [mask == "causal" for mask in options.masks]
    found = [
        Case(Kind(head_dim, causal, "bf16"), batch, options.heads, options.heads, seqlen, seqlen)
        for head_dim in options.head_dims
        for causal in masks
        for batch in options.batches
        for seqlen in options.seqlens
    ]
    return sorted(found, key=lambda case: case.batch * case.seqlen_q**2)


# ---------------------------------------------------------------------------------------------------- command line


def parser() -> argparse.ArgumentParser:
    """The command line's flags."""
    made = argparse.ArgumentParser(prog="python -m wspec.lab.bench.calls", description="Measure calls of attention().")
    made.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    made.add_argument("--seqlens", type=int, nargs="+", default=SEQLENS)
    made.add_argument("--head-dims", type=int, nargs="+", choices=HEAD_DIMS, default=HEAD_DIMS)
    made.add_argument("--masks", nargs="+", choices=("full", "causal"), default=("full", "causal"))
    made.add_argument("--heads", type=int, default=HEADS)
    made.add_argument("--rounds", type=int, default=15, help="at most so many (default %(default)s)")
    made.add_argument("--window-ms", type=float, default=2.0, help="length of a sample (default %(default)s)")
    made.add_argument("--seconds", type=float, default=0.5, help="for either time of a case (default %(default)s)")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--jobs", type=int, help="compiling processes (default: one a core)")
    made.add_argument("--time-budget", type=float, default=140.0, metavar="SECONDS", help="stop cleanly after this")
    made.add_argument("--json", default="calls.json", metavar="FILE")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0 when every case ran, was right, and takes at most 1.08 times as long as FlashAttention-3; 1 when not; 2 when
    nothing could be run."""
    options = parser().parse_args(argv)
    try:
        device = require_hopper()
    except NoGpu as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    began = time.monotonic()
    todo = cases(options)
    kinds = {case.kind for case in todo}
    makes = {(kind, entry): functools.partial(launch_on_cpu, entry, kind)
             for kind in kinds for entry in entries(kind)}  # fmt: skip
    failures = [f"{kind} {entry}: {why}"
                for (kind, entry), why in zip(makes, precompile(list(makes.values()), options.jobs), strict=True)
                if why is not None]  # fmt: skip
    print(f"compiled {len(makes)} kernels in {time.monotonic() - began:.0f} s", *failures, sep="\n", flush=True)
    found: list[Measured] = []
    not_run: list[str] = []

    def save() -> None:
        rows = [one.to_data() for one in found]
        write_json(
            options.json, {"environment": about, "cases": rows, "not_run": not_run, "seconds": time.monotonic() - began}
        )

    def hung(what: str) -> None:
        not_run.append(f"{what}: hung")
        save()

    about = environment()
    watchdog = Watchdog(HANG_S, hung)
    for case in todo:
        if time.monotonic() - began > options.time_budget:
            not_run.append(f"{case}: time was up")
            continue
        try:
            with watchdog(str(case)):
                found.append(measured(case, device, options))
        except Exception as error:  # the other cases still want running
            not_run.append(f"{case}: {type(error).__name__}: {str(error)[:200]}")
            print(not_run[-1], flush=True)
        else:
            print(line(found[-1]), flush=True)
        torch.cuda.empty_cache()
        save()
    save()
    screen = console()
    for table in tables(found):
        table.show(screen)
    for text in [*ahead(found), *(f"not run: {one}" for one in not_run)]:
        screen.print(f"- {text}", markup=False)
    right = all(one.is_right(TOLERANCE) for one in found)
    return 0 if found and right and not not_run and all(one.is_good for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
