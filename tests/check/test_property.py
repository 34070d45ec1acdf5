"""Random programs: what the checker says, against every schedule of them for small arguments.

`proved` must mean that no schedule of any of them goes wrong, and an error that one does.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.check.interleavings import TooMany, Wrong
from tests.check.oracle import fault
from tests.check.programs import Pick, Program, make, make_signals, spoil
from tests.check.puzzles import Puzzle, reached
from tests.check.script import kernel
from wspec.check import Report, check

T = TypeVar("T")
LIMIT_S = 2.0
STATES = 10_000  # of one run, for every schedule


def _settings(examples: int) -> settings:
    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=slow)


@st.composite
def _picks(draw: st.DrawFn) -> Pick:
    """Chooses as hypothesis draws."""

    def pick(options: Sequence[T]) -> T:
        return draw(st.sampled_from(options))

    return pick


def _arguments(program: Program, most: int) -> Iterator[dict[str, int]]:
    body = "\n".join(program.lines[1:])
    ms = range(most + 1) if re.search(r"\bm\b", body) else (1,)
    ps = range(1 << min(most + 1, 3)) if ">>" in body else (0,)
    for n, m, p in itertools.product(range(most + 1), ms, ps):
        yield {"n": n, "m": m, "p": p}


def _fault(program: Program, most: int, states: int = STATES) -> tuple[Wrong, dict[str, int]] | None:
    """Something that goes wrong for arguments up to `most`; runs with too many schedules are passed over."""
    for arguments in _arguments(program, most):
        try:
            found = fault(program.text, arguments, states)
        except TooMany:
            continue
        if found is not None:
            return found, arguments
    return None


def _report(program: Program) -> Report:
    return check(kernel(program.text), limit_s=LIMIT_S)


def _told(program: Program, *more: object) -> str:
    return "\n".join(map(str, (program.text, *program.story, *more)))


@_settings(25)
@given(_picks())
def test_right_programs_are_proved(pick: Pick) -> None:
    program = make(pick)
    report = _report(program)
    assert {one.code for one in report.findings} <= {"too-many-states"}, _told(program, report)
    assert (found := _fault(program, 2)) is None, _told(program, found)


@_settings(40)
@given(_picks(), st.integers(1, 2))
def test_spoiled_programs_are_not_proved_unless_they_are_right(pick: Pick, faults: int) -> None:
    program = make(pick)
    for _ in range(faults):
        spoil(program, pick)
    try:
        report = _report(program)
    except SyntaxError:  # an operation was taken out of the loop that its operands come from
        return
    if report.ok:
        assert (found := _fault(program, 3)) is None, _told(program, found)


@_settings(50)
@given(_picks())
def test_signals_are_proved_when_they_are_right(pick: Pick) -> None:
    program = make_signals(pick)
    report = _report(program)
    if report.ok:
        assert (found := _fault(program, 2)) is None, _told(program, found)


@_settings(45)
@given(_picks())
def test_what_is_proved_is_not_reached(pick: Pick) -> None:
    puzzle = Puzzle(pick)
    report = check(kernel(puzzle.text), limit_s=LIMIT_S)
    if report.ok:
        assert (found := reached(puzzle.text, (0, 1, 2, 3, 4, 5, 6, 8, 9, -2, 13, -5, 21))) is None, (
            puzzle.text,
            found,
        )


@pytest.mark.parametrize(("maker", "count"), [(make, 30), (make_signals, 80)])
def test_errors_are_errors(maker: Callable[[Pick], Program], count: int) -> None:
    """Almost every error is seen in some schedule for small arguments; a few need larger ones, and an arrival that is
    harmless since nobody waits for it is refused."""
    errors, unseen = 0, []
    for seed in range(count):
        program = maker(random.Random(seed).choice)
        if maker is make:
            spoil(program, random.Random(-seed).choice)
        try:
            report = _report(program)
        except SyntaxError:
            continue
        if report.errors:
            errors += 1
            if _fault(program, 3) is None:
                unseen.append(_told(program, report))
    assert errors > 5
    assert len(unseen) <= count // 20, "\n\n".join(unseen)
