"""`python -m tests.outside`: what the checker says of every case, and what a GPU does with it.

Every kernel with a fault runs in a process of its own. Exits with 1 when a kernel the checker accepts does
not give right numbers, or a verdict is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.gpu import children
from tests.outside import card
from tests.outside.build import generic, ttgir
from tests.outside.cases import CASES, Case
from wspec.check import Report, check
from wspec.ir import read

CHECK_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    case: Case
    report: Report | None
    outcome: children.Outcome | None

    @property
    def verdict(self) -> str:
        return "-" if self.report is None else verdict(self.report)

    @property
    def codes(self) -> list[str]:
        return sorted({one.code for one in self.report.findings}) if self.report is not None else []

    @property
    def agreement(self) -> str:
        """agree, luck (wrong, though this card gave right numbers), open (undecided), or DISAGREE."""
        if self.outcome is None or self.outcome.kind == "refused" or self.report is None:
            return "-"
        right = self.outcome.kind == "right"
        if self.verdict == "ok":
            return "agree" if right else "DISAGREE"
        if self.verdict == "undecided":
            return "open"
        return "luck" if right else "agree"

    @property
    def expected(self) -> bool:
        return self.report is None or expected(self.case, self.report)

    def as_json(self) -> dict[str, Any]:
        findings = [str(one) for one in self.report.findings] if self.report is not None else []
        outcome = {} if self.outcome is None else asdict(self.outcome)
        outcome.pop("ttgir", None)
        wanted = {"verdict": self.case.verdict, "codes": sorted(self.case.codes), "card": self.case.card}
        seconds = self.report.seconds if self.report is not None else None
        return {
            "name": self.case.name, "verdict": self.verdict, "codes": self.codes, "check_seconds": seconds,
            "expected": wanted, "as_expected": self.expected, "card": outcome, "agreement": self.agreement,
            "findings": findings,
        }  # fmt: skip


def verdict(report: Report) -> str:
    """ok, error or undecided."""
    return "ok" if report.ok else "error" if report.errors else "undecided"


def expected(case: Case, report: Report) -> bool:
    """Whether the verdict is the expected one, for one of the expected reasons."""
    named = report.errors if case.verdict == "error" else report.findings
    return verdict(report) == case.verdict and (not case.codes or bool({one.code for one in named} & case.codes))


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    names = [name for name in CASES if re.search(options.only, name)]
    if not options.no_card and (reason := card.probe()):
        print(f"error: {reason}; --no-card runs only the checker", file=sys.stderr)
        return 2
    start = time.monotonic()
    outcomes: dict[str, children.Outcome] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(options.logs or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if not options.no_card:
            for outcome in children.run_all(
                groups(names), options.launches, options.timeout, options.jobs, folder, card.in_child
            ):
                outcomes[outcome.name] = outcome
                passed = time.monotonic() - start
                print(f"[{passed:5.0f} s] {outcome.name}: {outcome.kind} {outcome.message}", flush=True)
    rows = [Row(CASES[name], judge(CASES[name], outcomes.get(name)), outcomes.get(name)) for name in names]
    print(table(rows))
    bad = [row for row in rows if row.agreement == "DISAGREE" or not row.expected]
    _summary(rows, bad, time.monotonic() - start)
    if options.json is not None:
        from wspec.lab.bench.environment import environment  # asks CUDA, which children would inherit

        value = {"environment": environment(), "launches": options.launches, "cases": [row.as_json() for row in rows]}
        Path(options.json).write_text(json.dumps(value, indent=1, allow_nan=True) + "\n")
    return 1 if bad else 0


def groups(names: list[str]) -> list[list[str]]:
    """Each kernel with a fault by itself, the others in groups of ten; hangs first, since they take longest."""
    alone = sorted((name for name in names if "/" in name), key=lambda name: CASES[name].card != "hang")
    others = [name for name in names if "/" not in name]
    return [*([name] for name in alone), *(others[at : at + 10] for at in range(0, len(others), 10))]


def judge(case: Case, outcome: children.Outcome | None) -> Report:
    """The checker's report on the TTGIR that ran, or, when nothing ran, on what would be compiled."""
    text = generic(outcome.ttgir) if outcome is not None and outcome.ttgir else ttgir(case.make("meta"))
    return check(read(text), limit_s=CHECK_LIMIT_S)


def table(rows: list[Row]) -> str:
    lines = [("case", "verdict", "because of", "card", "launches", "expected card", "agreement")]
    for row in rows:
        outcome = row.outcome
        did: str = outcome.kind if outcome is not None else "-"
        count = "" if outcome is None or not outcome.launches else f"{outcome.launches}"
        if outcome is not None and (outcome.wrong or outcome.nan):
            did = f"{outcome.wrong} wrong, {outcome.nan} nan"
        mark = "" if row.expected else " (verdict not expected)"
        lines.append((row.case.name, row.verdict, " ".join(row.codes), did, count, row.case.card, row.agreement + mark))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines)


def _summary(rows: list[Row], bad: list[Row], seconds: float) -> None:
    counts = {word: sum(row.agreement == word for row in rows) for word in ("agree", "luck", "open", "DISAGREE", "-")}
    print(", ".join(f"{count} {word}" for word, count in counts.items() if count), f"in {seconds:.0f} s")
    for row in bad:
        why = "the card does not agree" if row.agreement == "DISAGREE" else f"expected {row.case.verdict}"
        print(f"error: {row.case.name}: {row.verdict} {' '.join(row.codes)}: {why}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.outside", description=__doc__)
    parser.add_argument("--json", metavar="PATH", help="write everything there")
    parser.add_argument("--only", metavar="REGEX", default="", help="cases whose name matches")
    parser.add_argument("--launches", type=int, default=20, metavar="N", help="launches of each case (20)")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="S", help="seconds until launches hang (10)")
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="processes on the card at a time (4)")
    parser.add_argument("--logs", metavar="FOLDER", help="keep what the processes print")
    parser.add_argument("--no-card", action="store_true", help="only the checker; needs no GPU")
    return parser


if __name__ == "__main__":
    sys.exit(main())
