"""Imports go one way, file by file, and rooms of `passes` know neither each other nor triton.

Imports inside functions count, and so do those for type checkers: what is not there cannot tie anything.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[1]
FOLDERS = {"wspec": ROOT / "wspec", "wspec.passes": ROOT / "passes", "wspec.kernels": ROOT / "kernels"}
LAYERS = (
    ("version", "decision", "ir", "ptx", "build_pth"),
    ("diagnostics",),
    ("options", "target", "tile_scheduler", "check", "execute"),
    ("host_descriptors",),
    ("model",),
    ("plan",),
    ("passes",),
    ("planner",),
    ("pipeline",),
    ("bridge", "show"),
    ("proof", "specs", "verdict"),
    ("outcome", "ledger"),
    ("tune",),
    ("api",),
    ("everywhere",),
    ("",),  # wspec itself: what a user imports
    ("kernels", "startup"),
    ("lab",),
    ("cli",),
)
"""From the bottom up; a file imports files of its own part and of lower layers. Parts of one layer are strangers."""

SPECIAL = {
    "check": {"ir", "ptx", "diagnostics"},
    "execute": {"ir", "ptx", "diagnostics"},
    "ptx": set(),
    "bridge": {
        "version",
        "decision",
        "ir",
        "ptx",
        "diagnostics",
        "options",
        "target",
        "tile_scheduler",
        "host_descriptors",
    },
}
"""Checker and executor derive everything from the IR, each by itself; the bridge is handed compiler and checker."""

TRITON = {"bridge", "kernels", "lab"}


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


def part(name: str) -> str:
    """ir, plan, ...: the part of wspec a dotted name belongs to; "" for wspec itself."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def room(name: str) -> str:
    """The room of `passes` a module belongs to."""
    return name.split(".")[2] if name.startswith("wspec.passes.") else ""


MODULES = dict(modules())
HEIGHT = {one: height for height, layer in enumerate(LAYERS) for one in layer}


@functools.cache
def graph() -> nx.DiGraph:
    """An edge from each module to each module of ours that it imports."""
    made = nx.DiGraph()
    made.add_nodes_from(MODULES)
    for name, path in MODULES.items():
        for other in imports(path):
            target = other if other in MODULES else other.rpartition(".")[0]
            if target in MODULES and target != name:
                made.add_edge(name, target)
    return made


def test_every_module_belongs_to_a_layer() -> None:
    assert {name for name in MODULES if part(name) not in HEIGHT} == set(), "say in LAYERS where it belongs"


def test_no_file_imports_itself_in_the_end() -> None:
    assert [sorted(one) for one in nx.strongly_connected_components(graph()) if len(one) > 1] == []


def test_imports_go_downwards() -> None:
    upwards = [
        (name, other)
        for name, other in graph().edges
        if part(name) != part(other) and HEIGHT[part(name)] <= HEIGHT[part(other)]
    ]
    assert upwards == []


def test_some_parts_know_only_these() -> None:
    strangers = [
        (name, other)
        for name, other in graph().edges
        if (known := SPECIAL.get(part(name))) is not None and part(other) not in {*known, part(name)}
    ]
    assert strangers == []


def test_rooms_of_passes_do_not_know_each_other() -> None:
    assert {room(name) for name in MODULES} > {"data_partition", "split"}
    assert [(a, b) for a, b in graph().edges if room(a) and room(b) and room(a) != room(b)] == []


def test_only_these_import_triton() -> None:
    found = {part(name) for name, path in MODULES.items() if any(o.split(".")[0] == "triton" for o in imports(path))}
    assert "bridge" in found and found <= TRITON


def test_a_launch_does_not_import_the_laboratory() -> None:
    needed = {"wspec.api", *nx.descendants(graph(), "wspec.api")}
    assert sorted(name for name in needed if part(name) in ("lab", "cli", "execute", "kernels")) == []
