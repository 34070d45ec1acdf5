"""`python -m wspec.lab.bench.short_tiles`: which tile of attention is fastest where sequences are short or few.

Both kernels in a grid of tiles, from 50 to 2,048 tokens and from 16 heads to 1,536, replayed from graphs, all taking
turns. At the end stands what `attention`'s choice (`default_config`) loses to the fastest.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from wspec.kernels.attention import HEAD_DIMS, Config, tiles
from wspec.lab.bench.attention import Entry, Problem, chosen_entry, launch_on_cpu
from wspec.lab.bench.attention_cases import Case, Kind
from wspec.lab.bench.environment import NoGpu, environment, require_hopper
from wspec.lab.bench.precompile import Make, precompile
from wspec.lab.bench.report import Table, console, geometric_mean, number, write_json
from wspec.lab.bench.timing import input_sets, measure

SEQLENS = (50, 64, 100, 128, 150, 200, 256, 300, 400, 512, 700, 1024, 1500, 2048)
BATCHES = (1, 8, 96)
HEADS = 16
MOST_TOKENS = 1500 * 96
MOST_SETS = 3  # of inputs


def entries(head_dim: int) -> list[Entry]:
    """The plain kernel and ours in tiles that could be best somewhere."""
    low, high = tiles(head_dim)
    plain = [Config(64, 32, 4, 3), Config(64, 64, 4, 2), high]
    ours = [Config(64, 32, 4, 2), low, high]
    if head_dim < 256:
        plain += [Config(64, 64, 4, 3), Config(64, 128, 4, 2), Config(128, 64, 8, 3)]
        ours += [Config(64, 128, 4, 2), Config(128, 64, 8, 2), Config(128, 128, 8, 2)]
    found = [Entry("plain", tile) for tile in plain] + [Entry("specialized", tile) for tile in ours]
    return list(dict.fromkeys(found))


def cases(head_dims: Sequence[int]) -> list[Case]:
    """The cheapest first, so that a run that is cut short has most of them."""
    found = [
        Case(Kind(head_dim, causal, "bf16"), batch, HEADS, HEADS, seqlen, seqlen)
        for head_dim in head_dims
        for causal in (False, True)
        for batch in BATCHES
        for seqlen in SEQLENS
        if batch * seqlen <= MOST_TOKENS
    ]
    return sorted(found, key=lambda case: case.batch * case.seqlen_q)


def to_compile(head_dims: Sequence[int]) -> list[Make]:
    """A launch of ours may choose teams of three at a low tile."""
    found: list[Make] = []
    for head_dim in head_dims:
        for entry in entries(head_dim):
            shares = entry.kernel == "specialized" and entry.config.num_warps == 4
            for team in (1, 3) if shares else (1,):
                config = replace(entry.config, coarsening=team)
                for causal in (False, True):
                    kind = Kind(head_dim, causal, "bf16")
                    found.append(functools.partial(launch_on_cpu, Entry(entry.kernel, config), kind))
    return found


def measured(case: Case, device: torch.device, rounds: int) -> dict[str, float]:
    """Microseconds of each entry."""
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    problem = Problem.of(case, device, 0, min(MOST_SETS, input_sets(case.bytes, l2_bytes)))
    variants = [problem.variant(entry) for entry in entries(case.kind.head_dim)]
    found = measure(variants, rounds=rounds, window_ms=0.3, graph=True)
    return {name: timing.median_us for name, timing in found.items()}


def regrets(found: Sequence[tuple[Case, dict[str, float]]]) -> list[tuple[Case, float]]:
    """Of each case: the time of what is chosen over that of the fastest."""
    return [(case, times[str(chosen_entry(case))] / min(times.values())) for case, times in found]


def table(found: Sequence[tuple[Case, dict[str, float]]]) -> Table:
    """By head dimension."""
    rows = []
    for head_dim in HEAD_DIMS:
        mine = sorted((regret, str(case)) for case, regret in regrets(found) if case.kind.head_dim == head_dim)
        if mine:
            mean = geometric_mean([regret for regret, _ in mine])
            rows.append((str(head_dim), str(len(mine)), number(mean, 3), number(mine[-1][0], 3), mine[-1][1]))
    title = "Time of the tile that is chosen over that of the fastest"
    return Table(title, ("D", "cases", "mean", "most", "of"), tuple(rows))


def main(argv: Sequence[str] | None = None) -> int:
    """0; 2 when nothing could be run."""
    parser = argparse.ArgumentParser(prog="python -m wspec.lab.bench.short_tiles", description=__doc__)
    parser.add_argument("--head-dims", type=int, nargs="+", choices=HEAD_DIMS, default=HEAD_DIMS)
    parser.add_argument("--rounds", type=int, default=5, help="(default %(default)s)")
    parser.add_argument("--jobs", type=int, help="compiling processes (default: one a core)")
    parser.add_argument("--time-budget", type=float, default=130.0, metavar="SECONDS", help="stop cleanly after this")
    parser.add_argument("--json", default="short_tiles.json", metavar="FILE")
    options = parser.parse_args(argv)
    try:
        device = require_hopper()
    except NoGpu as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    began = time.monotonic()
    failures = [why for why in precompile(to_compile(options.head_dims), options.jobs) if why is not None]
    print(f"compiled in {time.monotonic() - began:.0f} s", *failures, sep="\n", flush=True)
    found: list[tuple[Case, dict[str, float]]] = []
    for case in cases(options.head_dims):
        if time.monotonic() - began > options.time_budget:
            print("time was up")
            break
        times = measured(case, device, options.rounds)
        found.append((case, times))
        best = sorted(times.items(), key=lambda item: item[1])[:3]
        print(case, *(f"{name} {us:.1f}" for name, us in best), sep=" | ", flush=True)
    about = environment()
    write_json(options.json, {"environment": about, "cases": [{"case": c.as_json(), "us": t} for c, t in found]})
    table(found).show(console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
