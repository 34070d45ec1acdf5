"""Kernels that ask for Triton's own warp specialization, where that fails.

`tl.range(..., warp_specialize=True)` makes Triton 3.6 to 3.9 stop with an internal error on most loops whose tiles come
through pointers, on several loops and on descriptors of three dimensions. A kernel that wspec leaves alone, or whose
launch needs the plain one, is then compiled without that request.
"""

from __future__ import annotations

from typing import Any

from triton.compiler import ASTSource

from wspec.bridge.frontend import KernelSource, ttir
from wspec.bridge.text import reparse
from wspec.diagnostics import Remark
from wspec.ir.loc import FileLoc

_ASKED, _TOLD = "tt.warp_specialize", "specialization_was_asked_for"


class WithoutRequest(ASTSource):  # type: ignore[misc]  # triton is untyped
    """A function whose loops do not ask to be specialized."""

    def hash(self) -> str:
        return f"{super().hash()}-{_TOLD}"

    def make_ir(self, *given: Any, **named: Any) -> Any:
        """Triton's module, its loops' requests renamed to what nobody knows."""
        module = super().make_ir(*given, **named)
        return reparse(str(module).replace(_ASKED, _TOLD), module.context)


def asks(source: KernelSource) -> bool:
    """Does a loop of the kernel ask for Triton's own specialization?"""
    return _ASKED in ttir(source)


def failed(name: str, place: FileLoc) -> Remark:
    """What is said of it."""
    message = f"Triton's own specialization of {name} (warp_specialize=True) fails; it is compiled without"
    return Remark("own-specialization", message, place, severity="warning")
