"""What Triton's own back end makes of a kernel that wspec specializes: how much of it ptxas spills."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from wspec.bridge.backend import assemble
from wspec.bridge.frontend import KernelSource, capability
from wspec.bridge.sass.resources import spill_bytes
from wspec.bridge.text import BridgeError, captured, reparse


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
        backend, options, arch = self.source.backend, self.source.options, capability(self.source)
        try:
            module = reparse(self.ttir)
            module = captured("make_ttgir failed", lambda: backend.make_ttgir(module, {}, options, arch))
            metadata = {"tensordesc_meta": module.get_tensordesc_metadata()}
            llir = captured("make_llir failed", lambda: backend.make_llir(module, metadata, options, arch))
            ptx = captured("make_ptx failed", lambda: backend.make_ptx(llir, metadata, options, arch))
            return spill_bytes(assemble(ptx, self.source)[1])
        except BridgeError:
            return 0
