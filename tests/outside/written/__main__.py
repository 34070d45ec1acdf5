"""`python -m tests.outside.written`: kernels as people write them, by default and plain, on a Hopper GPU.

Each is launched by `kernel[grid](...)` as its author would, plain and under `wspec.compile`, and must leave the same
numbers but for rounding. Times, plain over ours: in a row, the host's part included, and replayed from
graphs; and what a launch costs the host. Compiling goes on in other processes before anything is timed. Exits with 1
where results differ.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton

import wspec
from tests.outside.on_card.compare import Agreement, agreement, together
from tests.outside.written.launches import CASES, Case, Launch

SAME = ("equal", "rounding", "races")  # of verdicts (tests/outside/on_card/compare.py)
WARM, ROUNDS, ROW_MS = 200, 7, 2.0  # launches before any is timed; of either kind in turn; milliseconds of a round


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.outside.written", description=__doc__)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases of these names")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--jobs", type=int, default=12, help="processes that compile")
    parser.add_argument("--part", metavar="I/N", help=argparse.SUPPRESS)
    given = parser.parse_args()
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    cases = [case for case in CASES if re.search(given.only, str(case))]
    if given.part:
        first, step = map(int, given.part.split("/"))
        for case in cases[first::step]:
            compared(case)
        return 0
    command = [sys.executable, "-m", "tests.outside.written", "--only", given.only, "--part"]
    parts = [subprocess.Popen([*command, f"{at}/{given.jobs}"]) for at in range(given.jobs)]
    for part in parts:
        part.wait()
    rows, kernels = [], dict[Any, Any]()
    for case in cases:
        rows.append(measured(case, kernels))
        print(json.dumps(rows[-1]), flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=0))
    print(summary(rows))
    return int(any(row["differs"] for row in rows))


def compared(case: Case, ours: Any = None) -> Agreement:
    """How what ours leaves behind agrees with what the plain kernel does, which runs twice."""
    launch = case.on("cuda")
    return agreed(launch, wspec.compile(launch.kernel, remarks="off") if ours is None else ours)


def agreed(launch: Launch, ours: Any) -> Agreement:
    """The same of a launch that was made ready."""
    before = _left(launch)
    found = []
    for kernel in (launch.kernel, launch.kernel, ours):
        for one in launch.outputs:
            one.zero_()
        launch(kernel)
        found.append(_left(launch))
    return together([agreement(*each) for each in zip(before, *found, strict=True)])


def _left(launch: Launch) -> list[torch.Tensor]:
    return [one.detach().clone().flatten() for one in launch.outputs]


def measured(case: Case, kernels: dict[Any, Any]) -> dict[str, Any]:
    launch = case.on("cuda")
    ours = kernels.setdefault(launch.kernel, wspec.compile(launch.kernel, remarks="off"))
    found = agreed(launch, ours)
    outcome = ours.outcome(*launch.arguments, grid=launch.grid, **launch.meta)
    for _ in range(WARM):
        launch(ours)
    ways = launch, partial(launch, ours)
    count = max(3, min(50, int(ROW_MS / _in_a_row(launch, 3))))
    graphs = [_graph(way) for way in ways]
    return {
        "case": str(case),
        "verdict": found.verdict,
        "differs": found.verdict not in SAME,
        "specialized": outcome.specialized,
        "reason": None if outcome.reason is None else outcome.reason.code,
        "us": round(1e3 * statistics.median(_in_a_row(launch, count) for _ in range(3)), 1),
        "in_a_row": _ratio(*(partial(_in_a_row, way, count) for way in ways)),
        "graph": _ratio(*(partial(_in_a_row, graph.replay, 2) for graph in graphs)),
        "host_us": [round(_host_us(way), 1) for way in ways],
    }


def _ratio(plain: Callable[[], float], ours: Callable[[], float]) -> float:
    """The median of ratios within rounds, in which they take turns."""
    found = []
    for at in range(ROUNDS):
        first, second = (plain, ours) if at % 2 else (ours, plain)
        times = {first: first(), second: second()}
        found.append(times[plain] / times[ours])
    return round(statistics.median(found), 3)


def _in_a_row(launch: Callable[[], None], count: int) -> float:
    """Milliseconds a launch, of so many behind each other."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        launch()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / count


def _graph(launch: Callable[[], None]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(4):
            launch()
    return graph


def _host_us(launch: Callable[[], None], rounds: int = 5, count: int = 20) -> float:
    """The least of some rounds: what else a host does comes on top."""
    found = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            launch()
        found.append((time.perf_counter() - start) / count * 1e6)
    torch.cuda.synchronize()
    return min(found)


def summary(rows: list[dict[str, Any]]) -> str:
    verdicts = ", ".join(f"{count} {name}" for name, count in Counter(row["verdict"] for row in rows).items())
    parts = [f"{len(rows)} launches: {verdicts}"]
    for name in ("in_a_row", "graph"):
        found = [row[name] for row in rows]
        parts.append(
            f"{name}: geometric mean {statistics.geometric_mean(found):.3f}, least {min(found)}, below 0.98 "
            f"{sum(one < 0.98 for one in found)}, at 1.05 or more {sum(one >= 1.05 for one in found)}"
        )
    host = [ours / plain for plain, ours in (row["host_us"] for row in rows)]
    parts.append(f"host: median of ratios {statistics.median(host):.3f}")
    return "; ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
