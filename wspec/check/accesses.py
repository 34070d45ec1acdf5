"""What the operations of a task touch in global memory: boxes of descriptors, tiles of pointers, single elements.

A tile of pointers is followed through the arithmetic of its addresses to numbers that it is counted from, rows of each
stride, and where its mask ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wspec.check import assembly
from wspec.check.clock import Once, timed
from wspec.check.congruence import ANYTHING, Congruence, Congruences
from wspec.check.global_memory import GlobalMemory
from wspec.check.linear import Linear, Terms, constant
from wspec.check.rows import Coordinates, End
from wspec.check.tracked_values import Flow
from wspec.ir.core import Block, Operation, Value
from wspec.ir.ops import info
from wspec.ir.shapes import element_of
from wspec.ir.types import I1, DenseArrayAttr, MemDescType, PointerType, TensorDescType, TensorType

_THROUGH = frozenset(
    ("tt.splat", "tt.broadcast", "tt.expand_dims", "ttg.convert_layout", "tt.trans", "tt.reshape", "arith.extsi")
)
_FAR = 2**31 - 2**16  # a copy to coordinates from there on is sent outside of any tensor
_VIEWS = frozenset(("ttg.memdesc_index", "ttg.memdesc_subslice"))
_UNTOLD = _VIEWS | {"arith.constant"}  # may stand here or there
_MASKS = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2, "ttg.async_copy_global_to_local": 2}  # which operand it is
_GREATER, _LESS = 4, 2  # predicates of arith.cmpi, signed


@dataclass(frozen=True, slots=True)
class Side:
    """One dimension of a tile: it begins at `form`, of that rest, and has the elements from `first` to before `last`,
    and so in each of its rows."""

    rest: Congruence
    form: Linear
    first: int
    last: int
    rows: tuple[Coordinates, ...] = ()  # one of each step, which is no number; their bases have none added
    axes: frozenset[int] = frozenset()  # of a tile of pointers, along which its elements are


@dataclass(frozen=True, slots=True)
class Access:
    """What an operation of a task touches: sides of a tile of `what`; None where that is not known."""

    op: Operation
    task: int
    writes: bool
    atomic: bool
    arguments: frozenset[int] | None
    what: Any
    sides: tuple[Side, ...] | None
    spins: bool = False  # may a loop go on until it sees something there?
    begun: frozenset[int] = frozenset()  # spaces of loops that have come round once
    ends: tuple[End, ...] = ()  # what its mask leaves out


class Accesses:
    """Of one function."""

    def __init__(self, flow: Flow, terms: Terms, memory: GlobalMemory) -> None:
        self._flow, self._terms, self._memory = flow, terms, memory
        self._rests = Congruences(flow)
        self.tiled: dict[int, list[Operation]] = {}  # of each task, what it does with tiles and buffers

    def of(self, block: Block, task: int) -> Iterator[Access]:
        """Those of a task to global memory."""
        tiled = self.tiled[task] = list[Operation]()
        for top in block.ops:
            for op in timed(top.walk()):
                row = info(op.name)
                touches = any(is_tile(value) for value in (*op.operands, *op.results))
                if op.name not in _UNTOLD and (touches or is_of_elements(op)):
                    tiled.append(op)
                reads, writes = self._memory.loads_something(op), self._memory.stores_something(op)
                if reads or writes:
                    atomic = row is not None and row.category == "atomic"
                    arguments = self._memory.touched(op)
                    begun = self._begun(op)
                    known = row is not None and op.name != assembly.NAME
                    what, sides = self._tile(op, begun) if known else (None, None)
                    spins = reads and any(outer.name == "scf.while" for outer in op.ancestors())
                    spaces = frozenset(self._terms.space(loop).number for loop in begun)
                    ends = tuple(self._ends(op, begun)) if sides is not None else ()
                    yield Access(op, task, writes, atomic, arguments, what, sides, spins, spaces, ends)

    def _tile(self, op: Operation, begun: frozenset[Operation]) -> tuple[Any, tuple[Side, ...] | None]:
        type = op.operands[0].type if op.operands else None
        if isinstance(type, TensorDescType):
            numbers = [value for value in op.operands[1:] if str(value.type) == "i32"]
            sizes = type.block.shape
            if len(numbers) < len(sizes):  # rows that are gathered
                return None, None
            placed = self._where_it_counts(numbers)
            sides = (self._side(value, size, begun, added) for (value, added), size in zip(placed, sizes, strict=False))
            return self._descriptor(op.operands[0]), tuple(sides)
        if type is None or not isinstance(element_of(type), PointerType):
            return None, None
        return self._pointers(op.operands[0], begun)

    def _where_it_counts(self, numbers: list[Value]) -> list[tuple[Value, int]]:
        """The coordinates of a copy as numbers and what is added to them. That which a condition sends outside of every
        tensor counts where the condition holds."""
        seen = [self._selected(value) for value in numbers]
        selects = {value: value.op for value, _ in seen if value.op is not None and value.op.name == "arith.select"}
        away = set(self._away(seen))
        return [
            (op.operands[1], added) if (op := selects.get(value)) and op.operands[0] in away else (value, added)
            for value, added in seen
        ]

    def _away(self, seen: list[tuple[Value, int]]) -> Iterator[Value]:
        """The conditions without which a copy is sent outside of every tensor."""
        for value, added in seen:
            op = value.op if value.op is not None and value.op.name == "arith.select" else None
            if op is not None and (self._terms.of(op.operands[2]).constant or 0) + added >= _FAR:
                yield op.operands[0]

    def _selected(self, value: Value) -> tuple[Value, int]:
        """A value as one that a condition selects and what is added to that; as itself where it is none."""
        whole = value = self._flow.captured.get(value, value)
        added = 0
        while (op := value.op) is not None and op.name == "arith.addi":
            known = [self._terms.of(operand).constant for operand in op.operands]
            at = next((at for at, number in enumerate(known) if number is not None), None)
            if at is None:
                break
            added += known[at] or 0
            value = self._flow.captured.get(op.operands[1 - at], op.operands[1 - at])
        return (value, added) if op is not None and op.name == "arith.select" else (whole, 0)

    def _descriptor(self, value: Value) -> Any:
        """What is the same where a descriptor is of the same tensor."""
        made = self._memory.made(value)
        if made is None:
            return self._terms.of(value)
        return made.name, tuple(self._terms.of(operand) for operand in made.operands[1:]), str(value.type)

    def _side(self, value: Value, size: int, begun: frozenset[Operation], added: int = 0) -> Side:
        rest = self._rests.of(value, begun).plus(Congruence(0, added))
        return Side(rest, self._terms.of(value).shifted(added), 0, size)

    def _pointers(self, value: Value, begun: frozenset[Operation]) -> tuple[Any, tuple[Side, ...] | None]:
        """Elements of what a pointer points to: what it is counted from, and one side."""
        side, axes = Side(Congruence(0, 0), Linear(), 0, 1), _axes(value)
        while True:
            value = self._flow.captured.get(value, value)
            op = value.op
            if op is not None and op.name in _THROUGH:
                value, axes = op.operands[0], _inside(op, axes)
            elif op is not None and op.name == "tt.addptr":
                offset = self._offsets(op.operands[1], begun, axes)
                if offset is None:
                    return None, None
                side, value = _sum(side, offset), op.operands[0]
            else:
                return (self._terms.of(value), str(value.type)), (side,)

    def _offsets(self, value: Value, begun: frozenset[Operation], axes: _Axes) -> Side | None:
        """Of integers, a tensor of them or one. `axes`: those of the tile that its own ones are."""
        value = self._flow.captured.get(value, value)
        op = value.op
        if not isinstance(value.type, TensorType):
            return self._side(value, 1, begun)
        if op is None:
            return None
        if op.name == "tt.make_range":
            first, last = op.int_attr("start") or 0, op.int_attr("end") or 0
            return Side(Congruence(0, 0), Linear(), first, last, axes=frozenset(axes))
        if op.name == "arith.constant":
            number = constant(op)
            return None if number is None else Side(Congruence(0, number), Linear((), number), 0, 1)
        if op.name in _THROUGH:
            return self._offsets(op.operands[0], begun, _inside(op, axes))
        if op.name in ("arith.addi", "arith.muli"):
            left, right = (self._offsets(operand, begun, axes) for operand in op.operands)
            if left is None or right is None:
                return None
            return _sum(left, right) if op.name == "arith.addi" else _product(left, right) or _product(right, left)
        return None

    def _begun(self, op: Operation) -> frozenset[Operation]:
        """Loops that have come round once where an operation does something, by the conditions that this needs."""
        needed = list(self._needed(op))
        inner, outer = op, op.parent_op
        while outer is not None:
            if outer.name == "scf.if" and inner.is_inside(outer) and inner.parent is outer.regions[0].block:
                needed.append(outer.operands[0])
            inner, outer = outer, outer.parent_op
        compared = (pair for condition in needed for pair in _compared(condition))
        return frozenset(loop for greater, less in compared for loop in self._come_round(greater, less, op))

    def _needed(self, op: Operation) -> Iterator[Value]:
        """Conditions without which an access touches nothing: in its mask, or to a copy's coordinates."""
        numbers = [value for value in op.operands if str(value.type) == "i32"]
        if op.operands and isinstance(op.operands[0].type, TensorDescType):
            yield from self._away([self._selected(value) for value in numbers])
        at = _MASKS.get(op.name, len(op.operands))
        pending = Once(
            self._flow.captured.get(one, one) for one in op.operands[at : at + 1] if element_of(one.type) == I1
        )
        for value in pending:
            if not isinstance(value.type, TensorType):
                yield value
            elif value.op is not None and (value.op.name == "arith.andi" or value.op.name in _THROUGH):
                pending.add(self._flow.captured.get(one, one) for one in value.op.operands)

    def _ends(self, op: Operation, begun: frozenset[Operation]) -> Iterator[End]:
        """Of the elements that a mask leaves out, those that do not come before a number."""
        at = _MASKS.get(op.name, len(op.operands))
        pending = [(value, _axes(value)) for value in op.operands[at : at + 1]]
        while pending:
            value, axes = pending.pop()
            value = self._flow.captured.get(value, value)
            made = value.op
            if made is None or not isinstance(value.type, TensorType):
                continue
            if made.name == "arith.andi":
                pending += [(operand, axes) for operand in made.operands]
            elif made.name in _THROUGH:
                pending.append((made.operands[0], _inside(made, axes)))
            for greater, less in _compared(value) if made.name == "arith.cmpi" else ():
                side, limit = (self._offsets(one, begun, axes) for one in (less, greater))
                if side and limit and not side.rows and not limit.rows and (limit.first, limit.last) == (0, 1):
                    base, number = Linear(side.form.terms), side.form.const
                    yield End(base, number + side.first, number + side.last - 1, side.axes, limit.form)

    def _come_round(self, greater: Value, less: Value, access: Operation) -> Iterator[Operation]:
        """Loops whose position, or behind them their end, is the one and whose beginning is the other."""
        block = greater.owner
        own = block.parent_op if greater.op is None and isinstance(block, Block) and greater.index == 0 else None
        loops = [own] if own is not None and own.name == "scf.for" else []
        around = self._terms.chain(access)
        ended = (loop for loop in timed(self.loops) if self._terms.space(loop).number not in around)
        loops += [loop for loop in ended if self._same(loop.operands[1], greater)]
        yield from (loop for loop in loops if self._same(loop.operands[0], less))

    @cached_property
    def loops(self) -> list[Operation]:
        return [op for op in self._flow.root.walk() if op.name == "scf.for"]

    def _same(self, one: Value, other: Value) -> bool:
        return one is other or (self._terms.of(one) - self._terms.of(other)) == Linear()


