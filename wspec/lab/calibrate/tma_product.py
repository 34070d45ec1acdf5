"""TMA loads in the order of a product: all SMs walk along K, each with its tile's rows of A and its columns of B.

Tiles are numbered down groups of eight rows of tiles, as in Triton's tutorials. Nobody reads what is loaded; two warp
groups may multiply what lies there meanwhile, as often as a pause lets them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wspec.lab.calibrate.bench import Bench, u32
from wspec.lab.calibrate.driver import Argument
from wspec.lab.calibrate.ptx import GROUP, IDS, REGISTERS, Kernel, entry, loop, wait
from wspec.lab.calibrate.tensor_cores import KINDS, accumulators, batch, descriptors
from wspec.lab.calibrate.tiles import KIB
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

MULTIPLIED = next(kind for kind in KINDS if kind.name == "bf16_ss")
N, COUNT = 128, 16
FLAG, BARRIERS = 512, 1024
ROWS_OF_TILES = 8  # of a group
WORDS = 6  # a block stores: clock64 twice, globaltimer twice, batches multiplied, its SM
NAMES = (
    "reps", "stages", "bytes", "group", "tiles_n", "mask", "depth", "a_rows", "a_boxes", "a_box", "b_rows", "b_boxes",
    "b_box", "by_rows", "pause", "stagger", "tiles", "rest", "first",
)  # fmt: skip
_COPY = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
PARAMS = ".param .align 64 .b8 p_a[128], .param .align 64 .b8 p_b[128], .param .u64 p_out,\n" + ", ".join(
    f".param .u32 p_{name}" for name in NAMES
)


def _boxes(which: str, x: str, y: str) -> str:
    """Loads the boxes of an operand, side by side 64 elements, to %tile and on."""
    return f"""{{
mov.u32 %j, 0;
mov.u32 %u, {x};
{loop(f"BOX_{which}")}
@%p6 {_COPY} [%tile], [%map_{which}, {{%u, {y}}}], [%flag];
add.u32 %u, %u, 64;
add.u32 %tile, %tile, %{which}_box;
add.u32 %j, %j, 1;
setp.lt.u32 %p1, %j, %{which}_boxes;
@%p1 bra BOX_{which};
}}"""


def _barriers() -> str:
    """Makes the ring's barriers; one arrival and the bytes of a step complete each."""
    return f"""mov.u32 %i, 0;
{loop("INIT")}
mad.lo.u32 %flag, %i, 8, %smem;
setp.eq.u32 %p5, %lane, 0;
@%p5 mbarrier.init.shared::cta.b64 [%flag], 1;
add.u32 %i, %i, 1;
setp.lt.u32 %p1, %i, %stages;
@%p1 bra INIT;
fence.proxy.async.shared::cta;
bar.warp.sync -1;"""


_TILE = """mov.u32 %block, %ctaid.x;
mul.lo.u32 %t, %group, %tiles_n;
div.u32 %u, %block, %t;
rem.u32 %t, %block, %t;
rem.u32 %at_m, %t, %group;
mad.lo.u32 %at_m, %u, %group, %at_m;
mul.lo.u32 %at_m, %at_m, %a_rows;
div.u32 %at_n, %t, %group;
mul.lo.u32 %at_n, %at_n, %b_rows;"""


def _turn() -> str:
    """Waits for the block's turn, and takes the times at which it begins."""
    return f"""mul.lo.u32 %t, %block, %stagger;
cvt.u64.u32 %rd3, %t;
mov.u64 %start, %clock64;
{loop("STAGGER")}
mov.u64 %end, %clock64;
sub.u64 %rd4, %end, %start;
setp.lt.u64 %p1, %rd4, %rd3;
@%p1 bra STAGGER;
cvt.u64.u32 %rd3, %pause;
mov.u64 %start, %clock64;
mov.u64 %rd5, %globaltimer;
mov.u32 %i, 0;
mov.u32 %index, 0;"""


