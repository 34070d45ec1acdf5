"""WSPEC=1 in the environment: `wspec.enable()` in programs that know nothing of wspec.

`pip install` puts wspec.pth beside the package, whose one line Python runs whenever it starts. It costs a look at the
environment where WSPEC is not set. Where it is, nothing is imported before the program has imported torch and Triton.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

_NEEDED = ("torch", "triton")


def wait() -> None:
    """Enable wspec as soon as torch and Triton are there; with WSPEC_SUMMARY=1 tell at exit what became of kernels."""
    missing = {name for name in _NEEDED if name not in sys.modules}
    if missing:
        sys.meta_path.insert(0, _Finder(missing))
    else:
        _enable()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what is missing as Python would, and hears when it has been imported."""

    def __init__(self, missing: set[str]) -> None:
        self._missing = missing

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._missing:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            loader = spec.loader
            loader.exec_module = self._then(fullname, loader.exec_module)  # type: ignore[assignment,method-assign]
        return spec

    def _then(self, name: str, original: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        def exec_module(module: ModuleType) -> None:
            original(module)
            self._missing.discard(name)
            if not self._missing and self in sys.meta_path:
                sys.meta_path.remove(self)
                _enable()

        return exec_module


def _enable() -> None:
    """The program runs on whatever happens here."""
    try:
        import wspec

        wspec.enable(summary=os.environ.get("WSPEC_SUMMARY", "0") not in ("", "0"))
    except Exception as error:
        print(f"wspec: WSPEC=1 has no effect: {error}", file=sys.stderr)
