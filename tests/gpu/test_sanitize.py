"""What needs no GPU of `python -m tests.gpu.sanitize`: reading the tools, drawing problems, endurance's bookkeeping."""

from __future__ import annotations

import random
import sys

import pytest
import torch

from tests.gpu import consan, endurance, sanitize, subjects, tools
from wspec.bridge import compile as compiling

MEMCHECK = """========= COMPUTE-SANITIZER
numbers: worst relative error 3.0e-03
========= Invalid __global__ write of size 4 bytes
=========     at attention_fwd+0x1230
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at gemm+0x10 and Read access at gemm+0x40 [8 hazards]
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""


def test_problems_are_counted_and_the_first_are_quoted() -> None:
    said = tools.read("memcheck", MEMCHECK, tools.FOUND, 1.0)
    assert (said.problems, said.fine) == (3, False)
    assert said.first == ("Invalid __global__ write of size 4 bytes",)
    assert said.numbers == "numbers: worst relative error 3.0e-03"
    assert tools.read("racecheck", RACECHECK, tools.FOUND, 1.0).problems == 2


def test_a_clean_run_is_fine_only_if_the_child_is() -> None:
    text = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
    assert tools.read("memcheck", text, 0, 1.0).fine
    assert not tools.read("memcheck", text, 1, 1.0).fine


@pytest.mark.parametrize("code", [None, 139])
def test_no_summary_is_not_fine(code: int | None) -> None:
    said = tools.read("synccheck", "========= COMPUTE-SANITIZER\n========= Error: Device not supported\n", code, 1.0)
    assert said.problems is None and not said.fine
    assert "Device not supported" in said.summary


def test_a_child_is_run_and_stopped() -> None:
    said = tools.alone(["-c", "print('numbers: 7')"], 60.0)
    assert (said.exit_code, said.numbers) == (0, "numbers: 7")
    slow = tools.alone(["-c", "import time; print('numbers: 8', flush=True); time.sleep(60)"], 2.0)
    assert slow.exit_code is None and slow.numbers == "numbers: 8"


def test_the_sanitizer_is_asked_for_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def output(command: list[str], timeout_s: float) -> tuple[str, int, float]:
        asked.append(command)
        return "", 0, 0.0

    monkeypatch.setattr(tools, "_output", output)
    tools.run("/cs", "memcheck", ["-m", "child"], 1.0)
    assert asked == [
        ["/cs", "--tool", "memcheck", "--error-exitcode", "86", "--print-limit", "20", sys.executable, "-m", "child"]
    ]


@pytest.mark.parametrize("subject", subjects.subjects(), ids=lambda subject: subject.name)
def test_problems_fit_their_pool_and_vary(subject: subjects.Subject) -> None:
    pool, draw = subjects.Pool("cpu", 1 << 20), random.Random(0)
    problems = [subject.draw(pool, draw, sanitize.SMALL) for _ in range(20)]
    assert len({problem.sizes for problem in problems}) > 10
    small = min(problems, key=lambda problem: problem.out.numel())
    assert small.expected("cpu").shape == small.out.shape


def test_what_consan_runs_exists() -> None:
    assert set(sanitize.CONSAN) <= {subject.name for subject in subjects.subjects()}
    from tests.outside.cases import CASES

    assert set(sanitize.CONTROLS) <= set(CASES)


def test_wrong_numbers_are_told() -> None:
    """A result that is off, and one that differs the second time."""
    out, runs, bad = torch.ones(4, 4), iter((2.0, 3.0)), list[str]()

    def run() -> None:
        out.fill_(next(runs))

    problem = subjects.Problem("M=4", run, out, lambda device: torch.ones(4, 4))
    problem.run()
    assert endurance.compare(problem, bad, "cpu") == pytest.approx(1.0)
    assert len(bad) == 2 and all("M=4" in text for text in bad)


def test_the_list_needs_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert sanitize.main(["--list", "--only", "causal"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(subjects.ATTENTION)


def test_instrumented_ptx_is_not_held_against_the_ttgir() -> None:
    """It has assertions that the TTGIR does not have: kernels would be left alone, and nothing of ours looked at."""
    before = compiling.rule_ptx
    with consan.instrumented():
        assert compiling.rule_ptx is not before
    assert compiling.rule_ptx is before
