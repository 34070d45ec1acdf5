"""wspec makes Triton kernels warp-specialized on Hopper GPUs, and says what it did and why.

    @wspec.compile
    @triton.jit
    def kernel(...): ...

`import wspec` is cheap: triton and torch are imported when `compile` or `offline` is first touched, so that the IR,
the passes and the checker can be used without them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from wspec.diagnostics import REASONS, Remark, WspecError, render
from wspec.options import Options
from wspec.version import VERSION

if TYPE_CHECKING:
    from wspec.api import Offline, compile, offline
    from wspec.everywhere import enable
    from wspec.ledger import report
    from wspec.outcome import Report

__version__ = VERSION

__all__ = [
    "REASONS",
    "Offline",
    "Options",
    "Remark",
    "Report",
    "WspecError",
    "compile",
    "enable",
    "offline",
    "render",
    "report",
]

_LATER = {
    "Offline": "wspec.api",
    "Report": "wspec.outcome",
    "compile": "wspec.api",
    "enable": "wspec.everywhere",
    "offline": "wspec.api",
    "report": "wspec.ledger",
}
"""What is imported when it is first touched, and where it is."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'wspec' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
