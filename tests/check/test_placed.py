"""Scripts about shared memory where Triton puts it: the finding and its line."""

from __future__ import annotations

import pytest

from tests.check.cases import PLACED, Case, cases
from wspec.cli.child import placement
from wspec.ir.loc import file_loc
from wspec.proof import checked

CASES = [pytest.param(case, id=case.name) for case in cases(PLACED)]


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_is_what_the_marks_say(case: Case) -> None:
    if case.refused:
        pytest.skip("the installed Triton refuses it")
    report = checked(case.module(), 5.0, placing=placement)
    found = set()
    for one in report.findings:
        place = file_loc(one.location)
        assert place is not None, one
        found.add((one.kind, one.code, place.line))
    assert found >= case.marks if case.more else found == case.marks, f"{case.title}\n{report}"
