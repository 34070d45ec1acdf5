"""docs/tour.md shows what the compiler really does: its excerpts are taken anew and compared."""

from __future__ import annotations

import contextlib
import functools
import io
import re

import pytest

from tests.docs.excerpts import excerpt, with_fresh_excerpts
from tests.support.goldens import ROOT, assert_golden
from wspec.cli import main

TOUR = ROOT / "docs" / "tour.md"
KERNEL = "docs/tour_kernel.py"
TEXT_COMMANDS = {"table": ["plan"], "explain": ["explain"], "binary": ["compile"]}
PLAIN_STAGES = ("plan", "ptx", "sass", "final")


@functools.cache
def source(name: str) -> str:
    """What an excerpt is taken from: the kernel, the output of a command, a diff `A-to-B`, or a stage in brief form."""
    if name == "source":
        return (ROOT / KERNEL).read_text()
    if name in TEXT_COMMANDS:
        return run(*TEXT_COMMANDS[name])
    if "-to-" in name:
        return run("dump", "--diff", *name.split("-to-"))
    return run("dump", "--stage", name, "--form", "generic" if name in PLAIN_STAGES else "brief")


def run(command: str, *flags: str) -> str:
    """Standard output of a command about the tour's kernel."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main([command, f"{KERNEL}:attend", *flags]) == 0
    return "".join(f"{line.rstrip()}\n" for line in said.getvalue().splitlines())


def test_excerpts(monkeypatch: pytest.MonkeyPatch, update: bool) -> None:
    monkeypatch.chdir(ROOT)
    assert_golden(TOUR, with_fresh_excerpts(TOUR.read_text(), source), update)


def test_every_stage_is_visited() -> None:
    from wspec.pipeline import PASSES

    text = TOUR.read_text()
    assert [one.__name__ for one in PASSES if f"## {one.__name__}" not in text] == []


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [(["b"], "b\n"), (["b", "c -> d"], "b\nc\nd\n"), (["b -> c", "e"], "b\nc\n...\ne\n"), (["a", "d"], "a\n...\nd\n")],
)
def test_excerpt(wanted: list[str], expected: str) -> None:
    assert excerpt("  a\n  b\n  c\n  d\n  e\n", wanted, "x") == expected


def test_a_line_that_is_gone() -> None:
    with pytest.raises(LookupError, match="excerpt x: no line holds 'z'"):
        excerpt("a\nb\n", ["z"], "x")


def test_paths_in_documents_exist() -> None:
    for document in (ROOT / "README.md", TOUR, ROOT / "docs" / "cli.md"):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name}: {link}"
