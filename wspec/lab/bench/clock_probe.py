"""The SM clock while something else ran: clock64 against globaltimer on every SM, before and after."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies of jit functions are read by Triton, which has no types to give their arguments.

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator, Sequence

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

    def mhz(self, rounds: int) -> dict[str, list[float]]:
        """Of variants that `timing.measure` timed, by name: the clock of the window of each of the last rounds.

        A window's clock is the median of the SMs that both readings have; where there is none, that of the variant's
        other windows. Waits for the GPU.
        """
        rows = self.rows[: 2 * len(self.names)].cpu().tolist()
        found: dict[str, list[float | None]] = {}
        for turn in timed_windows(self.names, rounds):
            for name, at in turn.items():
                found.setdefault(name, []).append(_clock(rows[2 * at], rows[2 * at + 1]))
        middle = {name: statistics.median(one for one in clocks if one is not None) for name, clocks in found.items()}
        return {name: [middle[name] if one is None else one for one in clocks] for name, clocks in found.items()}


Reading = list[list[int]]  # SM, clock64, globaltimer of every block


def _clock(before: Reading, after: Reading) -> float | None:
    """In MHz; None where no SM has both readings."""
    first = {sm: (cycles, time) for sm, cycles, time in before}
    last = {sm: (cycles, time) for sm, cycles, time in after}
    both = [sm for sm in first.keys() & last.keys() if last[sm][1] > first[sm][1]]
    if not both:
        return None
    return statistics.median((last[sm][0] - first[sm][0]) / (last[sm][1] - first[sm][1]) * 1000 for sm in both)


def timed_windows(names: Sequence[str], rounds: int) -> list[dict[str, int]]:
    """Of the windows of a `timing.measure`, by their names in order: name -> index of the window that was timed, for
    each of the last rounds. The first variant of a round has one more, ahead of it."""
    count = len(set(names))
    first = len(names) - rounds * (count + 1)
    found = []
    for start in range(first, len(names), count + 1):
        found.append({name: start + 1 + at for at, name in enumerate(names[start + 1 : start + 1 + count])})
    if first < 0 or any(len(turn) != count for turn in found):
        raise ValueError(f"these are not the windows of {rounds} rounds")
    return found
