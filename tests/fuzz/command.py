"""The command line of the fuzzer: random kernels through the compiler, the checker and the executor."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tests.fuzz.campaign import Plan, run
from tests.fuzz.examine import SECONDS, examine
from tests.fuzz.kept import Kept, open_signatures
from tests.fuzz.report import WIDTH, Report, show_verdict
from tests.fuzz.trial import Limits, made_small, try_number

EVERY = 25  # kernels from one line, and one writing of the report, to the next


def parser() -> argparse.ArgumentParser:
    about = "Random kernels through the compiler, the checker and the executor. See docs/fuzzing.md."
    made = argparse.ArgumentParser(prog="python -m tests.fuzz", description=about)
    made.add_argument("--count", type=int, default=200, help="kernels to try (default 200)")
    made.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    made.add_argument("--seed", type=int, default=0, help="another seed gives other kernels (default 0)")
    made.add_argument("--jobs", type=int, default=1, help="worker processes (default 1)")
    made.add_argument("--report", type=Path, help="write what was seen to this file, as JSON")
    made.add_argument("--keep", type=Path, help="write cases that fail to files in this folder")
    made.add_argument("--limit", type=float, default=SECONDS, help="seconds a kernel may take")
    made.add_argument("--shrink", type=float, default=90.0, help="seconds to make a failing case small; 0: not at all")
    made.add_argument("--kernel", type=int, nargs="+", help="try the kernels with these numbers only, and show them")
    made.add_argument("--replay", type=Path, nargs="+", help="try the cases in these files only, and show them")
    return made


def main(arguments: list[str] | None = None) -> int:
    """The exit status is 1 if something is wrong with wspec, its checker or its executor."""
    given = parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="wspec-fuzz-") as folder:
        os.environ.setdefault("TRITON_CACHE_DIR", str(Path(folder, "triton-cache")))
        if given.kernel or given.replay:
            return _show(given, Path(folder))
    limits = Limits(given.limit, given.shrink)
    keep = given.keep or (given.report.with_suffix(".failures") if given.report else None)
    plan = Plan(given.seed, given.count, given.seconds, given.jobs, keep, limits, open_signatures())
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    report = _watched(plan, console, given.report)
    report.show(console)
    if given.report:
        report.write(given.report)
    return 1 if report.ours else 0


def _show(given: argparse.Namespace, folder: Path) -> int:
    """Single cases, with everything that is known of them. With --keep those that fail are made small and written."""
    console, bad = Console(width=None if sys.stdout.isatty() else WIDTH), False
    limits = Limits(given.limit, given.shrink if given.keep else 0.0)
    for number in given.kernel or ():
        trial = try_number(number, folder, limits=limits)
        show_verdict(trial.case, trial.verdict, console)
        bad |= any(finding.ours for finding in trial.verdict.findings)
        if trial.smallest is not None and given.keep:
            console.print(f"written to {Kept(*trial.smallest, number).save(given.keep)}", markup=False)
    for path in given.replay or ():
        one = Kept.load(path)
        verdict = examine(one.case, folder, given.limit)
        show_verdict(one.case, verdict, console)
        bad |= any(finding.ours for finding in verdict.findings)
        for finding in verdict.findings[:1] if given.keep else ():
            small = Kept(*made_small(one.case, finding, folder, limits), one.number)
            console.print(f"written to {small.save(given.keep)}", markup=False)
    return 1 if bad else 0


def _watched(plan: Plan, console: Console, path: Path | None) -> Report:
    """The run with a bar, or a line now and then. The bar is drawn by this thread: there must be no other."""
    columns = (TextColumn("{task.completed}/{task.total} kernels"), BarColumn(), TimeElapsedColumn())
    known: set[str] = set()
    with Progress(*columns, TextColumn("{task.description}"), console=console, auto_refresh=False) as progress:
        bar = progress.add_task("", total=plan.count)

        def seen(report: Report) -> None:
            for signature in report.known - known:
                known.add(signature)
                console.print(f"kernel {report.failures[signature].first}: {signature}", markup=False)
            text = f"{report.codes['specialized']} specialized, {report.totals['runs']} runs, {len(known)} findings"
            progress.update(bar, completed=report.kernels, description=text)
            progress.refresh()
            if report.kernels % EVERY == 0:
                if not console.is_terminal:
                    console.print(f"{report.kernels} kernels, {report.seconds:.0f} s: {text}")
                if path is not None:
                    report.write(path)

        return run(plan, seen)
