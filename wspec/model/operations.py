"""What operations cost: occupancy of a unit, latency, bytes and registers, from a machine description.

Occupancy (a resource: how long a unit is busy) is kept apart from latency (an edge: how long until the result is
there). All cycles are those of one SM working on one thread block's tile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wspec.ir.core import Block, Operation
from wspec.ir.shapes import DOTS
from wspec.ir.types import MemDescType, ScalarType, TensorType, Type
from wspec.model.machine import Machine

EXP_OPS = frozenset({f"math.{name}" for name in ("exp2", "exp", "log", "log2", "rsqrt", "sqrt", "sin", "cos")})
CONVERSIONS = frozenset({"arith.truncf", "arith.extf", "tt.fp_to_fp", "arith.sitofp", "arith.fptosi"})


@dataclass(frozen=True, slots=True)
class Cost:
    """One operation, once. Cycles of one SM."""

    unit: str  # "mma", "exp", "fma", "tma", "smem", or "" for what costs next to nothing
    busy_cycles: float = 0.0
    latency_cycles: float = 0.0
    bytes: int = 0


def elements(type: Type) -> int:
    size = 1
    for extent in type.shape if isinstance(type, TensorType | MemDescType) else ():
        size *= extent
    return size


def bits(type: Type) -> int:
    element = type.element if isinstance(type, TensorType | MemDescType) else type
    return element.bits if isinstance(element, ScalarType) else 64


def byte_size(type: Type) -> int:
    """Bytes of a tensor or buffer; 8 for a pointer."""
    return elements(type) * bits(type) // 8


def cost(op: Operation, machine: Machine) -> Cost:
    """The cost of one operation of a kernel before it is specialized."""
    if op.name in DOTS:
        return _dot(op, machine)
    if op.name in ("tt.descriptor_load", "tt.load"):
        size = byte_size(op.results[0].type)
        latency = machine.tma_latency if op.name == "tt.descriptor_load" else machine.l2_latency
        return Cost("tma", size / machine.tma_rate, latency, size)
    if op.name == "tt.reduce":
        count = elements(op.operands[0].type)
        return Cost("fma", count / machine.fma, 2 * machine.shuffle_latency)
    if not op.results or not isinstance(op.results[0].type, TensorType) or op.name in _FREE:
        return Cost("")
    count = elements(op.results[0].type)
    if op.name in EXP_OPS:
        return Cost("exp", count / machine.exp2, 20)
    if op.name in CONVERSIONS:
        return Cost("fma", count / machine.convert, 10)
    return Cost("fma", count / machine.fma, 5)


_FREE = frozenset(
    {"tt.splat", "tt.broadcast", "tt.expand_dims", "arith.constant", "tt.make_range", "ttg.convert_layout",
     "tt.reshape", "tt.trans", "scf.for", "scf.if"}
)  # fmt: skip


def _dot(op: Operation, machine: Machine) -> Cost:
    a, out = op.operands[0].type, op.result.type
    inner = a.shape[-1] if isinstance(a, TensorType | MemDescType) else 0
    rate = machine.mma_flop_8bit if bits(a) == 8 else machine.mma_flop_16bit
    return Cost("mma", 2 * elements(out) * inner / rate, machine.mma_latency)


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration of a loop: busy cycles per unit."""

    mma: float
    exp: float
    fma: float
    tma: float

    @property
    def compute(self) -> float:
        """Cycles of the CUDA cores: exponentials and arithmetic issue from the same warps."""
        return self.exp + self.fma


def iteration(ops: Iterable[Operation], machine: Machine) -> Iteration:
    """The busy cycles of the operations of one iteration."""
    busy = {"mma": 0.0, "exp": 0.0, "fma": 0.0, "tma": 0.0}
    for op in ops:
        price = cost(op, machine)
        if price.unit in busy:
            busy[price.unit] += price.busy_cycles
    return Iteration(**busy)


def loop_work(loop: Operation, machine: Machine) -> Iteration:
    """One iteration of a loop; of branches the ways that take longest."""
    return iteration(_longest_way(loop.regions[0].block, machine), machine)


def _longest_way(block: Block, machine: Machine) -> list[Operation]:
    found: list[Operation] = []
    for op in block.ops:
        if op.name != "scf.if":
            found += op.walk()
            continue
        ways = [_longest_way(inner, machine) for region in op.regions for inner in region.blocks]
        found += max(ways, key=lambda ops: sum(cost(one, machine).busy_cycles for one in ops))
    return found
