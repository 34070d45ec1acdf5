"""Triton 3.6, which torch 2.10 and 2.11 bring."""

from __future__ import annotations

from wspec.bridge.versions.version import Pass, Version, to_arch

PTX_VERSION = 87  # what the allocator is told; of the scratch it decides nothing on Hopper

TO_TTGIR = (
    Pass("ttir.convert_to_ttgpuir", lambda arch, options: (f"cuda:{arch}", options.num_warps, 32, options.num_ctas)),
    Pass("ttgpuir.coalesce"),
    Pass("ttgpuir.f32_dot_tc", lambda _arch, _options: (True,)),
    Pass("nvidia.ttnvgpuir.plan_cta"),
    Pass("ttgpuir.remove_layout_conversions"),
    Pass("ttgpuir.optimize_thread_locality"),
    Pass("ttgpuir.accelerate_matmul"),
    Pass("ttgpuir.remove_layout_conversions"),
    Pass("ttgpuir.optimize_dot_operands", lambda _arch, _options: (True,)),
    Pass("nvidia.ttnvgpuir.optimize_descriptor_encoding"),
    Pass("ttir.loop_aware_cse"),
    Pass("ttgpuir.fuse_nested_loops"),
    Pass("common.canonicalizer"),
    Pass("ttir.triton_licm"),
    Pass("common.canonicalizer"),
    Pass("ttgpuir.combine_tensor_select_and_if"),
)

# The rest of make_ttgir stays out: Triton's pipeliner would pipeline the loops again, and its layout and reordering
# passes would move operations across our barriers.
FINISHING = (
    Pass("nvidia.ttnvgpuir.tma_lowering"),  # descriptors left as they were
    Pass("nvidia.ttnvgpuir.fence_insertion", to_arch),
    Pass("nvidia.ttnvgpuir.lower_mma"),
    Pass("common.sccp"),
    Pass("common.cse"),
    Pass("common.canonicalizer"),
)

MEMORY = (
    Pass("ttgpuir.combine_tensor_select_and_if"),
    Pass("ttgpuir.allocate_warp_groups"),
    Pass("convert.scf_to_cf"),
    Pass("gluon.inliner"),
    Pass("nvidia.ttgpuir.allocate_shared_memory_nv", lambda arch, _options: (arch, PTX_VERSION)),
    Pass("nvidia.ttnvgpuir.proxy_fence_insertion", to_arch),
)

TRITON = Version("3.6", TO_TTGIR, FINISHING, MEMORY)
