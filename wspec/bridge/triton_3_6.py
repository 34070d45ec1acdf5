"""Triton 3.6: which of its passes run, and what its lowering does that the proof leans on.

Another version is another file with these names, and a row in versions.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton._C.libtriton import nvidia, passes

RELEASE = "3.6"
PTX_VERSION = 87  # what the allocator is told; of the scratch it decides nothing on Hopper

Pass = Callable[[Any, int], None]

# Run on the specialized module, in this order. The rest of make_ttgir stays out: Triton's pipeliner would pipeline
# the loops again, and its layout and reordering passes would move operations across our barriers.
FINISHING: tuple[tuple[str, Pass], ...] = (
    ("tma_lowering", lambda pm, _: nvidia.passes.ttnvgpuir.add_tma_lowering(pm)),  # descriptors left as they were
    ("fence_insertion", lambda pm, arch: nvidia.passes.ttnvgpuir.add_fence_insertion(pm, arch)),
    ("lower_mma", lambda pm, _: nvidia.passes.ttnvgpuir.add_lower_mma(pm)),
    ("sccp", lambda pm, _: passes.common.add_sccp(pm)),
    ("cse", lambda pm, _: passes.common.add_cse(pm)),
    ("canonicalizer", lambda pm, _: passes.common.add_canonicalizer(pm)),
)


def add_ttgir_passes(manager: Any, arch: int, options: Any) -> None:
    """The passes of Triton 3.6.0's `CUDABackend.make_ttgir` for sm_90, up to and without `add_hopper_warpspec`.

    A test compares the list with the source of the installed Triton.
    """
    passes.ttir.add_convert_to_ttgpuir(manager, f"cuda:{arch}", options.num_warps, 32, options.num_ctas)
    passes.ttgpuir.add_coalesce(manager)
    passes.ttgpuir.add_f32_dot_tc(manager, True)
    nvidia.passes.ttnvgpuir.add_plan_cta(manager)
    passes.ttgpuir.add_remove_layout_conversions(manager)
    passes.ttgpuir.add_optimize_thread_locality(manager)
    passes.ttgpuir.add_accelerate_matmul(manager)
    passes.ttgpuir.add_remove_layout_conversions(manager)
    passes.ttgpuir.add_optimize_dot_operands(manager, True)
    nvidia.passes.ttnvgpuir.add_optimize_descriptor_encoding(manager)
    passes.ttir.add_loop_aware_cse(manager)
    passes.ttgpuir.add_fuse_nested_loops(manager)
    passes.common.add_canonicalizer(manager)
    passes.ttir.add_triton_licm(manager)
    passes.common.add_canonicalizer(manager)
    passes.ttgpuir.add_combine_tensor_select_and_if(manager)


def add_memory_passes(manager: Any, arch: int) -> None:
    """The beginning of Triton 3.6.0's `CUDABackend.make_llir`: as far as shared memory is given out and fences are put.

    A test compares the list with the source of the installed Triton.
    """
    passes.ttgpuir.add_combine_tensor_select_and_if(manager)
    passes.ttgpuir.add_allocate_warp_groups(manager)
    passes.convert.add_scf_to_cf(manager)
    passes.gluon.add_inliner(manager)
    nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(manager, arch, PTX_VERSION)
    nvidia.passes.ttnvgpuir.add_proxy_fence_insertion(manager, arch)


def add_finishing_passes(manager: Any, arch: int) -> None:
    """All of `FINISHING`."""
    for _, add in FINISHING:
        add(manager, arch)
