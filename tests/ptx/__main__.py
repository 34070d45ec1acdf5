"""`python -m tests.ptx`: break the PTX of every shipped variant, and see what is said of it. Half an hour.

Ends with 1 when what wspec makes is refused, or an edit that is wrong, or a mutant is accepted that is not of a kind
whose acceptance is explained in docs/results/mutants.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.ptx.judge import judged, judged_order
from tests.ptx.shipped_ptx import pair, variants
from wspec.bridge.ptx.shown import shown

EVERY = 5  # of the mutants of what LLVM wrote, one in so many is looked at
PARTS = 8  # of each variant, where there are more than two processes
BEGIN, END = "<!-- ptx: begin -->", "<!-- ptx: end -->"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ptx", description=__doc__)
    parser.add_argument("--only", default="", help="variants with this in their name")
    parser.add_argument("--report", type=Path, help="Markdown to write between the markers of")
    parser.add_argument("--step", type=int, default=1, help="only every mutant of so many is looked at")
    parser.add_argument("--first", type=int, default=0, help="the first of them, below STEP: a share of its own")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    options = parser.parse_args(words)
    if not 0 <= options.first < options.step:
        parser.error("--first must be below --step")
    chosen = [one for one in variants() if options.only in " ".join(one)]
    counts: Counter[tuple[str, str]] = Counter()
    bad, kernels, longest = [], 0, 0.0
    parts = range(PARTS if options.jobs > 2 else 1)
    tasks = [_Task(one, options.step, options.first, part, len(parts)) for one in chosen for part in parts]
    with ProcessPoolExecutor(options.jobs) as pool:
        for task, found in zip(tasks, pool.map(_done, tasks), strict=True):
            if found is not None:
                if task.part == 0:
                    print(found.said, flush=True)
                    kernels += 1
                longest = max(longest, found.seconds)
                counts.update(found.counts)
                bad += found.bad
    command = " ".join(["python -m tests.ptx", *(sys.argv[1:] if words is None else words)])
    text = _table(command, counts, kernels, longest)
    print(text)
    print("\n".join(bad))
    if options.report is not None:
        document = options.report.read_text()
        head, _, rest = document.partition(BEGIN)
        tail = rest.partition(END)[2]
        options.report.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}")
    return 1 if bad else 0


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Of a variant."""

    said: str
    seconds: float  # of processor time, for the PTX as it is
    counts: Counter[tuple[str, str]]
    bad: list[str]


@dataclass(frozen=True, slots=True)
class _Task:
    """A variant's mutants from `first` on, one of every `step`; of these, one of every `parts`."""

    variant: tuple[str, str]
    step: int
    first: int
    part: int
    parts: int

    def share(self, every: int) -> tuple[int, int]:
        """(step, first) of those of which only one in `every` is looked at."""
        step = every * self.step
        return step * self.parts, self.first + step * self.part


def _done(task: _Task) -> _Outcome | None:
    """None of a kernel that is left alone."""
    found = pair(*task.variant)
    if found is None:
        return None
    name, counts = " ".join(task.variant), Counter[tuple[str, str]]()
    begin = time.process_time()
    said = shown(found.final, found.emitted, found.edited, found.constant)
    seconds = time.process_time() - begin
    bad = [f"{name}: refused as it is: {said.refusal}"] if said.refusal else []
    for one in (*judged(found, *task.share(1)), *judged_order(found, *task.share(EVERY))):
        counts[one.operator, one.verdict] += 1
        bad += [f"{name}: {one.operator}: {one.what}"] if one.verdict == "unexplained" else []
    return _Outcome(f"{name}: {said.summary} {said.refusal} ({seconds:.2f} s)", seconds, counts, bad)


def _table(command: str, counts: Counter[tuple[str, str]], kernels: int, longest: float) -> str:
    verdicts = ("refused", "equivalent", "unexplained")
    lines = [
        f"`{command}`, {datetime.date.today()}: {sum(counts.values())} "
        f"mutants of {kernels} variants; as they are, all are accepted unless said otherwise, the longest in "
        f"{longest:.2f} s of processor time.",
        "",
        f"| operator | mutants | {' | '.join(verdicts)} |",
        "|---|---:|---:|---:|---:|",
    ]
    for operator in dict.fromkeys(operator for operator, _ in counts):
        row = [counts[operator, verdict] for verdict in verdicts]
        lines.append(f"| {operator} | {sum(row)} | {' | '.join(map(str, row))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
