"""The layout of a vector is changed before it becomes a tile, and not the tile's.

    %t = broadcast(expand_dims(%v)) : 128x256, #blocked      %w = convert_layout(%v) : 256, slice of #mma
    %u = convert_layout(%t) : 128x256, #mma              =>  %u = broadcast(expand_dims(%w)) : 128x256, #mma

Scales and biases come so, also multiplied by each other first. A tile goes through shared memory, 128 KiB of it here,
which the rings then lack, in each iteration where the scales are a block's; the vector takes one. Runs before a plan is
made, which counts that memory.
"""

from __future__ import annotations

from wspec.ir.builder import Builder
from wspec.ir.core import Operation, Value, functions, replace_uses
from wspec.ir.ops import is_elementwise, is_pure
from wspec.ir.prune import prune
from wspec.ir.shapes import shape_of
from wspec.ir.types import DenseAttr, Layout, TensorType

_TARGETS = frozenset({"ttg.nvidia_mma", "ttg.blocked"})


def narrow_conversions(module: Operation) -> None:
    """Do so in place."""
    for function in functions(module):
        made: dict[tuple[Value, Layout], Value] = {}
        found = {}
        for op in [op for op in function.walk() if op.name == "ttg.convert_layout"]:
            layout = op.result.type.encoding if isinstance(op.result.type, TensorType) else None
            if not isinstance(layout, Layout) or layout.name not in _TARGETS:
                continue
            parts = _parts(op.operands[0])
            if parts is not None and any(part.name == "tt.broadcast" for part in parts):
                found[op.result] = _again(op.operands[0], layout, made)
        if found:
            replace_uses(function, found)
            prune(function.regions[0].block)


def _parts(value: Value) -> list[Operation] | None:
    """What a tile is computed of, as far as it is tiles; None where that is more than vectors and scalars."""
    op = value.op
    if op is None or op.regions or len(shape_of(value.type)) != 2:
        return None
    if _is_source(op):
        return [op]
    elementwise = is_elementwise(op) and op.name != "tt.elementwise_inline_asm"
    if not op.operands or len(op.results) > 1 or not is_pure(op) or not (elementwise or op.name == "tt.broadcast"):
        return None
    found = [op]
    for operand in op.operands:
        inside = _parts(operand)
        if inside is None:
            return None
        found += inside
    return found


def _is_source(op: Operation) -> bool:
    """Does it make a tile of a vector or a number?"""
    if op.name == "arith.constant":
        return isinstance(op.attr("value"), DenseAttr)
    return op.name == "tt.splat" or (op.name == "tt.expand_dims" and len(shape_of(op.operands[0].type)) == 1)


def _again(value: Value, layout: Layout, made: dict[tuple[Value, Layout], Value]) -> Value:
    """The same tile in another layout, computed where the first one is."""
    op, key = value.op, (value, layout)
    assert op is not None and isinstance(value.type, TensorType)
    if value.type.encoding == layout:
        return value
    if key not in made:
        operands = list(op.operands) if _is_source(op) else [_again(one, layout, made) for one in op.operands]
        build = Builder.before(op)  # behind what was made for its operands
        type = TensorType(value.type.shape, value.type.element, layout)
        properties, known = dict(op.properties), op.attr("value")
        if op.name == "arith.constant" and isinstance(known, DenseAttr):
            properties["value"] = DenseAttr(known.text, type)
        if op.name == "tt.expand_dims":
            operands = [_converted(build, op.operands[0], layout, op.int_attr("axis") or 0)]
        made[key] = build.create(op.name, operands, [type], properties).result
    return made[key]


def _converted(build: Builder, vector: Value, layout: Layout, dim: int) -> Value:
    """A vector as a part of a tile has it along the other dimension."""
    assert isinstance(vector.type, TensorType)
    part = Layout("ttg.slice", (("dim", dim), ("parent", layout)))
    type = TensorType(vector.type.shape, vector.type.element, part)
    return vector if vector.type == type else build.create("ttg.convert_layout", [vector], [type]).result
