"""Judging: checkers that are wrong are found out, and reports say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants import judge as judging
from tests.mutants.__main__ import main
from tests.mutants.goldens import goldens
from tests.mutants.judge import Judge, Judgement, Verdict
from tests.mutants.mutate import mutants
from tests.mutants.running import Runner, corners, schedules
from tests.mutants.table import BEGIN, END, report, rows, survivors, undecided, with_section
from wspec.check import Report
from wspec.check.findings import Finding
from wspec.execute import adversarial
from wspec.ir.core import Operation
from wspec.ir.disjoint import EVERY, Disjoint

Checker = Callable[..., Report]
KERNEL = "gemm-64"


def accepts(module: Operation, limit_s: float = 0, disjoint: Disjoint = EVERY) -> Report:
    return Report(())


def refuses(module: Operation, limit_s: float = 0, disjoint: Disjoint = EVERY) -> Report:
    return Report((Finding("error", "deadlock", "never"),))


def doubts(module: Operation, limit_s: float = 0, disjoint: Disjoint = EVERY) -> Report:
    return Report((Finding("undecided", "too-many-states", "long"),))


def fails(module: Operation, limit_s: float = 0, disjoint: Disjoint = EVERY) -> Report:
    raise KeyError("oops")


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(goldens()[KERNEL], runs=8)


def judged(judge: Judge, name: str, checker: Checker, monkeypatch: pytest.MonkeyPatch) -> Judgement:
    monkeypatch.setattr(judging, "check", checker)
    operator = name.partition(".")[0]
    mutant = next(one for one in mutants(judge.module, [operator]) if one.name == name)
    return judge.judge(mutant)


@pytest.mark.parametrize(
    ("name", "checker", "verdict", "harmless"),
    [
        ("drop-arrive.0", accepts, "missed", False),  # a deadlock
        ("early-store.0", accepts, "missed", False),  # a fence that is missing
        ("double-wait.0", accepts, "equivalent", False),
        ("drop-arrive.1", accepts, "equivalent", False),  # nobody waits any more
        ("swap-tiles.0", accepts, "other values", False),
        ("warps.0", accepts, "unexplained", False),  # neither order nor values, and no rule
        ("early-release.4", accepts, "invalid", False),  # before the loop whose result it takes
        ("drop-arrive.0", refuses, "caught", False),
        ("double-wait.0", refuses, "caught", True),
        ("double-wait.0", doubts, "undecided", True),
        ("drop-arrive.0", doubts, "undecided", False),
        ("drop-arrive.0", fails, "crash", False),
    ],
)
def test_verdicts(
    judge: Judge, name: str, checker: Checker, verdict: str, harmless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judged(judge, name, checker, monkeypatch)
    assert (found.verdict, found.harmless) == (verdict, harmless)
    assert bool(found.reason) == (harmless or verdict in ("equivalent", "other values"))
    assert bool(found.codes) == (verdict in ("caught", "undecided"))


def test_schedules_differ() -> None:
    """In order, unkind to each of the tasks and to each copy, and at random in two ways."""
    names = [one.name for one in schedules(adversarial(2, 3), 40)]
    assert len(set(names)) == len(names) == 40
    unkind = [one.name for one in adversarial(2, 3)]
    assert names[0] == "first ready" and set(unkind) - {names[0]} <= set(names)
    assert {"random", "priorities"} <= {name.split()[0] for name in names}


def test_programs_at_the_ends_of_every_axis() -> None:
    assert corners((1,)) == [(0, 0, 0)]
    assert corners((5, 2)) == [(0, 0, 0), (0, 1, 0), (4, 0, 0), (4, 1, 0)]


def test_as_many_runs_as_asked_for() -> None:
    runner = Runner(goldens()[KERNEL])
    assert len(runner.launches) == 4, "no iteration, one, two and several"
    assert runner.observe(goldens()[KERNEL].module(), 60).runs == 60


def one(operator: str, number: int, verdict: Verdict, seen: str = "", reason: str = "") -> Judgement:
    """A judgement by hand; what is caught though there is a reason is harmless."""
    name, change, harmless = f"{operator}.{number}", "an.op (what)", verdict == "caught" and bool(reason)
    return Judgement(KERNEL, operator, name, 7, change, verdict, reason=reason, seen=seen, harmless=harmless)


SOME = [
    one("late-wait", 0, "caught"),
    one("drop-wait", 0, "caught"),
    one("drop-wait", 1, "missed", seen="fault: on fire"),
    one("drop-wait", 2, "caught", reason="A rule."),
    one("drop-wait", 3, "invalid"),
    one("drop-arrive", 0, "equivalent", reason="A reason."),
    one("drop-arrive", 1, "unexplained", seen="agrees in 9 runs"),
]


def test_rows_are_counts_in_the_order_of_the_operators() -> None:
    found = rows(SOME)
    assert [name for name, _ in found] == ["drop-arrive", "drop-wait", "late-wait", "all"]
    counts = dict(found)
    assert (counts["drop-wait"]["mutants"], counts["drop-wait"]["caught"]) == (3, 2), "what is invalid does not count"
    assert counts["drop-wait"]["harmless"] == 1
    assert (counts["all"]["mutants"], counts["all"]["missed"]) == (6, 1)


def test_what_is_undecided_is_told_by_findings() -> None:
    two = [replace(one("drop-wait", n, "undecided"), codes=("range", "phase", "range")) for n in (4, 5)]
    harmless = replace(one("drop-wait", 6, "undecided"), codes=("range",), harmless=True)
    assert undecided([*SOME, harmless, *two]) == [
        "- 2: drop-wait: phase, range; not known to be harmless",
        "- 1: drop-wait: range; harmless",
    ]


def test_survivors_are_told_worst_first() -> None:
    missed, unexplained = survivors(SOME)
    assert missed == f"- **missed** {KERNEL} drop-wait.1: an.op (what), line 7. fault: on fire"
    assert unexplained.startswith("- **unexplained**")


def test_a_report_goes_between_the_markers() -> None:
    section = report(SOME, "a command", "2000-01-01")
    assert "`a command`, 2000-01-01: 6 mutants of 1 kernels; 1 more changes left no valid IR." in section
    assert "| drop-wait | 3 | 2 | 0 | 0 | 0 | 0 | 1 | 1 |" in section
    assert "- 1: A reason." in section and "A rule." not in section
    document = f"# Head\n\n{BEGIN}\nold\n{END}\ntail\n"
    assert with_section(document, "new") == f"# Head\n\n{BEGIN}\n\nnew\n\n{END}\ntail\n"
    with pytest.raises(ValueError):
        with_section("no markers", "new")


def test_a_run_can_be_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was judged is not judged again, and is in the report."""
    kept, text = tmp_path / "kept.jsonl", tmp_path / "report.md"
    words = ["--kernels", KERNEL, "--schedules", "2", "--resume", str(kept), "--report", str(text)]
    assert main([*words, "--operators", "double-wait"]) == 0
    first = kept.read_text()
    monkeypatch.setattr(judging, "check", fails)
    assert main([*words, "--operators", "double-wait"]) == 0
    assert kept.read_text() == first
    assert main([*words, "--operators", "double-wait", "double-fence"]) == 1
    assert kept.read_text().startswith(first) and "| double-wait | 2 | 0 | 2 |" in text.read_text()
    assert "**crash** gemm-64 double-fence.0" in text.read_text()
