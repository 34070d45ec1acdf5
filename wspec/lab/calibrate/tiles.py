"""What the topics about TMA share: tiles of a large matrix in global memory, and who walks over which.

The matrix has rows of 64 bf16 (128 bytes); a tile is a box of whole rows, 256 at most, and 64 KiB are two boxes. A
block's i-th tile is number `(i mod distinct) stride + (block / sharers mod owners) block_stride`, counted from a first
row.
"""

from __future__ import annotations

from dataclasses import dataclass

from wspec.lab.calibrate.bench import Bench, u32
from wspec.lab.calibrate.driver import Argument

KIB = 1024
SIZES = (2, 4, 8, 16, 32, 64)
"""KiB of a tile."""
ROW = 128  # bytes
BOX_ROWS = 256
MATRIX = 1 << 30  # bytes; L2 holds 50 to 60 MiB
ROWS = MATRIX // ROW
ONE_MIB = 1 << 20
IN_FLIGHT = 160 * KIB
BARRIERS = 1024  # bytes of shared memory in front of the tiles
MAX_STAGES = 32
PARAMS = """.param .align 64 .b8 p_map[128], .param .u64 p_out, .param .u32 p_reps, .param .u32 p_bytes,
.param .u32 p_two, .param .u32 p_rows, .param .u32 p_first, .param .u32 p_mask, .param .u32 p_stride,
.param .u32 p_block_stride, .param .u32 p_stages, .param .u32 p_sharers, .param .u32 p_owners"""
LOAD_PARAMS = """.reg .b32 %bytes, %two, %rows, %first, %mask, %stride, %bstride, %stages, %block, %owner, %index, %row;
.reg .b32 %tile, %i, %flag2;
.reg .b64 %map;
mov.b64 %rd0, p_map;
cvta.param.u64 %map, %rd0;
ld.param.u64 %out, [p_out];
ld.param.u32 %reps, [p_reps];
ld.param.u32 %bytes, [p_bytes];
ld.param.u32 %two, [p_two];
ld.param.u32 %rows, [p_rows];
ld.param.u32 %first, [p_first];
ld.param.u32 %mask, [p_mask];
ld.param.u32 %stride, [p_stride];
ld.param.u32 %bstride, [p_block_stride];
ld.param.u32 %stages, [p_stages];
mov.u32 %block, %ctaid.x;
ld.param.u32 %t, [p_sharers];
div.u32 %owner, %block, %t;
ld.param.u32 %t, [p_owners];
rem.u32 %owner, %owner, %t;
setp.ne.u32 %p3, %two, 0;
mov.u32 %t, %tid.x;
setp.eq.u32 %p5, %t, 0;"""
ELECT = """bar.warp.sync -1;
elect.sync %flag2|%p6, -1;
and.pred %p7, %p6, %p3;"""
"""%p6: this lane issues; %p7: and a second box too. %p5 is lane 0."""


def row_of(index: str) -> str:
    """%row: the first row of the block's tile number `index`."""
    return f"""and.b32 %row, {index}, %mask;
mul.lo.u32 %row, %row, %stride;
mad.lo.u32 %row, %owner, %bstride, %row;
mad.lo.u32 %row, %row, %rows, %first;"""


@dataclass(frozen=True, slots=True)
class Walk:
    """Which tiles a launch touches."""

    size: int  # bytes of a tile
    distinct: int  # tiles of a block, a power of two; 1 << 32 for no end
    stride: int
    block_stride: int
    first_row: int = 0
    sharers: int = 1  # neighbouring blocks that walk over the same tiles
    owners: int = 1 << 31  # so many blocks after one another walk over different tiles, the next ones over theirs

    @property
    def rows(self) -> int:
        return self.size // ROW

    @property
    def stages(self) -> int:
        """How many are in flight."""
        return min(MAX_STAGES, IN_FLIGHT // self.size)


class Matrix:
    """The matrix on the device. `fresh` gives rows that nobody has touched for as long as there are any."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.pointer = bench.driver.allocate(MATRIX)
        bench.driver.fill(self.pointer, 0, MATRIX // 4)
        self._maps: dict[int, bytes] = {}
        self._next = 0

    def fresh(self, size: int) -> int:
        """The first row of `size` bytes that come from memory: it starts over only after the whole matrix."""
        if self._next + size > MATRIX:
            self._next = 0
        at = self._next
        self._next += size
        return at // ROW

    def arguments(self, walk: Walk, reps: int) -> tuple[Argument, ...]:
        """Of a launch of a kernel with PARAMS."""
        box = min(walk.rows, BOX_ROWS)
        if box not in self._maps:
            self._maps[box] = self.bench.driver.tensor_map(self.pointer, ROWS, box)
        numbers = (
            reps, walk.size, int(walk.rows > BOX_ROWS), walk.rows, walk.first_row, walk.distinct - 1, walk.stride,
            walk.block_stride, walk.stages, walk.sharers, walk.owners,
        )  # fmt: skip
        return (self._maps[box], self.bench.out, *(u32(number & 0xFFFFFFFF) for number in numbers))
