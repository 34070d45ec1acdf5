"""The files that a kernel's remarks may point into.

A key says what a kernel's source is, and on which line it begins, not which file that is in: a copy of it, or a cell
of a notebook that is run again, has the same key. So a result is stored with its files, and read with those of whoever
asks.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from wspec.bridge.versions.internals import internal
from wspec.diagnostics import Remark
from wspec.ir.loc import FileLoc, Location, file_loc

JITFunction = internal("triton.runtime.jit", "JITFunction")

if TYPE_CHECKING:
    from wspec.bridge.frontend import KernelSource

_MOST = 64  # functions that a kernel calls; who calls more keeps the files of the rest


def files_of(source: KernelSource) -> tuple[str, ...]:
    """The kernel's file, then those of the functions it calls, in an order that its source decides."""
    known = getattr(source.ast, "files", None)
    if known is not None:
        return tuple(known)
    return tuple(line_of(function).file for function in _called(source.ast.fn))


def line_of(function: Any) -> FileLoc:
    """The line of a JITFunction's `def`, which comes behind its decorators."""
    above = next((count for count, text in enumerate(function.raw_src) if text.strip().startswith("def ")), 0)
    return FileLoc(function.fn.__code__.co_filename, function.starting_line_number + above, 0)


def _called(kernel: Any) -> list[Any]:
    """The kernel and the functions it calls, those that they call, and so on."""
    found, at = [kernel], 0
    while at < len(found) < _MOST:
        found += [one for one in dict.fromkeys(_named(found[at])) if all(one is not other for other in found)]
        at += 1
    return found


def _named(function: Any) -> Iterator[Any]:
    """The functions that a function's source names, of the user's and not of Triton's."""
    scope = {**function.fn.__globals__, **inspect.getclosurevars(function.fn).nonlocals}
    for node in ast.walk(function.parse()):
        value: Any = None
        if isinstance(node, ast.Name):
            value = scope.get(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = scope.get(node.value.id)
            value = vars(module).get(node.attr) if isinstance(module, ModuleType) else None
        if isinstance(value, JITFunction) and not str(value.fn.__module__).startswith("triton."):
            yield value


def moved(remark: Remark, stored: tuple[str, ...], asked: tuple[str, ...]) -> Remark:
    """A remark on a kernel that was in the files `stored`, of the same kernel in the files `asked`."""
    names = {old: new for old, new in zip(stored, asked, strict=False) if old != new}
    if not names:
        return remark
    path = tuple((text, _moved(location, names)) for text, location in remark.path)
    return replace(remark, location=_moved(remark.location, names), path=path)


def _moved(location: Location, names: dict[str, str]) -> Location:
    place = file_loc(location)
    if place is None or place.file not in names:
        return location
    return FileLoc(names[place.file], place.line, place.column)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Stands for a kernel's function in a process that has not loaded it."""

    name: str
    place: FileLoc
    files: tuple[str, ...]


def elsewhere(source: KernelSource) -> KernelSource:
    """The source without its function, as it can be sent to another process."""
    return replace(source, ast=Elsewhere(source.name, kernel_location(source), files_of(source)))


def kernel_location(source: KernelSource) -> FileLoc:
    """The line of the kernel's `def`."""
    if isinstance(source.ast, Elsewhere):
        return source.ast.place
    return line_of(source.ast.fn)
