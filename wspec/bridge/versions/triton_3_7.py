"""Triton 3.7, which torch 2.12 and 2.13 bring: what differs from 3.6.

What partitions capture are operands of another operation, TMA loads say which of theirs are coordinates, and
`gpu.barrier` is `ttg.barrier local`.
"""

from __future__ import annotations

from dataclasses import replace

from wspec.bridge.versions import triton_3_6
from wspec.bridge.versions.spelling import captures_of_partitions, segments_of_loads

TRITON = replace(
    triton_3_6.TRITON,
    release="3.7",
    spelling=(captures_of_partitions, segments_of_loads),
    ptxas_flags=("--regAllocOptLevel=2",),  # around a bug of ptxas 13
)