_Axes = tuple[int, ...]  # of a tile, one for each of a tensor that it is made of; below zero where that is not known


def _axes(value: Value) -> _Axes:
    """Of a tile, its own."""
    return tuple(range(len(value.type.shape))) if isinstance(value.type, TensorType) else ()


def _inside(op: Operation, axes: _Axes) -> _Axes:
    """Of what an operation only gives another shape."""
    rank = len(_axes(op.operands[0]))
    if op.name == "tt.expand_dims":
        at = op.int_attr("axis") or 0
        return (*axes[:at], *axes[at + 1 :])
    order = op.attr("order")
    if op.name == "tt.trans" and isinstance(order, DenseArrayAttr):
        return tuple(axes[order.values.index(at)] for at in range(rank))
    if op.name in ("tt.trans", "tt.reshape"):
        return (-1,) * rank
    return axes[:rank]


def is_of_elements(op: Operation) -> bool:
    """Does it say what a reduction, or the like, does with the elements of a tensor?"""
    return op.parent_op is not None and op.parent_op.name in ("tt.reduce", "tt.scan", "tt.map_elementwise")


def is_tile(value: Value) -> bool:
    """A tensor, or a buffer."""
    return isinstance(value.type, TensorType | MemDescType)


def _compared(condition: Value) -> Iterator[tuple[Value, Value]]:
    """What is greater than what, where a condition holds."""
    op = condition.op
    if op is None:
        return
    if op.name == "arith.andi":
        for operand in op.operands:
            yield from _compared(operand)
    elif op.name == "arith.cmpi" and op.int_attr("predicate") == _GREATER:
        yield op.operands[0], op.operands[1]
    elif op.name == "arith.cmpi" and op.int_attr("predicate") == _LESS:
        yield op.operands[1], op.operands[0]


