"""Attention of somebody else's file: how it is found and called, and what the table says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wspec.lab.bench.library_attention import attention_of, called, main, table
from wspec.lab.bench.timing import Timing

FILE = """
calls = []

def attention(q, k, v, causal, scale, split, late=None):
    calls.append((q, split, late))
    return calls
"""


def test_each_copy_of_a_file_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(FILE)
    one, other = (attention_of(tmp_path / "theirs.py", name) for name in ("one_copy", "other_copy"))
    run = called(one, "q", "k", "v", True, 1.0)
    assert run() == [("q", False, None)] * 2, "once to see whether it can be, with one switch off"
    assert called(other, "q", "k", "v", True, 1.0)() == [("q", False, None)] * 2


def test_what_cannot_be_called_says_so() -> None:
    def attention(q: Any, k: Any) -> Any:
        return q, k

    with pytest.raises(TypeError):
        called(attention, 1, 2, 3, True, 1.0)


def test_a_file_without_attention_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.py").write_text("x = 1")
    with pytest.raises(SystemExit, match="defines no attention"):
        attention_of(tmp_path / "other.py", "other_file")
    assert main([str(tmp_path / "none.py")]) == 2 and "no such file" in capsys.readouterr().err


def test_ratios_are_within_rounds() -> None:
    found = {
        "D=64 full S=1024": {"plain": Timing((20.0, 30.0)), "wspec": Timing((10.0, 10.0)), "FA3": Timing((9.0, 9.0))}
    }
    assert table(found).rows == (("D=64 full S=1024", "25.0", "10.0", "2.500", "0.900"),)
    del found["D=64 full S=1024"]["FA3"]
    assert table(found).rows[0][-1] == "-"
