"""How other libraries' own tests are judged, with WSPEC=1 and without it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.outside.suites import suites_plugin
from tests.outside.suites.__main__ import Row, farthest, summary, told

NAN = float("nan")


def marks(*values: float) -> list[tuple[str, torch.Tensor]]:
    return [suites_plugin.mark(torch.tensor([value, 1.0])) for value in values]


def test_what_tests_compare_is_compared_by_its_bits_first() -> None:
    assert farthest(marks(1.0, NAN), marks(1.0, NAN)) == 0.0
    assert 0 < farthest(marks(1.0, 2.0), marks(1.0, 2.001)) < 1e-3
    assert farthest(marks(1.0, 2.0), marks(1.0, 3.0)) > 0.1
    for other in (marks(NAN, 2.0), marks(1.0)):
        assert not farthest(marks(1.0, 2.0), other) <= 1


def row(before: str, ours: str, after: str, far: float = 0.0) -> Row:
    kernels = [{"kernel": "k", "specialized": True, "reason": ""}, {"kernel": "l", "specialized": False,
               "reason": "no-dot-loop: nothing"}]  # fmt: skip
    return Row("fla/f", tests={"t": {"before": before, "with": ours, "after": after}},
               far={"t": {"with": far, "after": 0.0}}, kernels=kernels)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (row("passed", "passed", "passed"), False),
        (row("failed: one thing", "failed: another", "failed: one thing"), False),
        (row("passed", "passed", "passed", 1e-3), False),
        (row("passed", "passed", "passed", 1e-2), True),
        (row("passed", "passed", "passed", NAN), True),
        (row("passed", "failed: so", "passed"), True),
        (row("passed", "passed", "failed: so"), True),
    ],
)
def test_what_is_wrong(found: Row, wrong: bool) -> None:
    assert bool(found.wrong) == wrong and ("DIFFERENT" in told(found)) == wrong


def test_what_is_told() -> None:
    one = row("passed", "passed", "passed", 1e-3)
    cut = Row("fla/g", failed={"with": "cut off"}, tests={"u": {"before": "passed"}})
    assert "0 of 1 equal to the bit; 1 of 2 kernels specialized" in told(one)
    said = summary([one, cut], 3)
    assert "2 of 3 files, 1 tests in all turns" in said and "cut off or failed: fla/g with" in said
    assert "left alone: no-dot-loop 1" in said and "farthest 1.0e-03 (t)" in said


def test_few_cases_of_each_test_run() -> None:
    names = [f"test_a[{kind}-{size}]" for kind in ("float32", "bfloat16") for size in range(5)]
    kept = suites_plugin.chosen([SimpleNamespace(nodeid=name) for name in names], 2)  # type: ignore[misc]
    assert [one.nodeid for one in kept] == ["test_a[bfloat16-0]", "test_a[bfloat16-3]"]
    assert len(suites_plugin.chosen([SimpleNamespace(nodeid="test_b")], 2)) == 1  # type: ignore[list-item]


def test_the_plugin_stands_alone() -> None:
    """Where `tests` is the library's own package nothing of ours can be imported."""
    text = Path(suites_plugin.__file__).read_text()
    assert "from tests" not in text and "import wspec" not in text
