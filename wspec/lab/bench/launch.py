"""`python -m wspec.lab.bench.launch`: what launches cost the host: warm ones, and those of sizes never seen.

A warm `kernel[grid](...)`, plain and specialized, runs on inputs so small that the card always keeps up; a sample is
the host time of a burst of launches, and the card is waited for between bursts, outside of the sample. Sizes never seen
are measured through the functions of `kernels` (new_sizes.py).
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

from wspec.kernels import attention, matmul
from wspec.lab.bench import new_sizes, recorded
from wspec.lab.bench.environment import NoGpu, environment, require_hopper
from wspec.lab.bench.report import Table, console, number, write_json
from wspec.lab.bench.session import add_record
from wspec.lab.bench.timing import Timing

ALLOWED_RATIO = 1.20
"""A specialized launch may take this many times a plain one's host time."""

Launch = attention.Launch | matmul.Launch


def subjects(device: torch.device) -> dict[str, tuple[Launch, Any, Any]]:
    """Name -> (launch, plain kernel, specialized kernel)."""
    q, k, v, out = (torch.randn(1, 1, 128, 64, device=device, dtype=torch.bfloat16) for _ in range(4))
    lse = torch.empty(1, 1, 128, device=device)
    attend = attention.Launch.of(q, k, v, out, lse, causal=False, scale=0.125)
    found: dict[str, tuple[Launch, Any, Any]] = {
        "attention": (attend, attention.attention_fwd, attention.attention_fwd_ws())
    }
    a, b = (torch.randn(128, 128, device=device, dtype=torch.bfloat16) for _ in range(2))
    for variant in matmul.VARIANTS:
        launch = matmul.Launch.of(a, b, torch.empty_like(a), variant=variant)
        plain, ours = matmul.plain_kernel(variant), matmul.specialized_kernel(variant)
        found[f"matmul, {variant}"] = launch, plain, ours
    return found


def host_times_us(launch: Launch, kernels: Sequence[Any], samples: int, burst: int) -> list[list[float]]:
    """Microseconds of host time a launch, a list of samples for each kernel; kernels take turns."""
    times: list[list[float]] = [[] for _ in kernels]
    for kernel in kernels:
        launch.run(kernel)
    gc.collect()
    gc.disable()
    try:
        for turn in range(samples):
            for at in range(len(kernels)):
                index = (turn + at) % len(kernels)
                times[index].append(_burst_us(launch, kernels[index], burst))
    finally:
        gc.enable()
    return times


def _burst_us(launch: Launch, kernel: Any, burst: int) -> float:
    grid, args, meta = launch.grid, launch.args, launch.meta
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for _ in range(burst):
        kernel[grid](*args, **meta)
    spent = time.perf_counter_ns() - begin
    torch.cuda.synchronize()
    return spent / burst / 1e3


def case_run(plain: Timing, ours: Timing) -> recorded.CaseRun:
    """What is kept of a kernel's launches."""
    ratio = recorded.Ratio(ours.speedup_over(plain), ours.speedup_spread(plain))
    return recorded.CaseRun(ours.median_us, ours.spread, {"plain": ratio})


def parser() -> argparse.ArgumentParser:
    """The command line's flags."""
    made = argparse.ArgumentParser(
        prog="python -m wspec.lab.bench.launch", description="Measure the host time of launches."
    )
    made.add_argument("--samples", type=int, default=300, help="bursts of each kernel (default %(default)s)")
    made.add_argument("--burst", type=int, default=20, help="launches in a burst (default %(default)s)")
    made.add_argument(
        "--different", type=int, default=1000, help="sizes one after the other; 0: none (default %(default)s)"
    )
    made.add_argument("--json", default="launch.json", metavar="FILE")
    add_record(made, "launch")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0 when all bars are met, of warm launches and of sizes never seen, 1 when not, 2 when nothing could be run."""
    options = parser().parse_args(argv)
    try:
        device = require_hopper()
    except NoGpu as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.record is not None:
        recorded.check_file(options.record)
    records, runs = {}, {}
    for name, (launch, plain, ours) in subjects(device).items():
        plain_us, ours_us = host_times_us(launch, [plain, ours], options.samples, options.burst)
        runs[name] = case_run(Timing(tuple(plain_us)), Timing(tuple(ours_us)))
        ratio = statistics.median(ours_us) / statistics.median(plain_us)
        records[name] = {
            "plain_us": statistics.median(plain_us),
            "specialized_us": statistics.median(ours_us),
            "ratio": ratio,
            "specialized": ours.outcome(*launch.args, **launch.meta).specialized,
        }
    sizes = (
        [new_sizes.measure(one, torch.cuda.synchronize, options.different) for one in new_sizes.subjects(device)]
        if options.different
        else []
    )
    about = environment()
    write_json(options.json, {"environment": about, "launches": records, "sizes": [one.to_data() for one in sizes]})
    if options.record is not None:
        made = recorded.versions(about), recorded.card(about), {"host": True, "burst": options.burst}, runs
        recorded.append(options.record, recorded.Run("launch", about["date"], *made))
    rows = tuple(
        (name, number(r["plain_us"], 2), number(r["specialized_us"], 2), number(r["ratio"], 3), str(r["specialized"]))
        for name, r in records.items()
    )
    columns = ("kernel", "plain us", "wspec us", "ratio", "specialized")
    Table(f"Host time of a warm launch (at most {ALLOWED_RATIO} x plain)", columns, rows).show(console())
    for table in new_sizes.tables(sizes) if sizes else ():
        table.show(console())
    warm = all(record["ratio"] <= ALLOWED_RATIO for record in records.values())
    return 0 if warm and all(map(new_sizes.is_good, sizes)) else 1


if __name__ == "__main__":
    sys.exit(main())
