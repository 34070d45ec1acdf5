"""What an operation of a loop keeps busy, unit by unit, and what its users wait for: from the measured numbers.

Cycles are those of one SM for a whole tile. Where the machine description has no measurement, what the planner goes by
stands in (`Machine`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from wspec.ir.core import Operation
from wspec.ir.shapes import DOTS
from wspec.ir.types import Layout, TensorType
from wspec.model.machine import Machine, MachineError, Measurements, load_measurements
from wspec.model.operations import CONVERSIONS, EXP_OPS, bits, byte_size, elements

UNITS = ("tensor", "mufu", "fma", "alu", "issue", "smem", "tma")
NAMES = {
    "tensor": "tensor core",
    "mufu": "exponential unit",
    "fma": "FMA pipes",
    "alu": "ALU pipes",
    "issue": "issue slots",
    "smem": "shared memory",
    "tma": "memory",
}
CORES = frozenset(("mufu", "fma", "alu", "issue"))  # of the CUDA cores

_FMA_OPS = frozenset(f"arith.{name}" for name in ("addf", "subf", "mulf")) | {"math.fma"}
_FREE = frozenset(
    ("tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "arith.constant",
     "arith.bitcast", "tt.bitcast", "tt.make_range", "ub.poison", "ttg.memdesc_trans", "ttg.memdesc_index",
     "ttg.memdesc_reshape", "ttg.memdesc_subslice", "ttg.memdesc_reinterpret")
)  # fmt: skip
_LANES = 128  # instructions of a thread that the four schedulers issue in a cycle
_WORD = 16  # bytes a thread moves with one instruction


@dataclass(frozen=True, slots=True)
class Rates:
    """Lanes or bytes a cycle of one SM, latencies in cycles."""

    fma: float
    alu: float
    mufu: float
    convert: float  # results a cycle
    smem: float  # bytes
    tma: float  # bytes
    interference: float  # cycles of the exponential unit lost for each cycle of the other pipes
    latency: float  # of one arithmetic instruction
    mufu_latency: float
    shuffle: float
    smem_latency: float
    dot_latency: float  # from the end of a dot to what reads its result
    tile_latency: float  # of a TMA load that hits L2
    handshake: float  # from an arrival to the warp that goes on
    ready: float  # of a wait that need not wait


@lru_cache(maxsize=8)
def rates(machine: Machine) -> Rates:
    """Of a machine."""
    try:
        measured = load_measurements(machine.name)
    except MachineError:
        measured = Measurements({}, {}, {}, {})

    def one(name: str, otherwise: float) -> float:
        found = measured.numbers.get(name)
        return otherwise if found is None else found.value

    def row(name: str, which: int, otherwise: float) -> float:
        found = measured.tables.get(name, {}).get(which)
        return otherwise if found is None else found.value

    fma, alu = one("arithmetic.ffma_rate", machine.fma), one("arithmetic.fmnmx_rate", machine.fma / 2)
    mufu, pairs = one("arithmetic.ex2_rate", machine.exp2), one("arithmetic.softmax_pair_rate", 0.0)
    return Rates(
        fma=fma,
        alu=alu,
        mufu=mufu,
        convert=2 * one("arithmetic.cvt_bf16x2_rate", machine.convert / 2),
        smem=row("shared.load_rate", 16, machine.smem_rate),
        tma=row("tma_load.own_rate", 32, machine.tma_rate),
        interference=max(0.0, (1 / pairs - 2 / mufu) / (4 / fma + 4 / alu)) if pairs else 0.0,
        latency=one("arithmetic.ffma_latency", 5),
        mufu_latency=one("arithmetic.ex2_latency", 20),
        shuffle=one("arithmetic.shfl_latency", machine.shuffle_latency),
        smem_latency=one("shared.load_latency", machine.smem_latency),
        dot_latency=machine.mma_latency,
        tile_latency=row("tma_load.l2_latency", 32, machine.tma_latency),
        handshake=one("handshakes.mbarrier_group_wgmma", machine.mbarrier_latency),
        ready=one("handshakes.wait_ready", machine.smem_latency),
    )


@dataclass(frozen=True, slots=True)
class Work:
    """One operation, with those in its regions: busy cycles of each unit, and the latency of its result."""

    busy: Mapping[str, float]
    latency: float = 0.0
    streams: bool = True  # users may begin with the first elements; False: they need all of it

    @property
    def cycles(self) -> float:
        """How long it takes when it has the units to itself."""
        return max(self.busy.values(), default=0.0)


def work(op: Operation, machine: Machine) -> Work:
    """What one operation of a loop costs."""
    if op.regions and op.name not in ("tt.reduce", "tt.scan"):
        return _region(op, machine)
    numbers = rates(machine)
    if op.name in _FREE or op.name in ("scf.yield", "tt.return"):
        return Work({})
    if op.name in DOTS:
        return _dot(op, machine)
    if op.name in ("tt.descriptor_load", "tt.load"):
        return Work({"tma": byte_size(op.results[0].type) / numbers.tma}, numbers.tile_latency, streams=False)
    if op.name in ("tt.reduce", "tt.scan"):
        return _reduction(op, numbers)
    if op.name in ("ttg.local_alloc", "ttg.local_store", "ttg.local_load", "ttg.convert_layout"):
        return _through_memory(op, numbers)
    if not op.results or not isinstance(op.results[0].type, TensorType):
        return Work({})
    return _elementwise(op.name, elements(op.results[0].type), numbers)


def _dot(op: Operation, machine: Machine) -> Work:
    a, out = op.operands[0].type, op.results[0].type
    rate = machine.mma_flop_8bit if bits(a) == 8 else machine.mma_flop_16bit
    inner = getattr(a, "shape", (0,))[-1]
    return Work({"tensor": 2 * elements(out) * inner / rate}, rates(machine).dot_latency, streams=False)


def _elementwise(name: str, count: int, numbers: Rates) -> Work:
    issue = count / _LANES
    if name in EXP_OPS:
        return Work({"mufu": count / numbers.mufu, "issue": issue}, numbers.mufu_latency)
    if name in CONVERSIONS:
        return Work({"alu": count / numbers.convert, "issue": issue / 2}, numbers.latency)
    if name in _FMA_OPS:
        return Work({"fma": count / numbers.fma, "issue": issue}, numbers.latency)
    return Work({"alu": count / numbers.alu, "issue": issue}, numbers.latency)


def _reduction(op: Operation, numbers: Rates) -> Work:
    """Each thread its own elements, then across the lanes that share a row."""
    count = elements(op.operands[0].type)
    combine = [inner.name for inner in op.regions[0].block.ops if inner.operands and inner.results]
    one = _elementwise(combine[0] if combine else "arith.addf", count, numbers)
    type = op.operands[0].type
    layout = type.encoding if isinstance(type, TensorType) else None
    is_core = isinstance(layout, Layout) and layout.name == "ttg.nvidia_mma"
    steps = 2 if is_core else 5
    return Work(one.busy, steps * (numbers.shuffle + numbers.latency), streams=False)


def _through_memory(op: Operation, numbers: Rates) -> Work:
    """Registers to shared memory or back; a layout change both, unless it stays within the thread."""
    if not op.operands:
        return Work({})
    source = op.operands[0].type
    if op.name == "ttg.convert_layout":
        layout = getattr(op.results[0].type, "encoding", None)
        if isinstance(layout, Layout) and layout.name == "ttg.dot_op":
            return Work({}, numbers.latency)
        moved = 2 * byte_size(source)
    elif op.name == "ttg.local_load":
        moved = byte_size(op.results[0].type)
    else:
        moved = byte_size(source)
    issue = moved / _WORD / _LANES
    return Work({"smem": moved / numbers.smem, "issue": issue}, numbers.smem_latency, streams=False)


def _region(op: Operation, machine: Machine) -> Work:
    """A branch: all that is in it, whichever arm is taken the longest; nothing of it can be told apart."""
    arms: list[dict[str, float]] = []
    latency = 0.0
    for region in op.regions:
        busy: dict[str, float] = {}
        for inner in (one for block in region.blocks for one in block.ops):
            price = work(inner, machine)
            latency = max(latency, price.latency)
            for unit, cycles in price.busy.items():
                busy[unit] = busy.get(unit, 0.0) + cycles
        arms.append(busy)
    units = {unit for busy in arms for unit in busy}
    return Work({u: max(busy.get(u, 0.0) for busy in arms) for u in units}, latency, streams=False)
