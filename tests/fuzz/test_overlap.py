"""A sample of `python -m tests.fuzz.overlap`, and that it would find a guard that is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fuzz import overlap
from tests.fuzz.overlap import Subject, Tally, examine, fuzzed, of_variant
from tests.support.goldens import ROOT
from wspec.cli.parser import make_parser
from wspec.ir.disjoint import NONE

NUMBERS = (105000003, 105000008, 105000021, 105000025)


def product() -> Subject:
    """A shipped matrix product on a small example."""
    place = f"{ROOT}/kernels/matmul.py:matmul_descriptor_kernel"
    args = make_parser().parse_args(["plan", place, "--variant", "bf16", "--gate", "off", "--persistent", "1"])
    (found,) = of_variant(args)
    return found


def test_a_shipped_kernel() -> None:
    tally = Tally()
    examine(product(), 1, 12, 2, tally)
    assert tally.wrong == [] and tally.counts["run plain"] > 2 and tally.counts["runs"] > 4


def test_without_its_guard_it_is_wrong() -> None:
    tally, found = Tally(), product()
    examine(replace(found, outcome=replace(found.outcome, disjoint=NONE)), 1, 12, 2, tally)
    assert len(tally.wrong) > 1 and tally.counts["run plain"] == 0


@pytest.mark.parametrize("number", NUMBERS)
def test_some_of_the_fuzzers(number: int, tmp_path: Path) -> None:
    tally, found = Tally(), fuzzed(number, tmp_path)
    if found is not None:
        examine(found, number, 3, 2, tally)
        assert tally.counts["layouts"] > 0
    assert tally.wrong == []


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert overlap.main(["--count", "1", "--layouts", "2", "--schedules", "1", "--no-shipped"]) == 0
    assert "fuzzed: 1 kernels, " in capsys.readouterr().out
