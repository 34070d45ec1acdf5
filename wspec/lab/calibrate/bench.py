"""A topic on a device: its kernels loaded, buffers at hand, and the ways of timing that topics share."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wspec.lab.calibrate.assemble import assemble
from wspec.lab.calibrate.driver import Argument, Driver, Function
from wspec.lab.calibrate.ptx import Kernel

OUT_BYTES = 1 << 22
IN_BYTES = 1 << 17


class Bench:
    """What `measure` of a topic is given."""

    def __init__(self, driver: Driver, modules: Sequence[Sequence[Kernel]], folder: Path, *, quick: bool) -> None:
        """`modules`: the kernels of a topic, those of each assembled together."""
        self.driver = driver
        self.quick = quick
        self.repeats = 5 if quick else 21
        self.sm_count = driver.sm_count
        self._kernels = {kernel.name: kernel for part in modules for kernel in part}
        self._functions: dict[str, Function] = {}
        for part in modules:
            cubin = assemble(part, folder).read_bytes()
            self._functions |= driver.load(cubin, [kernel.name for kernel in part])
        self.out = driver.allocate(OUT_BYTES)
        self.input = driver.allocate(IN_BYTES)
        self.fill(0)

    def fill(self, word: int) -> None:
        """Every word of the input becomes `word`."""
        self.driver.fill(self.input, word, IN_BYTES // 4)

    def run(
        self, name: str, arguments: Sequence[Argument], words: int, *, grid: int = 1, threads: int = 0, shared: int = -1
    ) -> NDArray[np.int64]:
        """One launch; the first `words` 64-bit words of the output, which the launch finds as -1."""
        kernel = self._kernels[name]
        if words * 8 > OUT_BYTES:
            raise ValueError(f"{name}: {words} words do not fit the output")
        self.driver.fill(self.out, 0xFFFFFFFF, words * 2)
        self.driver.launch(
            self._functions[name], grid, threads or kernel.threads, kernel.shared if shared < 0 else shared, arguments
        )
        return self.driver.read(self.out, words)

    def run_again(
        self, name: str, arguments: Sequence[Argument], words: int, launches: int, threads: int
    ) -> NDArray[np.int64]:
        """So many launches in a row, one block an SM, each with words of its own: [launches, words].

        The output's pointer is put in front of the arguments.
        """
        kernel = self._kernels[name]
        if launches * words * 8 > OUT_BYTES:
            raise ValueError(f"{name}: {launches} times {words} words do not fit the output")
        self.driver.fill(self.out, 0xFFFFFFFF, launches * words * 2)
        for at in range(launches):
            mine = (self.out + at * words * 8, *arguments)
            self.driver.launch(self._functions[name], self.sm_count, threads, kernel.shared, mine)
        return self.driver.read(self.out, launches * words).reshape(launches, words)

    def loop_time(self, name: str, warps: int, reps: int, threads: int = 0) -> float:
        """Cycles of a `timed_loop` in one block, from the first warp's start to the last one's end.

        Of `threads` threads, where those that store their clocks are not all.
        """
        times = self.run(name, (self.out, self.input, u32(reps)), 2 * warps, threads=threads or 32 * warps)
        starts, ends = times[0::2], times[1::2]
        if (times < 0).any() or (ends <= starts).any():
            raise ValueError(f"{name}: clocks that were not written")
        return float(ends.max() - starts.min())

    def per_iteration(self, name: str, warps: int, reps: int = 256) -> list[float]:
        """Cycles of one iteration of a `timed_loop`, one sample for each pair of trip counts."""
        few = reps // 4
        self.loop_time(name, warps, few)
        return [
            (self.loop_time(name, warps, reps) - self.loop_time(name, warps, few)) / (reps - few)
            for _ in range(self.repeats)
        ]


def u32(value: int) -> ctypes.c_uint32:
    """A 32-bit argument of a launch."""
    return ctypes.c_uint32(value)
