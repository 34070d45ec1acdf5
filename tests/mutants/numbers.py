"""Operators that change a number: counts, sizes, depths, how many may be pending, registers, warps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.mutants.edits import Edit, Operator, Twin, edit
from tests.mutants.facts import (
    DOT_WAIT,
    EXPECT,
    INDEX,
    INIT,
    STORE_WAIT,
    Kernel,
    Ring,
    constant,
    depth,
    history,
)
from wspec.ir.core import Operation, Value
from wspec.ir.types import DenseArrayAttr, MemDescType, ScalarType, i32

MOST_REGISTERS, FEWEST_REGISTERS = 256, 24  # a thread can ask for
REGISTERS, THREADS = 65536, 32  # of an SM; of a warp


def _counts(kernel: Kernel) -> Iterator[Edit]:
    for op in kernel.named(INIT):
        for change in (-1, 1):
            yield edit(op, f"{change:+d}", _set, "count", (op.int_attr("count") or 0) + change)


def _pendings(kernel: Kernel) -> Iterator[Edit]:
    for op in kernel.named(DOT_WAIT, STORE_WAIT):
        yield edit(op, "+1", _set, "pendings", (op.int_attr("pendings") or 0) + 1)


def _sizes(kernel: Kernel) -> Iterator[Edit]:
    for op in kernel.named(EXPECT):
        size, ring = op.int_attr("size") or 0, kernel.ring_of(op.operands[0])
        assert ring is not None, "a barrier that no copy completes"
        for what, other in (("half", size // 2), ("double", 2 * size), ("a row more", size + _row_bytes(ring))):
            yield edit(op, what, _set, "size", other)


def _row_bytes(ring: Ring) -> int:
    type = ring.buffers.type
    assert isinstance(type, MemDescType) and isinstance(type.element, ScalarType)
    return type.shape[-1] * type.element.bits // 8


def _set(twin: Twin, op: Operation, name: str, value: int) -> None:
    twin.op(op).properties[name] = i32(value)


# ------------------------------------------------------------------------------------------------------ rings


def _allocations(kernel: Kernel) -> Iterator[Edit]:
    for ring in kernel.rings:
        for value in ring.values:
            if depth(value) > 1 and value.op is not None:
                what = "buffers" if value is ring.buffers else "full" if value is ring.full else "empty"
                yield edit(value.op, what, _shrink_types, kernel, (value,))


def _shrink_types(twin: Twin, op: Operation, kernel: Kernel, values: tuple[Value, ...]) -> None:
    """One buffer less in the type of the allocations and of all that stands for them in the partitions."""
    for value in values:
        type = value.type
        assert isinstance(type, MemDescType)
        smaller = replace(type, shape=(type.shape[0] - 1, *type.shape[1:]))
        index = kernel.op.operands.index(value) if value in kernel.op.operands else None
        arguments = [] if index is None else [block.args[index] for block in kernel.tasks[1:]]
        for one in (value, *arguments):
            twin.value(one).type = smaller


def _whole_rings(kernel: Kernel) -> Iterator[Edit]:
    for ring in kernel.rings:
        if ring.depth > 1 and ring.buffers.op is not None:
            yield edit(ring.buffers.op, f"to {ring.depth - 1}", _shrink_ring, kernel, ring)


def _shrink_ring(twin: Twin, op: Operation, kernel: Kernel, ring: Ring) -> None:
    """Buffers, barriers and the number at which positions start again. As right as before, or a deadlock."""
    _shrink_types(twin, op, kernel, ring.values)
    for init in kernel.named(INIT):
        element = kernel.element(init.operands[0])
        if element is None or element.operands[0] not in ring.values:
            continue
        if constant(element.operands[1]) == ring.depth - 1:
            twin.op(init).erase()
            twin.op(element).erase()
    for compare in wraps(kernel, ring):
        twin.set_operand(compare, 1, twin.before(compare).constant(ring.depth - 1))


def wraps(kernel: Kernel, ring: Ring) -> list[Operation]:
    """The comparisons that find a position at the end of the ring."""
    found: dict[Operation, None] = {}
    for op in kernel.named(INDEX):
        if kernel.root(op.operands[0]) in ring.values:
            for value in history(op.operands[1]):
                step = value.op
                condition = step.operands[0].op if step is not None and step.name == "arith.select" else None
                if condition is not None and constant(condition.operands[1]) == ring.depth:
                    found[condition] = None
    return list(found)


# -------------------------------------------------------------------------------------------------- resources


def _registers(kernel: Kernel) -> Iterator[Edit]:
    """Past what a thread can have, too few; and the most, where they are not there."""
    for index, count in enumerate(_array(kernel, "requestedRegisters")):
        changes = [MOST_REGISTERS + 8, FEWEST_REGISTERS - 8]
        if _registers_in_all(kernel, index) > _registers_there(kernel):
            changes.append(MOST_REGISTERS)
        for other in changes:
            yield edit(kernel.op, f"{count} to {other}", _set_entry, "requestedRegisters", index, other)


def _registers_in_all(kernel: Kernel, index: int) -> int:
    """What the tasks need when partition `index` has all a thread can have and the default task the least."""
    counts = list(_array(kernel, "requestedRegisters"))
    counts[index] = MOST_REGISTERS
    groups = [_in_groups(warps) for warps in _array(kernel, "partitionNumWarps")]
    wanted = sum(count * warps for count, warps in zip(counts, groups, strict=True))
    return THREADS * (wanted + FEWEST_REGISTERS * (kernel.module.int_attr("ttg.num-warps") or 4))


def _registers_there(kernel: Kernel) -> int:
    """What a block has when it starts."""
    warps = (kernel.module.int_attr("ttg.num-warps") or 4) + sum(_array(kernel, "partitionNumWarps"))
    threads = THREADS * _in_groups(warps)
    limit = kernel.module.int_attr("ttg.maxnreg")
    return threads * limit if limit is not None else REGISTERS


def _in_groups(warps: int) -> int:
    """Registers move between warp groups of four."""
    return -(-warps // 4) * 4


def _warps(kernel: Kernel) -> Iterator[Edit]:
    for index, count in enumerate(_array(kernel, "partitionNumWarps")):
        yield edit(kernel.op, f"{count} to {count // 2}", _set_entry, "partitionNumWarps", index, count // 2)


def _array(kernel: Kernel, name: str) -> tuple[int, ...]:
    found = kernel.op.attr(name)
    return found.values if isinstance(found, DenseArrayAttr) else ()


def _set_entry(twin: Twin, op: Operation, name: str, index: int, value: int) -> None:
    array = op.attr(name)
    assert isinstance(array, DenseArrayAttr)
    values = (*array.values[:index], value, *array.values[index + 1 :])
    twin.op(op).properties[name] = replace(array, values=values)


OPERATORS = (
    Operator("init-count", "a barrier waits for one arrival more, or less", _counts),
    Operator("expect-size", "a barrier expects half the bytes, twice as many, or a row more", _sizes),
    Operator("raise-pendings", "a wait for dots or stores leaves one more running", _pendings),
    Operator("shrink-alloc", "an allocation of buffers or barriers is one too small", _allocations),
    Operator("shrink-ring", "a ring has a buffer less: buffers, barriers and positions alike", _whole_rings),
    Operator("registers", "a partition asks for registers it cannot have", _registers, about_order=False),
    Operator("warps", "a partition has half its warps", _warps, about_order=False),
)
