"""Operations at mbarriers as steps, and the values that decide what a block does."""

from __future__ import annotations

from collections.abc import Iterable

from wspec.ir.core import Operation, Value
from wspec.ir.types import DenseArrayAttr
from wspec.lab.simulate.actions import Kind
from wspec.lab.simulate.costs import Numbers
from wspec.lab.simulate.dots import load
from wspec.lab.simulate.steps import AtBarrier
from wspec.lab.simulate.tiles import byte_size

AT_BARRIERS = frozenset(
    f"ttng.{name}"
    for name in ("init_barrier", "wait_barrier", "arrive_barrier", "barrier_expect", "async_copy_mbarrier_arrive")
)
WARP_THREADS = 32
COPIES = frozenset(("ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather"))


def at_barrier(op: Operation, numbers: Numbers) -> AtBarrier:
    """The step of one of AT_BARRIERS or COPIES."""
    operands = op.operands
    match op.name:
        case "ttng.init_barrier":
            return AtBarrier(Kind.INIT, op, operands[0], op.int_attr("count") or 1, None)
        case "ttng.wait_barrier":
            segments = op.attr("operandSegmentSizes")
            given = segments.values[2] if isinstance(segments, DenseArrayAttr) else len(operands) > 2
            return AtBarrier(Kind.WAIT, op, operands[0], operands[1], operands[2] if given else None)
        case "ttng.arrive_barrier":
            predicate = operands[1] if len(operands) > 1 else None
            return AtBarrier(Kind.ARRIVE, op, operands[0], op.int_attr("count") or 1, predicate)
        case "ttng.barrier_expect":
            return AtBarrier(Kind.EXPECT, op, operands[0], op.int_attr("size") or 0, operands[1])
        case "ttng.async_copy_mbarrier_arrive":
            counted = op.attr("noIncrement") is not None
            return AtBarrier(Kind.CP_ARRIVE, op, operands[0], WARP_THREADS if counted else 0, None)
    size = byte_size(operands[-2].type)
    return AtBarrier(Kind.COPY, op, operands[-3], size, operands[-1], load(size, numbers), numbers.tma_latency)


def deciding(ops: Iterable[Operation]) -> list[Value]:
    """Trip counts, conditions, and what barriers, phases and predicates there are."""
    found: list[Value] = []
    for op in ops:
        if op.name == "scf.for":
            found += op.operands[:3]
        elif op.name == "scf.if":
            found.append(op.operands[0])
        elif op.name == "scf.while":
            found.append(op.regions[0].block.terminator.operands[0])
        elif op.name in AT_BARRIERS:
            found += op.operands
        elif op.name in COPIES:
            found += [op.operands[-3], op.operands[-1]]
    return found


def where(ops: Iterable[Operation]) -> list[Value]:
    """What tiles are loaded: descriptors and coordinates."""
    return [value for op in ops if op.name in COPIES for value in coordinates(op)]


def around_copies(function: Operation) -> set[Operation]:
    """COPIES and the operations that they are inside of."""
    copies = [op for op in function.walk() if op.name in COPIES]
    return {*copies, *(outer for op in copies for outer in op.ancestors())}


def coordinates(op: Operation) -> list[Value]:
    """Of one of COPIES: the descriptor is the first operand, barrier, buffer and predicate the last three."""
    return op.operands[1:-3]
