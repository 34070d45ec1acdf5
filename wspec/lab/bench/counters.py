"""Hardware counters of kernel launches, by Nsight Compute's command line `ncu`, which runs the program as its child.

The child brackets each launch that counts with `counted()`; nothing else is profiled. Each launch is replayed until
all counters have been read, its caches flushed before, at the clock the card happens to have.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

COUNTERS: Mapping[str, tuple[str, ...]] = {
    "tensor": (
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
    ),
    "exponential": ("sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",),
    "issue": ("sm__inst_issued.avg.pct_of_peak_sustained_active", "smsp__inst_issued.avg.pct_of_peak_sustained_active"),
    "eligible": ("smsp__warps_eligible.avg.per_cycle_active",),
    "warps": ("sm__warps_active.avg.per_cycle_active",),
    "read_bytes": ("l1tex__m_xbar2l1tex_read_bytes.sum",),
    "l2_bytes": ("lts__t_bytes.sum",),
    "cycles": ("sm__cycles_elapsed.max",),
    "ns": ("gpu__time_duration.sum",),
}
"""Quantity -> metrics that say it, the best first; names differ between cards and versions of ncu."""

CHIP = "gh100"


class CountersError(Exception):
    """There are no counters; the message says why."""


@dataclass(frozen=True, slots=True)
class Counted:
    """One profiled kernel: its name, and quantity -> value."""

    kernel: str
    values: Mapping[str, float]


@contextlib.contextmanager
def counted() -> Iterator[None]:
    """What is launched inside is profiled, when `ncu` runs this process; it ends when the device is idle."""
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]  # torch
    try:
        yield
        torch.cuda.synchronize()
    finally:
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]  # torch


def count(command: Sequence[str], timeout_s: float = 300.0) -> list[Counted]:
    """Run a command under `ncu`; the kernels it launched in `counted()`, in order. Raises CountersError."""
    tool = shutil.which("ncu")
    if tool is None:
        raise CountersError("ncu (Nsight Compute) is not on the PATH")
    chosen = available(_run([tool, "--query-metrics", "--chip", CHIP], 60.0))
    with tempfile.TemporaryDirectory(prefix="wspec-") as folder:
        log = os.path.join(folder, "ncu.csv")
        flags = ["--csv", "--log-file", log, "--print-units", "base", "--clock-control", "none"]
        flags += ["--profile-from-start", "off", "--metrics", ",".join(chosen.values())]
        said = _run([tool, *flags, *command], timeout_s)
        if not os.path.exists(log):
            raise CountersError(f"ncu wrote nothing: {_last(said)}")
        with open(log, encoding="utf-8", errors="replace") as file:
            return parse(file.read(), chosen)


def available(listing: str) -> dict[str, str]:
    """Quantity -> the metric to ask for, of those that `ncu --query-metrics` lists (names without a suffix).

    Raises CountersError where the listing has none.
    """
    names = {line.split()[0] for line in listing.splitlines() if line[:1].isalpha() and "__" in line}
    found = {}
    for quantity, metrics in COUNTERS.items():
        known = [metric for metric in metrics if metric.split(".")[0] in names]
        if known:
            found[quantity] = known[0]
    if not found:
        raise CountersError(f"ncu knows none of the metrics for {CHIP}: {_last(listing)}")
    return found


def parse(text: str, chosen: Mapping[str, str]) -> list[Counted]:
    """Read ncu's CSV, a line for each kernel and metric, with whatever it says around it. Raises CountersError."""
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise CountersError(f"ncu reported no kernel: {_last(text)}")
    quantities = {metric: quantity for quantity, metric in chosen.items()}
    kernels: dict[str, tuple[str, dict[str, float]]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(line for line in lines[start:] if line.startswith('"')))):
        values = kernels.setdefault(row["ID"], (row["Kernel Name"], {}))[1]
        quantity = quantities.get(row["Metric Name"])
        number = _number(row["Metric Value"])
        if quantity is not None and number is not None:
            values[quantity] = number
    return [Counted(name, values) for name, values in kernels.values()]


def _number(text: str) -> float | None:
    """ "1,234.5", or None for "n/a"."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _run(command: Sequence[str], timeout_s: float) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise CountersError(f"{os.path.basename(command[0])} took more than {timeout_s:.0f} s") from None
    if done.returncode:
        raise CountersError(
            f"{os.path.basename(command[0])} failed ({done.returncode}): {_last(done.stdout + done.stderr)}"
        )
    return done.stdout


def _last(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing said"
