"""A loop whose tiles leave room for few buffers goes half as far in a step.

    for i in 0..n:                                    for j in 0..2 n:
      a = load A[row, 128 i]      // 128 x 128          a = load A[row, 128 (j / 2) + 64 (j % 2)]      // 128 x 64
      b = load B[128 i, column]   // 128 x 128    =>    b = load B[128 (j / 2) + 64 (j % 2), column]   // 64 x 128
      acc = dot a, b, acc                               acc = dot a, b, acc

Two buffers of 64 KiB leave one on its way while the other one is multiplied; four of 32 KiB leave three. The tensor
core adds the same products in the same order, 16 deep at a time. It is done where tiles go from descriptors to products
and nowhere else, and an SM has room for four iterations of them only then. Runs before a plan is made.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from wspec.ir.builder import Builder
from wspec.ir.core import Operation, Value
from wspec.ir.ops import is_pure
from wspec.ir.shapes import DOTS
from wspec.ir.stages import num_stages
from wspec.ir.types import (
    I32,
    DenseArrayAttr,
    FunctionType,
    IntegerAttr,
    MemDescType,
    ScalarType,
    TensorDescType,
    TensorType,
    TypeAttr,
)
from wspec.model.operations import byte_size
from wspec.plan.graph import loops_around

ENOUGH = 4  # iterations of tiles that an SM should have room for
_VIEWS = ("ttg.local_alloc", "ttg.memdesc_trans")
LEAST_DEPTH = 128  # of a tile that is halved: rows of a buffer keep 128 bytes


@dataclass(frozen=True, slots=True)
class _Halved:
    """A load whose tile is halved along a dimension."""

    load: Operation
    dim: int  # of the tile


def shorten_steps(function: Operation, smem_bytes: int, kept: Collection[Value] = ()) -> None:
    """Halve steps in place. `smem_bytes`: of an SM; `kept`: descriptors whose boxes stay as they are."""
    size = _bytes_in_loops(function)
    if not ENOUGH * size / 2 <= smem_bytes < ENOUGH * size:
        return
    for loop in [op for op in function.walk() if op.name == "scf.for"]:
        halves = _halves(loop)
        if halves and _may_change(function, loop, halves, kept):
            _rewrite(loop, halves)
    args = function.regions[0].block.args
    known = function.properties["function_type"]
    assert isinstance(known, TypeAttr) and isinstance(known.type, FunctionType)
    function.properties["function_type"] = TypeAttr(replace(known.type, inputs=tuple(arg.type for arg in args)))


def _halves(loop: Operation) -> list[_Halved]:
    """The loads of a loop that only multiplies what it loads; none where it does something else."""
    body = loop.regions[0].block
    dots = [op for op in body.ops if op.name in DOTS]
    if not dots or set(body.terminator.operands) != {dot.result for dot in dots}:
        return []
    if any(dot.operands[2].owner is not body or dot.operands[2].index == 0 for dot in dots):
        return []
    found: dict[Operation, int] = {}
    known = set(dots)
    for dot in dots:
        for at in (0, 1):
            way = _way(dot.operands[at], 1 - at)
            if (
                way is None
                or any(op.parent is not body for op in way[0])
                or found.setdefault(way[0][0], way[1]) != way[1]
            ):
                return []
            known.update(way[0])
    loads = [_Halved(load, dim) for load, dim in found.items() if load.name == "tt.descriptor_load"]
    if any(op not in known and not _is_scalar(op) for op in body.ops[:-1]):
        return []
    types = [load.load.result.type for load in loads]
    depths = {type.shape[one.dim] for one, type in zip(loads, types, strict=True) if isinstance(type, TensorType)}
    return loads if len(depths) == 1 and min(depths) >= LEAST_DEPTH else []


def _bytes_in_loops(function: Operation) -> int:
    """Of an iteration of every loop: each has rings of its own."""
    loads = [op for op in function.walk() if op.name == "tt.descriptor_load"]
    return sum(byte_size(op.result.type) for op in loads if loops_around(op))


def _way(buffer: Value, dim: int) -> tuple[list[Operation], int] | None:
    """From a product's operand back to its load: the operations, the load first, and what dimension `dim` is there."""
    ops: list[Operation] = []
    op = buffer.op
    while op is not None and op.name in ("ttg.memdesc_trans", "ttg.local_alloc", "tt.descriptor_load"):
        ops.insert(0, op)
        if op.name == "tt.descriptor_load":
            tile, box = op.result.type, op.operands[0].type
            if not isinstance(tile, TensorType) or not isinstance(box, TensorDescType) or len(tile.shape) != 2:
                return None
            wide = isinstance(tile.element, ScalarType) and tile.element.bits == 16
            return (ops, dim) if wide and box.block.shape[-2:] == tile.shape else None
        if op.name == "ttg.memdesc_trans":
            order = op.attr("order")
            if not isinstance(order, DenseArrayAttr):
                return None
            dim = order.values[dim]
        if not op.operands:
            return None
        op = op.operands[0].op
    return None


