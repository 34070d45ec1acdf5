"""Every rule, on a script that keeps it and on some that do not: the finding and its line.

Where every schedule can be tried (`oracle.py`), it is, and must agree.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

import pytest

from tests.check.cases import Case, cases
from tests.check.interleavings import TooMany
from tests.check.oracle import fault
from wspec.check import CODES, check
from wspec.ir.loc import file_loc

SCHEDULED = frozenset(("deadlock", "race", "unwritten", "missing-fence", "phase", "arrivals", "in-flight", "range"))
CASES = [pytest.param(case, id=case.name) for case in cases()]


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_is_what_the_marks_say(case: Case) -> None:
    report = check(case.module(), limit_s=5)
    found = set()
    for one in report.findings:
        place = file_loc(one.location)
        assert place is not None, one
        found.add((one.kind, one.code, place.line))
    assert found >= case.marks if case.more else found == case.marks, f"{case.title}\n{report}"


def _arguments(case: Case) -> Iterator[dict[str, int]]:
    """Small values of the arguments that matter; none when they come from memory."""
    given = re.search(r"^# with (\w+) = (\d+)$", case.text, re.M)
    if given is not None:
        yield {given[1]: int(given[2])}
        return
    function = ast.parse(case.text).body[0]
    assert isinstance(function, ast.FunctionDef)
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    names = [argument.arg for argument in function.args.args if argument.arg in used]
    step = 64 if "n, 64)" in case.text or "n + 1, 64)" in case.text else 1
    for values in itertools.product(range(5), repeat=len(names)):
        yield {name: value * step for name, value in zip(names, values, strict=True)}


@pytest.mark.parametrize("case", CASES)
def test_every_schedule_agrees(case: Case) -> None:
    """A script that is proved has no fault in any schedule, one with an error has some."""
    if any(code not in SCHEDULED for _, code, _ in case.marks):
        return
    try:
        found = [fault(case.text, arguments, 20_000) for arguments in _arguments(case)]
    except (ValueError, TooMany):
        return
    assert any(found) == (bool(case.marks) and not case.right), (case.title, found)


def test_every_code_has_a_case() -> None:
    marked = {code for case in cases() for _, code, _ in case.marks}
    assert set(CODES) - marked == {"too-many-states", "unknown-memory"}
