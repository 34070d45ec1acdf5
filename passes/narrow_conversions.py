"""The layout of a vector is changed before it becomes a tile, and not the tile's.

    %t = broadcast(expand_dims(%v)) : 128x256, #blocked      %w = convert_layout(%v) : 256, slice of #mma
    %u = convert_layout(%t) : 128x256, #mma              =>  %u = broadcast(expand_dims(%w)) : 128x256, #mma

Scales and biases come so, also multiplied by each other first. A tile goes through shared memory, 128 KiB of it here,
which the rings then lack, in each iteration where the scales are a block's; the vector takes one. Runs before a plan is
made, which counts that memory.
"""

from __future__ import annotations

from wspec.ir.builder import Builder
from wspec.ir.core import Operation, Value, replace_uses
from wspec.ir.ops import info
from wspec.ir.prune import prune
from wspec.ir.types import DenseAttr, Layout, TensorType

_TARGETS = frozenset({"ttg.nvidia_mma", "ttg.blocked"})


def narrow_conversions(module: Operation) -> None:
    """Do so in place."""
    for function in [op for op in module.walk() if op.name == "tt.func"]:
        made: dict[tuple[Value, Layout], Value] = {}
        found = {}
        for op in [op for op in function.walk() if op.name == "ttg.convert_layout"]:
            layout = op.result.type.encoding if isinstance(op.result.type, TensorType) else None
            if not isinstance(layout, Layout) or layout.name not in _TARGETS:
                continue
            if _is_made_of_vectors(op.operands[0]) and any(map(_vector, _cone(op.operands[0]))):
                found[op.result] = _again(op.operands[0], layout, made)
        if found:
            replace_uses(function, found)
            prune(function.regions[0].block)


def _vector(op: Operation) -> Value | None:
    """What a tile has in each row, or in each column; None of other tiles."""
    source = op.operands[0].op if op.name == "tt.broadcast" else None
    return source.operands[0] if source is not None and source.name == "tt.expand_dims" else None


def _is_made_of_vectors(value: Value) -> bool:
    """Is a tile computed of vectors and scalars alone?"""
    op = value.op
    if op is None or op.regions or not isinstance(value.type, TensorType) or len(value.type.shape) != 2:
        return False
    if op.name == "arith.constant":
        return isinstance(op.attr("value"), DenseAttr)
    row = info(op.name)
    elementwise = row is not None and row.category == "elementwise" and op.name != "tt.elementwise_inline_asm"
    if op.name == "tt.splat" or ((vector := _vector(op)) is not None and len(_shape(vector)) == 1):
        return True
    return elementwise and bool(op.operands) and all(map(_is_made_of_vectors, op.operands))


def _cone(value: Value) -> list[Operation]:
    """What a tile is computed of, as far as it is tiles."""
    op = value.op
    if op is None:
        return []
    inside = op.name in ("tt.splat", "arith.constant") or _vector(op) is not None
    return [op] if inside else [op, *(one for operand in op.operands for one in _cone(operand))]


def _shape(value: Value) -> tuple[int, ...]:
    return value.type.shape if isinstance(value.type, TensorType) else ()


def _again(value: Value, layout: Layout, made: dict[tuple[Value, Layout], Value]) -> Value:
    """The same tile in another layout, computed where the first one is."""
    op, key = value.op, (value, layout)
    assert op is not None and isinstance(value.type, TensorType)
    if value.type.encoding == layout:
        return value
    if key not in made:
        build, type = Builder.before(op), TensorType(value.type.shape, value.type.element, layout)
        made[key] = _created(build, op, type, made)
    return made[key]


def _created(build: Builder, op: Operation, type: TensorType, made: dict[tuple[Value, Layout], Value]) -> Value:
    layout = type.encoding
    assert isinstance(layout, Layout)
    vector = _vector(op)
    if vector is not None:
        expand = op.operands[0].op
        assert expand is not None and isinstance(vector.type, TensorType) and isinstance(expand.result.type, TensorType)
        axis = expand.int_attr("axis") or 0
        part = TensorType(vector.type.shape, vector.type.element, _slice(layout, axis))
        narrow = TensorType(expand.result.type.shape, type.element, layout)
        converted = build.create("ttg.convert_layout", [vector], [part]).result
        row = build.create("tt.expand_dims", [converted], [narrow], expand.properties).result
        return build.create("tt.broadcast", [row], [type]).result
    if op.name == "arith.constant":
        known = op.attr("value")
        assert isinstance(known, DenseAttr)
        return build.create("arith.constant", [], [type], {"value": DenseAttr(known.text, type)}).result
    operands = op.operands if op.name == "tt.splat" else [_again(one, layout, made) for one in op.operands]
    return build.create(op.name, operands, [type], op.properties).result


def _slice(layout: Layout, dim: int) -> Layout:
    return Layout("ttg.slice", (("dim", dim), ("parent", layout)))
