"""What the simulator takes from the machine description: the only place where its numbers come from.

Units are those of one SM. A rate is what the unit does in a cycle; times are in cycles. Numbers are those that
`wspec calibrate` measured (docs/results); of a description without measurements, those that the planner goes by, and
constants that say their source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import TypeVar

import numpy as np

from wspec.lab.measurements import Measured, Measurements, load_measurements
from wspec.lab.simulate.power import Power, fit
from wspec.model.machine import Machine, MachineError

UNITS = ("tensor", "issue", "fma", "alu", "mufu", "lsu", "smem", "fill", "load", "store")
"""Tensor core; issue slots of the four schedulers; FMA pipes; integer, compare and convert pipes; exponential unit;
load and store instructions and shuffles; shared memory's bandwidth, and the way into it; the SM's share of the way from
L2, and to L2."""

TENSOR, ISSUE, FMA, ALU, MUFU, LSU, SMEM, FILL, LOAD, STORE = range(len(UNITS))
NAMES = {
    "tensor": "tensor core",
    "issue": "issue slots",
    "fma": "FMA pipes",
    "alu": "ALU pipes",
    "mufu": "exponential unit",
    "lsu": "load/store unit",
    "smem": "shared memory",
    "fill": "way into shared memory",
    "load": "L2 to SM",
    "store": "SM to L2",
}

_Row = TypeVar("_Row")

SCHEDULERS = 4  # of an SM, each with a warp of every warp group
THREADS = 128  # of a warp group
WARP = 32
_HELD = 8  # instructions of which `wgmma.bf16_ss_held` says how long their issue took
_DESCRIPTOR_CHAIN = 6  # dependent integer instructions in front of a dot, counted in the SASS of attention
LINE = 128  # bytes of a line of L2
BOTH_WAYS = (False, True)
_GROUP = 8  # rows of tiles that blocks go down in the calibration in the order of a product
_LINE_PITCH = 2048  # of the calibration's matrix whose rows begin at lines
RESIDENT_THREADS, RESIDENT_BLOCKS = 2048, 32  # of an SM; CUDA programming guide, compute capability 9.0


def row_class(row_bytes: int, pitch: int) -> tuple[int, int]:
    """What the rate of TMA depends on: bytes of a box's row, and the power of two that divides the pitch, to a line.

    A row of 128 bytes that does not begin at a line touches two; one of 64 has half of what a request could bring.
    """
    return (LINE if row_bytes >= LINE else LINE // 2), min(LINE, pitch & -pitch)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Rates and latencies of one SM, as the simulator uses them."""

    fma: float  # float32 add, multiply, multiply-add; thread instructions a cycle, as those that follow
    alu: float  # compare, minimum, maximum, integer arithmetic
    mufu: float  # exp2, log2, reciprocal, ...
    convert: float  # float32 to half width, two numbers each
    lsu: float  # shuffles and load or store instructions
    interference: float  # cycles of the exponential unit lost for each of the other pipes, where both are used
    smem: float  # bytes
    load: float  # bytes from L2, an SM of a full grid, of data that no other SM wants
    load_own: Mapping[tuple[int, int], float]  # the same by `row_class`
    load_near: Mapping[tuple[int, int, bool], float]  # of what eight neighbours want, by that and `along`
    load_most: float  # bytes that an SM can take
    past: float  # bytes of rows past the end of a matrix, an SM of a full grid, all of which load such rows
    merged: Mapping[int, float]  # by how many neighbours want the same, the part of the way from one to the other
    merged_apart: Mapping[int, float]  # by how many blocks further on the next one is that wants the same
    fill_rows: Mapping[tuple[int, int], float]  # the most that an SM can take, likewise
    dram: float  # bytes from memory, an SM of a full grid
    store: float  # bytes that TMA takes to L2, an SM of a full grid
    flop_16bit: float
    flop_8bit: float

    issue_one: float  # of its issue slots that a warp group gets beside a busy tensor core
    issue_all: float  # that all warp groups get together then
    beside_one: Mapping[int, float]  # of the FMA, ALU and exponential units that a warp group gets then
    beside_all: Mapping[int, float]  # of these units that all warp groups get together then
    dots_beside_copies: float  # the speed of wgmma while tiles arrive
    smem_left: float  # of shared memory's bandwidth, that warps get beside wgmma that reads all of it
    copies_beside_stores: float  # the speed of arriving tiles on the way into shared memory

    arithmetic_latency: float  # of one dependent instruction
    mufu_latency: float  # of one on the exponential unit
    shuffle_latency: float  # of one step of a reduction across lanes
    smem_latency: float  # of a load from shared memory
    load_latency: float  # of an ordinary load that hits L2
    tma_latency: float  # of a TMA load that hits L2, without its transfer, until the waiting warp goes on
    dram_latency: float  # of one that comes from memory
    tma_issue: float  # of a warp that waits, expects and issues, one turn
    store_latency: float  # of a TMA store, without its transfer, until its tile has been read
    mbarrier_latency: float  # from an arrival to a waiting warp that goes on
    ready_latency: float  # of a wait for a phase that has ended, beside warps that compute
    ready_alone: float  # with the schedulers to itself
    named_latency: float  # of bar.sync of a warp group, from the last arrival
    meeting_latency: float  # for each warp group more
    fence_latency: float  # of a warp group
    fence_more: float  # for each warp more: they take turns
    stored_latency: float  # more, where something was stored before it
    handed_latency: float  # a block takes up the sums of another one
    dot_setup: float  # from a tile that is there to the first instruction of its dot: descriptors are computed
    dot_latency: Mapping[int, float]  # by N: issue, and from the end of the last instruction to the warp that waited
    dot_interval: Mapping[int, float]  # by N, where it is longer than the FLOP say; A in shared memory
    dot_issue: Mapping[int, float]  # by N: for how long an instruction whose A lies in shared memory holds its warps
    dot_issue_registers: Mapping[int, float]  # the same with A in registers
    launch_gap: float  # between two launches, the second waiting
    block_start: float  # from a block's end to the first instruction of the next
    fork: float  # from a specialized kernel's start to its tasks' first instructions
    power: Power  # what takes clock
    measured_mhz: float  # the clock of the calibration
    multiplying_mhz: float  # where tensor cores have work all the time

    def at(self, mhz: float, part: float = 1.0) -> Numbers:
        """The same at another clock, of the loads: L2 and memory send as many bytes a second, as soon, and an SM takes
        as many a cycle. Where a part of the SMs load, each is sent as much more."""
        faster = self.measured_mhz / mhz
        more = faster / part
        return replace(
            self,
            load=more * self.load,
            load_own=_times(more, self.load_own),
            load_near=_times(more, self.load_near),
            past=more * self.past,
            dram=more * self.dram,
            tma_latency=self.tma_latency / faster,
            dram_latency=self.dram_latency / faster,
        )

    @property
    def crowding(self) -> float:
        """By what part of itself a chain of instructions takes longer for each warp group that computes beside it."""
        return self.ready_latency / self.ready_alone - 1

    def load_rate(
        self, neighbours: float, apart: float, kind: tuple[int, int], along: bool = True, left: float = 1.0
    ) -> float:
        """Bytes a cycle that an SM of a full grid gets from L2 of tiles of that `row_class`.

        Runs of so many `neighbours` want a tile, and the next ones that do begin `apart` blocks further on, if they are
        nearer than that all want their own. Requests are merged on their way where SMs are near each other, whichever
        way is the better one. Rows that straddle lines take more requests, fewer where the loop goes `along` them, as
        it then asks for what is left of a line in its next step. Where blocks have parted, a part is `left` of what
        neighbours gain.
        """
        own = self.load_own.get(kind, self.load)
        near = self.load_near.get((*kind, along), self.load_most)
        merged = max(_between(self.merged, neighbours, 0.0), _between(self.merged_apart, apart, 0.0))
        return min(own + merged * left * (near - own), self.most_rate(kind))

    def past_rate(self, row_bytes: int) -> float:
        """Bytes a cycle that an SM gets of rows past the end of a matrix: of short rows as many rows."""
        return min(self.past, self.load_most) * min(1.0, row_bytes / LINE)

    def most_rate(self, kind: tuple[int, int]) -> float:
        """Bytes a cycle that an SM can take, the others idle, of tiles of that `row_class`."""
        return min(self.load_most, self.fill_rows.get(kind, self.load_most))


