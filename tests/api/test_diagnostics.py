"""How remarks read."""

from __future__ import annotations

from pathlib import Path

import pytest

from wspec.diagnostics import REASONS, Remark, WspecError, from_json, render, to_json
from wspec.ir.loc import CallSiteLoc, FileLoc, NameLoc

SOURCE = """\
import triton

@triton.jit
def kernel(a_desc):
    k = a_desc.load([0])

class Box:
    @triton.jit
    def method(x):
        return x + 1
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "attention.py"
    path.write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return str(path)


def test_header_source_path_and_note(file: str) -> None:
    remark = Remark(
        "not-partitionable",
        "tasks 'load' and 'mma' wait for each other forever",
        NameLoc("k", FileLoc(file, 5, 8)),
        path=(
            ("mma   waits for full[K].0 phase 0", FileLoc(file, 5, 4)),
            ("load  arrives on it only after empty[K].0", FileLoc(file, 4, 0)),
            ("nobody knows where", NameLoc("x", None)),
        ),
        note="a producer's first wait must ask for phase 1",
        severity="error",
    )
    assert render(remark).split("\n") == [
        "attention.py:5:9: error: tasks 'load' and 'mma' wait for each other forever [not-partitionable]",
        "      k = a_desc.load([0])",
        "          ^~~~~~",
        "  mma   waits for full[K].0 phase 0          attention.py:5",
        "  load  arrives on it only after empty[K].0  attention.py:4",
        "  nobody knows where",
        "note: a producer's first wait must ask for phase 1",
    ]
    assert "a_desc.load" not in render(remark, context=False)


def test_no_location() -> None:
    assert render(Remark("disabled", "off")) == "remark: off [disabled]"


def test_tabs_keep_the_caret_in_place(tmp_path: Path) -> None:
    path = tmp_path / "tabs.py"
    path.write_text("def f(k):\n\tq = k\n")
    assert render(Remark("no-loop", "m", FileLoc(str(path), 2, 5))).split("\n")[1:] == ["  \tq = k", "  \t    ^"]


def test_columns_of_nested_functions_are_those_of_the_file(file: str) -> None:
    """Triton dedents a method before it counts columns."""
    text = render(Remark("no-loop", "m", FileLoc(file, 10, 11)))
    assert text.split("\n") == [
        "attention.py:10:16: remark: m [no-loop]",
        "          return x + 1",
        "                 ^",
    ]


def test_an_inlined_call_is_shown_where_the_kernel_calls(file: str) -> None:
    location = CallSiteLoc(FileLoc("/lib/standard.py", 100, 2), FileLoc(file, 5, 4))
    assert render(Remark("no-loop", "m", location)).startswith("attention.py:5:5: ")


def test_a_file_that_is_gone_and_a_line_that_is_not_there(file: str) -> None:
    assert render(Remark("no-loop", "m", FileLoc("/nowhere/a.py", 3, 1))) == "/nowhere/a.py:3:2: remark: m [no-loop]"
    assert render(Remark("no-loop", "m", FileLoc(file, 999, 1))) == "attention.py:999:2: remark: m [no-loop]"


def test_codes_and_severities_are_checked() -> None:
    with pytest.raises(ValueError, match="unknown reason code 'nonsense'"):
        Remark("nonsense", "m")
    with pytest.raises(ValueError, match="unknown severity 'fatal'"):
        Remark("no-loop", "m", severity="fatal")


def test_json_round_trip(file: str) -> None:
    remark = Remark("registers", "m", FileLoc(file, 5, 4), (("a", FileLoc(file, 1, 0)),), "note", "warning")
    assert from_json(to_json(remark)) == remark
    assert from_json(to_json(Remark("disabled", "m"))) == Remark("disabled", "m")
    named = Remark("no-loop", "m", NameLoc("k", FileLoc(file, 5, 4)))
    assert from_json(to_json(named)).location == FileLoc(file, 5, 4)


def test_the_error_reads_like_the_remark() -> None:
    assert str(WspecError(Remark("no-loop", "m", severity="error"))) == "error: m [no-loop]"


def test_reasons_are_one_line_each() -> None:
    assert all(("\n" not in text and text[0].islower()) or text.startswith("Triton") for text in REASONS.values())
