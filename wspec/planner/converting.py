"""Loops in which a warp group makes an operand of its own products: what an iteration takes, specialized and not.

A tile is read, computed on, and multiplied, one after the other; only another warp group fills the gaps. The numbers
were fitted to products with int8 and int4 weights on an H200, at one block an SM (docs/chains.md).
"""

from __future__ import annotations

from wspec.ir.core import Operation, Value
from wspec.ir.shapes import DOTS
from wspec.ir.types import TensorType
from wspec.model.fitted import CORE_RATE, PLAIN_CONVERTING, REGISTER_OPERAND, UNPACKED_PAIR
from wspec.model.machine import Machine
from wspec.model.operations import Iteration, byte_size, elements
from wspec.passes.packed_dequantization.choice import find_packed, with_packed
from wspec.plan.buffers import VIEWS


def converts(loop: Operation) -> bool:
    """Is an operand of a product computed in the loop, from tiles and not from another product?"""
    return bool(_converting(loop))


def _converting(loop: Operation) -> list[Operation]:
    """The products of the loop with an operand that is computed in it, and not from another product."""
    found = []
    for dot in (op for op in loop.walk() if op.name in DOTS):
        made = [_made(value) for value in dot.operands[:2]]
        if any(op is not None and loop in op.ancestors() and not _from_dot(op, loop) for op in made):
            found.append(dot)
    return found


def converting_cycles(
    loop: Operation, work: Iteration, blocks: int, replicas: int, again: float, waits: float, machine: Machine
) -> tuple[float, float]:
    """(cycles of an iteration of the specialized loop on an SM that `blocks` blocks share, of the plain one).

    `replicas` consumer groups of a block hide each other's arithmetic. Loads through pointers, of scales say, have
    nobody to run ahead with them. `again`: cycles of the CUDA cores for what each group computes that another one
    computes too; `waits`: cycles in which a group waits for tiles that it loads itself.
    """
    packed = with_packed(work, loop, machine)
    extra = sum(_stored(value, loop, machine) for dot in loop.walk() if dot.name in DOTS for value in dot.operands[:2])
    if any(op.name == "tt.load" and isinstance(op.result.type, TensorType) for op in loop.walk()):
        extra += machine.l2_latency
    computed = packed.compute + again
    longer, shorter = max(work.mma, computed / CORE_RATE), min(work.mma, computed / CORE_RATE)
    handed = REGISTER_OPERAND * len(_converting(loop))
    alone = handed + longer + shorter / replicas + extra + waits
    pairs = sum(elements(one.source.type) for one in find_packed(loop.walk(), 1) if one.field.is_signed_byte)
    compute = work.compute + pairs * UNPACKED_PAIR / machine.fma
    plain = handed + PLAIN_CONVERTING + work.mma + compute / CORE_RATE + extra
    return max(alone / blocks, computed, work.mma, work.tma), max(plain / blocks, compute, work.mma, work.tma)


def _made(value: Value) -> Operation | None:
    """The operation that computes an operand, through buffers and views; None where it is a loaded tile."""
    while (op := value.op) is not None and (op.name in VIEWS or op.name in ("ttg.local_alloc", "ttg.convert_layout")):
        if not op.operands:
            return None
        value = op.operands[0]
    return None if op is None or op.name in ("tt.descriptor_load", "tt.load") else op


def _from_dot(op: Operation, loop: Operation) -> bool:
    """Is the value computed from a product of the loop?"""
    seen, work = {op}, [op]
    while work:
        one = work.pop()
        if one.name in DOTS:
            return True
        for value in one.operands:
            made = value.op
            if made is not None and made not in seen and loop in made.ancestors():
                seen.add(made)
                work.append(made)
    return False


def _stored(value: Value, loop: Operation, machine: Machine) -> float:
    """What it takes to bring a computed operand to shared memory, where its product reads it there."""
    made = _made(value)
    if (
        made is None
        or loop not in made.ancestors()
        or value.op is made
        or value.op is None
        or value.op.name == "ttg.convert_layout"
    ):
        return 0.0
    return byte_size(value.type) / machine.smem_rate + machine.mbarrier_latency / 2
