"""The record of a run: counts as they come in, a file for machines, a page for people."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.fuzz.case import Case
from tests.fuzz.data import grid, shape_of
from tests.fuzz.findings import Finding, Verdict
from tests.fuzz.kept import Kept
from tests.fuzz.printer import source
from tests.fuzz.trial import Trial

WIDTH = 140


@dataclass(slots=True)
class Failure:
    """A signature, how often it came up, and the smallest case that shows it."""

    count: int
    first: int  # the number of the kernel that showed it first
    case: Case
    finding: Finding
    file: str = ""


@dataclass(slots=True)
class Report:
    """What a run has seen."""

    seed: int
    kernels: int = 0
    seconds: float = 0.0  # of the run, by the clock
    codes: Counter[str] = field(default_factory=Counter)  # the compiler's reason codes
    checked: Counter[str] = field(default_factory=Counter)  # the checker's verdicts
    features: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)  # of the numbers of a verdict
    stages: Counter[str] = field(default_factory=Counter)  # seconds spent, by stage
    longest: tuple[float, int] = (0.0, 0)  # seconds of the slowest kernel, its number
    failures: dict[str, Failure] = field(default_factory=dict)  # signature -> what is wrong
    open: frozenset[str] = frozenset()  # signatures that are written down and not mended yet

    @property
    def known(self) -> frozenset[str]:
        """Signatures that need no more cases."""
        return self.open | frozenset(self.failures)

    @property
    def ours(self) -> dict[str, Failure]:
        """The failures that are wspec's, the checker's or the executor's, and that nobody has written down yet."""
        found = {signature: failure for signature, failure in self.failures.items() if failure.finding.ours}
        return {signature: failure for signature, failure in found.items() if signature not in self.open}

    def add(self, trial: Trial, keep: Path | None = None) -> None:
        """Count a trial; cases that fail go to files in the folder `keep`."""
        verdict = trial.verdict
        self.kernels += 1
        self.codes[verdict.code or f"({verdict.findings[0].stage if verdict.findings else 'nothing'})"] += 1
        self.features.update(verdict.features)
        self.stages.update(verdict.seconds)
        self.longest = max(self.longest, (sum(verdict.seconds.values()), trial.number))
        if verdict.checked:
            self.checked[verdict.checked] += 1
        for name in ("runs", "compared", "promoted", "guarded", "unsure", "exact", "elements", "cubin"):
            self.totals[name] += int(getattr(verdict, name))
        for finding in verdict.findings:
            self._blame(trial, finding, keep)

    def _blame(self, trial: Trial, finding: Finding, keep: Path | None) -> None:
        signature = finding.signature
        if signature in self.failures:
            self.failures[signature].count += 1
            return
        case, shown = trial.case, finding
        if trial.smallest is not None and trial.smallest[1].signature == signature:
            case, shown = trial.smallest
        failure = Failure(1, trial.number, case, shown)
        self.failures[signature] = failure
        if keep is not None:
            failure.file = str(Kept(case, shown, trial.number).save(keep))

    # ---- for people and machines

    def to_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "kernels": self.kernels,
            "seconds": round(self.seconds, 1),
            "codes": dict(self.codes.most_common()),
            "checker": dict(self.checked.most_common()),
            "totals": dict(self.totals),
            "stage_seconds": {stage: round(seconds, 1) for stage, seconds in self.stages.most_common()},
            "longest": {"seconds": round(self.longest[0], 1), "kernel": self.longest[1]},
            "features": dict(self.features.most_common()),
            "failures": [self._failure_json(*item) for item in self.failures.items()],
        }

    def _failure_json(self, signature: str, failure: Failure) -> dict[str, Any]:
        return {
            "signature": signature,
            "stage": failure.finding.stage,
            "ours": failure.finding.ours,
            "count": failure.count,
            "kernel": failure.first,
            "message": failure.finding.message,
            "source": source(failure.case.program),
            "file": failure.file,
        }

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_json(), indent=1) + "\n")

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=WIDTH, color_system=None)
        with console.capture() as caught:
            self.show(console)
        return caught.get()

    def show(self, console: Console) -> None:
        """The summary."""
        total = self.totals
        each = self.seconds / self.kernels if self.kernels else 0.0
        console.print(f"{self.kernels} kernels in {self.seconds:.0f} s ({each:.2f} s each), seed {self.seed}")
        console.print(
            f"{total['runs']} runs of the executor, {total['compared']} specialized launches compared with the "
            f"reference ({total['unsure']} that rounding could decide), {total['elements']} elements, "
            f"{total['exact']} of them exactly; {total['cubin']} cubins; {total['promoted']} tiles through pointers "
            f"became a descriptor's, {total['guarded']} launches ran the plain kernel for it"
        )
        console.print(_counts("what became of the kernels", self.codes), _counts("checker", self.checked))
        console.print(_counts("seconds", Counter({name: round(value) for name, value in self.stages.items()})))
        for signature, failure in sorted(self.failures.items(), key=lambda item: -item[1].count):
            whose = " (known)" if signature in self.open else "" if failure.finding.ours else " (not wspec's)"
            console.print(f"\n{failure.count} x {signature}{whose}, first kernel {failure.first}", markup=False)
            console.print(f"  {reproduction(failure.file, failure.first)}", markup=False)
            console.print(_indented(source(failure.case.program)), markup=False, highlight=False)
            console.print(_indented(describe(failure.case)), markup=False, highlight=False)
            console.print(_indented(str(failure.finding)[:2000]), markup=False, highlight=False)


def _counts(title: str, counts: Counter[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, show_header=False)
    for name, count in counts.most_common():
        table.add_row(str(count), name)
    return table


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())


def describe(case: Case) -> str:
    """Options and launches in words."""
    lines = [f"num_warps={case.warps}, num_stages={case.stages}, {dict(case.options)}"]
    for launch in case.launches:
        kind = "whole" if launch.whole else "normal"
        lines.append(f"grid {grid(case.program, launch)}, seed {launch.seed}, {kind} numbers; {dict(launch.knobs)}")
        shapes = [f"{buffer.name} {list(shape_of(buffer, launch))}" for buffer in case.program.buffers]
        values = [f"{scalar.name}={scalar.value(launch.knobs)}" for scalar in case.program.scalars]
        lines.append("  " + ", ".join([*shapes, *values]))
    return "\n".join(lines)


def reproduction(file: str, number: int) -> str:
    """The command that shows it again."""
    return f"python -m tests.fuzz --replay {file}" if file else f"python -m tests.fuzz --kernel {number}"


def show_verdict(case: Case, verdict: Verdict, console: Console) -> None:
    """One case with everything that is known of it."""
    console.print(source(case.program), markup=False, highlight=False)
    console.print(describe(case), markup=False)
    console.print(f"{verdict.code}; checker: {verdict.checked or 'not asked'}; {verdict.runs} runs", markup=False)
    for finding in verdict.findings:
        console.print(str(finding), markup=False, highlight=False)