def _loading(name: str) -> str:
    """One warp: a ring of steps without a consumer."""
    load = f"""{{ .reg .b32 %f; elect.sync %f|%p6, -1; }}
@%p6 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%flag], %bytes;
add.u32 %t, %i, %first;
and.b32 %t, %t, %mask;
mul.lo.u32 %k, %t, %depth;
{_boxes("a", "%k", "%at_m")}
setp.ne.u32 %p2, %by_rows, 0;
selp.b32 %r10, %k, %at_n, %p2;
selp.b32 %r11, %at_n, %k, %p2;
{_boxes("b", "%r10", "%r11")}"""
    place = """mad.lo.u32 %flag, %index, 8, %smem;
mad.lo.u32 %tile, %index, %bytes, %smem;
add.u32 %tile, %tile, %tiles;"""
    step = """add.u32 %index, %index, 1;
setp.eq.u32 %p3, %index, %stages;
@%p3 mov.u32 %index, 0;"""
    return f"""{_barriers()}
{_TILE}
{_turn()}
{loop("FIRST")}
{place}
{load}
{step}
add.u32 %i, %i, 1;
setp.lt.u32 %p1, %i, %stages;
@%p1 bra FIRST;
mov.u64 %rd7, %clock64;
mov.u32 %par, 0;
add.u32 %reps, %reps, %stages;
{loop("LOOP")}
{place}
{wait("%flag", "%par")}
{loop("PAUSE")}
mov.u64 %end, %clock64;
sub.u64 %rd4, %end, %rd7;
setp.lt.u64 %p1, %rd4, %rd3;
@%p1 bra PAUSE;
mov.u64 %rd7, %end;
{load}
{step}
@%p3 xor.b32 %par, %par, 1;
add.u32 %i, %i, 1;
setp.lt.u32 %p1, %i, %reps;
@%p1 bra LOOP;
mov.u32 %i, 0;
{loop("LAST")}
{place}
{wait("%flag", "%par")}
{step}
@%p3 xor.b32 %par, %par, 1;
add.u32 %i, %i, 1;
setp.lt.u32 %p1, %i, %stages;
@%p1 bra LAST;
mov.u64 %end, %clock64;
mov.u64 %rd6, %globaltimer;
mov.u32 %t, 1;
st.volatile.shared.b32 [%smem+{FLAG}], %t;
mov.u32 %t, %smid;
cvt.u64.u32 %rd8, %t;
mad.wide.u32 %rd2, %block, {8 * WORDS}, %out;
setp.eq.u32 %p5, %lane, 0;
@%p5 st.global.v2.b64 [%rd2], {{%start, %end}};
@%p5 st.global.v2.b64 [%rd2+16], {{%rd5, %rd6}};
@%p5 st.global.b64 [%rd2+40], %rd8;
ret;"""


def _head() -> str:
    read = "\n".join(f"ld.param.u32 %{name}, [p_{name}];" for name in NAMES)
    names = ", ".join(f"%{name}" for name in NAMES if name != "reps")
    return f"""{REGISTERS}
.reg .b32 {names};
.reg .b32 %block, %at_m, %at_n, %i, %j, %k, %index, %tile, %batches;
.reg .b64 %map_a, %map_b;
mov.b64 %rd0, p_a;
cvta.param.u64 %map_a, %rd0;
mov.b64 %rd0, p_b;
cvta.param.u64 %map_b, %rd0;
ld.param.u64 %out, [p_out];
{read}
{IDS}
mov.u32 %t, 0;
setp.eq.u32 %p5, %thread, 0;
@%p5 st.volatile.shared.b32 [%smem+{FLAG}], %t;
bar.sync 0;"""


def loads() -> Kernel:
    """Loads and nothing else."""
    name = "tma_product"
    return Kernel(name, entry(name, PARAMS, f"{_head()}\n{_loading(name)}", threads=32), 32, 0, {"UTMALDG": 4})


def beside() -> Kernel:
    """Loads beside two warp groups that multiply until all is loaded."""
    name = "tma_product_beside"
    text = f"""{_head()}
.reg .b32 %d<{N // 2}>;
.reg .b32 %base;
add.u32 %base, %smem, {BARRIERS};
shr.u32 %t, %thread, 7;
setp.eq.u32 %p0, %t, 2;
@%p0 bra LOADING;
{descriptors(MULTIPLIED).replace("%smem", "%base")}
{accumulators(N)}
mov.u32 %batches, 0;
shr.u32 %u, %warp, 2;
add.u32 %u, %u, 2;
{loop("WORK")}
{batch(MULTIPLIED, N, COUNT)}
add.u32 %batches, %batches, 1;
setp.eq.u32 %p1, %rest, 0;
@%p1 bra GO;
mov.u64 %rd10, %clock64;
cvt.u64.u32 %rd11, %rest;
add.u64 %rd10, %rd10, %rd11;
{loop("REST")}
mov.u64 %rd11, %clock64;
setp.ge.u64 %p1, %rd11, %rd10;
@!%p1 nanosleep.u32 100;
@!%p1 bra REST;
GO:
ld.volatile.shared.b32 %flag, [%smem+{FLAG}];
setp.ne.u32 %p13, %flag, 0;
bar.red.or.pred %p12, %u, {GROUP}, %p13;
@!%p12 bra WORK;
setp.eq.u32 %p2, %reps, 0xffffffff;
@%p2 st.global.b32 [%out], %d0;
mov.u32 %t, %ctaid.x;
mad.wide.u32 %rd2, %t, {8 * WORDS}, %out;
cvt.u64.u32 %rd1, %batches;
setp.eq.u32 %p5, %thread, 0;
@%p5 st.global.b64 [%rd2+32], %rd1;
ret;
LOADING:
{_loading(name)}"""
    threads = 2 * GROUP + 32
    return Kernel(name, entry(name, PARAMS, text, threads=threads), threads, 0, {"UTMALDG": 4, "HGMMA": COUNT})


