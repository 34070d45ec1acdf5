"""The examples of docs/findings.md are what the checker says of the scripts under `cases/`."""

from __future__ import annotations

import re

import pytest

from tests.check.cases import ROOT, cases
from tests.support.goldens import assert_golden
from wspec.check import CODES, check

DOCUMENT = ROOT / "docs" / "findings.md"
BLOCK = re.compile(r"<!-- finding ([\w-]+) of ([\w-]+) -->\n```text\n.*?```", re.S)


def _fresh(match: re.Match[str]) -> str:
    code, name = match[1], match[2]
    case = next(one for one in cases() if one.name == name)
    finding = next(one for one in check(case.module()).findings if one.code == code)
    text = "".join(f"{line.rstrip()}\n" for line in str(finding).splitlines())
    return f"<!-- finding {code} of {name} -->\n```text\n{text}```"


def test_examples(monkeypatch: pytest.MonkeyPatch, update: bool) -> None:
    monkeypatch.chdir(ROOT)  # messages show lines of files
    assert_golden(DOCUMENT, BLOCK.sub(_fresh, DOCUMENT.read_text()), update)


def test_every_code_has_an_example() -> None:
    shown = {match[1] for match in BLOCK.finditer(DOCUMENT.read_text())}
    assert set(CODES) - shown == {"too-many-states", "unknown-memory"}
