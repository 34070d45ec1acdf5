"""What Triton's own back end makes of a kernel that wspec specializes: how much of it ptxas spills."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from wspec.bridge.backend import finish_as_triton
from wspec.bridge.frontend import KernelSource
from wspec.bridge.sass.ptxas_log import spill_bytes
from wspec.bridge.text import BridgeError


@dataclass(frozen=True)
class PlainSpills:
    """Bytes that ptxas spills of the plain kernel; it is compiled when they are asked for."""

    source: KernelSource
    ttir: str

    @cached_property
    def bytes(self) -> int:
        """Spilled; 0 where the kernel's TTIR is not known or Triton does not compile it."""
        if not self.ttir:
            return 0
        try:
            return spill_bytes(finish_as_triton(self.ttir, self.source).ptxas_log)
        except BridgeError:
            return 0
