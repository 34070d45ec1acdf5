"""Golden files and CHECK lines."""

from __future__ import annotations

import difflib
import io
from contextlib import redirect_stderr
from pathlib import Path

from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts

ROOT = Path(__file__).parents[2]
COMMENT = "COM"


def assert_golden(path: Path, text: str, update: bool) -> None:
    """`text` is what the file says; with `update` it says so from now on."""
    if update:
        path.write_text(text)
        return
    expected = path.read_text()
    if text != expected:
        raise AssertionError(f"\n{_diff(path, expected, text)}\n{_command(path)}")


def _diff(path: Path, expected: str, text: str) -> str:
    names = (f"{_name(path)} (expected)", f"{_name(path)} (found)")
    return "\n".join(difflib.unified_diff(expected.splitlines(), text.splitlines(), *names, lineterm=""))


def _command(path: Path) -> str:
    folder = next((parent for parent in path.parents if parent.parent == ROOT / "tests"), None)
    return f"If the change is meant: pytest {_name(folder) if folder is not None else 'this test'} --update"


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def prefixes(checks: Path) -> list[str]:
    """The CHECK prefixes a file uses, e.g. SPLIT, in order of first use."""
    found = (line.removeprefix("//").strip().partition(":")[0] for line in checks.read_text().splitlines())
    names = (name.split("-")[0] for name in found if name.isupper())
    return [name for name in dict.fromkeys(names) if name != COMMENT]


def assert_matches(checks: Path, prefix: str, text: str) -> None:
    """`text` has what the lines of `checks` with this prefix ask for, as LLVM's FileCheck reads them."""
    options = Options(match_filename=_name(checks), check_prefixes=[prefix], comment_prefixes=[COMMENT])
    parser = Parser(options, io.StringIO(checks.read_text()), *pattern_for_opts(options))
    said = io.StringIO()
    with redirect_stderr(said):
        failed = Matcher(options, FInput("output", text), parser).run()
    if failed:
        raise AssertionError(f"{said.getvalue()}\nThe output was:\n{text}")
