"""Making cases small."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import hand, trial
from tests.fuzz.case import Case
from tests.fuzz.findings import Finding, Verdict
from tests.fuzz.printer import source
from tests.fuzz.program import Dot, For, Program, Un, walk
from tests.fuzz.reduction import cuts, defined, reduced
from tests.fuzz.trial import Limits, draw, try_number


def has_exponential(case: Case) -> bool:
    """An exponential in a loop that also has a dot."""
    loops = [node for node in walk(case.program) if isinstance(node, For)]
    return any(
        any(isinstance(n, Un) and n.op == "exp2" for n in walk(loop)) and any(isinstance(n, Dot) for n in walk(loop))
        for loop in loops
    )


def test_cuts_are_smaller_and_mostly_meaningful() -> None:
    case = hand.case(hand.attention())
    found = list(cuts(case))
    size = len(case.to_json())
    assert all(len(other.to_json()) <= size for other in found)
    assert sum(defined(other.program) for other in found) > 10


def test_cuts_keep_what_is_wanted() -> None:
    small = reduced(hand.case(hand.attention()), has_exponential)
    assert has_exponential(small) and defined(small.program)
    assert len(small.launches) == 1
    assert len(source(small.program).splitlines()) <= 12, source(small.program)


def test_what_is_not_defined() -> None:
    program = hand.attention()
    assert defined(program)
    for at in range(6):
        cut = Program(
            program.knobs, program.grid, program.scalars, program.buffers, program.body[:at] + program.body[at + 1 :]
        )
        assert not defined(cut) or at == 5


def test_hypothesis_makes_them_smaller(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A fault that any exponential shows, in a kernel that has one among other things; other faults are kept apart."""
    number = next(n for n in range(50) if has_exponential(draw(n)) and len(source(draw(n).program).splitlines()) > 30)
    asked: list[Case] = []

    def examine(case: Case, folder: Path, seconds: float) -> Verdict:
        asked.append(case)
        stage = "specialized differs" if has_exponential(case) else "run"
        return Verdict("specialized", [Finding(stage, "a number is wrong")])

    monkeypatch.setattr(trial, "examine", examine)
    found = try_number(number, tmp_path, limits=Limits(shrinking=20.0))
    assert found.case == draw(number) and found.smallest is not None
    small, finding = found.smallest
    assert finding.stage == "specialized differs" and has_exponential(small)
    assert len(source(small.program).splitlines()) <= 14, source(small.program)

    asked.clear()
    again = try_number(number, tmp_path, frozenset({finding.signature}), Limits(shrinking=20.0))
    assert again.smallest is None and len(asked) == 1, "what is known is not made small again"
