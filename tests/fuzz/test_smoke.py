"""A short run of the fuzzer: a fixed seed and a fixed number of kernels.

Six kernels of that seed are five specialized ones, of which one is undecided and one goes down to the cubin; of other
seeds there is one on which the checker takes all the time it has. `python -m tests.fuzz` runs as many as one likes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

COUNT = 6
SEED = 2029
ROOT = Path(__file__).parents[2]


def test_smoke(tmp_path: Path) -> None:
    """In a process of its own, which forks one for every kernel."""
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "tests.fuzz", "--seed", str(SEED), "--count", str(COUNT)]
    done = subprocess.run(
        [*command, "--shrink", "0", "--report", str(report)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert report.exists(), done.stdout + done.stderr
    found = json.loads(report.read_text())
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert found["kernels"] == COUNT
    assert found["codes"]["specialized"] >= COUNT // 6
    assert found["totals"]["compared"] >= COUNT // 6 and found["totals"]["exact"] > 0
    assert sum(found["checker"].values()) == found["codes"]["specialized"]
