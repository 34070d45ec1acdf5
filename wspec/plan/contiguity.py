"""How many neighbours along one dimension of a tile lie side by side in memory, and share their mask.

A thread that copies a piece of a tile with cp.async needs its elements at consecutive, aligned addresses, all of them
wanted or none. Both follow from the arithmetic that makes addresses and masks, by three facts of each value along the
dimension that is asked about, all of them powers of two:

    runs of `contiguity` elements that begin at a multiple of it count up by one,
    runs of `constancy` elements that begin at a multiple of it are equal,
    the first element of each contiguous run is a multiple of `divisibility` (of a pointer: in bytes).

They are lower bounds: what is not understood has runs of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wspec.ir.core import Block, Operation, Value
from wspec.ir.shapes import element_of
from wspec.ir.types import ArrayAttr, DenseAttr, DictAttr, IntegerAttr, PointerType, ScalarType, TensorType, Type

MANY = 1 << 30  # of what has no end: all elements are equal, or zero is divisible


@dataclass(frozen=True, slots=True)
class Runs:
    """What is known of a value along a dimension."""

    contiguity: int = 1
    divisibility: int = 1
    constancy: int = 1

    def divisible_at(self, multiple: int) -> int:
        """What divides the elements at multiples of `multiple`."""
        return self.divisibility if multiple >= self.contiguity else min(self.divisibility, multiple)

    def meet(self, other: Runs) -> Runs:
        """What holds whichever of two values it is."""
        contiguity = min(self.contiguity, other.contiguity)
        divisibility = min(self.divisible_at(contiguity), other.divisible_at(contiguity))
        return Runs(contiguity, divisibility, min(self.constancy, other.constancy))


def element_bytes(type: Type) -> int:
    """Bytes of what a pointer, or a tile of pointers, points to; 0 for anything else."""
    element = element_of(type)
    pointee = element.pointee if isinstance(element, PointerType) else None
    return pointee.bits // 8 if isinstance(pointee, ScalarType) else 0


def neighbours(pointers: Value, mask: Value | None, dim: int) -> int:
    """Elements along `dim` that one access may take at once: side by side, aligned to their size, of one mask."""
    known = _Analysis()
    address, size = known.runs(pointers, dim), max(1, element_bytes(pointers.type))
    wide = max(1, min(address.contiguity, address.divisibility // size))
    return wide if mask is None else min(wide, known.runs(mask, dim).constancy)


class _Analysis:
    """Facts of values along a dimension, None where a value does not have it and so is the same all along it."""

    def __init__(self) -> None:
        self.known: dict[tuple[Value, int | None], Runs] = {}

    def runs(self, value: Value, dim: int | None) -> Runs:
        if not isinstance(value.type, TensorType):
            dim = None
        key = (value, dim)
        if key not in self.known:
            found = self._argument(value, dim) if value.op is None else self._result(value.op, value, dim)
            self.known[key] = _same(found) if dim is None else found
        return self.known[key]

    # ---- what comes into a block

    def _argument(self, value: Value, dim: int | None) -> Runs:
        block = value.owner
        parent = block.parent_op if isinstance(block, Block) else None
        if parent is not None and parent.name == "tt.func":
            return Runs(divisibility=divisibility(parent, value.index))
        if parent is None or parent.name != "scf.for":
            return Runs()
        if value.index == 0:  # lower + i * step
            low, step = self.runs(parent.operands[0], None), self.runs(parent.operands[2], None)
            return Runs(divisibility=min(low.divisibility, step.divisibility))
        return self._carried(parent, value, dim)

    def _carried(self, loop: Operation, value: Value, dim: int | None) -> Runs:
        """What holds at first and, if it holds, an iteration later: tried from the best there can be."""
        assumed = self.runs(loop.operands[2 + value.index], dim)
        following = loop.regions[0].block.terminator.operands[value.index - 1]
        while True:
            inside = _Analysis()
            inside.known = {**self.known, (value, dim): assumed}
            found = assumed.meet(inside.runs(following, dim))
            if found == assumed:
                return assumed
            assumed = found

    # ---- operations

    def _result(self, op: Operation, value: Value, dim: int | None) -> Runs:
        match op.name:
            case "arith.constant":
                number = value.splat
                return Runs(1, 1 if number is None else _power_in(number), MANY if _is_splat(op) else 1)
            case "tt.make_range":
                start = op.int_attr("start") or 0
                return Runs((op.int_attr("end") or 0) - start, _power_in(start))
            case "tt.splat":
                return _same(self.runs(op.operands[0], None))
            case "tt.expand_dims":
                return self._expanded(op, dim)
            case "tt.broadcast":
                return self._broadcast(op, dim)
            case "ttg.convert_layout" | "arith.extsi" | "arith.extui" | "arith.trunci" | "arith.index_cast":
                return self.runs(op.operands[0], dim)
            case "scf.for":
                return self._argument(op.regions[0].block.args[1 + value.index], dim)
            case "scf.if":
                first, second = (region.block.terminator.operands[value.index] for region in op.regions)
                return self.runs(first, dim).meet(self.runs(second, dim))
        return self._arithmetic(op, dim)

    def _expanded(self, op: Operation, dim: int | None) -> Runs:
        axis = op.int_attr("axis") or 0
        if dim is None or dim == axis:
            return _same(self.runs(op.operands[0], None))
        return self.runs(op.operands[0], dim - (dim > axis))

    def _broadcast(self, op: Operation, dim: int | None) -> Runs:
        source = op.operands[0].type
        if dim is not None and isinstance(source, TensorType) and source.shape[dim] == 1:
            return _same(self.runs(op.operands[0], dim))
        return self.runs(op.operands[0], dim)

    def _arithmetic(self, op: Operation, dim: int | None) -> Runs:
        if op.regions or not op.operands or op.name not in (*_TWO, "arith.cmpi", *_ANY):
            return Runs()
        given = [self.runs(operand, dim) for operand in op.operands]
        if op.name == "arith.cmpi":
            return Runs(constancy=_uniform(op, given[0], given[1]))
        if op.name == "tt.addptr":
            size = max(1, element_bytes(op.operands[0].type))
            given[1] = Runs(given[1].contiguity, given[1].divisibility * size, given[1].constancy)
            return _sum(given[0], given[1], size)
        if op.name in _TWO:
            return _TWO[op.name](given[0], given[1])
        return Runs(constancy=min(one.constancy for one in given))


def _same(runs: Runs) -> Runs:
    """Of one number, all along a dimension."""
    return Runs(1, runs.divisible_at(1), MANY)


def _sum(a: Runs, b: Runs, unit: int = 1) -> Runs:
    """`unit`: what divisibility counts of one step, the bytes of an element where a pointer is added to."""
    contiguity = max(1, min(a.contiguity, b.constancy), min(a.constancy, b.contiguity))
    divisibility = min(_at(a, contiguity, unit), _at(b, contiguity, unit))
    return Runs(contiguity, divisibility, min(a.constancy, b.constancy))


def _at(runs: Runs, multiple: int, unit: int) -> int:
    return runs.divisibility if multiple >= runs.contiguity else min(runs.divisibility, multiple * unit)


def _difference(a: Runs, b: Runs) -> Runs:
    contiguity = max(1, min(a.contiguity, b.constancy))
    divisibility = min(a.divisible_at(contiguity), b.divisible_at(contiguity))
    return Runs(contiguity, divisibility, min(a.constancy, b.constancy))


def _product(a: Runs, b: Runs) -> Runs:
    return Runs(1, min(MANY, a.divisible_at(1) * b.divisible_at(1)), min(a.constancy, b.constancy))


def _remainder(a: Runs, b: Runs) -> Runs:
    """Numbers that count up keep to it as long as they do not step over a multiple of the divisor."""
    contiguity = max(1, min(a.contiguity, b.constancy, a.divisibility, b.divisibility))
    divisibility = min(a.divisible_at(contiguity), b.divisible_at(contiguity))
    return Runs(contiguity, divisibility, min(a.constancy, b.constancy))


def _uniform(op: Operation, a: Runs, b: Runs) -> int:
    """Runs in which a comparison has one outcome: of what counts up with a number that no run steps over."""
    equal = min(a.constancy, b.constancy)
    predicate = op.int_attr("predicate")
    if predicate in _STEPS_UP:
        equal = max(equal, _below(a, b))
    if predicate in _STEPS_DOWN:
        equal = max(equal, _below(b, a))
    return equal


def _below(counts: Runs, bound: Runs) -> int:
    """x < bound, in runs of x that begin at a multiple of their length."""
    return min(counts.contiguity, bound.constancy, counts.divisibility, bound.divisible_at(1))


_STEPS_UP = (2, 5, 6, 9)  # slt, sge, ult, uge: of an index on the left
_STEPS_DOWN = (3, 4, 7, 8)  # sle, sgt, ule, ugt: of one on the right
_TWO: dict[str, Callable[[Runs, Runs], Runs]] = {
    "tt.addptr": _sum, "arith.addi": _sum, "arith.subi": _difference, "arith.muli": _product,
    "arith.remsi": _remainder, "arith.remui": _remainder,
}  # fmt: skip
_ANY = ("arith.andi", "arith.ori", "arith.xori", "arith.select", "arith.minsi", "arith.maxsi", "arith.minui",
        "arith.maxui", "arith.divsi", "arith.divui")  # fmt: skip


# --------------------------------------------------------------------------------------------- numbers


def _power_in(number: int) -> int:
    """The largest power of two that divides it."""
    return MANY if number == 0 else min(MANY, number & -number)


def _is_splat(op: Operation) -> bool:
    value = op.attr("value")
    return not isinstance(value, DenseAttr) or not value.text.startswith(("[", '"'))


def divisibility(function: Operation, argument: int) -> int:
    """The power of two that an argument is known to be a multiple of: what Triton's launcher has seen of it."""
    every = function.attr("arg_attrs")
    given = every.items[argument] if isinstance(every, ArrayAttr) else None
    if not isinstance(given, DictAttr):
        return 1
    said = next((one for name, one in given.items if name.strip('"') == "tt.divisibility"), None)
    return _power_in(said.value) if isinstance(said, IntegerAttr) else 1
