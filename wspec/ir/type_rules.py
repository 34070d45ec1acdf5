"""What must hold between the types of an operation's operands, results and regions, one small rule per operation.

A rule yields a message for each thing that is wrong. Operations without a rule are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from wspec.ir.core import Block, Operation, Region, Value
from wspec.ir.ops import info
from wspec.ir.types import (
    I1,
    I32,
    I64,
    Attribute,
    DenseArrayAttr,
    DenseAttr,
    FloatAttr,
    FunctionType,
    IntegerAttr,
    MemDescType,
    ScalarType,
    TensorDescType,
    TensorType,
    Type,
    TypeAttr,
    signless,
)

Messages = Iterator[str]
Rule = Callable[[Operation], Messages]

_WIDENING = frozenset(("arith.extf", "arith.extsi", "arith.extui"))
_NARROWING = frozenset(("arith.truncf", "arith.trunci"))


def type_problems(op: Operation) -> Messages:
    """Everything wrong with the types of `op`; nothing for operations we have no rule for."""
    yield from _segments(op)
    row = info(op.name)
    if row is not None and row.category == "elementwise":
        yield from _elementwise(op)
    if row is not None and row.same_type:
        yield from _all_same([*op.operands, *op.results])
    rule = _RULES.get(op.name)
    if rule is not None:
        yield from rule(op)


# ----------------------------------------------------------------------------------------------- pieces


def _shape(type: Type) -> tuple[int, ...] | None:
    """The shape of a tensor or buffer, () for scalars, None for what is opaque."""
    if isinstance(type, TensorType | MemDescType):
        return type.shape
    return None if type.__class__.__name__ == "OpaqueType" else ()


def _element(type: Type) -> Type:
    return type.element if isinstance(type, TensorType | MemDescType) else type


def _bits(type: Type) -> int | None:
    element = _element(type)
    return element.bits if isinstance(element, ScalarType) else None


def _encoding(type: Type) -> Attribute | None:
    return type.encoding if isinstance(type, TensorType) else None


def _all_same(values: Sequence[Value]) -> Messages:
    for value in values[1:]:
        if value.type != values[0].type:
            yield f"needs one type throughout, has {values[0].type} and {value.type}"
            return


def _count(op: Operation, operands: int, results: int | None = None) -> Messages:
    """Is the number of operands at least `operands`, of results exactly `results`?"""
    if len(op.operands) < operands:
        yield f"needs {operands} operands, has {len(op.operands)}"
    if results is not None and len(op.results) != results:
        yield f"needs {results} results, has {len(op.results)}"


def _types_match(what: str, got: Sequence[Value], wanted: Sequence[Value], source: str) -> Messages:
    """Do two lists of values have the same types, one by one?"""
    if len(got) != len(wanted):
        yield f"{what}: {len(got)} values for {len(wanted)} {source}"
        return
    for index, (value, other) in enumerate(zip(got, wanted, strict=True)):
        if value.type != other.type:
            yield f"{what} {index} has type {value.type}, the {source} want {other.type}"


def _counted(operands: int, results: int | None, rule: Rule) -> Rule:
    """`rule`, asked only of an operation with enough operands and results."""

    def checked(op: Operation) -> Messages:
        wrong = list(_count(op, operands, results))
        yield from wrong or rule(op)

    return checked


def _segments(op: Operation) -> Messages:
    for name, values in (("operandSegmentSizes", op.operands), ("resultSegmentSizes", op.results)):
        sizes = op.properties.get(name)
        if isinstance(sizes, DenseArrayAttr) and sum(sizes.values) != len(values):
            yield f"{name} add up to {sum(sizes.values)}, there are {len(values)}"


# ---------------------------------------------------------------------------------- values in registers


def _elementwise(op: Operation) -> Messages:
    """Every tensor has one shape and one layout, and scalars do not mix with tensors (but for a select's condition)."""
    values = [*op.operands, *op.results]
    if op.name == "arith.select" and op.operands and _shape(op.operands[0].type) == ():
        values = values[1:]
    for value in values[1:]:
        first, other = values[0].type, value.type
        if _shape(first) is None or _shape(other) is None:
            continue
        if _shape(first) != _shape(other):
            yield f"needs one shape throughout, has {first} and {other}"
            return
        if _encoding(first) != _encoding(other):
            yield f"needs one layout throughout, has {first} and {other}"
            return


def _compare(op: Operation) -> Messages:
    yield from _all_same(op.operands)
    if _element(op.result.type) != I1:
        yield f"gives i1, not {_element(op.result.type)}"


def _select(op: Operation) -> Messages:
    if _element(op.operands[0].type) != I1:
        yield f"needs a condition of i1, has {op.operands[0].type}"
    yield from _all_same([op.operands[1], op.operands[2], op.result])


def _cast(op: Operation) -> Messages:
    before, after = _bits(op.operands[0].type), _bits(op.result.type)
    if before is None or after is None:
        return
    if op.name in _WIDENING and after <= before:
        yield f"must widen, goes from {before} to {after} bits"
    if op.name in _NARROWING and after >= before:
        yield f"must narrow, goes from {before} to {after} bits"


def _constant(op: Operation) -> Messages:
    value = op.attr("value")
    if value is None:
        yield "has no value"
    elif isinstance(value, IntegerAttr | FloatAttr | DenseAttr) and value.type != op.result.type:
        yield f"holds a value of type {value.type} but gives {op.result.type}"


def _splat(op: Operation) -> Messages:
    if _element(op.result.type) != op.operands[0].type:
        yield f"repeats {op.operands[0].type} but gives elements of {_element(op.result.type)}"


def _same_element(op: Operation) -> Messages:
    if _element(op.operands[0].type) != _element(op.result.type):
        yield f"must keep the element type, goes from {op.operands[0].type} to {op.result.type}"


def _convert_layout(op: Operation) -> Messages:
    yield from _same_element(op)
    if _shape(op.operands[0].type) != _shape(op.result.type):
        yield f"must keep the shape, goes from {op.operands[0].type} to {op.result.type}"


def _expand_dims(op: Operation) -> Messages:
    yield from _same_element(op)
    axis, before, after = op.int_attr("axis"), _shape(op.operands[0].type), _shape(op.result.type)
    if before is None or after is None or axis is None:
        return
    if not 0 <= axis <= len(before) or (*before[:axis], 1, *before[axis:]) != after:
        yield f"does not insert 1 at axis {axis} of {before}: gives {after}"


def _broadcast(op: Operation) -> Messages:
    yield from _same_element(op)
    before, after = _shape(op.operands[0].type), _shape(op.result.type)
    if before is None or after is None:
        return
    if len(before) != len(after) or any(a not in (1, b) for a, b in zip(before, after, strict=True)):
        yield f"cannot broadcast {before} to {after}"


def _reshape(op: Operation) -> Messages:
    yield from _same_element(op)
    before, after = _shape(op.operands[0].type), _shape(op.result.type)
    if before is not None and after is not None and math.prod(before) != math.prod(after):
        yield f"cannot reshape {before} to {after}: the number of elements differs"


def _transpose(op: Operation) -> Messages:
    yield from _same_element(op)
    order, before, after = op.attr("order"), _shape(op.operands[0].type), _shape(op.result.type)
    if not isinstance(order, DenseArrayAttr) or before is None or after is None:
        return
    if sorted(order.values) != list(range(len(before))):
        yield f"order {list(order.values)} is not a permutation of {len(before)} dimensions"
    elif tuple(before[dim] for dim in order.values) != after:
        yield f"order {list(order.values)} makes {before} into another shape than {after}"


def _reduce(op: Operation) -> Messages:
    axis = op.int_attr("axis")
    if axis is None or len(op.results) != len(op.operands):
        yield f"gives {len(op.results)} results for {len(op.operands)} operands and axis {axis}"
        return
    for value, result in zip(op.operands, op.results, strict=True):
        before, after = _shape(value.type), _shape(result.type)
        if before is None or after is None:
            continue
        left = (*before[:axis], *before[axis + 1 :]) if op.name == "tt.reduce" else before
        if not 0 <= axis < len(before) or left != after:
            yield f"over axis {axis} of {before} cannot give {after}"
        if _element(value.type) != _element(result.type):
            yield f"must keep the element type, goes from {value.type} to {result.type}"
    if op.regions and op.regions[0].blocks:
        inside = [_element(value.type) for value in op.operands] * 2
        got = [arg.type for arg in op.regions[0].blocks[0].args]
        if inside != got:
            yield f"its region takes ({', '.join(map(str, got))}), not ({', '.join(map(str, inside))})"


def _dot(op: Operation) -> Messages:
    a, b, c = (value.type for value in op.operands[:3])
    left, right, out = _shape(a), _shape(b), _shape(c)
    if c != op.result.type:
        yield f"accumulates into {c} but gives {op.result.type}"
    if left is None or right is None or out is None:
        return
    if not len(left) == len(right) == len(out) or len(left) not in (2, 3):
        yield f"needs operands of one rank, 2 or 3: {left} x {right} -> {out}"
    elif left[-1] != right[-2] or (*left[:-1], right[-1]) != out or left[:-2] != right[:-2]:
        yield f"shapes do not fit: {left} x {right} -> {out}"
    if _bits(a) != _bits(b):
        yield f"multiplies elements of different widths: {_element(a)} and {_element(b)}"


# ----------------------------------------------------------------------------------------------- memory


def _load(op: Operation) -> Messages:
    yield from _one_shape([op.operands[0], op.result, *op.operands[1:]])


def _store(op: Operation) -> Messages:
    yield from _one_shape(op.operands)


def _one_shape(values: Sequence[Value]) -> Messages:
    first = values[0].type
    for value in values[1:]:
        if _shape(first) is not None and _shape(value.type) is not None and _shape(first) != _shape(value.type):
            yield f"needs one shape throughout, has {first} and {value.type}"
            return


def _descriptor_tile(op: Operation, tile: Type) -> Messages:
    block = op.operands[0].type
    if not isinstance(block, TensorDescType):
        yield f"needs a tensor descriptor first, has {block}"
    elif _element(tile) != signless(block.block.element) or math.prod(_shape(tile) or ()) != math.prod(
        block.block.shape
    ):
        yield f"moves {tile} with a descriptor of {block.block}"


def _same_tile(register: Value, buffer: Value) -> Messages:
    """A tensor and the buffer it goes to or comes from."""
    if not isinstance(buffer.type, MemDescType):
        yield f"needs a buffer, has {buffer.type}"
    elif _shape(register.type) != buffer.type.shape or _element(register.type) != buffer.type.element:
        yield f"moves {register.type} through a buffer of another tile, {buffer.type}"


def _local_alloc(op: Operation) -> Messages:
    if op.operands:
        yield from _same_tile(op.operands[0], op.result)


def _memdesc_index(op: Operation) -> Messages:
    buffer, view = op.operands[0].type, op.result.type
    if not isinstance(buffer, MemDescType) or not isinstance(view, MemDescType):
        yield f"takes and gives buffers, not {buffer} and {view}"
    elif buffer.shape[1:] != view.shape or buffer.element != view.element:
        yield f"of {buffer} cannot be {view}"
    if op.operands[1].type != I32:
        yield f"needs an index of i32, has {op.operands[1].type}"


def _barrier(op: Operation) -> Messages:
    type = op.operands[0].type
    if not isinstance(type, MemDescType) or type.element != I64:
        yield f"needs a barrier (a buffer of i64) first, has {type}"


def _wait_barrier(op: Operation) -> Messages:
    yield from _barrier(op)
    if op.operands[1].type != I32:
        yield f"needs a phase of i32, has {op.operands[1].type}"


# ---------------------------------------------------------------------------------------------- control


def _only_block(region: Region) -> Block | None:
    return region.blocks[0] if len(region.blocks) == 1 else None


def _end_of(region: Region, name: str) -> Operation | None:
    """The terminator called `name` of a region of one block; the verifier reports other ends."""
    block = _only_block(region)
    return block.ops[-1] if block is not None and block.ops and block.ops[-1].name == name else None


def _for(op: Operation) -> Messages:
    block = _only_block(op.regions[0]) if op.regions else None
    if block is None or not block.args:
        yield "needs one region of one block with the induction variable as its first argument"
        return
    yield from _all_same([*op.operands[:3], block.args[0]])
    yield from _types_match("initial value", op.operands[3:], op.results, "results")
    yield from _types_match("region argument", block.args[1:], op.results, "results")
    end = _end_of(op.regions[0], "scf.yield")
    if end is not None:
        yield from _types_match("yielded value", end.operands, op.results, "results")


def _if(op: Operation) -> Messages:
    if op.operands[0].type != I1:
        yield f"needs a condition of i1, has {op.operands[0].type}"
    if op.results and (len(op.regions) < 2 or not op.regions[1].blocks):
        yield "gives results but has no else region"
    for region in op.regions:
        end = _end_of(region, "scf.yield")
        if end is not None:
            yield from _types_match("yielded value", end.operands, op.results, "results")


def _while(op: Operation) -> Messages:
    if len(op.regions) != 2 or any(_only_block(region) is None for region in op.regions):
        yield "needs two regions of one block each"
        return
    before, after = op.regions
    yield from _types_match("initial value", op.operands, before.block.args, "arguments of the first region")
    condition, end = _end_of(before, "scf.condition"), _end_of(after, "scf.yield")
    if condition is not None and condition.operands:
        if condition.operands[0].type != I1:
            yield f"needs a condition of i1, has {condition.operands[0].type}"
        yield from _types_match("passed value", condition.operands[1:], op.results, "results")
        yield from _types_match("passed value", condition.operands[1:], after.block.args, "arguments of the body")
    if end is not None:
        yield from _types_match("yielded value", end.operands, before.block.args, "arguments of the first region")


def _warp_specialize(op: Operation) -> Messages:
    holder = _only_block(op.regions[1]) if len(op.regions) == 2 else None
    if holder is None or len(holder.ops) != 1 or holder.ops[0].name != "ttg.warp_specialize.partitions":
        yield "needs a default region and a region that holds ttg.warp_specialize.partitions alone"
        return
    partitions = holder.ops[0].regions
    end = _end_of(op.regions[0], "ttg.warp_yield")
    if end is not None:
        yield from _types_match("yielded value", end.operands, op.results, "results")
    for name in ("partitionNumWarps", "requestedRegisters", "warpGroupStartIds"):
        sizes = op.attr(name)
        if isinstance(sizes, DenseArrayAttr) and sizes.values and len(sizes.values) != len(partitions):
            yield f"{name} has {len(sizes.values)} entries for {len(partitions)} partitions"
    for number, region in enumerate(partitions):
        args = region.blocks[0].args if region.blocks else []
        yield from _types_match(f"partition {number} argument", args, op.operands, "captures")


def _branch(op: Operation) -> Messages:
    yield from _successor(op, 0, op.operands)


def _cond_branch(op: Operation) -> Messages:
    sizes = op.properties.get("operandSegmentSizes")
    if op.operands[0].type != I1:
        yield f"needs a condition of i1, has {op.operands[0].type}"
    if isinstance(sizes, DenseArrayAttr) and len(sizes.values) == 3:
        split = 1 + sizes.values[1]
        yield from _successor(op, 0, op.operands[1:split])
        yield from _successor(op, 1, op.operands[split:])


def _successor(op: Operation, number: int, values: Sequence[Value]) -> Messages:
    if number >= len(op.successors):
        yield f"needs {number + 1} successors, has {len(op.successors)}"
    else:
        yield from _types_match("branch operand", values, op.successors[number].args, "block arguments")


def _function_type(op: Operation) -> FunctionType | None:
    type = op.attr("function_type")
    found = type.type if isinstance(type, TypeAttr) else None
    return found if isinstance(found, FunctionType) else None


def _func(op: Operation) -> Messages:
    type = _function_type(op)
    if type is None:
        yield "has no function type"
        return
    if op.regions and op.regions[0].blocks:
        args = tuple(arg.type for arg in op.regions[0].blocks[0].args)
        if args != type.inputs:
            yield f"takes {len(type.inputs)} arguments by its type, its entry block has others: {_listed(args)}"


def _return(op: Operation) -> Messages:
    function = next((outer for outer in op.ancestors() if outer.name == "tt.func"), None)
    type = _function_type(function) if function is not None else None
    got = tuple(value.type for value in op.operands)
    if type is not None and type.results != got:
        yield f"returns {_listed(got)} from a function that gives {_listed(type.results)}"


def _listed(types: Sequence[Type]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"


_RULES: dict[str, Rule] = {
    "arith.constant": _counted(0, 1, _constant),
    "arith.cmpi": _counted(2, 1, _compare),
    "arith.cmpf": _counted(2, 1, _compare),
    "arith.select": _counted(3, 1, _select),
    **{name: _counted(1, 1, _cast) for name in sorted(_WIDENING | _NARROWING)},
    "tt.splat": _counted(1, 1, _splat),
    "tt.expand_dims": _counted(1, 1, _expand_dims),
    "tt.broadcast": _counted(1, 1, _broadcast),
    "tt.reshape": _counted(1, 1, _reshape),
    "tt.trans": _counted(1, 1, _transpose),
    "ttg.convert_layout": _counted(1, 1, _convert_layout),
    "tt.reduce": _counted(1, None, _reduce),
    "tt.scan": _counted(1, None, _reduce),
    "tt.dot": _counted(3, 1, _dot),
    "ttng.warp_group_dot": _counted(3, 1, _dot),
    "tt.load": _counted(1, 1, _load),
    "tt.store": _counted(2, 0, _store),
    "tt.descriptor_load": _counted(1, 1, lambda op: _descriptor_tile(op, op.result.type)),
    "tt.descriptor_store": _counted(2, 0, lambda op: _descriptor_tile(op, op.operands[1].type)),
    "ttg.local_alloc": _counted(0, 1, _local_alloc),
    "ttg.local_load": _counted(1, 1, lambda op: _same_tile(op.result, op.operands[0])),
    "ttg.local_store": _counted(2, 0, lambda op: _same_tile(op.operands[0], op.operands[1])),
    "ttg.memdesc_index": _counted(2, 1, _memdesc_index),
    "ttg.memdesc_trans": _counted(1, 1, _transpose),
    "ttg.memdesc_reshape": _counted(1, 1, _reshape),
    "ttng.init_barrier": _counted(1, 0, _barrier),
    "ttng.inval_barrier": _counted(1, 0, _barrier),
    "ttng.barrier_expect": _counted(2, 0, _barrier),
    "ttng.arrive_barrier": _counted(1, 0, _barrier),
    "ttng.wait_barrier": _counted(2, 0, _wait_barrier),
    "scf.for": _counted(3, None, _for),
    "scf.if": _counted(1, None, _if),
    "scf.while": _while,
    "ttg.warp_specialize": _warp_specialize,
    "cf.br": _branch,
    "cf.cond_br": _counted(1, 0, _cond_branch),
    "tt.func": _func,
    "tt.return": _return,
}
