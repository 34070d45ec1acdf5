"""What operations cost: how long each keeps a unit busy, from a machine description.

All cycles are those of one SM working on one thread block's tile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wspec.ir.core import Block, Operation
from wspec.ir.ops import info
from wspec.ir.shapes import DOTS
from wspec.ir.types import MemDescType, ScalarType, TensorType, Type
from wspec.model.machine import Machine


@dataclass(frozen=True, slots=True)
class Cost:
    """One operation, once. Cycles of one SM."""

    unit: str  # "mma", "exp", "fma", "tma", "smem", or "" for what costs next to nothing
    busy_cycles: float = 0.0


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
    if op.name in _LOADS:
        return Cost("tma", byte_size(op.results[0].type) / load_rate(op.results[0].type, machine))
    if op.name == "tt.reduce":
        return Cost("fma", elements(op.operands[0].type) / machine.fma)
    if not op.results or not isinstance(op.results[0].type, TensorType) or op.name in _FREE:
        return Cost("")
    count = elements(op.results[0].type)
    row = info(op.name)
    if row is not None and row.unit == "mufu":
        return Cost("exp", count / machine.exp2)
    if row is not None and row.unit == "convert":
        return Cost("fma", count / machine.convert)
    return Cost("fma", count / machine.fma)


LINE = 128  # bytes of a line of L2


def load_rate(tile: Type, machine: Machine) -> float:
    """Bytes a cycle of an SM: L2 sends rows that fill its lines, and shorter ones at less."""
    if isinstance(tile, TensorType | MemDescType) and len(tile.shape) > 1 and tile.shape[-1] * bits(tile) // 8 < LINE:
        return machine.short_tma_rate
    return machine.tma_rate


_LOADS = ("tt.descriptor_load", "tt.load")
_FREE = frozenset(
    {"tt.splat", "tt.broadcast", "tt.expand_dims", "arith.constant", "tt.make_range", "ttg.convert_layout",
     "tt.reshape", "tt.trans", "scf.for", "scf.if"}
)  # fmt: skip


def _dot(op: Operation, machine: Machine) -> Cost:
    a, out = op.operands[0].type, op.result.type
    inner = a.shape[-1] if isinstance(a, TensorType | MemDescType) else 0
    rate = machine.mma_flop_8bit if bits(a) == 8 else machine.mma_flop_16bit
    return Cost("mma", 2 * elements(out) * inner / rate)


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

    @property
    def busiest(self) -> float:
        """Cycles of the unit that is busy for the longest."""
        return max(self.mma, self.compute, self.tma)


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


def heaviest(loops: Iterable[Operation], machine: Machine) -> Operation:
    """The loop whose iterations keep the tensor core busy for the longest."""
    return max(loops, key=lambda loop: loop_work(loop, machine).mma)


def _longest_way(block: Block, machine: Machine) -> list[Operation]:
    found: list[Operation] = []
    for op in block.ops:
        if op.name != "scf.if":
            found += op.walk()
            continue
        ways = [_longest_way(inner, machine) for inner in op.blocks]
        found += max(ways, key=lambda ops: sum(cost(one, machine).busy_cycles for one in ops))
    return found