def _sum(left: Side, right: Side) -> Side:
    rows = {one.step: one for one in left.rows}
    for one in right.rows:
        known = rows.get(one.step, Coordinates(one.step, Linear(), 0, 0))
        ends, axes = (known.first + one.first, known.last + one.last), known.axes | one.axes
        rows[one.step] = Coordinates(one.step, known.base + one.base, *ends, axes)
    found = tuple(sorted(rows.values(), key=lambda one: (one.step.terms, one.step.const)))
    first, last = left.first + right.first, left.last + right.last - 1
    return Side(left.rest.plus(right.rest), left.form + right.form, first, last, found, left.axes | right.axes)


def _product(left: Side, right: Side) -> Side | None:
    """By a number, or by what is none: rows that far from each other. None where it is neither."""
    if right.rows or right.first != 0 or right.last != 1:
        return None
    number = right.form.constant
    if number is not None and number >= 0:
        scaled = (
            Coordinates(one.step, one.base.scaled(number), number * one.first, number * one.last, one.axes)
            for one in left.rows
        )
        span = number * left.first, number * (left.last - 1) + 1
        return Side(left.rest.times(right.rest), left.form.scaled(number), *span, tuple(scaled), left.axes)
    if number is not None or left.rows:
        return None
    base, added = Linear(left.form.terms), left.form.const
    rows = Coordinates(right.form, base, added + left.first, added + left.last - 1, left.axes)
    return Side(ANYTHING, Linear(), 0, 1, (rows,))
