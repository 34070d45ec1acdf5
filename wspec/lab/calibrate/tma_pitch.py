"""TMA loads by the pitch of the matrix: what it costs when rows of a tile straddle the 128-byte lines of L2.

A block walks along rows, box after box, as a product does along K; the next row of tiles comes when those are through.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wspec.lab.calibrate.bench import Bench, u32
from wspec.lab.calibrate.driver import Argument
from wspec.lab.calibrate.ptx import Kernel
from wspec.lab.calibrate.tiles import ELECT, IN_FLIGHT, KIB, MATRIX, MAX_STAGES
from wspec.lab.calibrate.tma_load import ring_kernel
from wspec.lab.calibrate.tma_store import stream_kernel
from wspec.lab.calibrate.topic import Quantity, Samples, Topic

PITCHES = (2048, 2064, 2080, 2096, 2112, 2128, 2144, 2160, 2176, 2304, 2560, 4096, 6000, 8192)
"""Bytes. Rows of 2064 start at all multiples of 16 within a line, of 2080 at those of 32, of 2112 at both halves."""
COLUMNS = 1024
"""Of the matrix, in bf16; boxes across are this over those of a box."""
MOVED = (
    1 << 20
)  # bytes of the shorter of two launches, a block; from memory a quarter of it, so that the matrix suffices
OWN = 128 * KIB  # bytes of a block's own rows
ACROSS = 12  # rows of A in a wave of a product
_COPY = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"


@dataclass(frozen=True, slots=True)
class Box:
    """Rows by bf16 of a row."""

    rows: int
    columns: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"

    @property
    def size(self) -> int:
        return 2 * self.rows * self.columns

    @property
    def across(self) -> int:
        return COLUMNS // self.columns


BOXES = (Box(64, 64), Box(128, 64), Box(128, 32))
WALKS = {
    "alone": "one SM, the others idle, over 1 MiB in L2",
    "same": "each of all SMs, all over the same 1 MiB in L2",
    "own": "each of all SMs, over rows of its own in L2",
    "product": "each of all SMs as in a product, a tile of one of 12 rows of A and one of B's by turns, in L2",
    "dram": "each of all SMs, each tile once, from memory",
    "store": "stored by each of all SMs, each tile once",
}
ONCE = ("dram", "store")


def _row(columns: int) -> str:
    """%row and %c0, the first row and column of the block's tile %i: p_two is the logarithm of the boxes across."""
    return f"""shr.u32 %row, %i, %two;
and.b32 %row, %row, %mask;
mul.lo.u32 %row, %row, %stride;
mad.lo.u32 %row, %owner, %bstride, %row;
mad.lo.u32 %row, %row, %rows, %first;
shl.b32 %c1, 1, %two;
sub.u32 %c1, %c1, 1;
and.b32 %c0, %i, %c1;
mul.lo.u32 %c0, %c0, {columns};"""


def _row_of_product(columns: int) -> str:
    """%row and %c0 of a block that reads its row of A and its row of B by turns, a box further along both each time.

    Blocks number rows of A first, and run as they come: those of one row are not kept in step.
    """
    return f"""rem.u32 %row, %block, {ACROSS};
div.u32 %c1, %block, {ACROSS};
add.u32 %c1, %c1, {ACROSS};
and.b32 %c2, %i, 1;
setp.ne.u32 %p4, %c2, 0;
selp.b32 %row, %c1, %row, %p4;
mul.lo.u32 %row, %row, %rows;
shl.b32 %c1, 1, %two;
sub.u32 %c1, %c1, 1;
shr.u32 %c0, %i, 1;
and.b32 %c0, %c0, %c1;
mul.lo.u32 %c0, %c0, {columns};"""


_LOAD = f"""@%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%flag], %bytes;
{ELECT}
@%p6 {_COPY} [%tile], [%map, {{%c0, %row}}], [%flag];"""


_STORE = f"""{ELECT}
@%p6 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {{%c0, %row}}], [%tile];
cp.async.bulk.commit_group;"""


def _name(walk: str, columns: int) -> str:
    return f"tma_pitch_{walk if walk in ('store', 'product') else 'load'}_{columns}"


