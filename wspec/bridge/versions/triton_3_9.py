"""Triton 3.9, which torch 2.15 brings: what differs from 3.8.

`tl.make_block_ptr` raises.
"""

from __future__ import annotations

from dataclasses import replace

from wspec.bridge.versions import triton_3_8
from wspec.bridge.versions.version import Pass, in_place_of, to_arch

_PLAN = "nvidia.ttnvgpuir.plan_cta"
_ACCELERATE = "ttgpuir.accelerate_matmul"
_LOWER_MMA = "nvidia.ttnvgpuir.lower_mma"

TRITON = replace(
    triton_3_8.TRITON,
    release="3.9",
    to_ttgir=in_place_of(
        in_place_of(
            triton_3_8.TRITON.to_ttgir,
            _PLAN,
            Pass("nvidia.ttnvgpuir.assign_cga_layouts"),
            Pass("ttgpuir.remove_layout_conversions"),
            Pass("nvidia.ttnvgpuir.optimize_cta_locality"),
        ),
        _ACCELERATE,
        Pass(_ACCELERATE),
        Pass("nvidia.ttnvgpuir.check_matmul_two_cta"),
    ),
    finishing=in_place_of(
        triton_3_8.TRITON.finishing,
        _LOWER_MMA,
        Pass(_LOWER_MMA),
        Pass("nvidia.ttnvgpuir.hoist_mbarrier_lifecycle", to_arch),
    ),
    whole_views=False,
)
