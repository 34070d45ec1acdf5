"""Loads, stores and atomics through pointers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from wspec.execute.atomics import RMW
from wspec.execute.context import Context, Item, Prepare, Run
from wspec.execute.descriptor import Descriptor, load_block, store_block
from wspec.execute.elements import dtype_of, is_float, scalar, shape_of, tensor
from wspec.execute.errors import ExecutionError
from wspec.ir.core import Operation
from wspec.ir.types import DenseArrayAttr, PointerType, TensorType


def _load(op: Operation) -> Run:
    if _is_block(op):
        return _load_block(op)
    dtype, shape = dtype_of(op.result.type), shape_of(op.result.type)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        address, mask, other = (*operands, None, None)[:3]
        if shape:
            return (context.memory.load(address, dtype, mask, other),)
        if mask is not None and not mask:
            return (_zero(op) if other is None else other,)
        return (scalar(context.memory.load(address, dtype)),)

    return run


def _zero(op: Operation) -> Item:
    return torch.zeros((), dtype=dtype_of(op.result.type)) if is_float(op.result.type) else 0


def _store(op: Operation) -> Run:
    if _is_block(op):
        return _store_block(op)
    dtype, shape = dtype_of(op.operands[1].type), shape_of(op.operands[1].type)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        address, value, mask = (*operands, None)[:3]
        if shape:
            context.memory.store(address, value, mask)
        elif mask is None or mask:
            context.memory.store(address, tensor(value, dtype))
        return ()

    return run


# ----------------------------------------------------------------------------------------------- atomics


def _atomic(op: Operation, access: Callable[[Context, tuple[torch.Tensor, ...]], torch.Tensor]) -> Run:
    """`access` gets tensors, also where the operation has scalars."""
    dtypes, is_scalar = [dtype_of(value.type) for value in op.operands], not shape_of(op.result.type)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        args = tuple(tensor(item, dtype) for item, dtype in zip(operands, dtypes, strict=True))
        before = access(context, args)
        return (scalar(before) if is_scalar else before,)

    return run


def _atomic_rmw(op: Operation) -> Run:
    kind = op.int_attr("atomic_rmw_op")
    combine = RMW.get(-1 if kind is None else kind)
    if combine is None:
        raise ExecutionError(f"an atomic operation that the executor does not know: {kind}")
    return _atomic(op, lambda context, args: context.memory.atomic_rmw(combine, *args))


def _atomic_cas(op: Operation) -> Run:
    return _atomic(op, lambda context, args: context.memory.atomic_cas(*args))


# -------------------------------------------------------------------------------------------- block pointers


@dataclass(frozen=True, slots=True)
class BlockPointer:
    """`tt.make_tensor_ptr`: a block of a strided tensor, at `offsets`."""

    tensor: Descriptor
    offsets: tuple[int, ...]


def _is_block(op: Operation) -> bool:
    type = op.operands[0].type
    return isinstance(type, PointerType) and isinstance(type.pointee, TensorType)


def _block(op: Operation) -> TensorType:
    type = op.result.type
    if not isinstance(type, PointerType) or not isinstance(type.pointee, TensorType):
        raise ExecutionError(f"{op.name} makes a {type}")
    return type.pointee


def _make_tensor_ptr(op: Operation) -> Run:
    block = _block(op)
    rank, dtype = len(block.shape), dtype_of(block)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        shape, strides, offsets = (operands[1 + i * rank : 1 + (i + 1) * rank] for i in range(3))
        return (BlockPointer(Descriptor(operands[0], shape, strides, block.shape, dtype), offsets),)

    return run


def _advance(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
    pointer, *steps = operands
    return (replace(pointer, offsets=tuple(at + step for at, step in zip(pointer.offsets, steps, strict=True))),)


def _checked(op: Operation) -> Callable[[BlockPointer], BlockPointer]:
    """Dimensions without a check are taken out of the offsets, and end where the block does."""
    check, padding = op.attr("boundaryCheck"), "nan" if op.int_attr("padding") == 2 else "zero"
    checked = check.values if isinstance(check, DenseArrayAttr) else ()

    def run(pointer: BlockPointer) -> BlockPointer:
        desc, free = pointer.tensor, [axis for axis in range(len(pointer.offsets)) if axis not in checked]
        moved = sum(pointer.offsets[axis] * desc.strides[axis] for axis in free)
        shape = tuple(desc.block[axis] if axis in free else size for axis, size in enumerate(desc.shape))
        offsets = tuple(0 if axis in free else at for axis, at in enumerate(pointer.offsets))
        address = desc.address + moved * desc.dtype.itemsize
        return BlockPointer(replace(desc, address=address, shape=shape, padding=padding), offsets)

    return run


def _load_block(op: Operation) -> Run:
    checked = _checked(op)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        pointer = checked(operands[0])
        return (load_block(context.memory, pointer.tensor, pointer.offsets),)

    return run


def _store_block(op: Operation) -> Run:
    checked = _checked(op)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        pointer = checked(operands[0])
        store_block(context.memory, pointer.tensor, pointer.offsets, operands[1])
        return ()

    return run


HANDLERS: dict[str, Prepare] = {
    "tt.load": _load,
    "tt.store": _store,
    "tt.atomic_rmw": _atomic_rmw,
    "tt.atomic_cas": _atomic_cas,
    "tt.make_tensor_ptr": _make_tensor_ptr,
    "tt.advance": lambda op: _advance,
}
