"""`python -m tests.outside.operators --packages FOLDER --entries FOLDER`: operators with WSPEC=1 and without it.

Each operator of fla and Liger runs forwards and backwards in processes that share a cache: without wspec, with WSPEC=1
in the environment, and once more without. With and without it the results are the same within rounding, those without
are the same before and after, and all are those of PyTorch. Exits with 1 where they are not. Needs a Hopper GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from wspec.startup import wait

REFERENCE = 2e-2
"""Of results in 16 bits: root mean square of the difference from PyTorch's over that of PyTorch's."""

SAME = 5e-3
"""The same of results with and without wspec: a sum in another order may round another way."""

TURNS = ("before", "with", "after")


def main() -> int:
    given = _parser().parse_args()
    if given.one is not None:
        _child(given)
        return 0
    from tests.outside.operators.catalogue import OPERATORS

    names = [name for name in OPERATORS if re.search(given.only, name)]
    given.scratch = given.scratch or Path(tempfile.mkdtemp(prefix="operators-"))
    given.scratch.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(given.jobs) as pool:
        rows = list(pool.map(lambda name: _operator(given, name), names))
    bad = [row for row in rows if row["error"]]
    for row in rows:
        print(f"{row['operator']}: {row['error'] or 'the same'}")
        for name, far in row["far"].items():
            print(f"    {name}: from PyTorch {far['reference']:.1e} without and {far['reference with']:.1e} with, "
                  f"from each other {far['with']:.1e}, before and after {far['after']:.1e}")  # fmt: skip
        for one in row["kernels"]:
            print(f"    {one['kernel']}: {'specialized' if one['specialized'] else one['reason'][:150]}")
    specialized = sum(one["specialized"] for row in rows for one in row["kernels"])
    print(f"{len(rows) - len(bad)} of {len(rows)} operators are the same; "
          f"{specialized} of {sum(len(row['kernels']) for row in rows)} compiled kernels specialized")  # fmt: skip
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=0))
    return int(bool(bad))


def _operator(given: argparse.Namespace, name: str) -> dict[str, Any]:
    """Run it in three processes."""
    row: dict[str, Any] = {"operator": name, "error": "", "far": {}, "kernels": []}
    stem = name.replace(" ", "-")
    paths = {turn: given.scratch / f"{stem}.{turn}.pt" for turn in TURNS}
    for turn, path in paths.items():
        command = [sys.executable, "-m", "tests.outside.operators", "--one", name, "--out", str(path),
                   "--packages", str(given.packages), "--entries", str(given.entries),
                   *(["--pretend"] * given.pretend)]  # fmt: skip
        around = {**os.environ, "WSPEC": str(int(turn == "with")), "TORCHDYNAMO_DISABLE": "1", "WSPEC_REMARKS": "off"}
        with path.with_suffix(".log").open("w") as log:
            try:
                code = subprocess.run(command, stdout=log, stderr=log, env=around, timeout=given.each).returncode
            except subprocess.TimeoutExpired:
                code = -9
        if code:
            tail = path.with_suffix(".log").read_text().strip().splitlines()[-1:]
            row["error"] = f"{turn}: exit {code}: {' '.join(tail)[:300]}"
            print(f"{name}: {row['error']}", flush=True)
            return row
    print(f"{name}: ran", flush=True)
    import torch

    found = {turn: torch.load(path) for turn, path in paths.items()}
    row["kernels"] = found["with"]["kernels"]
    row["error"], row["far"] = judged({turn: one["results"] for turn, one in found.items()}, found["with"]["reference"])
    return row


def judged(results: dict[str, Any], reference: dict[str, Any]) -> tuple[str, dict[str, dict[str, float]]]:
    """What is wrong with results of the three turns, if anything; and how far tensors are from each other, by name."""
    far, wrong = {}, []
    for name, expected in reference.items():
        first, ours, last = (results[turn][name] for turn in TURNS)
        far[name] = {
            "reference": apart(first, expected), "reference with": apart(ours, expected),
            "with": apart(ours, first), "after": apart(last, first),
        }  # fmt: skip
        if not far[name]["with"] <= SAME:
            wrong.append(f"{name} is another one with wspec")
        if not far[name]["after"] <= SAME:
            wrong.append(f"{name} is another one after wspec")
        if not far[name]["reference with"] <= max(REFERENCE, 2 * far[name]["reference"]):
            wrong.append(f"{name} is not PyTorch's")
    return "; ".join(wrong), far


def apart(found: Any, expected: Any) -> float:
    """Root mean square of the difference over that of what is expected; NaN where either has one."""
    scale = expected.double().square().mean().sqrt().clamp(min=1e-30)
    return float((found.double() - expected.double()).square().mean().sqrt() / scale)


def _child(given: argparse.Namespace) -> None:
    """Run one operator once and write down its results, with the reference."""
    if os.environ.get("WSPEC") == "1":  # what wspec.pth does where wspec is installed
        wait()
    from tests.outside.on_card import entries

    entries.prepare(given.entries, given.packages, given.pretend)
    import fakegpu  # type: ignore[import-not-found]
    import torch
    import triton
    from root import ROOT  # type: ignore[import-not-found]

    import wspec
    from tests.outside.operators.catalogue import OPERATORS, results

    sys.path.insert(0, f"{ROOT}/pkg/fla_core")
    for name in ("liger_kernel", "liger_kernel.ops"):
        fakegpu.shell_package(name, f"{ROOT}/pkg/liger_kernel/{name.replace('.', '/')}")
    pruned = triton.runtime.Autotuner.prune_configs
    triton.runtime.Autotuner.prune_configs = lambda self, kwargs: pruned(self, kwargs)[:1]  # type: ignore[method-assign]
    if given.pretend:
        triton.runtime.jit.JITFunction.run = lambda *args, **kwargs: None  # type: ignore[method-assign]
    operator = OPERATORS[given.one]
    found = results(operator, operator.theirs, "cuda")
    kernels = [
        {"kernel": one.kernel, "specialized": one.specialized, "reason": one.reason} for one in wspec.report().entries
    ]
    reference = results(operator, operator.reference, "cuda") if os.environ.get("WSPEC") == "1" else {}
    torch.save({"results": found, "reference": reference, "kernels": kernels}, given.out)
    os._exit(0)  # without what libraries do at exit


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.outside.operators", description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, help="the libraries, in pkg/")
    parser.add_argument("--entries", type=Path, required=True, help="helpers that import libraries without parents")
    parser.add_argument("--only", metavar="REGEX", default="", help="operators whose name matches")
    parser.add_argument("--jobs", type=int, default=12, metavar="N", help="processes at a time (12)")
    parser.add_argument("--each", type=float, default=150.0, metavar="S", help="seconds for a process (150)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--scratch", type=Path, metavar="FOLDER", help="what each process prints")
    parser.add_argument("--pretend", action="store_true", help="call the operators without launching anything")
    for name, kind in (("--one", str), ("--out", Path)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
