"""What wspec uses of Triton besides its documented interface, taken where it stands in the versions that are known.

A version that is not known may have moved a name. Then importing wspec must not fail: the name stands for nothing, and
says so when it is used.
"""

from __future__ import annotations

import importlib
from typing import Any

import triton


class Missing:
    """In the place of a name that the installed Triton does not have. May be a base class, and is no instance's."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise NotImplementedError(f"Triton {triton.__version__} is laid out in another way than wspec knows")


def internal(module: str, name: str) -> Any:
    """An attribute of one of Triton's modules, or `Missing`."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return Missing
