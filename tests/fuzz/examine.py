"""A case in a process of its own, which may crash or hang: what became of it all the same."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from tests.fuzz.case import Case
from tests.fuzz.compiling import Compiling
from tests.fuzz.findings import Finding, Verdict
from tests.fuzz.isolated import Died, isolated
from tests.fuzz.judge import MARK, judge
from wspec import bridge

SECONDS = 60.0  # for one kernel


def examine(case: Case, folder: Path, seconds: float = SECONDS) -> Verdict:
    """The verdict on the case; a process that dies is a finding of the stage it died in."""

    def alone() -> Verdict:
        torch.set_num_threads(1)  # threads of the parent are not there any more
        return judge(case, folder)

    outcome = isolated(alone, seconds)
    if isinstance(outcome, Died):
        return Verdict(findings=[_finding(case, folder, outcome, seconds)])
    return outcome.value


def _finding(case: Case, folder: Path, died: Died, seconds: float) -> Finding:
    marks = re.findall(rf"^{MARK}(.*)$", died.output, re.MULTILINE)
    last = marks[-1] if marks else "the start"
    tail = re.sub(rf"^{MARK}.*\n", "", died.output, flags=re.MULTILINE)[-2000:]
    message = f"the process {died.why} in: {last}\n{_complaint(tail)}"
    if last == "front end":
        return Finding("front end", message)
    if last in ("the start", "reference"):
        return Finding("program", message)
    if last == "back end" and _plain_dies_too(case, folder, seconds):
        return Finding("plain back end", message)
    return Finding("crash", message)


def _plain_dies_too(case: Case, folder: Path, seconds: float) -> bool:
    """Does Triton's back end not take the plain module either?"""

    def finish() -> int:
        compiling = Compiling(case, folder)
        return len(bridge.finish(compiling.ttgir, compiling.source).cubin)

    return isinstance(isolated(finish, seconds), Died)


def _complaint(text: str) -> str:
    """The line with the assertion or the exception first, then everything."""
    lines = [line for line in text.splitlines() if re.search(r"Assertion|Error\b|error:", line)]
    return "\n".join([*lines[-1:], text])