def _is_scalar(op: Operation) -> bool:
    return is_pure(op) and not op.regions and all(not isinstance(value.type, TensorType) for value in op.results)


def _may_change(function: Operation, loop: Operation, halves: Sequence[_Halved], kept: Collection[Value]) -> bool:
    """Are tiles and descriptors used here and nowhere else, and are these arguments?"""
    loads = {one.load: one.dim for one in halves}
    body = loop.regions[0].block
    for op in function.walk():
        for value in op.operands:
            if value.op in loads and op.name != "ttg.local_alloc":
                return False
            inside = value.op is not None and value.op.parent is body and value.op.name in _VIEWS
            if inside and op.name not in ("ttg.memdesc_trans", *DOTS):
                return False
    for descriptor in {one.load.operands[0] for one in halves}:
        users = [op for op in function.walk() if descriptor in op.operands]
        if descriptor.owner is not function.regions[0].block or descriptor in kept:
            return False
        if any(op not in loads for op in users) or len({loads[op] for op in users}) != 1:
            return False
    return True


def _rewrite(loop: Operation, halves: Sequence[_Halved]) -> None:
    body, block = loop.regions[0].block, loop.parent
    assert block is not None
    stages = num_stages(loop)
    first, end, step = loop.operands[:3]
    type = first.type
    assert isinstance(type, ScalarType)
    before = Builder.before(loop)
    one = before.constant(1, type)
    way = before.binary("arith.addi", before.binary("arith.subi", end, first), before.binary("arith.subi", step, one))
    rounds = before.binary("arith.divsi", way, step)
    upper = before.binary("arith.muli", rounds, before.constant(2, type))
    counter = body.args[0]
    inside = Builder(body, 0, loop.location)
    two = inside.constant(2, type)
    half, rest = inside.binary("arith.divsi", counter, two), inside.binary("arith.remsi", counter, two)
    now = inside.binary("arith.addi", first, inside.binary("arith.muli", half, step))
    own = {half.op, rest.op}
    for op in body.ops:
        if op not in own:
            op.operands = [now if value is counter else value for value in op.operands]
    loop.operands = [before.constant(0, type), upper, one, *loop.operands[3:]]
    loop.attributes["tt.num_stages"] = IntegerAttr(2 * stages - 1, I32)
    for one_load in halves:
        _halve(one_load, rest)


def _halve(one: _Halved, rest: Value) -> None:
    load, dim = one.load, one.dim
    block, tile, descriptor = load.parent, load.result.type, load.operands[0]
    assert block is not None and isinstance(tile, TensorType) and isinstance(descriptor.type, TensorDescType)
    deep = tile.shape[dim] // 2
    build = Builder.before(load)
    at = len(load.operands) - 2 + dim
    moved = build.binary("arith.muli", _as_int32(build, rest), build.constant(deep))
    load.operands = [
        build.binary("arith.addi", value, moved) if place == at else value for place, value in enumerate(load.operands)
    ]
    box = descriptor.type.block
    if box.shape[-2:] == tile.shape:  # another load of it has not been there before
        shape = _shorter(box.shape, len(box.shape) - 2 + dim)
        descriptor.type = replace(descriptor.type, block=replace(box, shape=shape))
    load.result.type = replace(tile, shape=_shorter(tile.shape, dim))
    _follow(load.result, dim)


def _follow(value: Value, dim: int) -> None:
    """Buffers and views of the tile become as much shorter."""
    assert value.op is not None and value.op.parent is not None
    for op in value.op.parent.ops:
        if value not in op.operands or op.name not in ("ttg.local_alloc", "ttg.memdesc_trans"):
            continue
        order, type = op.attr("order"), op.result.type
        at = order.values.index(dim) if isinstance(order, DenseArrayAttr) else dim
        assert isinstance(type, MemDescType)
        op.result.type = replace(type, shape=_shorter(type.shape, at))
        _follow(op.result, at)


def _shorter(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return tuple(size // 2 if at == dim else size for at, size in enumerate(shape))


def _as_int32(build: Builder, value: Value) -> Value:
    if value.type == I32:
        return value
    name = "arith.index_cast" if str(value.type) == "index" else "arith.trunci"
    return build.create(name, [value], [I32]).result
