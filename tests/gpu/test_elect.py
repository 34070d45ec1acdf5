"""Which lane `elect.sync` picks, on a Hopper GPU: what proofs of the PTX take for granted (docs/checker.md)."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

pytestmark = pytest.mark.gpu


@triton.jit
def leaders(out, THREADS: tl.constexpr):
    """1 from each thread that is picked, 0 from the others; an element a thread."""
    at = tl.arange(0, THREADS)
    assembly: tl.constexpr = "{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 $0, 1, 0, p; }"
    picked = tl.inline_asm_elementwise(assembly, "=r,r", [at], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(out + tl.program_id(0) * THREADS + at, picked)


@pytest.mark.parametrize("warps", [1, 4, 8])
def test_lane_0_is_picked(warps: int) -> None:
    blocks, threads = 1000, 32 * warps
    out = torch.full((blocks, threads), -1, dtype=torch.int32, device="cuda")
    leaders[(blocks,)](out, THREADS=threads, num_warps=warps)
    expected = (torch.arange(threads, device="cuda") % 32 == 0).int().expand(blocks, -1)
    assert torch.equal(out, expected)
