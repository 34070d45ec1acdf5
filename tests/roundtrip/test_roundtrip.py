"""libtriton prints the same generic text before and after our reading and printing."""

from __future__ import annotations

import pytest
import triton

from tests.roundtrip.cases import cases
from tests.roundtrip.check import assert_round_trips
from tests.roundtrip.stages import Case, dumps, text_of
from tests.support.seldom import one_of
from wspec.ir import print_module, read
from wspec.ir.verify import verify

MODULES = [pytest.param(case, stage, id=f"{case.name}-{stage}") for case in cases() for stage in case.stages]
SPECIALIZED = [pytest.param(case, id=case.name) for case in cases() if "specialized" in case.stages]


def test_there_are_at_least_a_hundred_modules() -> None:
    assert len(MODULES) >= 100


@pytest.mark.parametrize("case, stage", one_of(3, MODULES))
def test_round_trip(case: Case, stage: str) -> None:
    theirs = stage in ("cf", "llvm") or case.name.endswith("_ws")
    if theirs and not triton.__version__.startswith("3.6"):
        pytest.skip("made by Triton 3.6's own list of passes")
    assert_round_trips(text_of(case, stage))


@pytest.mark.parametrize("case", one_of(2, SPECIALIZED))
def test_dumps_between_passes_read_back(case: Case) -> None:
    """Modules with operations of our own, which libtriton cannot read."""
    for name, text in dumps(case).items():
        module = read(text)
        assert print_module(module) == text, name
        assert [str(problem) for problem in verify(module)] == [], name