def _times(factor: float, table: Mapping[_Row, float]) -> dict[_Row, float]:
    return {at: factor * rate for at, rate in table.items()}


def _parts(table: Mapping[int, float], own: float, near: float) -> dict[int, float]:
    """Of rates, the part of the way from a rate of one's own to that of eight neighbours, at most all of it."""
    return {at: min(1.0, max(0.0, rate - own) / (near - own)) for at, rate in table.items()}


def _later_of_two(one: Measured) -> float:
    """The mean of the later of two samples, as an iteration waits for the later of its tiles: of quantiles that lie on
    lines from that of 5 % (`low`) over the median to that of 95 % (`high`), and are those beyond."""
    return 0.0925 * one.low + 0.45 * one.value + 0.4575 * one.high


def _between(table: Mapping[int, float], at: float, otherwise: float) -> float:
    """The table's value there, on the line between the rows around it; beyond its ends, that of the end."""
    known = sorted(table)
    if not known:
        return otherwise
    low = max((one for one in known if one <= at), default=known[0])
    high = min((one for one in known if one >= at), default=known[-1])
    if low >= high:
        return table[low]
    share = (at - low) / (high - low)
    return table[low] * (1 - share) + table[high] * share


@lru_cache(maxsize=8)
def numbers(machine: Machine) -> Numbers:
    """The numbers of a machine."""
    try:
        measured = load_measurements(machine.name)
    except MachineError:
        measured = Measurements({}, {}, {}, {})
    return _Source(measured).numbers(machine)


