"""Other people's entries: functions that call a library's own host wrappers, in three sizes each.

The folder of entries holds `manifest.py`, which collects functions from `m_*.py`, and helpers that import libraries
without their parents. Entries were written for a machine that only pretends to have a GPU: here the pretence is left
out (`capture` and `fakegpu.install` do nothing), and their sources are changed where sizes stand.
"""

from __future__ import annotations

import ast
import os
import sys
import tempfile
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Change = int | str
"""Of a size: a number wherever it stands, or the name that is given one (`B = 4`, `o.B = 4`, `def f(B=4)`)."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What of an entry's numbers is changed, and whether lengths that it fills in differ from each other."""

    name: str = "as written"
    changes: Mapping[Change, int] = field(default_factory=dict)
    ragged: bool = False

    def of(self, number: int) -> int:
        """What a number of the entry's has become."""
        return self.changes.get(number, number)


class _Resize(ast.NodeTransformer):
    """Changes numbers; takes out assignments to attributes of the names in `without`."""

    def __init__(self, changes: Mapping[Change, int], without: frozenset[str]) -> None:
        self.numbers = {key: value for key, value in changes.items() if isinstance(key, int)}
        self.names = {key: value for key, value in changes.items() if isinstance(key, str)}
        self.without = without

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is int and node.value in self.numbers:
            return ast.copy_location(ast.Constant(self.numbers[node.value]), node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if any(_name(target) in self.without for target in node.targets):
            return ast.copy_location(ast.Pass(), node)
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=False)
                node.value.elts = [self._named(one, value) for one, value in pairs]
            else:
                node.value = self._named(target, node.value)
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        self.generic_visit(node)
        given = node.args[len(node.args) - len(node.defaults) :]
        node.defaults = [self._named(one, value) for one, value in zip(given, node.defaults, strict=True)]
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        self.generic_visit(node)
        node.value = self._named(node, node.value)
        return node

    def _named(self, target: ast.AST, value: ast.expr) -> ast.expr:
        changed = self.names.get(_name(target))
        if changed is None or not (isinstance(value, ast.Constant) and type(value.value) is int):
            return value
        return ast.copy_location(ast.Constant(changed), value)


def _name(node: ast.AST) -> str:
    """`B` of `B`, `o.B`, the parameter and the keyword B."""
    for attribute in ("id", "attr", "arg"):
        found = getattr(node, attribute, None)
        if isinstance(found, str):
            return found
    return ""


def resized(source: str, changes: Mapping[Change, int], without: frozenset[str] = frozenset()) -> str:
    """The source of a module of entries with other sizes, and without assignments to these attributes."""
    return ast.unparse(ast.fix_missing_locations(_Resize(changes, without).visit(ast.parse(source))))


def prepare(folder: Path, packages: Path, pretend: bool = False) -> None:
    """Make the helpers of the entries importable: those that a GPU can do without do nothing.

    With `pretend`, PyTorch pretends to have a card, whose tensors are the processor's. What helpers write goes to a
    folder of this process.
    """
    root = Path(tempfile.mkdtemp(prefix="on-card-packages-"))
    (root / "pkg").symlink_to((packages / "pkg").resolve())
    os.environ["CORPUS_ROOT"] = str(root)
    sys.path.insert(0, str(folder.resolve()))
    import fakegpu  # type: ignore[import-not-found]

    if pretend:
        fakegpu.install()
    fakegpu.install = lambda: None
    capture: Any = types.ModuleType("capture")
    capture.CAPS, capture.WANT, capture.PICK = [], None, None
    sys.modules["capture"] = capture


def load(folder: Path, changes: Mapping[Change, int] | None = None, without: frozenset[str] = frozenset()) -> Any:
    """Every entry of the folder, by name: {"launch": function, "kernels": names, "pick": configuration or None, ...}.

    May be called again, with other sizes, after `prepare`.
    """
    manifest: Any = types.ModuleType("manifest")
    sys.modules["manifest"] = manifest
    text = (folder / "manifest.py").read_text()
    head = ast.unparse(ast.Module([node for node in ast.parse(text).body if not _imports(node)], []))
    exec(compile(head, str(folder / "manifest.py"), "exec"), manifest.__dict__)
    for path in sorted(folder.glob("m_*.py")):
        module = types.ModuleType(path.stem)
        module.__file__ = str(path)
        code = resized(path.read_text(), changes or {}, without)
        exec(compile(code, str(path), "exec"), module.__dict__)
    return manifest.ENTRIES


def _imports(node: ast.stmt) -> bool:
    """Of the manifest: what imports the modules of entries, which is done here."""
    return isinstance(node, (ast.Import, ast.ImportFrom, ast.For))
