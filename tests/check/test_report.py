"""The checker's entry: what a report holds, and what it says to a person."""

from __future__ import annotations

import textwrap

import pytest

from tests.check.script import kernel
from wspec.check import CODES, Finding, check
from wspec.diagnostics import place_text
from wspec.ir import print_module, read

RING = """def kernel(n):
    tile, full, empty = buffer(2, 64, 64), barriers(2), barriers(2)
    with specialize():
        with task(4):
            for i in range(0, n, 1):
                wait(full[i % 2], i // 2 & 1)
                load(tile[i % 2])
                fence()
                arrive(empty[i % 2])
        with task(1):
            for i in range(0, n, 1):
                wait(empty[i % 2], i // 2 + 1 & 1)
                expect(full[i % 2], 8192)
                copy(tile[i % 2], full[i % 2])
"""
RIGHT = "wait(empty[i % 2], i // 2 + 1 & 1)"


def test_a_right_kernel() -> None:
    report = check(kernel(RING))
    assert report.ok and report.findings == () == report.errors == report.undecided
    assert len(report.tasks) == 2
    assert (report.barriers, report.buffers) == (4, 2)
    assert report.states > 0 and report.events > 0
    assert str(report) == report.summary()
    assert report.summary().startswith("proved: no deadlock and no race, for any trip count (2 tasks, 4 barriers, ")


def test_a_wrong_kernel() -> None:
    report = check(kernel(RING.replace(RIGHT, "wait(empty[i % 2], i // 2 & 1)"), "ring.py"))
    assert not report.ok
    (error,) = report.errors
    assert (error.kind, error.code, place_text(error.location)) == ("error", "deadlock", "ring.py:6")
    assert "wait for each other forever (deadlock)" in str(report)
    assert report.summary().startswith("1 error, 0 undecided")
    assert "a producer's first wait must ask for phase 1" in error.note
    assert any("arrives on it here" in text for text, _ in error.path)


def test_a_search_that_is_given_up_is_not_a_proof() -> None:
    report = check(kernel(RING), limit_s=0.0)
    assert [one.code for one in report.undecided] == ["too-many-states"]
    assert not report.ok and not report.errors
    assert report.summary().startswith("not proved, 1 undecided")


def test_the_module_is_left_as_it_is() -> None:
    module = kernel(RING)
    before = print_module(module)
    check(module)
    assert print_module(module) == before


def test_nothing_to_check() -> None:
    assert check(read('"builtin.module"() ({}) : () -> ()')).ok


def test_blocks_that_jump_are_undecided() -> None:
    text = """
    "builtin.module"() ({
      "tt.func"() <{function_type = () -> (), sym_name = "f"}> ({
        "cf.br"()[^bb1] : () -> ()
      ^bb1:
        "tt.return"() : () -> ()
      }) : () -> ()
    }) : () -> ()
    """
    report = check(read(textwrap.dedent(text)))
    assert [one.code for one in report.undecided] == ["unknown-control-flow"]


def test_every_function_is_checked() -> None:
    module, other = kernel(RING), kernel(RING.replace(RIGHT, "wait(empty[i % 2], i // 2 & 1)"))
    module.regions[0].block.append(other.regions[0].block.ops[0])
    report = check(module)
    assert [one.code for one in report.errors] == ["deadlock"]
    assert len(report.tasks) == 4


def test_codes_have_a_meaning() -> None:
    assert all(text and not text.endswith(".") for text in CODES.values())
    with pytest.raises(ValueError, match="unknown finding"):
        Finding("error", "something", "is wrong")
