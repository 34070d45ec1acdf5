"""The documents show what the compiler really does: their excerpts are taken anew and compared."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import tempfile
from pathlib import Path

import pytest

from tests.docs.excerpts import excerpt, with_fresh_excerpts
from tests.support.broken import start_with_other_phase
from tests.support.goldens import ROOT, assert_golden
from tests.support.pinned import under_pinned
from wspec.cli import main
from wspec.ir import print_module, read

TOUR = ROOT / "docs" / "tour.md"
DOCUMENTS = (TOUR, ROOT / "docs" / "cli.md", ROOT / "README.md")
KERNEL = "docs/tour_kernel.py:attend"
COMMANDS = {
    "table": ["plan", KERNEL],
    "explain": ["explain", KERNEL],
    "binary": ["compile", KERNEL],
    "stages": ["dump", KERNEL, "--list"],
    "diff": ["dump", KERNEL, "--diff", "ping_pong", "release_buffers"],
    "declined": ["compile", "kernels/elementwise.py:layer_norm_kernel"],
    "check": ["check", KERNEL],
    "badname": ["explain", "kernels/attention.py:attention_fdw"],
}
EXACT_STAGES = ("plan", "ptx", "sass", "final")


@functools.cache
def source(name: str) -> str:
    """What an excerpt is taken from: the kernel, the output of a command, a diff `A-to-B`, or a stage in brief form."""
    if name == "source":
        return (ROOT / "docs" / "tour_kernel.py").read_text()
    if name == "badplan":
        return bad_plan()
    if name == "deadlock":
        return deadlock()
    if name in COMMANDS:
        return without_times(run(*COMMANDS[name]))
    if "-to-" in name:
        return run("dump", KERNEL, "--diff", *name.split("-to-"))
    return run("dump", KERNEL, "--stage", name, "--form", "generic" if name in EXACT_STAGES else "brief")


def bad_plan() -> str:
    """What is said of a plan for other warps."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan.toml")
        path.write_text(run("plan", KERNEL, "--toml"))
        return run("plan", KERNEL, "--plan", str(path), "--num-warps", "4")


def deadlock() -> str:
    """What is said of the kernel when its producer begins with the other phase."""
    module = read(run("dump", KERNEL, "--stage", "specialized"))
    start_with_other_phase(module)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ttgir")
        path.write_text(print_module(module))
        return without_times(run("check", str(path)))


def without_times(text: str) -> str:
    """The same every time."""
    return re.sub(r", \d+ ms\)", ")", text)


def run(*arguments: str) -> str:
    """What a command writes, to standard output and stderr."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        main(arguments)
    return "".join(f"{line.rstrip()}\n" for line in said.getvalue().splitlines())


@under_pinned
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.name))
def test_excerpts(document: Path, monkeypatch: pytest.MonkeyPatch, update: bool) -> None:
    monkeypatch.chdir(ROOT)
    assert_golden(document, with_fresh_excerpts(document.read_text(), source), update)


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


def documents() -> list[Path]:
    """All pages of the project."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def anchors(page: Path) -> set[str]:
    """What a link into the page may name: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    shown = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.strip()).replace(" ", "-") for heading in shown}


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if "://" not in link and link != "...":
            assert target.exists(), f"{document.name}: {link}"
            assert not anchor or target.suffix != ".md" or anchor in anchors(target), f"{document.name}: {link}"


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_are_named_exist(document: Path) -> None:
    """A path of the repository in the text, or a module after `python -m`, which moved files leave behind."""
    text = re.sub(r"```diff.*?```", "", document.read_text(), flags=re.DOTALL)  # a change that is shown is not made
    for name in re.findall(r"\b(?:wspec|passes|kernels|tests)/[\w/]+\.(?:py|toml|txt)\b", text):
        assert (ROOT / name).exists(), f"{document.name}: {name}"
    for name in re.findall(r"python -m ((?:wspec|tests)[\w.]+)", text):
        parts = ROOT.joinpath(*name.rstrip(".").split("."))
        assert parts.with_suffix(".py").exists() or parts.is_dir(), f"{document.name}: python -m {name}"
