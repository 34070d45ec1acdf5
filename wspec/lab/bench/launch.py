"""`python -m wspec.lab.bench.launch`: what launches cost the host: warm ones, and those of sizes never seen.

A warm `kernel[grid](...)`, plain and specialized, runs on inputs so small that the card always keeps up; a sample is
the host time of a burst of launches, and the card is waited for between bursts, outside of the sample. Calls of the
functions of `kernels` are timed the same way, beside torch's and FlashAttention-3's operator (FA3_ROOT). Sizes never
seen are measured through the functions too (new_sizes.py).
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from wspec.kernels import attention, matmul, quantized
from wspec.kernels.weights import quantize_int4
from wspec.lab.bench import new_sizes, recorded
from wspec.lab.bench.environment import NoGpu, environment, require_hopper
from wspec.lab.bench.peers import fa3_call
from wspec.lab.bench.report import Table, console, number, write_json
from wspec.lab.bench.session import add_record
from wspec.lab.bench.timing import Timing

ALLOWED_RATIO = 1.20
"""A specialized launch may take this many times a plain one's host time."""

FA3 = "FlashAttention-3's operator"
ATTENTION_US = 22.0
"""What `attention()` may take where FA3's operator is not at hand: that took as long on the host of an H200."""

MATMUL_US = 20.0

Launch = attention.Launch | matmul.Launch
Call = Callable[[], object]


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


def calls(device: torch.device | str, dtype: torch.dtype = torch.bfloat16) -> dict[str, Call]:
    """Functions on tensors, ours and others', by name: one head of 128 queries and keys of 64 numbers, and products of
    128 x 128 matrices."""
    q, k, v = (torch.randn(1, 1, 128, 64, device=device).to(dtype) for _ in range(3))
    a, b = (torch.randn(128, 128, device=device).to(dtype) for _ in range(2))
    int8 = torch.randint(-127, 127, (128, 128), device=device).to(torch.int8)
    scale, int4 = torch.ones(128, device=device), quantize_int4(b)
    found: dict[str, Call] = {
        "attention()": functools.partial(attention.attention, q, k, v),
        "attention(), plain kernel": functools.partial(attention.attention, q, k, v, kernel=attention.attention_fwd),
        "torch's SDPA": functools.partial(scaled_dot_product_attention, q, k, v),
        "matmul()": functools.partial(matmul.matmul, a, b),
        "torch.matmul": functools.partial(torch.matmul, a, b),
        "matmul_int8_weights()": functools.partial(quantized.matmul_int8_weights, a, int8, scale),
        "matmul_int4_weights()": functools.partial(quantized.matmul_int4_weights, a, *int4),
    }
    root = os.environ.get("FA3_ROOT")
    return {**found, FA3: fa3_call(root, q, k, v, causal=False)} if root else found


def host_times_us(calls: Sequence[Call], samples: int, burst: int) -> list[list[float]]:
    """Microseconds of host time a call, a list of samples for each; calls take turns."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    gc.collect()
    gc.disable()
    try:
        for turn in range(samples):
            for at in range(len(calls)):
                index = (turn + at) % len(calls)
                times[index].append(_burst_us(calls[index], burst))
    finally:
        gc.enable()
    return times


def _launching(launch: Launch, kernel: Any) -> Call:
    grid, args, meta = launch.grid, launch.args, launch.meta
    return lambda: kernel[grid](*args, **meta)


def _burst_us(call: Call, burst: int) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for _ in range(burst):
        call()
    spent = time.perf_counter_ns() - begin
    torch.cuda.synchronize()
    return spent / burst / 1e3


def is_cheap(found: Mapping[str, float]) -> bool:
    """Do `attention()` and `matmul()` cost no more host time than they may?"""
    most = found.get(FA3, ATTENTION_US)
    return found["attention()"] <= most and found["matmul()"] <= MATMUL_US


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
        both = [_launching(launch, kernel) for kernel in (plain, ours)]
        plain_us, ours_us = host_times_us(both, options.samples, options.burst)
        runs[name] = case_run(Timing(tuple(plain_us)), Timing(tuple(ours_us)))
        ratio = statistics.median(ours_us) / statistics.median(plain_us)
        records[name] = {
            "plain_us": statistics.median(plain_us),
            "specialized_us": statistics.median(ours_us),
            "ratio": ratio,
            "specialized": ours.outcome(*launch.args, **launch.meta).specialized,
        }
    functions = calls(device)
    times = host_times_us(list(functions.values()), options.samples, options.burst)
    hosts = {name: statistics.median(one) for name, one in zip(functions, times, strict=True)}
    sizes = (
        [new_sizes.measure(one, torch.cuda.synchronize, options.different) for one in new_sizes.subjects(device)]
        if options.different
        else []
    )
    far = (
        [new_sizes.measure_far(one, torch.cuda.synchronize) for one in new_sizes.far(device)]
        if options.different
        else []
    )
    about = environment()
    both_sizes = {"sizes": [one.to_data() for one in sizes], "far": [asdict(one) for one in far]}
    write_json(options.json, {"environment": about, "launches": records, "calls": hosts, **both_sizes})
    if options.record is not None:
        made = recorded.versions(about), recorded.card(about), {"host": True, "burst": options.burst}, runs
        recorded.append(options.record, recorded.Run("launch", about["date"], *made))
    rows = tuple(
        (name, number(r["plain_us"], 2), number(r["specialized_us"], 2), number(r["ratio"], 3), str(r["specialized"]))
        for name, r in records.items()
    )
    columns = ("kernel", "plain us", "wspec us", "ratio", "specialized")
    Table(f"Host time of a warm launch (at most {ALLOWED_RATIO} x plain)", columns, rows).show(console())
    title = f"Host time of a warm call (attention() at most FA3's, matmul() {MATMUL_US:.0f})"
    Table(title, ("call", "us"), tuple((name, number(us, 1)) for name, us in hosts.items())).show(console())
    for table in (*new_sizes.tables(sizes), new_sizes.far_table(far)) if sizes else ():
        table.show(console())
    warm = all(record["ratio"] <= ALLOWED_RATIO for record in records.values()) and is_cheap(hosts)
    known = all(map(new_sizes.is_good, sizes)) and all(one.more_us <= new_sizes.NEW_US for one in far)
    return 0 if warm and known else 1


if __name__ == "__main__":
    sys.exit(main())
