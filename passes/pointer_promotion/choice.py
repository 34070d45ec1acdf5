"""Do descriptors pay by themselves, in a kernel that is not divided into tasks?

Triton copies tiles ahead of a loop's products with cp.async, which takes 4 bytes or more that lie side by side. Where
it does not know that so many do (rows of which only a launch knows that their length is a multiple of 16 bytes), each
thread loads its elements one by one, and waits for them. For a descriptor it is the launch that looks. Where Triton
does know, its copies run ahead too, and nothing is expected of descriptors alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ir.core import Operation
from wspec.ir.types import Layout, TensorType
from wspec.plan.contiguity import element_bytes, neighbours
from wspec.plan.fill import LEAST_BYTES
from wspec.plan.graph import Dataflow
from wspec.plan.partition import feeds_dot
from wspec.plan.pointer_loads import mask_of

LOOPS = ("scf.for", "scf.while")


def operands(function: Operation) -> list[Operation]:
    """The loads through pointers whose tiles go to products, in loops."""
    flow = Dataflow(function)
    return [
        op
        for op in function.walk()
        if op.name == "tt.load" and any(one.name in LOOPS for one in op.ancestors()) and feeds_dot(flow, op)
    ]


def pays_alone(loads: Sequence[Operation]) -> bool:
    """Are there tiles among them, with layouts, that cp.async does not copy?"""
    return any(_bytes_side_by_side(load) < LEAST_BYTES for load in loads)


def _bytes_side_by_side(load: Operation) -> int:
    """That a thread finds, as far as Triton knows."""
    tile = load.result.type
    layout = tile.encoding if isinstance(tile, TensorType) else None
    if not isinstance(layout, Layout) or layout.name != "ttg.blocked":
        return LEAST_BYTES  # nothing is known
    inner = layout.ints("order")[0]
    together = min(neighbours(load.operands[0], mask_of(load), inner), layout.ints("sizePerThread")[inner])
    return together * element_bytes(load.operands[0].type)
