"""`python -m tests.outside.operators --packages FOLDER --entries FOLDER`: operators with WSPEC=1 and without it.

Each operator of fla and Liger runs forwards and backwards in processes that share a cache: without wspec and, at the
same time, with WSPEC=1 in the environment; then once more without. With and without it the results are the same within
rounding, those without are the same before and after, and all are those of PyTorch. An operator is told as soon as it
is done, and what there is no time for is told as such. Exits with 1 where something is not the same. Needs a Hopper
GPU.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.outside.operators.judge import NO_TIME, Row, judged, summary, told
from tests.outside.turns import TURNS, Turns
from wspec.startup import wait

LEAST_S = 5.0  # with less time left no process begins


def main() -> int:
    given = _parser().parse_args()
    if given.one is not None:
        _child(given)
        return 0
    from tests.outside.operators.catalogue import OPERATORS

    names = [name for name in OPERATORS if re.search(given.only, name)]
    given.scratch = given.scratch or Path(tempfile.mkdtemp(prefix="operators-"))
    given.scratch.mkdir(parents=True, exist_ok=True)
    run = Run(given)
    with ThreadPoolExecutor(given.jobs) as pool:
        tasks = [pool.submit(run.turn, name, turn) for name in names for turn in ("with", "before")]
        for task in tasks:
            task.result()
    print(summary(run.rows, len(names)), flush=True)
    print(f"{time.monotonic() - run.start:.0f} s", flush=True)
    return int(any(row.is_wrong for row in run.rows))


class Run(Turns[Row]):
    """All operators under way; `rows` are those that are done."""

    def begun(self, name: str) -> Row:
        return Row(name)

    def goes_on(self, row: Row) -> bool:
        return not row.failed

    def told(self, row: Row) -> str:
        return told(row)

    def written(self, row: Row) -> dict[str, Any]:
        return {**asdict(row), "verdict": row.verdict}

    def judge(self, row: Row) -> None:
        import torch

        found = {turn: torch.load(self._path(row, turn)) for turn in TURNS if self._path(row, turn).exists()}
        if "with" in found:
            row.kernels = found["with"]["kernels"]
        if not row.failed:
            results = {turn: one["results"] for turn, one in found.items()}
            row.wrong, row.far = judged(results, found["before"]["reference"])

    def _path(self, row: Row, turn: str) -> Path:
        folder: Path = self.given.scratch
        return folder / f"{row.operator.replace(' ', '-')}.{turn}.pt"

    def process(self, row: Row, turn: str) -> None:
        given, path = self.given, self._path(row, turn)
        path.unlink(missing_ok=True)
        left = given.limit - (time.monotonic() - self.start)
        if left < LEAST_S:
            row.failed[turn] = NO_TIME
            return
        command = [sys.executable, "-m", "tests.outside.operators", "--one", row.operator, "--turn", turn,
                   "--out", str(path), "--packages", str(given.packages), "--entries", str(given.entries),
                   *(["--pretend"] * given.pretend)]  # fmt: skip
        around = {**os.environ, "WSPEC": str(int(turn == "with")), "TORCHDYNAMO_DISABLE": "1", "WSPEC_REMARKS": "off",
                  "OMP_NUM_THREADS": "1"}  # fmt: skip
        began = time.monotonic()
        with path.with_suffix(".log").open("w") as log:
            try:
                most = min(left, given.each)
                code = subprocess.run(command, stdout=log, stderr=log, env=around, timeout=most).returncode
            except subprocess.TimeoutExpired:
                row.failed[turn] = f"not done after {most:.0f} s" if most == given.each else NO_TIME
                return
            finally:
                row.seconds[turn] = time.monotonic() - began
        if code:
            tail = path.with_suffix(".log").read_text().strip().splitlines()[-1:]
            row.failed[turn] = f"exit {code}: {' '.join(tail)[:300]}"


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
    reference = results(operator, operator.reference, "cuda") if given.turn == "before" else {}
    torch.save({"results": found, "reference": reference, "kernels": kernels}, given.out)
    os._exit(0)  # without what libraries do at exit


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.outside.operators", description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, help="the libraries, in pkg/")
    parser.add_argument("--entries", type=Path, required=True, help="helpers that import libraries without parents")
    parser.add_argument("--only", metavar="REGEX", default="", help="operators whose name matches")
    cores = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=cores, metavar="N", help=f"processes at a time ({cores})")
    parser.add_argument("--each", type=float, default=100.0, metavar="S", help="seconds for a process (100)")
    parser.add_argument("--limit", type=float, default=150.0, metavar="S", help="seconds for everything (150)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--scratch", type=Path, metavar="FOLDER", help="what each process prints")
    parser.add_argument("--pretend", action="store_true", help="call the operators without launching anything")
    for name, kind in (("--one", str), ("--out", Path), ("--turn", str)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
