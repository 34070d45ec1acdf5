"""What the checker does when its time is over, and what a block may ask of the machine."""

from __future__ import annotations

import time

import pytest

from tests.check.script import kernel
from wspec.check import check
from wspec.ir.types import i32

ENDLESS = """
def kernel(n):
    tile, full, empty = buffer(2, 64, 64), barriers(2), barriers(2)
    with specialize():
        with task(4):
            c = 0
            for i in range(0, 400, 1):
                for j in range(0, 400, 1):
                    wait(full[c % 2], c // 2 & 1)
                    load(tile[c % 2])
                    fence()
                    arrive(empty[c % 2])
                    c = c + 1
        with task(1):
            c = 0
            for i in range(0, 400, 1):
                for j in range(0, 400, 1):
                    wait(empty[c % 2], c // 2 + 1 & 1)
                    expect(full[c % 2], 8192)
                    copy(tile[c % 2], full[c % 2])
                    c = c + 1
"""  # nothing to choose: the search never branches

TASKS = """
def kernel(n):
    with specialize(registers=(232, 152, 168, 168)):
        with task(4):
            pass
        with task(2):
            pass
        with task(8):
            pass
        with task(1):
            pass
        with task(1):
            pass
"""


def test_the_limit_holds_where_nothing_branches() -> None:
    start = time.thread_time()
    report = check(kernel(ENDLESS), limit_s=0.3)
    assert [one.code for one in report.findings] == ["too-many-states"]
    assert time.thread_time() - start < 1.0


@pytest.mark.parametrize(("limit", "right"), [(168, False), (136, False), (128, True), (121, True)])
def test_a_block_has_no_more_registers_than_an_sm(limit: int, right: bool) -> None:
    """16 warps; a thread gets a multiple of eight."""
    module = kernel(TASKS)
    module.attributes["ttg.maxnreg"] = i32(limit)
    errors = [one for one in check(module).errors if "threads with" in one.message]
    assert (errors == []) == right


def test_registers_of_a_kernel_without_tasks() -> None:
    module = kernel("def kernel(n):\n    pass", warps=16)
    module.attributes["ttg.maxnreg"] = i32(255)
    assert [one.code for one in check(module).errors] == ["registers"]
