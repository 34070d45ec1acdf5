"""A short run of the fuzzer: a fixed seed, a box of time, so many kernels at least."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SECONDS = 12.0
MOST, LEAST = 60, 4  # kernels; the machine decides how many of the first
SEED = 2026
ROOT = Path(__file__).parents[2]


def test_smoke(tmp_path: Path) -> None:
    """In a process of its own, which forks one for every kernel."""
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "tests.fuzz", "--seed", str(SEED), "--count", str(MOST), "--seconds", str(SECONDS)]
    done = subprocess.run(
        [*command, "--shrink", "0", "--report", str(report)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert report.exists(), done.stdout + done.stderr
    found = json.loads(report.read_text())
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert found["kernels"] >= LEAST, f"{found['kernels']} kernels in {SECONDS} s"
    assert found["codes"]["specialized"] >= LEAST // 4
    assert found["totals"]["compared"] >= LEAST // 4 and found["totals"]["exact"] > 0
    assert sum(found["checker"].values()) == found["codes"]["specialized"]
