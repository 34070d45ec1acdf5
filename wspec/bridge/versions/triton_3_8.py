"""Triton 3.8, which torch 2.14 brings: what differs from 3.7.

A descriptor's type has its block without `tensor<...>` around it, block pointers are gone from the IR, and what waits
for TMA stores waits for their writes unless it is `read_only`.
"""

from __future__ import annotations

from dataclasses import replace

from wspec.bridge.versions import triton_3_7
from wspec.bridge.versions.spelling import descriptors_of_shapes
from wspec.bridge.versions.version import Pass, in_place_of

_WARP_GROUPS = "ttgpuir.allocate_warp_groups"

TRITON = replace(
    triton_3_7.TRITON,
    release="3.8",
    spelling=(*triton_3_7.TRITON.spelling, descriptors_of_shapes),
    memory=in_place_of(
        triton_3_7.TRITON.memory,
        _WARP_GROUPS,
        Pass(_WARP_GROUPS, lambda _arch, _options: (False,)),  # not for the concurrency sanitizer
    ),
    whole_views=True,
    columns_of_files=True,
    gathers_before_waits=False,
)
