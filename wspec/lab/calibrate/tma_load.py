"""TMA loads by size: one at a time from L2 and from memory, and as many as a ring keeps in flight."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wspec.lab.calibrate.bench import Bench
from wspec.lab.calibrate.ptx import IDS, REGISTERS, WARP, Kernel, entry, loop, wait
from wspec.lab.calibrate.tiles import (
    BARRIERS,
    BOX_ROWS,
    ELECT,
    IN_FLIGHT,
    KIB,
    LOAD_PARAMS,
    ONE_MIB,
    PARAMS,
    ROW,
    ROWS,
    SIZES,
    Matrix,
    Walk,
    row_of,
)  # fmt: skip
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

_COPY = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
SHARED = BARRIERS + IN_FLIGHT
NO_END = 1 << 32


def issue(barrier: str, tile: str) -> str:
    """Expect and load the tile that starts in row %row, by a whole warp as Triton's producer does it."""
    return f"""@%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [{barrier}], %bytes;
{ELECT}
@%p6 {_COPY} [{tile}], [%map, {{0, %row}}], [{barrier}];
add.u32 %t, %row, {BOX_ROWS};
add.u32 %u, {tile}, {BOX_ROWS * ROW};
@%p7 {_COPY} [%u], [%map, {{0, %t}}], [{barrier}];"""


def latency_kernel() -> Kernel:
    """One warp of one block loads tile after tile and stores how long each took, from issue to after the wait."""
    name = "tma_load_latency"
    body = f"""{REGISTERS}
{LOAD_PARAMS}
{IDS}
@%p5 mbarrier.init.shared::cta.b64 [%smem], 1;
fence.proxy.async.shared::cta;
bar.warp.sync -1;
add.u32 %tile, %smem, {BARRIERS};
mov.u32 %par, 0;
mov.u32 %i, 0;
{loop("LOOP")}
{row_of("%i")}
mov.u64 %start, %clock64;
{issue("%smem", "%tile")}
{wait("%smem", "%par")}
mov.u64 %end, %clock64;
xor.b32 %par, %par, 1;
sub.u64 %rd1, %end, %start;
mad.wide.u32 %rd2, %i, 8, %out;
@%p5 st.global.b64 [%rd2], %rd1;
add.u32 %i, %i, 1;
setp.lt.u32 %p1, %i, %reps;
@%p1 bra LOOP;
ret;"""
    return Kernel(name, entry(name, PARAMS, body, threads=WARP), WARP, SHARED, {"UTMALDG": 2, "SYNCS": 3, "CS2R": 2})


def rate_kernel() -> Kernel:
    """The ring that `ring_kernel` makes of this topic's tiles."""
    return ring_kernel("tma_load_rate", row_of("%i"), issue("%flag", "%tile"), {"UTMALDG": 4, "SYNCS": 4, "CS2R": 2})


def ring_kernel(name: str, row: str, load: str, sass: Mapping[str, int]) -> Kernel:
    """A ring of tiles without a consumer: one warp waits for the oldest and issues the next into its place.

    `row` says where tile number %i starts and `load` loads it to %tile, with the mbarrier at %flag. Stores clock64 and
    globaltimer, before and after, at out[32 block].
    """
    step = """add.u32 %index, %index, 1;
setp.eq.u32 %p2, %index, %stages;
@%p2 mov.u32 %index, 0;"""
    place = "mad.lo.u32 %flag, %index, 8, %smem;\nmad.lo.u32 %tile, %index, %bytes, %smem;\n"
    place += f"add.u32 %tile, %tile, {BARRIERS};"
    body = f"""{REGISTERS}
{LOAD_PARAMS}
{IDS}
mov.u32 %i, 0;
{loop("INIT")}
mad.lo.u32 %flag, %i, 8, %smem;
@%p5 mbarrier.init.shared::cta.b64 [%flag], 1;
add.u32 %i, %i, 1;
setp.lt.u32 %p1, %i, %stages;
@%p1 bra INIT;
fence.proxy.async.shared::cta;
bar.warp.sync -1;
mov.u64 %start, %clock64;
mov.u64 %rd5, %globaltimer;
mov.u32 %i, 0;
mov.u32 %index, 0;
{loop("FIRST")}
{row}
{place}
{load}
{step}
add.u32 %i, %i, 1;
setp.lt.u32 %p1, %i, %stages;
@%p1 bra FIRST;
mov.u32 %par, 0;
add.u32 %reps, %reps, %stages;
{loop("LOOP")}
{place}
{wait("%flag", "%par")}
{row}
{load}
{step}
@%p2 xor.b32 %par, %par, 1;
add.u32 %i, %i, 1;
setp.lt.u32 %p1, %i, %reps;
@%p1 bra LOOP;
mov.u32 %i, 0;
{loop("LAST")}
{place}
{wait("%flag", "%par")}
{step}
@%p2 xor.b32 %par, %par, 1;
add.u32 %i, %i, 1;
setp.lt.u32 %p1, %i, %stages;
@%p1 bra LAST;
mov.u64 %end, %clock64;
mov.u64 %rd6, %globaltimer;
mad.wide.u32 %rd2, %block, 32, %out;
@%p5 st.global.v2.b64 [%rd2], {{%start, %end}};
@%p5 st.global.v2.b64 [%rd2+16], {{%rd5, %rd6}};
ret;"""
    return Kernel(name, entry(name, PARAMS, body, threads=WARP), WARP, SHARED, sass)


