"""`python -m tests.outside.suites --libraries FOLDER`: other libraries' own tests, with WSPEC=1 and without it.

FOLDER holds `fla/` and `liger/`, their repositories. Each file of tests runs in processes that share a cache: without
wspec and, at the same time, with WSPEC=1 in the environment; then once more without. The same tests must pass, and what
they compare must be the same within rounding. Exits with 1 where it is not. Needs a Hopper GPU.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.outside.turns import TURNS, Turns

HERE = Path(__file__).resolve().parent
SAME = 5e-3
"""Root mean square of the difference over that of what is expected: a sum in another order may round another way."""

FILES = {  # those that take longest first
    "fla": ("kda", "gdn", "simple_gla", "gsa", "gla", "attn", "retention", "rwkv6", "delta", "linear_attn", "path_attn",
            "forgetting_attn", "based", "hgrn"),
    "liger": ("fused_neighborhood_attention", "fused_linear_cross_entropy", "swiglu", "rms_norm", "cross_entropy",
              "geglu", "fused_moe", "multi_token_attention", "mm_int8int2", "layer_norm", "rope", "softmax"),
}  # fmt: skip
WITHOUT = "distributed or dtensor or flash_qla or flash_kda or naive"
"""Tests of several cards, of other libraries, and of PyTorch."""


@dataclass
class Row:
    """A file of tests. `tests`: by test, its outcome in each turn. `far`: by test, how far what it compares is from
    what it compared without wspec: with it, and after."""

    name: str
    failed: dict[str, str] = field(default_factory=dict)
    tests: dict[str, dict[str, str]] = field(default_factory=dict)
    far: dict[str, dict[str, float]] = field(default_factory=dict)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def complete(self) -> dict[str, dict[str, str]]:
        """Tests that ended in all turns."""
        return {test: outcomes for test, outcomes in self.tests.items() if len(outcomes) == len(TURNS)}

    @property
    def wrong(self) -> list[str]:
        """What differs: outcomes, or numbers."""
        found = []
        for test, outcomes in self.complete.items():
            words = {turn: text.split()[0] for turn, text in outcomes.items()}
            if words["with"] != words["before"] or words["after"] != words["before"]:
                found.append(f"{test}: {outcomes}")
            found += [f"{test}: {value:.1e} away {turn}" for turn, value in self.far.get(test, {}).items()
                      if not value <= SAME]  # fmt: skip
        return found


def main() -> int:
    given = _parser().parse_args()
    given.scratch = given.scratch or Path(tempfile.mkdtemp(prefix="suites-"))
    given.scratch.mkdir(parents=True, exist_ok=True)
    names = [f"{library}/{name}" for library, files in FILES.items() for name in files]
    names = [name for name in names if re.search(given.only, name)]
    run = Run(given)
    with ThreadPoolExecutor(given.jobs) as pool:
        for task in [pool.submit(run.turn, name, turn) for name in names for turn in ("before", "with")]:
            task.result()
    print(summary(run.rows, len(names)), flush=True)
    print(f"{time.monotonic() - run.start:.0f} s", flush=True)
    return int(any(row.wrong or row.failed for row in run.rows))


class Run(Turns[Row]):
    """All files under way; `rows` are those that are done."""

    def begun(self, name: str) -> Row:
        return Row(name)

    def told(self, row: Row) -> str:
        return told(row)

    def written(self, row: Row) -> dict[str, Any]:
        return {**asdict(row), "wrong": row.wrong}

    def process(self, row: Row, turn: str) -> None:
        given, (library, name) = self.given, row.name.split("/")
        path = self._path(row, turn)
        path.unlink(missing_ok=True)
        left = given.limit - (time.monotonic() - self.start)
        if left < 5:
            row.failed[turn] = "no time left"
            return
        root = (given.libraries / library).resolve()
        file = f"tests/ops/test_{name}.py" if library == "fla" else f"test/transformers/test_{name}.py"
        source = root if library == "fla" else root / "src"
        command = [sys.executable, "-m", "pytest", "-p", "suites_plugin", "-p", "no:cacheprovider", "-p", "no:xdist",
                   "-q", "--no-header", "--tb=short", "-k", f"not ({WITHOUT})", "-c", os.devnull, "--rootdir",
                   str(root), str(root / file)]  # fmt: skip
        around = {
            **os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(root), str(HERE), *sys.path[1:]]),
            "WSPEC": str(int(turn == "with")), "WSPEC_REMARKS": "off", "SUITES_OUT": str(path),
            "SUITES_LIBRARY": "fla" if library == "fla" else "liger_kernel", "SUITES_EACH": str(given.each),
            "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
        }  # fmt: skip
        began = time.monotonic()
        with path.with_suffix(".log").open("w") as log:
            try:
                code = subprocess.run(command, cwd=root, stdout=log, stderr=log, env=around, timeout=left).returncode
            except subprocess.TimeoutExpired:
                row.failed[turn] = "cut off"
                return
            finally:
                row.seconds[turn] = time.monotonic() - began
        if code not in (0, 1):  # 1: tests failed
            tail = path.with_suffix(".log").read_text().strip().splitlines()[-1:]
            row.failed[turn] = f"exit {code}: {' '.join(tail)[:300]}"

    def _path(self, row: Row, turn: str) -> Path:
        folder: Path = self.given.scratch
        return folder / f"{row.name.replace('/', '-')}.{turn}.pt"

    def judge(self, row: Row) -> None:
        import torch

        found = {turn: torch.load(self._path(row, turn)) for turn in TURNS if self._path(row, turn).exists()}
        row.kernels = found.get("with", {}).get("kernels", [])
        for turn, one in found.items():
            for test, outcome in one["outcomes"].items():
                row.tests.setdefault(test.rpartition("/")[2], {})[turn] = outcome
        for test, first in found.get("before", {"seen": {}})["seen"].items():
            for turn in ("with", "after"):
                if test in (others := found.get(turn, {"seen": {}})["seen"]):
                    row.far.setdefault(test.rpartition("/")[2], {})[turn] = farthest(first, others[test])


def farthest(first: list[Any], second: list[Any]) -> float:
    """The largest distance between tensors that were compared; 0 where all bits are the same."""
    far = [float("nan")] if len(first) != len(second) else [0.0]
    for (bits, values), (other_bits, others) in zip(first, second, strict=False):
        if bits != other_bits:
            if values.shape != others.shape:
                return float("nan")
            both_nan = values.isnan() & others.isnan()
            gap = (others - values).masked_fill(both_nan, 0.0)
            scale = values.masked_fill(both_nan, 0.0).square().mean().sqrt().clamp(min=1e-30)
            far.append(float(gap.square().mean().sqrt() / scale) or 1e-30)
    return max(far, key=lambda one: float("inf") if one != one else one)


def told(row: Row) -> str:
    """A few lines of a file."""
    took = ", ".join(f"{turn} {row.seconds[turn]:.0f}" for turn in TURNS if turn in row.seconds)
    specialized = Counter(one["kernel"] for one in row.kernels if one["specialized"])
    left = Counter((one["kernel"], one["reason"][:110]) for one in row.kernels if not one["specialized"])
    words = Counter(outcomes["with"].split()[0] for outcomes in row.complete.values())
    equal = sum(not any(one.values()) for one in row.far.values())
    lines = [
        f"{row.name}: {_counted(words) or 'nothing'} in all turns, {len(row.tests) - len(row.complete)} not; "
        f"{'DIFFERENT' if row.wrong else 'the same'}, {equal} of {len(row.far)} equal to the bit; "
        f"{specialized.total()} of {len(row.kernels)} kernels specialized ({took} s)"
    ]
    lines += [f"    {turn}: {text}" for turn, text in row.failed.items()]
    lines += [f"    {text[:400]}" for text in row.wrong]
    for test, outcomes in row.complete.items():
        if outcomes["before"].startswith("failed") and outcomes["with"].startswith("failed"):
            lines.append(f"    fails without wspec too: {test}: {outcomes['before'][:150]}")
    lines += [f"    {kernel}: specialized ({count} times)" for kernel, count in specialized.items()]
    lines += [f"    {kernel}: {why} ({count} times)" for (kernel, why), count in left.items()]
    return "\n".join(lines)


def summary(rows: list[Row], total: int) -> str:
    """Of all: tests by outcome, how far they are, what was specialized, and why the rest was not."""
    complete = [outcomes for row in rows for outcomes in row.complete.values()]
    words = Counter("/".join(outcomes[turn].split()[0] for turn in TURNS) for outcomes in complete)
    kernels = [one for row in rows for one in row.kernels]
    reasons = Counter(one["reason"].partition(":")[0] for one in kernels if not one["specialized"])
    lines = [
        f"{len(rows)} of {total} files, {len(complete)} tests in all turns ({'/'.join(TURNS)}): {_counted(words)}",
        f"{sum(one['specialized'] for one in kernels)} of {len(kernels)} compiled kernels specialized, in "
        f"{sum(any(one['specialized'] for one in row.kernels) for row in rows)} files",
        f"left alone: {_counted(reasons) or 'none'}",
        f"different: {sum(len(row.wrong) for row in rows)}; cut off or failed: "
        f"{', '.join(f'{row.name} {turn}' for row in rows for turn in row.failed) or 'none'}",
    ]
    for turn in ("with", "after"):
        far = [(one[turn], row.name, test) for row in rows for test, one in row.far.items() if turn in one]
        equal = sum(value == 0 for value, *_ in far)
        if far:
            worst = max(far, key=lambda one: float("inf") if one[0] != one[0] else one[0])
            lines.append(f"{turn}: {equal} of {len(far)} equal to the bit; farthest {worst[0]:.1e} ({worst[2]})")
    return "\n".join(lines)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.outside.suites", description=__doc__)
    parser.add_argument("--libraries", type=Path, required=True, help="with fla/ and liger/, their repositories")
    parser.add_argument("--only", metavar="REGEX", default="", help="LIBRARY/FILE that match")
    parser.add_argument("--each", type=int, default=2, metavar="N", help="cases of a test function (2)")
    cores = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=cores, metavar="N", help=f"processes at a time ({cores})")
    parser.add_argument("--limit", type=float, default=190.0, metavar="S", help="seconds for everything (190)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--scratch", type=Path, metavar="FOLDER", help="what each process prints")
    return parser


if __name__ == "__main__":
    sys.exit(main())
