"""Plain products with quantized weights, started early by hand: `programmatic_launch` without specialization.

Launched with `launch_pdl=True`, blocks start while the kernel before them runs, and wait for its end at once.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies of jit functions are read by Triton, which has no types to give their arguments.

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from wspec.kernels.quantized import int4_weights_kernel, int8_weights_kernel


@triton.jit
def int8_started_early(
    a_desc, w_desc, scale_ptr, c_desc, n, k_part,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    gdc_wait()
    gdc_launch_dependents()
    int8_weights_kernel(a_desc, w_desc, scale_ptr, c_desc, n, k_part, BLOCK_M, BLOCK_N, BLOCK_K)


@triton.jit
def int4_started_early(
    a_desc, w_desc, scale_ptr, c_desc, n, k_half, k_part,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    gdc_wait()
    gdc_launch_dependents()
    int4_weights_kernel(a_desc, w_desc, scale_ptr, c_desc, n, k_half, k_part, BLOCK_M, BLOCK_N, BLOCK_K, GROUP)


def started_by_hand(bits: int) -> Any:
    """The jit function for weights of 8 or 4 bits, to be launched with `launch_pdl=True`."""
    return int8_started_early if bits == 8 else int4_started_early
