"""A kernel that leaves not-a-number in shared memory, so that a later one that reads too early shows it."""

from __future__ import annotations

# mypy: ignore-errors
# The bodies of jit functions are read by Triton, which has no types to give their arguments.
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def poison(ROWS: gl.constexpr):
    """Fill ROWS * 2 KiB of a block's shared memory with 0x7FFF, which is NaN in float16 and in bfloat16."""
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    layout: gl.constexpr = gl.BlockedLayout([8], [32], [4], [0])
    buffer = gl.allocate_shared_memory(gl.int16, [ROWS, 1024], shared)
    for row in range(ROWS):
        buffer.index(row).store(gl.full([1024], 0x7FFF, gl.int16, layout))
