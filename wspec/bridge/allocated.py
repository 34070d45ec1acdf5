"""A module with its shared memory given out, as Triton's back end gives it out."""

from __future__ import annotations

from typing import Any

from triton._C.libtriton import nvidia, passes

from wspec.bridge.text import generic_text, reparse, run_passes
from wspec.target.hopper import ARCH

PTX = 87  # which version of PTX the lowering is for: no part in the allocation


def allocated(final: str) -> str:
    """Generic text of a final module after the first passes of Triton's lowering, in which structured control flow has
    become blocks and each operation that takes shared memory has its place (`allocation.offset`, in bytes). The text
    given may be generic or Triton's own. Raises BridgeError.
    """
    module = reparse(final)
    run_passes(module, _add_passes, "wspec_allocate")
    return generic_text(module)


def _add_passes(manager: Any) -> None:
    passes.ttgpuir.add_combine_tensor_select_and_if(manager)
    passes.ttgpuir.add_allocate_warp_groups(manager)
    passes.convert.add_scf_to_cf(manager)
    passes.gluon.add_inliner(manager)
    nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(manager, ARCH, PTX)