KERNELS = (latency_kernel(), rate_kernel())
SHARERS = (1, 2, 4, 8, 16, 32, 66, 132)
OWNERS = (1, 2, 4, 8, 12, 16, 24, 33, 66, 132)
RATES = {
    "alone_rate": "one SM, the others idle, 1 MiB in L2",
    "same_rate": "each of all SMs, all over the same 1 MiB in L2, as blocks of attention share K and V",
    "own_rate": "each of all SMs, each over 128 KiB of its own in L2",
    "dram_rate": "each of all SMs, each tile once, from memory",
}


def quantities() -> tuple[Quantity, ...]:
    found = [
        Quantity("l2_latency", "cycles", "issue, copy of a tile in L2, wait; the card otherwise idle", "KiB"),
        Quantity("dram_latency", "cycles", "issue, copy of a tile in memory, wait; the card otherwise idle", "KiB"),
    ]
    found += [
        Quantity(name, "bytes/clk/SM", f"{what}; one warp keeps up to 160 KiB in flight", "KiB")
        for name, what in RATES.items()
    ]
    what = "each of all SMs, so many neighbours over the same 256 KiB in L2, tiles of 16 KiB"
    found.append(Quantity("shared_rate", "bytes/clk/SM", what, "sharers"))
    what = "each of all SMs, blocks whose number has the same remainder by so many over the same 256 KiB in L2, 16 KiB"
    found.append(Quantity("apart_rate", "bytes/clk/SM", what, "owners"))
    what = "each of all SMs, a box of 128 rows past the end of the matrix"
    found.append(Quantity("past_rate", "bytes/clk/SM", what))
    found.append(Quantity("issue", "cycles", "one turn of a warp that loads: wait for a place, expect, issue a box"))
    found.append(Quantity("dram_total", "GB/s", "all SMs together, from memory (dram_rate by globaltimer)", "KiB"))
    return tuple(found)


def measure(bench: Bench) -> Samples:
    matrix = Matrix(bench)
    found: Samples = {quantity.name: {} for quantity in quantities()}
    for kib in SIZES:
        size = kib * KIB
        found["l2_latency"][kib] = _latency(matrix, size, dram=False)
        found["dram_latency"][kib] = _latency(matrix, size, dram=True)
        for name in RATES:
            rates, total = _rate(matrix, size, name)
            found[name][kib] = rates
            if name == "dram_rate":
                found["dram_total"][kib] = total
    for sharers in SHARERS:
        found["shared_rate"][sharers] = _rate(matrix, 16 * KIB, "shared_rate", sharers)[0]
    for owners in OWNERS:
        found["apart_rate"][owners] = _rate(matrix, 16 * KIB, "apart_rate", owners=owners)[0]
    found["past_rate"][0] = _rate(matrix, 16 * KIB, "past_rate")[0]
    smallest = SIZES[0]  # so small that the warp is what takes the time
    found["issue"][0] = [smallest * KIB / rate for rate in found["alone_rate"][smallest]]
    return found


def _latency(matrix: Matrix, size: int, *, dram: bool) -> list[float]:
    bench, count = matrix.bench, 64
    samples: list[float] = []
    for turn in range(1 + bench.repeats):
        first = matrix.fresh(count * size) if dram else 0
        walk = Walk(size, NO_END if dram else max(1, ONE_MIB // 4 // size), 1, 0, first)
        times = bench.run("tma_load_latency", matrix.arguments(walk, count), count)
        if turn:  # the first one warms: instructions, descriptor, L2
            samples += [float(time) for time in times[1:]]  # the first tile waits for the descriptor
    return samples


def _rate(matrix: Matrix, size: int, name: str, sharers: int = 1, owners: int = 1) -> tuple[list[float], list[float]]:
    """(bytes per clock and SM, GB/s of all), a sample for each pair of launches."""
    bench = matrix.bench
    blocks = 1 if name == "alone_rate" else bench.sm_count
    tiles = 1024 * KIB // size
    few, many = (tiles, 3 * tiles) if name != "dram_rate" else (tiles, 2 * tiles)
    rates, totals = [], []
    for turn in range(1 + bench.repeats):
        cycles, nanoseconds = [], []
        for reps in (few, many):
            if name == "dram_rate":
                walk = Walk(size, NO_END, blocks, 1, 0)
                walk = Walk(size, NO_END, blocks, 1, matrix.fresh((reps + walk.stages) * blocks * size))
            elif name == "own_rate":
                own = 128 * KIB // size
                walk = Walk(size, own, 1, own)
            elif name == "shared_rate":
                walk = Walk(size, 256 * KIB // size, 1, 256 * KIB // size, sharers=sharers)
            elif name == "apart_rate":
                walk = Walk(size, 256 * KIB // size, 1, 256 * KIB // size, owners=owners)
            elif name == "past_rate":
                walk = Walk(size, 1, 0, 0, ROWS)
            else:
                walk = Walk(size, ONE_MIB // size, 1, 0)
            out = bench.run("tma_load_rate", matrix.arguments(walk, reps), 4 * blocks, grid=blocks).reshape(-1, 4)
            cycles.append(float(np.median(out[:, 1] - out[:, 0])))
            nanoseconds.append(float(out[:, 3].max() - out[:, 2].min()))
        if turn:
            moved = (many - few) * size
            rates.append(moved / (cycles[1] - cycles[0]))
            totals.append(moved * blocks / (nanoseconds[1] - nanoseconds[0]))
    return rates, totals


TOPIC = Topic(
    "tma_load",
    "tiles of a bf16 matrix with rows of 128 bytes, boxes of whole rows, 128-byte swizzle (64 KiB: two boxes)",
    (KERNELS,),
    quantities(),
    measure,
)
