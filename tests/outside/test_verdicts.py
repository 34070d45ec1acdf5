"""The checker on kernels that wspec did not make, right and wrong; `python -m tests.outside` asks a GPU as well."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.outside.__main__ import expected
from tests.outside.build import ttgir
from tests.outside.cases import CASES
from tests.support.pinned import under_pinned
from tests.support.seldom import one_of
from wspec.check import Report, check
from wspec.ir import read
from wspec.ir.loc import UNKNOWN

LIMIT_S = 3.0


def _case(name: str) -> Any:
    """What Triton's own specialization makes is judged as 3.6 has it: later ones make something else of a kernel."""
    return pytest.param(name, marks=[under_pinned] if name.startswith("triton-ws-") else [])


each_case = pytest.mark.parametrize("name", one_of(2, [_case(name) for name in CASES]))


@functools.cache
def text_of(name: str) -> str:
    return ttgir(CASES[name].make("meta"))


@functools.cache
def report_of(name: str) -> Report:
    return check(read(text_of(name)), limit_s=LIMIT_S)


@each_case
def test_verdict(name: str) -> None:
    report = report_of(name)
    case = CASES[name]
    assert expected(case, report), f"expected {case.verdict} {sorted(case.codes)}\n{report}"


@pytest.mark.parametrize("name", [_case(name) for name, case in CASES.items() if case.verdict == "error"])
def test_an_error_has_a_place(name: str) -> None:
    assert all(one.location != UNKNOWN for one in report_of(name).errors)


@pytest.mark.parametrize("name", [name for name in CASES if "/" in name])
def test_a_fault_changes_the_kernel(name: str) -> None:
    """A misspelled fault would be the right kernel."""
    family = name.split("/")[0]
    right = [other for other in CASES if other == family or other.startswith(f"{family}-")]
    assert right and all(text_of(name) != text_of(other) for other in right)
