"""The kernel that docs/tour.md follows: attention without masks, for lengths that the tiles divide."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def attend(q_desc, k_desc, v_desc, o_desc, keys, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    """M queries against all keys. q, o: [queries, D]; k, v: [keys, D]; scale counts in powers of two."""
    row = tl.program_id(0) * M
    q = q_desc.load([row, 0])
    top = tl.full([M], -float("inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, D], tl.float32)
    for start in tl.range(0, keys, N):
        k = k_desc.load([start, 0])
        s = tl.dot(q, k.T)
        new_top = tl.maximum(top, tl.max(s, 1) * scale)
        p = tl.math.exp2(s * scale - new_top[:, None])
        decay = tl.math.exp2(top - new_top)
        total = total * decay + tl.sum(p, 1)
        acc = acc * decay[:, None]
        v = v_desc.load([start, 0])
        acc = tl.dot(p.to(v.dtype), v, acc)
        top = new_top
    o_desc.store([row, 0], (acc / total[:, None]).to(q.dtype))
