"""The checker on every module that a test makes the compiler emit, for arguments that do not overlap."""

from __future__ import annotations

import functools

from tests.support.disjoint import all_apart
from wspec import bridge
from wspec.cli.subject import source_of
from wspec.ir import print_module, read
from wspec.ir.core import Operation
from wspec.proof import checked

LIMIT_S = 120.0  # of a machine that is busy


def assert_proved(module: Operation) -> None:
    """What becomes of it before it is compiled has no deadlock and no race. Raises AssertionError with the findings."""
    found = verdict(module)
    assert found == "", found


def verdict(module: Operation) -> str:
    """Nothing when it is proved, else what the checker says."""
    return _verdict(print_module(module))


@functools.cache
def _verdict(text: str) -> str:
    """Many tests emit the same module."""
    report = checked(module := read(bridge.final_ttgir(text, source_of(text))), LIMIT_S, disjoint=all_apart(module))
    return "" if report.ok else str(report)
