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
from typing import Any

import torch
import triton

import wspec
from wspec.lab.bench.environment import NoGpu, environment, require_hopper
from wspec.lab.bench.pointer_cases import (
    ATTENTION,
    EXPERTS,
    PACKED,
    PAGED,
    PRODUCTS,
    Case,
    attention_case,
    experts_case,
    packed_case,
    paged_case,
    product_case,
)
from wspec.lab.bench.report import Table, console, geometric_mean, number, write_json
from wspec.lab.bench.timing import Variant, measure

CASES: tuple[Callable[[], Case], ...] = (
    *(functools.partial(product_case, *one) for one in PRODUCTS),
    *(functools.partial(attention_case, *one) for one in ATTENTION),
    *(functools.partial(packed_case, *one) for one in PACKED),
    *(functools.partial(experts_case, *one) for one in EXPERTS),
    *(functools.partial(paged_case, *one) for one in PAGED),
)


def ours_of(case: Case, alone: bool) -> Any:
    """The case's kernel under wspec; `alone`: not specialized, with descriptors for its pointers."""
    if alone:
        return wspec.compile(case.kernel, remarks="off", specialize=False, promote=True, trials=0)
    return wspec.compile(case.kernel, remarks="off")


def compile_all(case: Case, alone: bool) -> None:
    """Launch the case's kernels once in every configuration."""
    for kernel in (case.kernel, ours_of(case, alone)):
        for meta in case.configurations:
            with contextlib.suppress(triton.OutOfResources):
                case.launch(kernel, meta)


def contest(case: Case, rounds: int, alone: bool, graph: bool) -> dict[str, Any]:
    """Errors and ratios of one case."""
    ours = ours_of(case, alone)
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
    first = measure(variants, rounds=3, graph=graph)
    best = {
        kind: min((name for name in first if name.startswith(kind)), key=lambda name: first[name].median_us)
        for kind in ("plain", "ours")
    }
    kept = [one for one in variants if one.name in (*best.values(), "torch")]
    found = measure(kept, rounds=rounds, graph=graph)
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
    parser.add_argument("--only", type=int, nargs="+", metavar="CASE", help="cases by number, from 0 on")
    parser.add_argument("--alone", action="store_true", help="not specialized, with descriptors for its pointers")
    parser.add_argument(
        "--in-a-row", action="store_true", help="launches behind each other, not from graphs: ours start early there"
    )
    parser.add_argument("--compile", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    try:
        require_hopper()
    except NoGpu as error:
        print(error, file=sys.stderr)
        return 2
    if options.compile is not None:
        compile_all(CASES[options.compile](), options.alone)
        return 0
    chosen = [at for at in range(len(CASES)) if options.only is None or at in options.only]
    with ThreadPoolExecutor(options.jobs) as pool:  # into Triton's cache, side by side
        command = [sys.executable, "-m", __spec__.name if __spec__ else __name__]
        command += ["--alone", "--compile"] if options.alone else ["--compile"]
        list(pool.map(lambda at: subprocess.run([*command, str(at)], check=False), chosen))
    rows = []
    for at in chosen:
        rows.append(contest(CASES[at](), options.rounds, options.alone, not options.in_a_row))
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
