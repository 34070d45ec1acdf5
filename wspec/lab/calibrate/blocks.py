"""A block's life: from the end of one to the start of the next on the SM, and handing registers over by setmaxnreg."""

from __future__ import annotations

import itertools

import numpy as np

from wspec.lab.calibrate.bench import Bench, u32
from wspec.lab.calibrate.driver import Argument
from wspec.lab.calibrate.ptx import (
    GROUP,
    IDS,
    LOAD_TIMED_PARAMS,
    REGISTERS,
    TIMED_PARAMS,
    Kernel,
    entry,
    loop,
    store_times,
)  # fmt: skip
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

SHARED = 200 * 1024
LIFE = 4000  # cycles
LONG_LIFE = 100_000  # longer than the host takes for a launch
WAVES = 16
LAUNCHES = 8
SIZES = (128, 256, 384)  # threads
LAUNCH_REGISTERS, PRODUCER_REGISTERS, CONSUMER_REGISTERS = 168, 24, 240


def turnover_kernel(name: str, life: int) -> Kernel:
    """Every warp spins for `life` cycles; thread 0 stores first clock, last clock, SM at out[32 block]."""
    body = f"""{REGISTERS}
mov.u64 %start, %clock64;
{LOAD_TIMED_PARAMS}
{IDS}
{loop("SPIN")}
mov.u64 %end, %clock64;
sub.u64 %rd0, %end, %start;
setp.lt.u64 %p0, %rd0, {life};
@%p0 bra SPIN;
setp.ne.u32 %p1, %thread, 0;
@%p1 ret;
mov.u32 %t, %smid;
cvt.u64.u32 %rd1, %t;
mov.u32 %t, %ctaid.x;
mad.wide.u32 %rd2, %t, 32, %out;
st.global.b64 [%rd2+16], %rd1;
mov.u64 %end, %clock64;
st.global.v2.b64 [%rd2], {{%start, %end}};
ret;"""
    return Kernel(name, entry(name, TIMED_PARAMS, body, threads=SIZES[-1]), SIZES[-1], SHARED, {"CS2R": 3})


def registers_kernel() -> Kernel:
    """Warps 0 to 3 give registers up, 4 to 11 take them; every warp stores its clock before and after."""
    body = f"""{REGISTERS}
{LOAD_TIMED_PARAMS}
{IDS}
bar.sync 0;
setp.ge.u32 %p1, %warp, 4;
@%p1 bra CONSUMER;
mov.u64 %start, %clock64;
setmaxnreg.dec.sync.aligned.u32 {PRODUCER_REGISTERS};
mov.u64 %end, %clock64;
{store_times()}
ret;
CONSUMER:
mov.u64 %start, %clock64;
setmaxnreg.inc.sync.aligned.u32 {CONSUMER_REGISTERS};
mov.u64 %end, %clock64;
{store_times()}
ret;"""
    name = "setmaxnreg"
    text = entry(name, TIMED_PARAMS, body, threads=3 * GROUP, registers=LAUNCH_REGISTERS)
    return Kernel(name, text, 3 * GROUP, 1024, {"USETMAXREG": 2, "CS2R": 4})


KERNELS = (
    turnover_kernel("block_turnover", LIFE),
    turnover_kernel("launch_gap", LONG_LIFE),
    registers_kernel(),
)


def quantities() -> tuple[Quantity, ...]:
    return (
        Quantity("turnover", "cycles", "last clock of a block to first clock of the next, 200 KiB of shared memory",
                 "threads"),
        Quantity("launch_gap", "cycles", "last clock of a launch on an SM to its first clock of the next launch, which "
                 "was waiting; 384 threads, 200 KiB"),
        Quantity("setmaxnreg_dec", "cycles", f"a warp of the producer, {LAUNCH_REGISTERS} to {PRODUCER_REGISTERS}"),
        Quantity("setmaxnreg_inc", "cycles", f"a warp of a consumer, {LAUNCH_REGISTERS} to {CONSUMER_REGISTERS}, "
                 "two groups taking what a third gives up at that moment"),
    )  # fmt: skip


def measure(bench: Bench) -> Samples:
    found: Samples = {"turnover": {threads: _turnover(bench, threads) for threads in SIZES}}
    warps = 3 * GROUP // 32
    found["launch_gap"] = {0: _launch_gap(bench)}
    dec: list[float] = []
    inc: list[float] = []
    for turn in range(1 + bench.repeats):
        out = bench.run("setmaxnreg", _arguments(bench), 2 * warps * 8, grid=8).reshape(8, warps, 2)
        took = out[:, :, 1] - out[:, :, 0]
        if turn:
            dec += [float(cycles) for cycles in took[:, :4].ravel()]
            inc += [float(cycles) for cycles in took[:, 4:].ravel()]
    return found | {"setmaxnreg_dec": {0: dec}, "setmaxnreg_inc": {0: inc}}


def _arguments(bench: Bench) -> tuple[Argument, ...]:
    return bench.out, bench.input, u32(0)


def _turnover(bench: Bench, threads: int) -> list[float]:
    """Cycles between successive blocks of an SM, over all SMs."""
    samples: list[float] = []
    blocks = WAVES * bench.sm_count
    for turn in range(1 + bench.repeats):
        out = bench.run("block_turnover", _arguments(bench), 4 * blocks, grid=blocks, threads=threads).reshape(-1, 4)
        if not turn:
            continue
        for sm in np.unique(out[:, 2]):
            mine = out[out[:, 2] == sm]
            mine = mine[np.argsort(mine[:, 0])]
            samples += [float(gap) for gap in mine[1:, 0] - mine[:-1, 1]]
    return samples


def _launch_gap(bench: Bench) -> list[float]:
    """Cycles between two launches of a block on every SM: from the last one's end to the next one's start, a launch."""
    samples: list[float] = []
    for _ in range(bench.repeats):
        out = bench.run_again("launch_gap", _arguments(bench)[1:], 4 * bench.sm_count, LAUNCHES, SIZES[-1])
        for before, after in itertools.pairwise(out[1:]):
            ends = {int(row[2]): int(row[1]) for row in before.reshape(-1, 4)}
            gaps = [int(row[0]) - ends[int(row[2])] for row in after.reshape(-1, 4) if int(row[2]) in ends]
            samples.append(float(np.median(gaps)))
    return samples


TOPIC = Topic(
    "blocks",
    f"{WAVES} waves of blocks that live {LIFE} cycles, one to an SM; {LAUNCHES} launches of blocks that live "
    f"{LONG_LIFE}; setmaxnreg once a block, 8 blocks",
    (KERNELS,),
    quantities(),
    measure,
)
