"""Kernels that ask for Triton's own warp specialization, where that fails.

`tl.range(..., warp_specialize=True)` makes Triton 3.6 to 3.9 stop with an internal error on most loops whose tiles come
through pointers, on several loops and on descriptors of three dimensions. What it does specialize may hang: Triton 3.6
puts barriers of some kernels over others that are in use. A kernel that wspec leaves alone, or whose launch needs the
plain one, is then compiled without that request; of the second kind is what the checker finds an error in.
"""

from __future__ import annotations

from typing import Any

from triton.compiler import ASTSource

from wspec.bridge.frontend import KernelSource, ttir
from wspec.bridge.proof import Checker
from wspec.bridge.text import reparse
from wspec.diagnostics import Remark
from wspec.ir.disjoint import EVERY
from wspec.ir.loc import FileLoc

_ASKED, _TOLD = "tt.warp_specialize", "specialization_was_asked_for"
_SPECIALIZED = "ttg.warp_specialize("  # in TTGIR as Triton writes it


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


def error_in(ttgir: str, checker: Checker) -> str:
    """What the checker finds wrong with Triton's own specialization; empty: nothing, or the module has none.

    What is undecided is the user's: Triton alone would run it too.
    """
    if _SPECIALIZED not in ttgir:
        return ""
    return next((error.message for error in checker(ttgir, EVERY).errors), "")


def failed(name: str, place: FileLoc, error: str) -> Remark:
    """What is said of it. `error`: what the checker finds wrong; empty where Triton itself stops."""
    why = f"is wrong: {error}" if error else "fails"
    message = f"Triton's own specialization of {name} (warp_specialize=True) {why}; it is compiled without"
    return Remark("own-specialization", message, place, severity="warning")