@dataclass(frozen=True, slots=True)
class Tile:
    """Of a product: rows, columns, depth in bf16."""

    rows: int
    columns: int
    depth: int

    @property
    def size(self) -> int:
        """Bytes that a step loads."""
        return 2 * self.depth * (self.rows + self.columns)


@dataclass(frozen=True, slots=True)
class Case:
    """How a launch loads."""

    tile: Tile
    stages: int
    blocks: int = 1  # of an SM
    by_rows: bool = True  # B lies as [n, k]
    pitch_a: int = 4096  # bytes
    pitch_b: int = 4096
    steps: int = 16  # along K until a block begins again; a power of two
    group: int = ROWS_OF_TILES
    tiles_n: int = 1 << 10  # columns of tiles
    pause: int = 0  # cycles from a step to the next at least
    stagger: int = 0  # cycles from one block's beginning to the next one's
    multiply: bool = False
    rest: int = 0  # cycles between batches


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a launch says: medians over blocks."""

    cycles: float
    nanoseconds: float
    batches: float
    longest: float  # cycles of the block that took longest
    shared: int  # blocks of the SM that has most


class Bed:
    """Memory for A and B."""

    def __init__(self, bench: Bench, size: int = 1 << 29) -> None:
        self.bench, self.size = bench, size
        self.a, self.b = bench.driver.allocate(size), bench.driver.allocate(size)
        numbers = np.random.default_rng(0).standard_normal(1 << 22, dtype=np.float32)
        halves = (numbers.view(np.uint32) >> 16).astype(np.uint16)
        for pointer in (self.a, self.b):
            for at in range(0, size, halves.nbytes):
                bench.driver.write(pointer + at, halves)

    def _map(self, pointer: int, rows: int, columns: int, pitch: int, box_rows: int, box_columns: int) -> bytes:
        return self.bench.driver.tensor_map(
            pointer, min(rows, self.size // pitch), box_rows, columns=columns, pitch=pitch, box_columns=box_columns
        )

    def run(self, case: Case, reps: int, first: int = 0) -> Loaded:
        """One launch of `reps` steps and those of a ring."""
        bench, tile = self.bench, case.tile
        wide = min(64, tile.depth)
        a_boxes = -(-tile.depth // 64)
        map_a = self._map(self.a, 1 << 20, case.pitch_a // 2, case.pitch_a, tile.rows, wide)
        if case.by_rows:
            map_b = self._map(self.b, 1 << 20, case.pitch_b // 2, case.pitch_b, tile.columns, wide)
            b_boxes, b_box = a_boxes, 2 * wide * tile.columns
        else:
            map_b = self._map(self.b, 1 << 20, case.pitch_b // 2, case.pitch_b, tile.depth, 64)
            b_boxes, b_box = tile.columns // 64, 128 * tile.depth
        numbers = {
            "reps": reps, "stages": case.stages, "bytes": tile.size, "group": case.group,
            "tiles_n": case.tiles_n,
            "mask": case.steps - 1, "depth": tile.depth, "a_rows": tile.rows, "a_boxes": a_boxes,
            "a_box": 2 * wide * tile.rows, "b_rows": tile.columns, "b_boxes": b_boxes, "b_box": b_box,
            "by_rows": int(case.by_rows), "pause": case.pause, "stagger": case.stagger, "tiles": BARRIERS,
            "rest": case.rest, "first": first,
        }  # fmt: skip
        arguments: tuple[Argument, ...] = (map_a, map_b, bench.out, *(u32(numbers[name]) for name in NAMES))
        shared = BARRIERS + case.stages * tile.size
        if case.blocks == 1:
            shared = max(shared, 120 * KIB)
        name, blocks = "tma_product_beside" if case.multiply else "tma_product", bench.sm_count * case.blocks
        out: NDArray[np.int64] = bench.run(name, arguments, WORDS * blocks, grid=blocks, shared=shared)
        out = out.reshape(-1, WORDS)
        cycles = (out[:, 1] - out[:, 0]).astype(float)
        return Loaded(
            float(np.median(cycles)), float(np.median(out[:, 3] - out[:, 2])), float(np.median(out[:, 4])),
            float(cycles.max()), int(np.bincount(out[:, 5]).max()),
        )  # fmt: skip


TILES = (Tile(64, 256, 64), Tile(128, 128, 64), Tile(128, 64, 64))
FEW, MANY = 64, 192  # steps
STAGGER = 300  # cycles
RESTS = {"busy": 0, "light": 400_000}  # cycles between two batches of products
FLIGHT = Tile(128, 128, 64)  # of steps of which more or fewer are on their way
STAGES = range(1, 7)
PITCH = 32768  # bytes: as many steps along K as a launch has
LONG, LAUNCHES = 1.2e8, 14  # cycles of a launch whose clock is measured; the first ones warm the card
WARMING = 4


def quantities() -> list[Quantity]:
    rate, by = "bytes/clk/SM", "percent"
    late = f"each of all SMs, each block begins {STAGGER} cycles after the one before; by A's part of a step's bytes"
    ahead = "steps of 128x128, all begin at once, no tile loaded before; by what is on its way to an SM"
    found = [Quantity("flight_rate", rate, ahead, "KiB"), Quantity("staggered_rate", rate, late, by)]
    for name, beside in (
        ("busy", "beside two warp groups that multiply all the time"),
        ("light", "beside next to none"),
    ):
        found.append(Quantity(f"{name}_rate", rate, f"the same, all begin at once, {beside}, for a second", by))
        found.append(Quantity(f"{name}_mhz", "MHz", "the clock then", by))
    return found


def measure(bench: Bench) -> Samples:
    bed = Bed(bench)
    found: Samples = {quantity.name: {} for quantity in quantities()}
    for stages in STAGES:
        cold = Case(FLIGHT, stages, pitch_a=PITCH, pitch_b=PITCH, steps=PITCH // (2 * FLIGHT.depth))
        found["flight_rate"][stages * FLIGHT.size // KIB] = _differences(bed, cold, bench.repeats)
    for tile in TILES:
        percent = round(100 * tile.rows / (tile.rows + tile.columns))
        found["staggered_rate"][percent] = _differences(bed, Case(tile, 4, stagger=STAGGER), bench.repeats)
        for name, rest in RESTS.items():
            rates, clocks = _sustained(bed, tile, rest)
            found[f"{name}_rate"][percent], found[f"{name}_mhz"][percent] = rates, clocks
    return found


def _differences(bed: Bed, case: Case, repeats: int) -> list[float]:
    """A sample for each pair of launches; the first pair warms L2 and descriptors."""
    rates = []
    for turn in range(1 + repeats):
        few, many = bed.run(case, FEW), bed.run(case, MANY)
        if turn:
            rates.append(case.tile.size * (MANY - FEW) / (many.cycles - few.cycles))
    return rates


def _sustained(bed: Bed, tile: Tile, rest: int) -> tuple[list[float], list[float]]:
    """Rates and clocks of long launches, one after the other."""
    case = Case(tile, 4 if tile.size <= 32 * KIB else 3, multiply=True, rest=rest)
    reps = int(LONG * FEW / bed.run(case, FEW).cycles)
    found = [bed.run(case, reps) for _ in range(LAUNCHES)][WARMING:]
    moved = tile.size * (reps + case.stages)
    return [moved / one.cycles for one in found], [1e3 * one.cycles / one.nanoseconds for one in found]


TOPIC = Topic(
    "tma_product",
    "steps of A and B^T in bf16 through descriptors, 64 deep, tiles numbered down groups of eight rows of tiles, one "
    f"block an SM, all in L2 but for flight_rate; staggered: rings of 4, {FEW} and {MANY} steps; for a second: "
    f"{LAUNCHES - WARMING} launches of {LONG / 1e6:.0f} million cycles",
    ((loads(),), (beside(),)),
    tuple(quantities()),
    measure,
)
