"""Does the search rank plans as the card does? Every candidate of a few kernels, predicted and measured.

`python -m wspec.lab.bench.plans --save plans.json` searches and needs no GPU; `--load plans.json` compiles and measures
those plans, and without either it does both. Launches are the long ones of wspec/lab/search/launches.py.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import wspec
from wspec import api, bridge, ir
from wspec.kernels import attention, matmul
from wspec.lab.bench.precompile import precompile
from wspec.lab.bench.report import Table, console
from wspec.lab.bench.timing import Variant, measure
from wspec.model.machine import load_machine
from wspec.options import Options

CASES = tuple((f"attention D={d} {mask}", d, mask == "causal") for d in (64, 128, 256) for mask in ("full", "causal"))
PRODUCT = "product A B^T"
PLAIN = "plain"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m wspec.lab.bench.plans", description=__doc__.split("\n")[0])
    parser.add_argument("--save", type=Path, help="only search, and write the plans there")
    parser.add_argument("--load", type=Path, help="the plans of an earlier --save")
    parser.add_argument("--json", type=Path, help="predicted and measured times")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument(
        "--steps", type=int, default=100_000, help="of the simulator, for a search (default %(default)s)"
    )
    args = parser.parse_args(argv)
    found = json.loads(args.load.read_text()) if args.load else searched(args.steps)
    if args.save:
        args.save.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    if not torch.cuda.is_available():
        print("error: measuring needs a GPU; --save does not", file=sys.stderr)
        return 2
    times = measured(found)
    made = table(found, times)
    made.show(console())
    if args.markdown:
        args.markdown.write_text(made.markdown())
    if args.json:
        args.json.write_text(json.dumps({"searched": found, "measured_us": times}, indent=1) + "\n")
    return 0


def launch_of(case: str, device: str) -> tuple[Any, Any]:
    """(kernel, launch) of a case: 528 or 1056 tiles of 2048 keys, or 2048 deep."""
    if case == PRODUCT:
        a = torch.randn(2048, 2048, device=device, dtype=torch.bfloat16)
        b = torch.randn(8448, 2048, device=device, dtype=torch.bfloat16).T
        out = torch.empty(2048, 8448, device=device, dtype=torch.bfloat16)
        return matmul.plain_kernel("descriptor"), matmul.Launch.of(a, b, out, variant="descriptor", config=None)
    head_dim, causal = next((d, c) for name, d, c in CASES if name == case)
    shape = (1, 33, 2048, head_dim)
    q, k, v, out = (torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(4))
    lse = torch.empty(shape[:3], device=device, dtype=torch.float32)
    made = attention.Launch.of(q, k, v, out, lse, causal=causal, scale=0.1)
    return attention.attention_fwd, made


def searched(steps: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Case -> candidate -> its plan and its predicted time."""
    from wspec.lab.search import search

    found, machine = {}, load_machine(api.machine_here())
    for case in (*(name for name, _, _ in CASES), PRODUCT):
        kernel, launch = launch_of(case, "cpu")
        source = bridge.from_arguments(kernel, launch.args, launch.meta)
        ranked = search(ir.read(bridge.lower(source)[1]), machine, Options(), steps).ranked
        found[case] = {
            one.name: {"plan": one.plan.to_text(), "predicted_us": one.microseconds, "bound": one.bound}
            for one in ranked
            if one.plan is not None
        }
    return found


def make(case: str, plan: str, device: str = "cpu") -> tuple[Any, Any]:
    """(kernel under this plan, launch); the plain kernel where there is none."""
    kernel, launch = launch_of(case, device)
    return (wspec.compile(kernel, plan=plan, gate="off", remarks="off") if plan else kernel), launch


def measured(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, float]]:
    """Case -> candidate -> microseconds, those that run."""
    plans = {(case, name): str(one["plan"]) for case, ones in found.items() for name, one in ones.items()}
    plans |= {(case, PLAIN): "" for case in found}
    began = time.monotonic()
    failed = precompile([functools.partial(make, case, plan) for (case, _), plan in plans.items()])
    print(f"compiled {len(plans)} kernels in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    for (case, name), failure in zip(list(plans), failed, strict=True):
        if failure is not None:
            print(f"{case}, {name}: {failure}", file=sys.stderr)
            del plans[case, name]
    times: dict[str, dict[str, float]] = {}
    for case in found:
        variants = []
        for name in (name for where, name in plans if where == case):
            kernel, launch = make(case, plans[case, name], "cuda")
            if name != PLAIN and not kernel.outcome(*launch.args, **launch.meta).specialized:
                print(f"{case}, {name}: left alone", file=sys.stderr)
                continue
            run = functools.partial(launch.run, kernel)
            run()
            variants.append(Variant(name, (run,)))
        torch.cuda.synchronize()
        times[case] = {name: one.median_us for name, one in measure(variants, rounds=9).items()}
    return times


def table(found: Mapping[str, Mapping[str, Mapping[str, Any]]], times: Mapping[str, Mapping[str, float]]) -> Table:
    """A row for each candidate; ratios to the planner's own plan, over 1: slower."""
    from wspec.tune.variations import RULE

    rows = []
    for case, ones in found.items():
        own_us, own = times[case].get(RULE, 0.0), float(ones[RULE]["predicted_us"])
        for name, us in sorted(times[case].items(), key=lambda pair: pair[1]):
            predicted = float(ones[name]["predicted_us"]) if name in ones else 0.0
            shown = (f"{predicted:.1f}", f"{predicted / own:.3f}") if predicted else ("", "")
            rows.append((case, name, f"{us:.1f}", f"{us / own_us:.3f}" if own_us else "", *shown))
    pairs = [(row[3], row[5]) for row in rows if row[3] and row[5] and row[1] != RULE]
    wrong = statistics.mean(abs(float(b) / float(a) - 1) for a, b in pairs) if pairs else 0.0
    title = f"Plans, predicted and measured; a ratio to the planner's is off by {100 * wrong:.1f} % in the mean"
    return Table(title, ("case", "plan", "us", "x the planner's", "predicted us", "x predicted"), tuple(rows))


if __name__ == "__main__":
    sys.exit(main())
