"""What every round trip asserts."""

from __future__ import annotations

import difflib

import pytest

from wspec import bridge
from wspec.ir import print_module, read
from wspec.ir.verify import verify


def assert_round_trips(text: str) -> None:
    """libtriton's generic `text` means the same to libtriton after our read and print, which are stable and valid."""
    module = read(text)
    assert [str(problem) for problem in verify(module)] == []
    printed = print_module(module)
    assert print_module(read(printed)) == printed
    assert print_module(read(print_module(module, names=True))) == printed
    again = bridge.generic_text(bridge.reparse(printed))
    if again != text:
        diff = difflib.unified_diff(text.splitlines(), again.splitlines(), "before", "after", lineterm="", n=1)
        pytest.fail("\n".join(line[:400] for line in list(diff)[:40]))
