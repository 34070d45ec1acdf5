"""The SM clock while something else ran: clock64 against globaltimer on every SM, before and after."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies of jit functions are read by Triton, which has no types to give their arguments.

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator

import torch
import triton
import triton.language as tl

MOST = 4096
"""Windows a probe can hold."""


@triton.jit
def _read(out_ptr, row):
    """out[row, block] = (SM, clock64, globaltimer); int64 [rows, blocks, 3]."""
    asm: tl.constexpr = (
        "{ .reg .b32 %s; mov.u32 %s, %smid; cvt.u64.u32 $0, %s; mov.u64 $1, %clock64; mov.u64 $2, %globaltimer; }"
    )
    sm, cycles, time = tl.inline_asm_elementwise(
        asm, "=l,=l,=l,r", [row], dtype=(tl.int64, tl.int64, tl.int64), is_pure=False, pack=1
    )
    at = out_ptr + (row * tl.num_programs(0) + tl.program_id(0)) * 3
    tl.store(at, sm)
    tl.store(at + 1, cycles)
    tl.store(at + 2, time)


class ClockProbe:
    """`with probe.window(name):` around launches; `probe.mhz()` afterwards."""

    def __init__(self, device: torch.device) -> None:
        self.blocks = torch.cuda.get_device_properties(device).multi_processor_count
        self.rows = torch.zeros(2 * MOST, self.blocks, 3, dtype=torch.int64, device=device)
        self.names: list[str] = []

    @contextlib.contextmanager
    def window(self, name: str) -> Iterator[None]:
        """What is enqueued inside is what the clock is asked of."""
        at = 2 * len(self.names)
        if at >= len(self.rows):
            raise ValueError(f"a probe holds {MOST} windows")
        self.names.append(name)
        _read[(self.blocks,)](self.rows, at, num_warps=1)
        yield
        _read[(self.blocks,)](self.rows, at + 1, num_warps=1)

    def mhz(self, last: int = MOST) -> dict[str, float]:
        """By name the median of its last so many windows, each the median of the SMs that both readings have.

        Waits for the GPU.
        """
        found: dict[str, list[float]] = {}
        rows = self.rows[: 2 * len(self.names)].cpu().tolist()
        for at, name in enumerate(self.names):
            before = {sm: (cycles, time) for sm, cycles, time in rows[2 * at]}
            after = {sm: (cycles, time) for sm, cycles, time in rows[2 * at + 1]}
            rates = [
                (after[sm][0] - before[sm][0]) / (after[sm][1] - before[sm][1]) * 1000
                for sm in before.keys() & after.keys()
                if after[sm][1] > before[sm][1]
            ]
            if rates:
                found.setdefault(name, []).append(statistics.median(rates))
        return {name: statistics.median(values[-last:]) for name, values in found.items()}
