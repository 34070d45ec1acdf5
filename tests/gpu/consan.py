"""Triton's concurrency sanitizer on emitted kernels.

Triton 3.6 runs its pass inside `make_llir` when `knobs.compilation.instrumentation_mode` is "consan"
(TRITON_INSTRUMENTATION_MODE). wspec leaves kernels alone when it is set, so it is set for the back end only. The pass
follows mbarriers, TMA, cp.async and wgmma across tasks and ends the kernel with a device-side assertion, whose text
goes to stderr. Code becomes ten times as long, and ptxas takes minutes for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from triton import knobs
from triton.backends.nvidia.compiler import CUDABackend

from wspec.bridge import compile as compiling
from wspec.bridge.proof import Ruling

MODE = "consan"


@contextlib.contextmanager
def instrumented() -> Iterator[None]:
    """Whatever is compiled in here is instrumented. Use a TRITON_CACHE_DIR of its own: cache keys do not tell."""
    plain, ruling = CUDABackend.make_llir, compiling.rule_ptx

    def make_llir(backend: Any, *arguments: Any) -> Any:
        chosen = knobs.compilation.instrumentation_mode
        knobs.compilation.instrumentation_mode = MODE
        try:
            return plain(backend, *arguments)
        finally:
            knobs.compilation.instrumentation_mode = chosen

    CUDABackend.make_llir = make_llir
    compiling.rule_ptx = lambda *_: Ruling(True, "PTX: instrumented")
    try:
        yield
    finally:
        CUDABackend.make_llir, compiling.rule_ptx = plain, ruling
