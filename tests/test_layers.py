"""Imports go one way: ir <- plan <- passes <- pipeline <- api, cli. Passes do not know each other, nor triton.

Checker and executor know the IR alone: neither what made it nor each other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = {"wspec": ROOT / "wspec", "wspec.passes": ROOT / "passes", "wspec.kernels": ROOT / "kernels"}
# What each layer may import of ours, itself included. The names are those of the files and folders of wspec.
BASE = {"diagnostics", "ir"}
PLAN = BASE | {"options", "plan"}
MAY = {
    "ir": {"ir"},
    "diagnostics": BASE,
    "options": {"diagnostics", "options"},
    "plan": PLAN,
    "passes": {"ir", "plan"},
    "tiles": {"ir", "plan", "tiles"},
    "persistence": PLAN | {"tiles"},
    "pipeline": PLAN | {"passes", "persistence", "pipeline"},
    "bridge": BASE | {"options", "bridge", "tiles"},
    "check": BASE | {"check"},  # checker and executor derive everything from the IR, each by itself
    "execute": BASE | {"execute"},
    "simulate": BASE | {"plan", "simulate"},
    "variations": {"options", "plan", "variations"},
    "writes": {"ir", "plan", "writes"},
    "search": PLAN | {"passes", "persistence", "pipeline", "tiles", "simulate", "variations", "search"},
    # what a launch needs above the pipeline: no simulator
    "tuning": PLAN | {"bridge", "pipeline", "variations", "writes", "tuning"},
    "kernels": {"kernels"},
}
# Above the pipeline: these may import what they like, but triton.
UPPER = {"api", "cli", "proof", "report", "show", "bench", "calibrate", "measure"}
TRITON = {"bridge", "kernels", "bench", "calibrate"}


def modules() -> Iterator[tuple[str, Path]]:
    """(dotted name, file) of every module of the packages; wspec/passes and wspec/kernels are links."""
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            inside = path.relative_to(folder).with_suffix("")
            linked = package == "wspec" and inside.parts[0] in ("passes", "kernels")
            if not linked:
                yield ".".join([package, *(part for part in inside.parts if part != "__init__")]), path


def imports(path: Path) -> set[str]:
    """The names a file imports, wherever in it the import stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and node.level == 0, f"{path}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def layer(name: str) -> str:
    """ir, plan, ...: the part of wspec a dotted name belongs to; "" for wspec itself and for what is not ours."""
    parts = name.split(".")
    return parts[1] if parts[0] == "wspec" and len(parts) > 1 else ""


MODULES = dict(modules())


def test_every_module_belongs_to_a_layer() -> None:
    unknown = {name for name in MODULES if layer(name) not in (*MAY, *UPPER, "")}
    assert unknown == set(), "say in this test what they may import"


def test_imports_go_downwards() -> None:
    wrong = {
        name: sorted(others)
        for name, path in MODULES.items()
        if (here := layer(name)) in MAY and (others := {layer(other) for other in imports(path)} - MAY[here] - {""})
    }
    assert wrong == {}


def test_passes_do_not_know_each_other() -> None:
    passes = {name: path for name, path in MODULES.items() if name.startswith("wspec.passes.")}
    assert passes
    assert {name for name, path in passes.items() if any(layer(o) == "passes" for o in imports(path))} == set()


def test_only_these_import_triton() -> None:
    found = {layer(name) for name, path in MODULES.items() if any(o.split(".")[0] == "triton" for o in imports(path))}
    assert "bridge" in found and found <= TRITON
