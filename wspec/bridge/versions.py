"""The versions of Triton that are known, each a module of its own, and the one that is installed."""

from __future__ import annotations

from types import ModuleType

import triton

from wspec.bridge import triton_3_6

_MODULES: tuple[ModuleType, ...] = (triton_3_6,)
KNOWN = tuple(module.RELEASE for module in _MODULES)
_FOUND = next((module for module in _MODULES if triton.__version__.startswith(f"{module.RELEASE}.")), None)

VERSION: str | None = None if _FOUND is None else _FOUND.RELEASE
"""The installed one; None where it is not known. Kernels are left alone then."""

INSTALLED: ModuleType = _FOUND or triton_3_6
"""What to run: of an unknown version the newest known one's passes, so that there is something to look at."""
