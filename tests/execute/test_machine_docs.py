"""The code in docs/executor.md does what it says."""

from __future__ import annotations

import doctest

from tests.support.goldens import ROOT


def test_code_blocks() -> None:
    failed, tried = doctest.testfile(str(ROOT / "docs" / "executor.md"), module_relative=False)
    assert tried > 5 and failed == 0
