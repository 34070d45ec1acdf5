"""The shape of a `ttg.warp_specialize` operation: its default region, its partitions and what they capture.

Partitions are isolated from above: what they use comes in through the operation's operands, which appear as the
arguments of *every* partition. The default region sees the values around it directly.
"""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ir.core import Block, Operation, Region, Value
from wspec.ir.loc import Location
from wspec.ir.types import I32, DenseArrayAttr, FunctionType, Type, TypeAttr

NAME = "ttg.warp_specialize"


def find(module: Operation) -> Operation | None:
    """The module's warp_specialize operation, if there is one."""
    return next((op for op in module.walk() if op.name == NAME), None)


def need(module: Operation) -> Operation:
    """The warp_specialize operation of a module that has been divided into tasks. Raises AssertionError."""
    op = find(module)
    assert op is not None, f"the module has no {NAME}"
    return op


def create(default: Region, partitions: Sequence[Region], warps: Sequence[int], location: Location) -> Operation:
    """A detached operation whose partitions have no arguments yet (see `capture`)."""
    holder = Operation.create("ttg.warp_specialize.partitions", regions=partitions, location=location)
    outer = Region()
    outer.add_block().append(holder)
    properties = {"partitionNumWarps": DenseArrayAttr(I32, tuple(warps))}
    return Operation.create(NAME, [], [], properties, regions=[default, outer], location=location)


def default_block(op: Operation) -> Block:
    return op.regions[0].block


def partition_blocks(op: Operation) -> list[Block]:
    return [region.block for region in op.regions[1].block.ops[0].regions]


def task_blocks(op: Operation) -> list[Block]:
    """The blocks of all tasks: the default region first, then the partitions in order."""
    return [default_block(op), *partition_blocks(op)]


def capture(op: Operation, value: Value) -> list[Value]:
    """Make `value` visible in every task; returns what to use for it in each of `task_blocks`."""
    if value in op.operands:
        index = op.operands.index(value)
        return [value, *(block.args[index] for block in partition_blocks(op))]
    op.operands.append(value)
    return [value, *(block.add_arg(value.type, value.location) for block in partition_blocks(op))]


def outer(op: Operation, value: Value) -> Value:
    """The captured value behind a partition's argument; any other value as it is."""
    if isinstance(value.owner, Block) and value.owner in partition_blocks(op):
        return op.operands[value.index]
    return value


def retype(op: Operation, value: Value, type: Type) -> None:
    """Give a value that tasks capture another type: there, where it is made, and in the function's type."""
    value.type = type
    if value in op.operands:
        for block in partition_blocks(op):
            block.args[op.operands.index(value)].type = type
    function = value.owner.parent_op if isinstance(value.owner, Block) else None
    if function is not None and isinstance(old := function.properties.get("function_type"), TypeAttr):
        assert isinstance(old.type, FunctionType)
        arguments = tuple(arg.type for arg in function.regions[0].block.args)
        function.properties["function_type"] = TypeAttr(FunctionType(arguments, old.type.results))


def capture_free_values(op: Operation) -> None:
    """Route every value a partition takes from outside through the operation's operands."""
    for position, block in enumerate(partition_blocks(op), start=1):
        own: set[Value] = set(block.args)
        for inner in block.walk():
            own.update(inner.defined)
        for inner in block.walk():
            for index, value in enumerate(inner.operands):
                if value not in own:
                    inner.operands[index] = capture(op, value)[position]
                    own.add(inner.operands[index])
