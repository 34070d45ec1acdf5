"""The tests of a room stand in a folder of its name, and expected outputs are short enough to be read."""

from __future__ import annotations

from pathlib import Path

from tests.support.goldens import ROOT

TESTS = ROOT / "tests"
ROOMS = {"passes": ROOT / "passes", "kernels": ROOT / "kernels"}  # wspec/passes and wspec/kernels are links
ACROSS = {
    "docs": "what documents show is what programs say",
    "fuzz": "random kernels against a reference",
    "gpu": "what a GPU makes of it all",
    "mutants": "the checker on broken kernels",
    "outside": "kernels that others wrote",
    "roundtrip": "modules of many kernels read and printed",
    "support": "what tests share",
    "wrong": "input of all sorts that cannot be used",
}
"""Folders that go across the rooms, with what they are for."""

GOLDEN_BYTES = 20_000
GOLDENS = {".ttgir", ".txt", ".mlir", ".json", ".toml", ".ptx", ".sass", ".svg"}


def folders() -> list[Path]:
    """Every folder with Python files, relative to tests/."""
    found = {path.parent.relative_to(TESTS) for path in TESTS.rglob("*.py")}
    return sorted(folder for folder in found if folder.parts and folder.parts[0] not in ACROSS)


def is_room(folder: Path) -> bool:
    """Is there a folder of the sources of that name, or a file?"""
    first, *rest = folder.parts
    room = ROOMS.get(first, ROOT / "wspec" / first).joinpath(*rest)
    return room.is_dir() or room.with_suffix(".py").is_file()


def test_every_folder_of_tests_is_a_room() -> None:
    assert [str(folder) for folder in folders() if not is_room(folder)] == []
    assert [name for name in ACROSS if (ROOT / "wspec" / name).exists()] == [], "a room of that name is no other"


def test_rooms_of_passes_have_tests_of_their_own() -> None:
    rooms = {path.name for path in (ROOT / "passes").iterdir() if (path / "__init__.py").exists()}
    tested = {folder.name for folder in folders() if folder.parts[0] == "passes"}
    assert len(rooms) > 5 and sorted(rooms - tested) == []


def test_files_that_test_nothing_have_other_names() -> None:
    """pytest collects test_*.py; nothing else holds tests that would never run."""
    others = [path for path in TESTS.rglob("*.py") if not path.name.startswith("test_")]
    assert len(others) > 20
    assert [str(path) for path in others if "\ndef test_" in path.read_text()] == []


def test_expected_outputs_can_be_read() -> None:
    """What is longer nobody reads when it changes: CHECK lines say what matters of it."""
    kept = [path for path in TESTS.rglob("*") if path.suffix in GOLDENS]
    assert len(kept) > 50
    long = {str(path.relative_to(ROOT)): path.stat().st_size for path in kept if path.stat().st_size > GOLDEN_BYTES}
    assert long == {}
