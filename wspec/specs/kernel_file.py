"""`FILE.py:KERNEL` or `package.module:KERNEL` -> the kernel, its name and the module it stands in."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from wspec.diagnostics import bad_input, unknown


@dataclass(frozen=True, slots=True)
class Kernel:
    """A Triton kernel (a JITFunction, perhaps under autotune, heuristics or wspec.compile) and where it stands."""

    name: str
    function: Any
    module: ModuleType
    file: Path


def split_target(text: str) -> tuple[str, str]:
    """(file or module, kernel) of `FILE.py:KERNEL`; the kernel is "" when it is left out."""
    head, colon, tail = text.rpartition(":")
    return (head, tail) if colon else (text, "")


def load_kernel(target: str) -> Kernel:
    """Import the file and find the kernel. Raises WspecError."""
    place, name = split_target(target)
    module, file = _load(place)
    kernels = kernels_of(module)
    if not kernels:
        raise bad_input(f"{place} defines no Triton kernel", "a kernel is a function under @triton.jit")
    if not name:
        public = [found for found in kernels if not found.startswith("_")]
        if len(public) != 1:
            raise bad_input(f"{place} defines several kernels", f"say which one: {place}:{' or :'.join(public)}")
        name = public[0]
    if name not in kernels:
        raise unknown("kernel", name, kernels, where=f"{place} has ")
    return Kernel(name, kernels[name], module, file)


def load_file(path: Path) -> ModuleType:
    """Import a Python file. Raises WspecError."""
    return _load(str(path))[0]


def kernels_of(module: ModuleType) -> dict[str, Any]:
    """The kernels a module defines, not those it imports, in order."""
    from wspec import bridge

    found: dict[str, Any] = {}
    for name, value in _named(vars(module), module.__name__):
        with contextlib.suppress(Exception):  # some objects answer nothing sensible to any question
            inner = bridge.innermost(value)
            bridge.require_jit(inner)
            if inner.fn.__module__ == module.__name__:
                found[name] = value
    return found


def _named(names: Mapping[str, Any], module: str) -> Iterator[tuple[str, Any]]:
    """What stands in a module, and in its classes as `Class.name`."""
    for name, value in names.items():
        if isinstance(value, type) and value.__module__ == module:
            yield from ((f"{name}.{inner}", getattr(value, inner)) for inner in vars(value))
        yield name, value


def _load(place: str) -> tuple[ModuleType, Path]:
    path = Path(place)
    if path.suffix == ".py" or path.exists():
        if not path.is_file():
            raise bad_input(f"there is no file {place}")
        return _guarded(place, lambda: _import_file(path.resolve())), path
    if not all(part.isidentifier() for part in place.split(".")):
        raise bad_input(f"{place!r} is neither a Python file nor a module", "give FILE.py:KERNEL or FILE.ttgir")
    try:
        spec = importlib.util.find_spec(place)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise bad_input(f"there is no file and no module {place}", "give FILE.py:KERNEL or FILE.ttgir")
    return _guarded(place, lambda: importlib.import_module(place)), Path(spec.origin)


def _guarded(place: str, load: Any) -> ModuleType:
    """Run the person's file; what it prints goes to stderr, what it raises becomes one error."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            module: ModuleType = load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a script that parses arguments
        raise bad_input(f"{place} cannot be imported: {_line_of(error, place)}{_describe(error)}") from None
    return module


def _describe(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}{': ' if text else ''}{text}"


def _line_of(error: BaseException, place: str) -> str:
    """Where in the person's file it was raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == Path(place).resolve()]
    return f"line {frames[-1].lineno}: " if frames else ""


def _import_file(path: Path) -> ModuleType:
    """A file of a package is imported as part of it; another one as a script's own folder would let it be."""
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        return _import_as(".".join(parts), len(parts) > 1, path)
    finally:
        sys.path[:] = before


def _import_as(name: str, in_package: bool, path: Path) -> ModuleType:
    known = sys.modules.get(name)
    if in_package and (known is None or _is_file(known, path)):
        module = importlib.import_module(name)
        if _is_file(module, path):
            return module
    return _import_alone(path)


def _is_file(module: ModuleType, path: Path) -> bool:
    return Path(getattr(module, "__file__", None) or "").resolve() == path


def _import_alone(path: Path) -> ModuleType:
    """A name of its own keeps a file called `types.py` from standing in for another module."""
    name = f"_wspec_input_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"not a Python file: {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
