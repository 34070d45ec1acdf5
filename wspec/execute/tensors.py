"""Operations on the shape of tensors, constants, ranges and program ids. Layouts do not matter to values."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

from wspec.execute.constants import constant
from wspec.execute.context import Context, Item, Prepare, Run, function, typed
from wspec.execute.elements import dtype_of, from_raw, is_float, raw, scalar, shape_of, tensor
from wspec.execute.errors import ExecutionError
from wspec.execute.select import select
from wspec.ir.core import Operation
from wspec.ir.types import DenseArrayAttr

_DIMENSION = re.compile(r"#gpu<dim ([xyz])>")


def _always(make: Callable[[Operation], Item]) -> Prepare:
    """An operation without operands whose result is the same every time."""

    def prepare(op: Operation) -> Run:
        results = (make(op),)
        return lambda operands, context: results

    return prepare


def _poison(op: Operation) -> Item:
    """Any value will do: zero."""
    zeros = torch.zeros(shape_of(op.result.type), dtype=dtype_of(op.result.type))
    return zeros if shape_of(op.result.type) or is_float(op.result.type) else 0


def _range(op: Operation) -> Item:
    return torch.arange(op.int_attr("start") or 0, op.int_attr("end") or 0, dtype=dtype_of(op.result.type))


def _splat(op: Operation) -> Callable[[Item], Item]:
    shape, dtype = shape_of(op.result.type), dtype_of(op.result.type)

    return lambda value: tensor(value, dtype).expand(shape)


def _expand_dims(op: Operation) -> Callable[[Item], Item]:
    axis = op.int_attr("axis") or 0
    return lambda value: value.unsqueeze(axis)


def _broadcast(op: Operation) -> Callable[[Item], Item]:
    shape = shape_of(op.result.type)
    return lambda value: value.expand(shape)


def _reshape(op: Operation) -> Callable[[Item], Item]:
    """Row by row, also where the compiler might reorder (`allow_reorder`)."""
    shape = shape_of(op.result.type)
    return lambda value: value.reshape(shape)


def _trans(op: Operation) -> Callable[[Item], Item]:
    order = op.attr("order")
    if not isinstance(order, DenseArrayAttr):
        raise ExecutionError("a transposition without an order")
    return lambda value: value.permute(order.values)


def _split(op: Operation) -> Run:
    """The two halves along the last dimension, which has two elements."""
    shape = shape_of(op.results[0].type)

    def run(operands: tuple[Item, ...], context: Context) -> tuple[Item, ...]:
        halves = operands[0].unbind(-1)
        return halves if shape else tuple(scalar(half) for half in halves)

    return run


def _gather(op: Operation) -> Callable[[Item, Item], Item]:
    axis = op.int_attr("axis") or 0

    def compute(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        wrong = index[(index < 0) | (index >= values.shape[axis])]
        if wrong.numel():
            raise ExecutionError(f"a gather of element {int(wrong[0])} of {values.shape[axis]}")
        return from_raw(raw(values).gather(axis, index.long()), values.dtype)

    return compute


# ------------------------------------------------------------------------------------------------- the grid


def _program(op: Operation) -> Run:
    axis = op.int_attr("axis") or 0
    return lambda operands, context: (context.program[axis],)


def _programs(op: Operation) -> Run:
    axis = op.int_attr("axis") or 0
    return lambda operands, context: (context.grid[axis],)


def _axis(op: Operation) -> int:
    found = _DIMENSION.fullmatch(str(op.attr("dimension")))
    if found is None:
        raise ExecutionError(f"{op.name} of {op.attr('dimension')}")
    return "xyz".index(found.group(1))


def _block_id(op: Operation) -> Run:
    axis = _axis(op)
    return lambda operands, context: (context.program[axis],)


def _grid_size(op: Operation) -> Run:
    axis = _axis(op)
    return lambda operands, context: (context.grid[axis],)


def _block_size(op: Operation) -> Item:
    """Threads in a block: those of the module's warps, and of the partitions' where they are counted."""
    if _axis(op) != 0:
        return 1
    module = next((outer for outer in op.ancestors() if outer.name == "builtin.module"), None)
    warps = None if module is None else module.int_attr("ttg.total-num-warps") or module.int_attr("ttg.num-warps")
    if warps is None:
        raise ExecutionError("the size of a block whose module does not say how many warps it has")
    return 32 * warps


def _per_thread(op: Operation) -> Run:
    raise ExecutionError(f"{op.name} differs between the threads of a block, which the executor does not tell apart")


HANDLERS: dict[str, Prepare] = {
    "arith.constant": _always(lambda op: constant(op.attr("value"))),
    "ub.poison": _always(_poison),
    "arith.select": function(select),
    "tt.make_range": _always(_range),
    "tt.splat": typed(_splat),
    "tt.unsplat": function(lambda value: scalar(value.reshape(()))),
    "tt.expand_dims": typed(_expand_dims),
    "tt.broadcast": typed(_broadcast),
    "tt.reshape": typed(_reshape),
    "tt.trans": typed(_trans),
    "tt.join": function(lambda a, b: from_raw(torch.stack((raw(a), raw(b)), -1), a.dtype)),
    "tt.split": _split,
    "tt.cat": function(lambda a, b: from_raw(torch.cat((raw(a), raw(b))), a.dtype)),
    "tt.gather": typed(_gather),
    "tt.get_program_id": _program,
    "tt.get_num_programs": _programs,
    "gpu.block_id": _block_id,
    "gpu.grid_dim": _grid_size,
    "gpu.block_dim": _always(_block_size),
    "gpu.cluster_id": _block_id,
    "gpu.cluster_block_id": _always(lambda op: 0),  # a block is a cluster of its own
    "ttng.cluster_id": _always(lambda op: 0),
    "gpu.thread_id": _per_thread,
    "gpu.lane_id": _per_thread,
    "ttg.warp_id": _per_thread,
}
