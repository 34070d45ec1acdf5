"""How the buffers of a channel are filled: one row of facts for each kind of channel.

    tma        one thread of the producer asks the copy engine for a box of a descriptor
    cp.async   every thread of the producer copies pieces of the tile, from addresses of its own
    computed   a task that computes the value stores it

What is asked of a channel because of how it is filled is asked here: which operation of the kernel it takes the place
of, who arrives on the barrier of a full buffer and how often, through which proxy shared memory is written, and what
warps and registers the filling task needs. What one buffer holds is `buffers.buffer_type`, what a copy is lowered to
stands in `passes/lower_channels.py`, what it costs in `gate.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from wspec.ir.core import Operation
from wspec.target.hopper import CP_ASYNC_BYTES, WARP_THREADS

LEAST_BYTES, PIECE_BYTES = CP_ASYNC_BYTES
ADDRESS_REGISTERS = 40
"""A thread that issues cp.async beside the addresses of its pieces: what CUTLASS and FlashAttention-3 give such a
producer in all, whose addresses are a base and an offset."""
PIECE_REGISTERS = 2  # a 64-bit address that is carried round the loop


class Fill(StrEnum):
    """The word a plan says it with."""

    TMA = "tma"
    CP_ASYNC = "cp.async"
    COMPUTED = "computed"

    @property
    def facts(self) -> Facts:
        return _FACTS[self]

    def arrivals(self, warps: int) -> int:
        """How often the barrier of a full buffer is arrived on, where `warps` fill it."""
        return WARP_THREADS * warps if self.facts.each_thread_arrives else 1


@dataclass(frozen=True, slots=True)
class Facts:
    """What follows from how a buffer is filled."""

    load: str  # the operation of the kernel whose tile it brings; "": it brings no tile from memory
    written: str  # what writes it, in the words of `wspec explain`
    each_thread_arrives: bool = False  # when its own pieces have landed; else one arrival stands for the whole tile
    reader_fences: bool = False
    """Threads write it through the generic proxy and cannot fence when the data lands, long after they went on: who
    reads it through the asynchronous one fences behind its wait."""
    release_fenced: bool = False
    """The next tile comes through the asynchronous proxy: who read this one into registers fences before it hands the
    buffer back."""
    whole: bool = False  # a tile is brought in one piece, not as slices that replicas have rings of their own for
    stores_through: bool = False  # a store to memory may go through the buffer while no tile is in it
    least_warps: int = 1  # of the task that fills it


_FACTS = {
    Fill.TMA: Facts("tt.descriptor_load", "the copy engine", release_fenced=True, stores_through=True),
    Fill.CP_ASYNC: Facts(
        "tt.load", "the threads of the producer", each_thread_arrives=True, reader_fences=True, whole=True,
        least_warps=4,
    ),
    Fill.COMPUTED: Facts("", "the task that computes it"),
}  # fmt: skip

_BY_LOAD = {facts.load: fill for fill, facts in _FACTS.items() if facts.load}


def fill_of(load: Operation) -> Fill | None:
    """How a channel that takes the place of this operation is filled; None: no channel takes its place."""
    return _BY_LOAD.get(load.name)


def filling_warps(fills: Iterable[Fill], asked: int) -> int:
    """Warps of a producer that fills these channels: those asked for, or what cp.async needs, which threads issue.

    A whole warp group: the kernel's layouts give each thread so few pieces then that it can hold their addresses.
    """
    return max([asked, *(fill.facts.least_warps for fill in fills)])


def filling_registers(tile_bytes: Iterable[int], warps: int, asked: int) -> int:
    """Registers a thread of the producer needs, which fills tiles of these bytes by cp.async: a multiple of 8.

    The addresses of all pieces are alive at once, since kernels carry them round their loops. None of these tiles:
    what is asked for, which TMA does with.
    """
    pieces = [-(-size // (PIECE_BYTES * WARP_THREADS * warps)) for size in tile_bytes]
    if not pieces:
        return asked
    need = ADDRESS_REGISTERS + PIECE_REGISTERS * sum(pieces)
    return max(asked, -(-need // 8) * 8)