def kernels() -> tuple[Kernel, ...]:
    load, store = {"UTMALDG": 2, "SYNCS": 4, "CS2R": 2}, {"UTMASTG": 1, "DEPBAR": 2, "CS2R": 2}
    found = []
    for columns in (64, 32):
        found.append(ring_kernel(_name("load", columns), _row(columns), _LOAD, load))
        found.append(ring_kernel(_name("product", columns), _row_of_product(columns), _LOAD, load))
        found.append(stream_kernel(_name("store", columns), _row(columns), _STORE, store))
    return tuple(found)


def quantities() -> tuple[Quantity, ...]:
    return tuple(
        Quantity(
            f"{walk}_{box}",
            "bytes/clk/SM",
            f"boxes of {box} bf16, {what}; {'four boxes' if walk == 'store' else 'up to 160 KiB'} in flight",
            "pitch",
        )
        for box in BOXES
        for walk, what in WALKS.items()
    )


class _Matrix:
    """The memory, seen with one pitch and one box."""

    def __init__(self, bench: Bench, pointer: int, pitch: int, box: Box) -> None:
        self.bench, self.box, self.rows = bench, box, MATRIX // pitch
        self._map = bench.driver.tensor_map(
            pointer, self.rows, box.rows, columns=COLUMNS, pitch=pitch, box_columns=box.columns
        )
        self._next = 0

    def fresh(self, groups: int) -> int:
        """The first row of so many rows of boxes that were not read for as long as there are others."""
        if (self._next + groups) * self.box.rows > self.rows:
            self._next = 0
        at = self._next
        self._next += groups
        return at * self.box.rows

    def run(self, walk: str, tiles: int) -> float:
        """Cycles of a block, the median of all."""
        bench, box, blocks = self.bench, self.box, 1 if walk == "alone" else self.bench.sm_count
        down = max(1, (1 << 20) // (box.size * box.across)) - 1  # of rows of boxes, for 1 MiB
        stages = min(MAX_STAGES, IN_FLIGHT // box.size)
        first, mask, stride, block_stride, across = 0, down, 1, 0, box.across
        if walk == "own":
            mask, stride, block_stride, across = 0, 0, 1, OWN // box.size
        elif walk in ONCE:
            first = self.fresh(blocks * -(-(tiles + stages) // box.across))
            mask, stride, block_stride = 0xFFFFFFFF, blocks, 1
        numbers = (
            tiles,
            box.size,
            across.bit_length() - 1,
            box.rows,
            first,
            mask,
            stride,
            block_stride,
            stages,
            1,
            1 << 31,
        )
        arguments: tuple[Argument, ...] = (self._map, bench.out, *(u32(number) for number in numbers))
        words = 2 if walk == "store" else 4
        out = bench.run(_name(walk, box.columns), arguments, words * blocks, grid=blocks).reshape(-1, words)
        return float(np.median(out[:, 1] - out[:, 0]))


def measure(bench: Bench) -> Samples:
    pointer = bench.driver.allocate(MATRIX)
    bench.driver.fill(pointer, 0, MATRIX // 4)
    found: Samples = {quantity.name: {} for quantity in quantities()}
    for box in BOXES:
        for pitch in PITCHES:
            matrix = _Matrix(bench, pointer, pitch, box)
            for walk in WALKS:
                found[f"{walk}_{box}"][pitch] = _rates(matrix, walk)
    return found


def _rates(matrix: _Matrix, walk: str) -> list[float]:
    """Bytes per clock and SM, a sample for each pair of launches; the first pair warms L2 and descriptor."""
    few = (MOVED // 4 if walk in ONCE else MOVED) // matrix.box.size
    many = 2 * few if walk in ONCE else 3 * few
    rates = []
    for turn in range(1 + matrix.bench.repeats):
        cycles = matrix.run(walk, many) - matrix.run(walk, few)
        if turn:
            rates.append((many - few) * matrix.box.size / cycles)
    return rates


TOPIC = Topic(
    "tma_pitch",
    f"tiles of a bf16 matrix of {COLUMNS} columns, one box each, walked along rows; pitch in bytes; boxes of 64 "
    f"columns swizzled by 128 bytes, of 32 by 64; {MOVED // KIB} KiB and thrice as many a block, {MOVED // KIB // 4} "
    "and twice as many where each is touched once",
    (kernels(),),
    quantities(),
    measure,
)
