"""compute-sanitizer over a child process, and what it says."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
PLACES = (
    "/usr/local/cuda*/compute-sanitizer/compute-sanitizer",
    "/opt/nvidia/**/compute-sanitizer",
    "/usr/local/cuda*/bin/compute-sanitizer",
)
COMPLAINT = r"Error|Warning|Invalid|Uninitialized|Barrier|Program hit|Potential|Race reported|Internal"
FOUND = 86  # the exit code asked of compute-sanitizer when it has found something


@dataclass(frozen=True, slots=True)
class Said:
    """What one tool said of one child."""

    tool: str
    problems: int | None  # None: there was no summary to read
    summary: str
    first: tuple[str, ...]  # the first complaints
    numbers: str  # what the child itself said of its results
    seconds: float
    exit_code: int | None  # None: it was stopped after too long

    @property
    def fine(self) -> bool:
        return self.problems == 0 and self.exit_code == 0

    def __str__(self) -> str:
        lines = [f"{self.tool}: {self.summary} [{self.seconds:.0f} s]", *(f"    {line}" for line in self.first)]
        return "\n".join([*lines, *(f"    {line}" for line in self.numbers.splitlines())])


def find() -> str | None:
    """The path of compute-sanitizer, from PATH, COMPUTE_SANITIZER or the usual places; None when there is none."""
    named = os.environ.get("COMPUTE_SANITIZER") or shutil.which("compute-sanitizer")
    if named:
        return named
    found = [path for place in PLACES for path in sorted(glob.glob(place, recursive=True)) if os.access(path, os.X_OK)]
    return found[-1] if found else None


def run(sanitizer: str, tool: str, child: list[str], timeout_s: float, log: Path | None = None) -> Said:
    """Run `python CHILD` under a tool. The child must print lines that begin with "numbers:"."""
    command = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "20", sys.executable, *child]
    output, code, seconds = _output(command, timeout_s)
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(output)
    return read(tool, output, code, seconds)


def alone(child: list[str], timeout_s: float) -> Said:
    """Run `python CHILD` without a tool."""
    output, code, seconds = _output([sys.executable, *child], timeout_s)
    numbers = _numbers(output)
    summary = "no tool" if code == 0 else _without_summary(output, code)
    return Said("no tool", None, summary, (), numbers, seconds, code)


def _output(command: list[str], timeout_s: float) -> tuple[str, int | None, float]:
    """(what it printed, its exit code or None if it was stopped, seconds)."""
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONUNBUFFERED": "1"}
    start = time.monotonic()
    try:
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            timeout=timeout_s, check=False,
        )  # fmt: skip
        output, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        partial = error.stdout or b""
        output, code = partial.decode(errors="replace") if isinstance(partial, bytes) else partial, None
    return output, code, time.monotonic() - start


def read(tool: str, output: str, exit_code: int | None, seconds: float) -> Said:
    """What the output of a tool means.

    The summaries are `ERROR SUMMARY: N errors` and `RACECHECK SUMMARY: N hazards displayed (E errors, W warnings)`.
    """
    ours = [line.removeprefix("=========").strip() for line in output.splitlines() if line.startswith("=========")]
    summaries = [line for line in ours if " SUMMARY: " in line]
    match = re.search(r"SUMMARY: (\d+) (?:errors?|hazards?)", summaries[-1]) if summaries else None
    summary = summaries[-1] if summaries else _without_summary(output, exit_code)
    first = tuple(line for line in ours if _complains(line))[:6]
    return Said(tool, int(match[1]) if match else None, summary, first, _numbers(output), seconds, exit_code)


def _numbers(output: str) -> str:
    return "\n".join(line for line in output.splitlines() if line.startswith("numbers:"))


def _complains(line: str) -> bool:
    if " SUMMARY: " in line or line.startswith(("COMPUTE-SANITIZER", "Target application returned")):
        return False
    return re.match(COMPLAINT, line) is not None


def _without_summary(output: str, exit_code: int | None) -> str:
    last = output.strip().splitlines()[-1:] or ["no output"]
    return f"no summary ({'stopped' if exit_code is None else f'exit code {exit_code}'}): {last[0][:200]}"
