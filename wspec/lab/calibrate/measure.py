"""All topics, each in a process of its own: one that hangs or faults is lost, the others are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from wspec.lab.calibrate.assemble import AssemblyError, assemble
from wspec.lab.calibrate.statistics import Spread
from wspec.lab.calibrate.topic import Topic

TIMEOUT_S = 180
Spreads = dict[str, dict[int, Spread]]
"""Quantity -> key of its table (0 for a single number) -> spread."""


@dataclass(slots=True)
class Results:
    """What was measured, and what was not and why; by topic."""

    spreads: dict[str, Spreads] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def calibrate(topics: Sequence[Topic], *, quick: bool, say: Callable[[str], None]) -> Results:
    """Measure. Kernels are assembled side by side first; nothing else runs while the card measures."""
    results = Results()
    with tempfile.TemporaryDirectory(prefix="wspec-calibrate-") as name:
        folder = Path(name)
        say("assembling")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [(topic, pool.submit(assemble, part, folder)) for topic in topics for part in topic.modules]
        for topic, job in jobs:
            error = job.exception()
            if isinstance(error, AssemblyError):
                results.failures[topic.name] = str(error)
            elif error is not None:
                raise error
        for topic in topics:
            if topic.name in results.failures:
                continue
            say(topic.name)
            try:
                results.spreads[topic.name] = _measure(topic, folder, quick)
            except (RuntimeError, ValueError) as failure:
                results.failures[topic.name] = str(failure)
    return results


def _measure(topic: Topic, folder: Path, quick: bool) -> Spreads:
    command = [sys.executable, "-m", "wspec.lab.calibrate.child", topic.name, str(folder), str(int(quick))]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"did not end within {TIMEOUT_S} s") from None
    if said.returncode != 0:
        last = said.stderr.strip().splitlines()
        raise RuntimeError(last[-1] if last else f"ended with {said.returncode}")
    found = json.loads(said.stdout)
    return {name: {int(key): Spread(**spread) for key, spread in table.items()} for name, table in found.items()}
