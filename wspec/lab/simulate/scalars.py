"""The integers that decide what a block does: how each comes from others, and which have to be known."""

from __future__ import annotations

import operator
from collections.abc import Callable

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value
from wspec.ir.types import DenseAttr, IntegerAttr, ScalarType, TensorType
from wspec.ptx.fixed_points import all_from

Function = Callable[..., int]


def _quotient(a: int, b: int) -> int:
    if b == 0:
        return -1
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


def _remainder(a: int, b: int) -> int:
    return a - b * _quotient(a, b) if b else a


_BINARY: dict[str, Callable[[int, int], int]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.divsi": _quotient,
    "arith.remsi": _remainder,
    "arith.divui": _quotient,
    "arith.remui": _remainder,
    "arith.floordivsi": lambda a, b: a // b if b else -1,
    "arith.ceildivsi": lambda a, b: -(-a // b) if b else -1,
    "arith.ceildivui": lambda a, b: -(-a // b) if b else -1,
    "arith.andi": operator.and_,
    "arith.ori": operator.or_,
    "arith.xori": operator.xor,
    "arith.shli": operator.lshift,
    "arith.shrsi": operator.rshift,
    "arith.shrui": operator.rshift,
    "arith.maxsi": max,
    "arith.minsi": min,
    "arith.maxui": max,
    "arith.minui": min,
}
_UNSIGNED = frozenset(("divui", "remui", "ceildivui", "shrui", "maxui", "minui"))
_COMPARE: tuple[Callable[[int, int], bool], ...] = (
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
    operator.lt, operator.le, operator.gt, operator.ge,
)  # fmt: skip
_FIRST_UNSIGNED = 6  # position in _COMPARE
_WIDENING = frozenset(("arith.extsi", "arith.index_cast", "tt.bitcast", "arith.bitcast"))
_NARROWING = frozenset(("arith.extui", "arith.trunci", "arith.index_castui"))
_SAME = frozenset(("tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "ttg.convert_layout"))


def bits(value: Value) -> int:
    """Of an integer; 64 for anything else."""
    return value.type.bits if isinstance(value.type, ScalarType) else 64


def wrapped(number: int, width: int) -> int:
    """As a signed integer of that width; of one bit, 0 or 1."""
    number &= (1 << width) - 1
    return number - (1 << width) if width > 1 and number >> (width - 1) else number


def constant(op: Operation) -> int | None:
    """The integer of an arith.constant; of a tensor whose elements are all the same, that element."""
    value = op.attr("value")
    if isinstance(value, IntegerAttr):
        return value.value
    if isinstance(value, DenseAttr) and isinstance(value.type, TensorType):
        try:
            return {"true": 1, "false": 0}.get(value.text) if value.text in ("true", "false") else int(value.text)
        except ValueError:
            return None
    return None


def function(op: Operation) -> Function | None:
    """How an integer comes from the operands; None when that is not known here."""
    if op.name in _SAME:
        return lambda a: int(a)
    if len(op.results) != 1 or not isinstance(op.results[0].type, ScalarType):
        return None
    width = bits(op.results[0])
    if op.name in _BINARY:
        plain = _BINARY[op.name]
        if op.name.partition(".")[2] in _UNSIGNED:
            mask = (1 << width) - 1
            return lambda a, b: wrapped(plain(a & mask, b & mask), width)
        return lambda a, b: wrapped(plain(a, b), width)
    if op.name == "arith.cmpi":
        code = op.int_attr("predicate") or 0
        compare, mask = _COMPARE[code], (1 << bits(op.operands[0])) - 1
        if code >= _FIRST_UNSIGNED:
            return lambda a, b: int(compare(a & mask, b & mask))
        return lambda a, b: int(compare(a, b))
    if op.name == "arith.select":
        return lambda c, a, b: a if c else b
    if op.name in _WIDENING:
        return lambda a: wrapped(a, width)
    if op.name in _NARROWING:
        mask = (1 << bits(op.operands[0])) - 1
        return lambda a: wrapped(a & mask, width)
    return None


# ------------------------------------------------------------------------------------------ what is needed


def sources(value: Value) -> list[Value]:
    """The values that a value comes from, through loops, branches and the captures of tasks."""
    if isinstance(value.owner, Block):
        return _of_argument(value.owner, value.index)
    op = value.owner
    if op.name == "scf.for":
        return [*op.operands[:3], op.operands[3 + value.index], op.regions[0].block.terminator.operands[value.index]]
    if op.name == "scf.while":
        return [*op.operands, *op.regions[0].block.terminator.operands, *op.regions[1].block.terminator.operands]
    if op.regions:
        ends = [region.block.terminator.operands for region in op.regions if region.blocks]
        return [*op.operands, *(end[value.index] for end in ends if value.index < len(end))]
    return op.operands


def _of_argument(block: Block, index: int) -> list[Value]:
    op = block.parent_op
    if op is None:
        return []
    if op.name == "scf.for":
        if index == 0:
            return op.operands[:3]
        return [op.operands[2 + index], block.terminator.operands[index - 1]]
    if op.name == "scf.while":
        return [*op.operands, *op.regions[0].block.terminator.operands, *op.regions[1].block.terminator.operands]
    if op.name == "ttg.warp_specialize.partitions":
        outer = op.parent_op
        assert outer is not None and outer.name == ws.NAME
        return [outer.operands[index]] if index < len(outer.operands) else []
    return []


def closure(seeds: list[Value]) -> set[Value]:
    """The values and all that they come from."""
    return all_from(seeds, sources)
