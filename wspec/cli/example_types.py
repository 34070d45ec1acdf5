"""What the types of a kernel's parameters might be, for a hint: read off how its source uses them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

_OF_POINTERS = ("load", "store")
_OF_DESCRIPTORS = ("load", "store", "gather", "scatter")


def example_types(source: str, parameters: Sequence[Any]) -> str:
    """`x_ptr=*bf16:16, n=i32, BLOCK=128`: a guess for each parameter of Triton's without a default."""
    tree = ast.parse(source)
    ranks, pointers = dict(_descriptors(tree)), set(_pointers(tree))
    items = []
    for one in parameters:
        name = one.name
        if one.is_constexpr:
            text = "128"
        elif name in ranks or "desc" in name:
            text = f"tensordesc<bf16{_block(ranks.get(name, 2))}>"
        else:
            text = "*bf16:16" if name in pointers or "ptr" in name else "i32"
        if not one.has_default:
            items.append(f"{name}={text}")
    return ", ".join(items)


def _block(rank: int) -> list[int]:
    """The last two extents as large as the constants that are shown."""
    return [1] * (rank - 2) + [128] * min(rank, 2)


def _calls(tree: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(x, first argument) of every call x.name(...)."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.args
            and node.func.attr in names
        ):
            yield node.func.value, node.args[0]


def _descriptors(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(name, rank) of what is loaded or stored at coordinates."""
    for of, first in _calls(tree, _OF_DESCRIPTORS):
        if isinstance(of, ast.Name) and isinstance(first, ast.List | ast.Tuple):
            yield of.id, len(first.elts)


def _pointers(tree: ast.AST) -> Iterator[str]:
    """What addresses begin with, through the names they have had."""
    begins = {
        target.id: _leftmost(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for _, first in _calls(tree, _OF_POINTERS):
        name, seen = _leftmost(first), set[str]()
        while name and name not in seen:
            seen.add(name)
            yield name
            name = begins.get(name, "")


def _leftmost(node: ast.expr) -> str:
    """The name that a sum begins with; empty where it begins with something else."""
    while isinstance(node, ast.BinOp):
        node = node.left
    return node.id if isinstance(node, ast.Name) else ""