class _Source:
    """Measurements by name; where one is missing, what is given instead."""

    def __init__(self, measured: Measurements) -> None:
        self.measured = measured

    def one(self, name: str, otherwise: float) -> float:
        found = self.measured.numbers.get(name)
        return otherwise if found is None else found.value

    def table(self, name: str) -> dict[int, float]:
        return {row: one.value for row, one in self.measured.tables.get(name, {}).items()}

    def row(self, name: str, row: int, otherwise: float) -> float:
        return self.table(name).get(row, otherwise)

    def numbers(self, machine: Machine) -> Numbers:
        fma, alu = self.one("arithmetic.ffma_rate", machine.fma), self.one("arithmetic.fmnmx_rate", 64)
        mufu = self.one("arithmetic.ex2_rate", machine.exp2)
        turn = self.row("handshakes.bar_sync", 4, 20)
        own, shared = self.row("tma_load.own_rate", 32, machine.tma_rate), self.table("tma_load.shared_rate")
        near = self._near()
        return Numbers(
            fma=fma,
            alu=alu,
            mufu=mufu,
            convert=self.one("arithmetic.cvt_bf16x2_rate", machine.convert / 2),
            lsu=self.one("arithmetic.shfl_rate", 32),
            interference=self._interference(fma, alu, mufu),
            smem=self.row("shared.load_rate", 16, machine.smem_rate),
            load=own,
            load_own={kind: min(rate, near.get((*kind, True), rate)) for kind, rate in self._rows("own").items()},
            load_near=near,
            past=self.one("tma_load.past_rate", own),
            load_most=self.row("tma_load.alone_rate", 32, machine.tma_rate),
            merged=_parts(shared, own, shared.get(_GROUP, machine.tma_rate)),
            merged_apart=self._apart(own, near.get((LINE, LINE, True), machine.tma_rate)),
            fill_rows=self._rows("alone"),
            dram=self.row("tma_load.dram_rate", 32, machine.tma_rate),
            store=self.row("tma_store.own_rate", 32, machine.tma_rate),
            flop_16bit=machine.mma_flop_16bit,
            flop_8bit=machine.mma_flop_8bit,
            issue_one=self._beside(4, fma),
            issue_all=self._beside(8, fma),
            beside_one=self._units_beside(4, fma, alu, mufu),
            beside_all=self._units_beside(8, fma, alu, mufu),
            dots_beside_copies=self.row("mixed.bf16_ss_alone", 128, 1) / self.row("mixed.bf16_ss_own", 128, 1),
            smem_left=self.row("shared_beside.load_rate_bf16_ss_4", 64, 16)
            / self.row("shared.load_rate", 16, machine.smem_rate),
            copies_beside_stores=self._copies_beside_stores(self.row("tma_load.alone_rate", 32, machine.tma_rate)),
            arithmetic_latency=self.one("arithmetic.ffma_latency", 5),
            mufu_latency=self.one("arithmetic.ex2_latency", 17),
            shuffle_latency=self.one("arithmetic.shfl_latency", machine.shuffle_latency),
            smem_latency=self.one("shared.load_latency", machine.smem_latency),
            load_latency=self.one("memory.l2_latency", machine.l2_latency),
            tma_latency=self._without_transfer("tma_load.l2_latency", machine.tma_latency),
            dram_latency=self._without_transfer("tma_load.dram_latency", machine.tma_dram_latency, _later_of_two),
            tma_issue=self.one("tma_load.issue", 0.0),
            store_latency=self._without_transfer("tma_store.read_latency", machine.smem_latency),
            mbarrier_latency=self.one("handshakes.mbarrier_group_wgmma", machine.mbarrier_latency),
            ready_latency=machine.ready_latency,
            ready_alone=self.one("handshakes.wait_ready", machine.ready_latency),
            named_latency=turn,
            meeting_latency=self.row("handshakes.bar_sync", 8, turn) - turn,
            fence_latency=self.row("handshakes.fence", 4, machine.smem_latency),
            fence_more=(self.row("handshakes.fence", 4, 0.0) - self.row("handshakes.fence", 1, 0.0)) / 3,
            stored_latency=self.row("handshakes.store_fence", 4, 0.0) - self.row("handshakes.fence", 4, 0.0),
            handed_latency=machine.handed_latency,
            dot_setup=_DESCRIPTOR_CHAIN * self.one("arithmetic.iadd_latency", 5),
            dot_latency=self._less("wgmma.bf16_rs_latency", "wgmma.bf16_rs_issue"),
            dot_interval=self.table("wgmma.bf16_ss_issue"),
            dot_issue={n: cycles / _HELD for n, cycles in self.table("wgmma.bf16_ss_held").items()},
            dot_issue_registers={n: cycles / _HELD for n, cycles in self.table("wgmma.bf16_rs_held").items()},
            launch_gap=self.one("blocks.launch_gap", 0.0),
            block_start=machine.block_start,
            fork=machine.fork_latency,
            power=self._power(machine),
            measured_mhz=self.one("clock.light_mhz", 1.0),
            multiplying_mhz=self.one("clock.wgmma_mhz", 1.0),
        )

    def _apart(self, own: float, near: float) -> dict[int, float]:
        """The parts of what blocks want that do not follow each other, and so do not ask at the same time. Of steps of
        a product it is known what is left then of being wanted by several (`tma_product.staggered_rate`: A of every
        eighth block, B of eight neighbours; least squares); as much is taken to be left at other distances.
        """
        apart, steps = self.table("tma_load.apart_rate"), self.table("tma_product.staggered_rate")
        if not steps or not apart:
            return {}
        parts = [[percent / 100, 1 - percent / 100] for percent in steps]
        times = np.linalg.lstsq(np.array(parts), 1 / np.array(list(steps.values())), rcond=None)[0]
        left = max(0.0, 1 / float(times[0]) - own) / max(1.0, apart[_GROUP] - own)
        return _parts({at: own + left * (rate - own) for at, rate in apart.items()}, own, near)

    def _near(self) -> dict[tuple[int, int, bool], float]:
        """Rates of what eight neighbours want that do not begin at the same time, by `row_class` and whether the loop
        goes along rows. The loops of calibrations go along short rows alone; across them it is taken to be the same."""
        found: dict[tuple[int, int, bool], float] = {}
        for name, row, ways in (("along", LINE, (True,)), ("across", LINE, (False,)), ("short", LINE // 2, BOTH_WAYS)):
            for beyond, rate in self.table(f"tma_near.{name}_rate").items():
                found.update({(row, beyond or LINE, way): rate for way in ways})
        return found

    def _rows(self, walk: str) -> dict[tuple[int, int], float]:
        """Rates of boxes of 128 rows by `row_class`; the mean over the pitches of a class."""
        found: dict[tuple[int, int], list[float]] = {}
        for columns in (32, 64):
            for pitch, rate in self.table(f"tma_pitch.{walk}_128x{columns}").items():
                if _LINE_PITCH <= pitch < _LINE_PITCH + LINE:
                    found.setdefault(row_class(2 * columns, pitch), []).append(rate)
        return {key: sum(rates) / len(rates) for key, rates in found.items()}

    def _interference(self, fma: float, alu: float, mufu: float) -> float:
        """From the mix of a softmax, for two elements 2 exponentials, 4 FMA and 4 ALU instructions: docs/results."""
        pairs = self.one("arithmetic.softmax_pair_rate", 0.0)
        return (1 / pairs - 2 / mufu) / (4 / fma + 4 / alu) if pairs else 0.0

    def _beside(self, warps: int, fma: float) -> float:
        """The part of the issue slots that the mix of a softmax, 10 instructions for two elements, got beside wgmma.

        wgmma reads and writes its accumulators through the ports that other instructions need.
        """
        pairs = self.row("mixed.softmax_pair_rate", warps, 0.0)
        return 10 * pairs / fma if pairs else 1.0

    def _units_beside(self, warps: int, fma: float, alu: float, mufu: float) -> dict[int, float]:
        """The part of each unit that instructions of one kind got beside wgmma.

        The mix of a softmax loses less, in issue slots, since its instructions take turns at the units.
        """
        kinds = ((FMA, "ffma", fma), (ALU, "fmnmx", alu), (MUFU, "ex2", mufu))
        found = {unit: self.row(f"mixed.{name}_rate", warps, rate) / rate for unit, name, rate in kinds}
        alone = self.row("shared.store_rate", 16, 1.0)
        return {**found, SMEM: self.row(f"shared_beside.store_rate_bf16_rs_{warps}", 64, alone) / alone}

    def _copies_beside_stores(self, most: float) -> float:
        """The bytes that arrived on what stores left of the way, over those that an SM alone can get in a cycle."""
        alone = self.row("shared.store_rate", 16, 128)
        copied = self.table("shared_beside.copies_beside_store")
        stored = self.table("shared_beside.store_rate_copies")
        found = [copied[warps] / (1 - rate / alone) / most for warps, rate in stored.items() if warps in copied]
        return min(1.0, sum(found) / len(found)) if found else 1.0

    def _power(self, machine: Machine) -> Power:
        light = self.one("clock.light_mhz", 1980)  # H200, vendor
        found = fit(self.measured.tables, light, machine.sm_count)
        return Power(light) if found is None else found.power

    def _without_transfer(
        self, name: str, otherwise: float, of: Callable[[Measured], float] = attrgetter("value")
    ) -> float:
        """What a line through the smallest and the largest tile says of a tile of no bytes."""
        rows = {row: of(one) for row, one in self.measured.tables.get(name, {}).items()}
        if len(rows) < 2:
            return otherwise
        few, many = min(rows), max(rows)
        return rows[few] - few * (rows[many] - rows[few]) / (many - few)

    def _less(self, latency: str, issue: str) -> dict[int, float]:
        issues = self.table(issue)
        return {row: cycles - issues[row] for row, cycles in self.table(latency).items() if row in issues}
