"""A module with its shared memory given out, as Triton's back end gives it out."""

from __future__ import annotations

from functools import partial
from typing import Any

from wspec.bridge.text import generic_text, reparse, run_passes
from wspec.bridge.versions import INSTALLED
from wspec.target.hopper import ARCH


def allocated(final: str) -> str:
    """Generic text of a final module after the first passes of Triton's lowering, in which structured control flow has
    become blocks and each operation that takes shared memory has its place (`allocation.offset`, in bytes). The text
    given may be generic or Triton's own. Raises BridgeError.
    """
    module: Any = reparse(final)
    run_passes(module, partial(INSTALLED.add_memory_passes, arch=ARCH), "wspec_allocate")
    return generic_text(module)
