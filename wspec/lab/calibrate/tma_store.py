"""TMA stores by size: until shared memory may be written again, until the data is visible, and at which rate."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wspec.lab.calibrate.bench import Bench
from wspec.lab.calibrate.ptx import IDS, REGISTERS, WARP, Kernel, entry, loop
from wspec.lab.calibrate.tiles import (
    BARRIERS,
    BOX_ROWS,
    ELECT,
    IN_FLIGHT,
    KIB,
    LOAD_PARAMS,
    PARAMS,
    ROW,
    SIZES,
    Matrix,
    Walk,
    row_of,
)  # fmt: skip
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

_COPY = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
SHARED = BARRIERS + IN_FLIGHT
NO_END = 1 << 32
OWN = 128 * KIB  # bytes of each block that stay in L2
PENDING = 4  # groups in flight

ISSUE = f"""{ELECT}
@%p6 {_COPY} [%map, {{0, %row}}], [%tile];
add.u32 %t, %row, {BOX_ROWS};
add.u32 %u, %tile, {BOX_ROWS * ROW};
@%p7 {_COPY} [%map, {{0, %t}}], [%u];
cp.async.bulk.commit_group;"""
"""By a whole warp, as Triton emits it."""


def latency_kernel() -> Kernel:
    """One warp of one block stores tile after tile and notes both ends of each."""
    name = "tma_store_latency"
    body = f"""{REGISTERS}
{LOAD_PARAMS}
{IDS}
add.u32 %tile, %smem, {BARRIERS};
mov.u32 %i, 0;
{loop("LOOP")}
{row_of("%i")}
mov.u64 %start, %clock64;
{ISSUE}
cp.async.bulk.wait_group.read 0;
mov.u64 %rd3, %clock64;
cp.async.bulk.wait_group 0;
mov.u64 %end, %clock64;
sub.u64 %rd3, %rd3, %start;
sub.u64 %rd4, %end, %start;
mad.wide.u32 %rd2, %i, 16, %out;
@%p5 st.global.v2.b64 [%rd2], {{%rd3, %rd4}};
add.u32 %i, %i, 1;
setp.lt.u32 %p1, %i, %reps;
@%p1 bra LOOP;
ret;"""
    return Kernel(name, entry(name, PARAMS, body, threads=WARP), WARP, SHARED, {"UTMASTG": 2, "DEPBAR": 2, "CS2R": 3})


def rate_kernel() -> Kernel:
    """What `stream_kernel` makes of this topic's tiles."""
    return stream_kernel("tma_store_rate", row_of("%i"), ISSUE, {"UTMASTG": 2, "DEPBAR": 2, "CS2R": 2})


def stream_kernel(name: str, row: str, store: str, sass: Mapping[str, int]) -> Kernel:
    """One warp of each block keeps PENDING stores in flight; clock64 before and after at out[16 block].

    `row` says where tile number %i starts, and `store` stores it from %tile.
    """
    body = f"""{REGISTERS}
{LOAD_PARAMS}
{IDS}
add.u32 %tile, %smem, {BARRIERS};
mov.u32 %i, 0;
mov.u64 %start, %clock64;
{loop("LOOP")}
{row}
{store}
cp.async.bulk.wait_group.read {PENDING - 1};
add.u32 %i, %i, 1;
setp.lt.u32 %p1, %i, %reps;
@%p1 bra LOOP;
cp.async.bulk.wait_group 0;
mov.u64 %end, %clock64;
mad.wide.u32 %rd2, %block, 16, %out;
@%p5 st.global.v2.b64 [%rd2], {{%start, %end}};
ret;"""
    return Kernel(name, entry(name, PARAMS, body, threads=WARP), WARP, SHARED, sass)


KERNELS = (latency_kernel(), rate_kernel())


def quantities() -> tuple[Quantity, ...]:
    return (
        Quantity("read_latency", "cycles", "issue, commit, until shared memory was read; the card idle", "KiB"),
        Quantity("latency", "cycles", "issue, commit, until the store is complete; the card idle", "KiB"),
        Quantity("alone_rate", "bytes/clk/SM", "one SM, the others idle, over 128 KiB", "KiB"),
        Quantity("own_rate", "bytes/clk/SM", "each of all SMs, each over 128 KiB of its own in L2", "KiB"),
        Quantity("stream_rate", "bytes/clk/SM", "each of all SMs, each tile once", "KiB"),
    )


def measure(bench: Bench) -> Samples:
    matrix = Matrix(bench)
    found: Samples = {quantity.name: {} for quantity in quantities()}
    for kib in SIZES:
        size = kib * KIB
        found["read_latency"][kib], found["latency"][kib] = _latency(matrix, size)
        for name in ("alone_rate", "own_rate", "stream_rate"):
            found[name][kib] = _rate(matrix, size, name)
    return found


def _latency(matrix: Matrix, size: int) -> tuple[list[float], list[float]]:
    bench, count = matrix.bench, 64
    reads: list[float] = []
    ends: list[float] = []
    walk = Walk(size, OWN // size, 1, 0)
    for turn in range(1 + bench.repeats):
        times = bench.run("tma_store_latency", matrix.arguments(walk, count), 2 * count).reshape(-1, 2)
        if turn:  # the first launch and the first tile warm
            reads += [float(time) for time in times[1:, 0]]
            ends += [float(time) for time in times[1:, 1]]
    return reads, ends


def _rate(matrix: Matrix, size: int, name: str) -> list[float]:
    """Bytes per clock and SM, a sample for each pair of launches."""
    bench = matrix.bench
    blocks = 1 if name == "alone_rate" else bench.sm_count
    tiles = 1024 * KIB // size
    few, many = (tiles, 3 * tiles) if name != "stream_rate" else (tiles, 2 * tiles)
    rates = []
    for turn in range(1 + bench.repeats):
        cycles = []
        for reps in (few, many):
            if name == "stream_rate":
                walk = Walk(size, NO_END, blocks, 1, matrix.fresh(reps * blocks * size))
            else:
                walk = Walk(size, OWN // size, 1, OWN // size)
            out = bench.run("tma_store_rate", matrix.arguments(walk, reps), 2 * blocks, grid=blocks).reshape(-1, 2)
            cycles.append(float(np.median(out[:, 1] - out[:, 0])))
        if turn:
            rates.append((many - few) * size / (cycles[1] - cycles[0]))
    return rates


TOPIC = Topic(
    "tma_store",
    f"tiles as in tma_load, {PENDING} in flight where a rate is measured",
    (KERNELS,),
    quantities(),
    measure,
)
