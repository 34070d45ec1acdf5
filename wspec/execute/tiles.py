"""Operations that make tensor descriptors and move blocks with them, without shared memory in between."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wspec.execute.context import Context, Item, Prepare, Run
from wspec.execute.descriptor import (
    Descriptor,
    check,
    gather_rows,
    read_tile,
    reduce_tile,
    scatter_rows,
    write_tile,
)
from wspec.execute.elements import bytes_of, dtype_of, shape_of
from wspec.execute.errors import ExecutionError
from wspec.ir.core import Operation
from wspec.ir.types import DenseArrayAttr, ScalarType, TensorDescType, TensorType, Type


@dataclass(frozen=True, slots=True)
class Tensormap:
    """What `ttng.tensormap_create` writes to scratch memory; element type and block come with its use."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes; of the last dimension there is none
    padding: str


def _block_of(type: Type) -> TensorType:
    if not isinstance(type, TensorDescType):
        raise ExecutionError(f"a descriptor of type {type}")
    return type.block


def is_signed(type: Type) -> bool:
    """Are the elements of a descriptor's type signed? Those of no stated sign count as signed."""
    element = _block_of(type).element
    return not (isinstance(element, ScalarType) and element.name.startswith("ui"))


def _padding(value: int | None) -> str:
    return "nan" if value == 2 else "zero"


def _make(op: Operation) -> Run:
    block = _block_of(op.result.type)
    rank, dtype = len(block.shape), dtype_of(block)
    padding, signed = _padding(op.int_attr("padding")), is_signed(op.result.type)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        address, shape, strides = operands[0], operands[1 : 1 + rank], operands[1 + rank :]
        desc = Descriptor(address, shape, strides, block.shape, dtype, padding, signed)
        check(desc)
        return (desc,)

    return run


def _load(op: Operation) -> Run:
    """The result may lack dimensions of size one."""
    shape = shape_of(op.result.type)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        return (read_tile(context.memory, operands[0], operands[1:]).reshape(shape),)

    return run


def _store(op: Operation) -> Run:
    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        desc, tile, *coordinates = operands
        write_tile(context.memory, desc, coordinates, tile)
        return ()

    return run


def _reduce(op: Operation) -> Run:
    kind, signed = op.int_attr("kind") or 0, is_signed(op.operands[0].type)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        desc, tile, *coordinates = operands
        reduce_tile(context.memory, replace(desc, signed=signed), coordinates, tile, kind)
        return ()

    return run


def _gather(op: Operation) -> Run:
    width = shape_of(op.result.type)[-1]

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        desc, rows, column = operands
        return (gather_rows(context.memory, desc, rows, column, width),)

    return run


def _scatter(op: Operation) -> Run:
    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        scatter_rows(context.memory, *operands)
        return ()

    return run


# -------------------------------------------------------------------------- descriptors in scratch memory


def _scratch(op: Operation) -> Run:
    """Fresh memory every time; a card reuses a block's, which nobody can tell."""
    size, align = op.int_attr("nbytes") or 0, op.int_attr("alignment") or 1

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        return (context.memory.allocate(size, align=align),)

    return run


def _tensormap(op: Operation) -> Run:
    segments = op.attr("operandSegmentSizes")
    if not isinstance(segments, DenseArrayAttr) or segments.values[:2] != (1, 1):
        raise ExecutionError("a tensormap without sizes")
    padding, ends = "nan" if op.int_attr("fill_mode") else "zero", [2]
    for count in segments.values[2:]:
        ends.append(ends[-1] + count)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        sizes, strides, steps = (operands[ends[i] : ends[i + 1]] for i in (1, 2, 3))  # innermost first
        if any(step != 1 for step in steps):
            raise ExecutionError("a tensormap that leaves out elements")
        context.memory.tensormaps[operands[0]] = Tensormap(operands[1], sizes[::-1], strides[::-1], padding)
        return ()

    return run


def _reinterpret(op: Operation) -> Run:
    block, signed = _block_of(op.result.type), is_signed(op.result.type)
    dtype, size = dtype_of(block), bytes_of(block)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        found = context.memory.tensormaps.get(operands[0])
        if not isinstance(found, Tensormap):
            raise ExecutionError(f"there is no descriptor at {operands[0]:#x}")
        if any(stride % size for stride in found.strides):
            raise ExecutionError(f"a stride of {found.strides} bytes for elements of {size}")
        strides = (*(stride // size for stride in found.strides), 1)
        desc = Descriptor(found.address, found.shape, strides, block.shape, dtype, found.padding, signed)
        check(desc)
        return (desc,)

    return run


def _nothing(op: Operation) -> Run:
    return lambda operands, context: ()


HANDLERS: dict[str, Prepare] = {
    "tt.make_tensor_descriptor": _make,
    "tt.descriptor_load": _load,
    "tt.descriptor_store": _store,
    "tt.descriptor_reduce": _reduce,
    "tt.descriptor_gather": _gather,
    "tt.descriptor_scatter": _scatter,
    "ttg.global_scratch_alloc": _scratch,
    "ttng.tensormap_create": _tensormap,
    "ttng.tensormap_fenceproxy_acquire": _nothing,
    "ttng.reinterpret_tensor_descriptor": _reinterpret,
}
