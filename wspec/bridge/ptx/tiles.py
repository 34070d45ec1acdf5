"""Which tiles and elements of global memory a task's copies take by the TTGIR, in a launch whose numbers are known.

The task is executed as far as loops, branches and copies hang on it: scalars and single elements of tensors, each
computed where it is asked for. What is not computed of integers, parameters and global memory is not known; a branch
that hangs on it goes either way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from wspec.bridge.ptx.actions import ELEMENTS, LOADS, ROWS, STORES, VIEWS, box_of_copy, marks_of, predicate_of
from wspec.bridge.ptx.scalars import DIVISIONS, bits_of, result_of
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value
from wspec.ir.shared_memory import Area, size_bytes
from wspec.ir.types import I1, DenseArrayAttr, DenseAttr, MemDescType, PointerType, ScalarType, TensorType, Type
from wspec.ptx.arithmetic import signed
from wspec.ptx.copies import Mark
from wspec.ptx.drawn_launch import Launch

MOST_STEPS = 4000  # iterations of a task's loops in one launch
MOST_REDUCED = 1024  # elements to one

_COPIES = LOADS | STORES | {ELEMENTS}

Index = tuple[int, ...]
"""Of an element of a tensor; () of a scalar."""


class NotFollowed(Exception):
    """What a copy takes is not known."""


class Over(Exception):
    """What comes from here on has no meaning in this launch, or takes too long."""


@dataclass(slots=True, eq=False)
class Scope:
    """One execution of a block: what its values are, as far as they have been asked for."""

    block: Block
    outer: Scope | None
    given: dict[Value, tuple[Value, Scope]] = field(default_factory=dict)  # what arguments and results stand for
    known: dict[tuple[Value, Index], int | None] = field(default_factory=dict)


Told = tuple[Operation, Scope, Mark | None]
"""What a task does next: an operation, the execution of its block, and the mark that it is; None of a copy."""


class Tiles:
    """Of one task, in one launch. `places`: where allocations begin and end; `choose`: which way a branch goes that
    hangs on what is not known; `marks`: is told as well what all threads do at once (copies.py)?"""

    def __init__(
        self, places: Mapping[Operation, Area], launch: Launch, choose: Callable[[], bool], marks: bool = False
    ) -> None:
        self._places, self._launch, self._choose = places, launch, choose
        self._marks = marks
        self._steps = 0
        self._with_copies: dict[Operation, bool] = {}
        self._tells: dict[Operation, tuple[Mark | None, ...]] = {}

    def copies(self, function: Operation, partition: int | None) -> Iterator[Told]:
        """The copies in their order, and marks. `partition`: None of the code around with the default region. Raises
        NotFollowed and Over."""
        around = Scope(function.regions[0].block, None)
        if partition is None:
            yield from self._block(around)
            return
        region = next(op for op in function.walk() if op.name == ws.NAME)
        assert region.parent is around.block
        inside = Scope(ws.partition_blocks(region)[partition], around)
        inside.given |= {arg: (value, around) for arg, value in zip(inside.block.args, region.operands, strict=True)}
        yield from self._block(inside)

    def has_copies(self, op: Operation) -> bool:
        """In its regions?"""
        if op not in self._with_copies:
            self._with_copies[op] = any(self._told(one) for one in op.walk())
        return self._with_copies[op]

    def _block(self, scope: Scope) -> Iterator[Told]:
        for op in scope.block.ops:
            told = self._told(op)
            if told:
                if self._happens(op, scope):
                    yield from ((op, scope, one) for one in told)
            elif op.name == ws.NAME:
                yield from self._block(Scope(ws.default_block(op), scope))
            elif op.regions and self.has_copies(op):
                yield from self._structured(op, scope)

    def _told(self, op: Operation) -> tuple[Mark | None, ...]:
        """What an operation does: None for a copy."""
        if op not in self._tells:
            copies = (None,) if op.name in _COPIES else ()
            self._tells[op] = (*copies, *(marks_of(op) if self._marks else ()))
        return self._tells[op]

    def _happens(self, op: Operation, scope: Scope) -> bool:
        predicate = predicate_of(op)
        return predicate is None or self._holds(predicate, scope)

    def _holds(self, value: Value, scope: Scope) -> bool:
        found = self.of(value, scope)
        return self._choose() if found is None else bool(found)

    def _structured(self, op: Operation, scope: Scope) -> Iterator[Told]:
        match op.name:
            case "scf.for":
                yield from self._for(op, scope)
            case "scf.if":
                yield from self._if(op, scope)
            case "scf.while":
                yield from self._while(op, scope)
            case _:
                raise NotFollowed(f"{op.name} is not followed")

    def _for(self, op: Operation, scope: Scope) -> Iterator[Told]:
        body, kind = op.regions[0].block, op.operands[0].type
        bits = bits_of(kind)
        start, stop, step = (self.of(value, scope) for value in op.operands[:3])
        at = None if start is None else signed(start, bits)
        by = None if step is None else signed(step, bits)
        held = [(value, scope) for value in op.operands[3:]]
        while self._choose() if at is None or stop is None else at < signed(stop, bits):
            self._count()
            inside = Scope(body, scope)
            inside.known[body.args[0], ()] = None if at is None else at & (1 << bits) - 1
            self._take(inside, dict(zip(body.args[1:], held, strict=True)))
            yield from self._block(inside)
            held = [(value, inside) for value in body.terminator.operands]
            at = None if at is None or by is None else at + by
        scope.given |= dict(zip(op.results, held, strict=True))

    def _while(self, op: Operation, scope: Scope) -> Iterator[Told]:
        before, after = (region.block for region in op.regions)
        held = [(value, scope) for value in op.operands]
        while True:
            self._count()
            asks = Scope(before, scope)
            self._take(asks, dict(zip(before.args, held, strict=True)))
            yield from self._block(asks)
            held = [(value, asks) for value in before.terminator.operands[1:]]
            if not self._holds(before.terminator.operands[0], asks):
                break
            inside = Scope(after, scope)
            self._take(inside, dict(zip(after.args, held, strict=True)))
            yield from self._block(inside)
            held = [(value, inside) for value in after.terminator.operands]
        scope.given |= dict(zip(op.results, held, strict=True))

    def _if(self, op: Operation, scope: Scope) -> Iterator[Told]:
        region = op.regions[0 if self._holds(op.operands[0], scope) else 1]
        if region.blocks:
            inside = Scope(region.block, scope)
            yield from self._block(inside)
            ends = [(value, inside) for value in region.block.terminator.operands]
            scope.given |= dict(zip(op.results, ends, strict=True))

    def _count(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise Over

    def _take(self, inside: Scope, given: dict[Value, tuple[Value, Scope]]) -> None:
        """What a block's arguments are. Scalars are computed at once, so that nothing hangs on all iterations."""
        inside.given |= given
        for arg in given:
            if isinstance(arg.type, ScalarType | PointerType):
                self.of(arg, inside)

    # ---- values

    def of(self, value: Value, scope: Scope, index: Index = ()) -> int | None:
        """What a scalar is, or an element of a tensor; None where it is not known. Raises Over."""
        block = value.owner if isinstance(value.owner, Block) else value.owner.parent
        home: Scope | None = scope
        while home is not None and home.block is not block:
            home = home.outer
        if home is None:
            return None
        key = value, index
        if key not in home.known:
            home.known[key] = self._made(value, home, index)
        return home.known[key]

    def _made(self, value: Value, scope: Scope, index: Index) -> int | None:
        op = value.op
        if op is not None and op.regions and value not in scope.given and op.name.startswith("scf."):
            for _ in self._structured(op, scope):
                pass
        if value in scope.given:
            return self.of(*scope.given[value], index)
        if op is None:
            is_argument = scope.outer is None and scope.block.parent_op is not None
            return self._launch.arguments[value.index] if is_argument else None
        return self._result(op, scope, index)

    def _result(self, op: Operation, scope: Scope, index: Index) -> int | None:
        match op.name:
            case "arith.constant":
                return constant_of(op)
            case "tt.get_program_id":
                return self._launch.block[op.int_attr("axis") or 0]
            case "tt.get_num_programs":
                return self._launch.blocks[op.int_attr("axis") or 0]
            case "tt.addptr":
                return self._moved(op, scope, index)
            case "tt.load":
                return self._loaded(op, scope, index)
            case "tt.reduce":
                return self._reduced(op, scope, index)
            case "tt.make_range":
                return (op.int_attr("start") or 0) + index[0]
            case "ttg.local_alloc":
                return self._places[op].start if op in self._places else None
            case "ttg.memdesc_index":
                start, at = self.of(op.operands[0], scope), self.of(op.operands[1], scope)
                type = op.result.type
                if start is None or at is None or not isinstance(type, MemDescType):
                    return None
                return start + at * size_bytes(type)
            case name if name in VIEWS:
                return self.of(op.operands[0], scope)
        passed = _passed(op, index)
        if passed is not None:
            return self.of(op.operands[0], scope, passed)
        if len(op.results) != 1 or not op.name.startswith("arith."):
            return None
        values = []
        for operand in op.operands:
            values.append(self.of(operand, scope, index if isinstance(operand.type, TensorType) else ()))
        if op.name in DIVISIONS and values[1] == 0:
            raise Over
        return result_of(op, tuple(values))

    def _moved(self, op: Operation, scope: Scope, index: Index) -> int | None:
        base, by = (self.of(operand, scope, index) for operand in op.operands)
        size = _size_of_pointee(op.result.type)
        if base is None or by is None or size is None:
            return None
        return base + signed(by, bits_of(op.operands[1].type)) * size & (1 << 64) - 1

    def _loaded(self, op: Operation, scope: Scope, index: Index) -> int | None:
        sizes = op.attr("operandSegmentSizes")
        segments = sizes.values if isinstance(sizes, DenseArrayAttr) else (1, 0, 0)
        if len(op.operands) > 1 and segments[1]:
            mask = self.of(op.operands[1], scope, index)
            if mask is None:
                return None
            if not mask:
                return self.of(op.operands[2], scope, index) if segments[2] else 0
        address, type = self.of(op.operands[0], scope, index), op.result.type
        element = type.element if isinstance(type, TensorType) else type
        if address is None or (isinstance(element, ScalarType) and element.is_float):
            return None
        size = bits_of(element) // 8
        return self._launch.memory(address, size) if size else None

    def _reduced(self, op: Operation, scope: Scope, index: Index) -> int | None:
        """Of integers along an axis, one after the other."""
        source, body, axis = op.operands[0], op.regions[0].block, op.int_attr("axis") or 0
        if len(op.operands) != 1 or not isinstance(source.type, TensorType) or source.type.shape[axis] > MOST_REDUCED:
            return None
        total: int | None = None
        for at in range(source.type.shape[axis]):
            found = self.of(source, scope, (*index[:axis], at, *index[axis:]))
            if found is None or not at:
                total = found
            else:
                inside = Scope(body, scope)
                inside.known |= {(body.args[0], ()): total, (body.args[1], ()): found}
                total = self.of(body.terminator.operands[0], inside)
            if total is None:
                return None
        return total

    # ---- copies

    def boxes(self, op: Operation, scope: Scope) -> Counter[tuple[int, ...]]:
        """The coordinates of each box of a tile, the innermost first. Raises NotFollowed."""
        *_, buffer = (one.type for one in op.operands if isinstance(one.type, MemDescType))
        assert isinstance(buffer, MemDescType)
        box = box_of_copy(buffer)
        if box is None:
            raise NotFollowed("how large the boxes of a tile are is not known")
        if op.name in ROWS:
            return self._rows(op, scope, buffer, box)
        scalars = [one for one in op.operands[1:] if isinstance(one.type, ScalarType) and one.type != I1]
        first = [self._known(one, scope) for one in scalars]
        outer = len(first) - len(box)
        if outer < 0:
            raise NotFollowed("a tile has fewer coordinates than its buffer")
        found = [tuple(first)]
        for axis, (size, each) in enumerate(zip(buffer.shape, box, strict=True)):
            found = [
                (*one[: outer + axis], one[outer + axis] + by & 0xFFFFFFFF, *one[outer + axis + 1 :])
                for one in found
                for by in range(0, size, each)
            ]
        return Counter(one[::-1] for one in found)

    def _rows(self, op: Operation, scope: Scope, buffer: MemDescType, box: tuple[int, ...]) -> Counter[tuple[int, ...]]:
        """Four rows at a time, wherever they are."""
        rows = next(one for one in op.operands if isinstance(one.type, TensorType))
        column = self._known(next(one for one in op.operands[1:] if isinstance(one.type, ScalarType)), scope)
        at = [self._known(rows, scope, (row,)) for row in range(buffer.shape[0])]
        return Counter(
            (column + by & 0xFFFFFFFF, *at[row : row + 4])
            for by in range(0, buffer.shape[1], box[1])
            for row in range(0, len(at), 4)
        )

    def _known(self, value: Value, scope: Scope, index: Index = ()) -> int:
        found = self.of(value, scope, index)
        if found is None:
            raise NotFollowed("where a tile is in global memory is not known")
        return found

    def element(self, op: Operation, scope: Scope, index: Index) -> tuple[int | None, bool]:
        """The address of an element that is copied, and whether it is copied and not filled with zeros."""
        sizes = op.attr("operandSegmentSizes")
        segments = sizes.values if isinstance(sizes, DenseArrayAttr) else (1, 1, 0, 0)
        mask = self._known(op.operands[2], scope, index) if segments[2] else 1
        return (self._known(op.operands[0], scope, index) if mask else None), bool(mask)


def _passed(op: Operation, index: Index) -> Index | None:
    """Which element of its operand an operation hands on as an element of its result."""
    if not op.operands or not op.results or not isinstance(op.results[0].type, TensorType):
        return None
    source = op.operands[0].type
    match op.name:
        case "tt.splat":
            return ()
        case "ttg.convert_layout":
            return index
        case "tt.broadcast" if isinstance(source, TensorType):
            return tuple(0 if size == 1 else at for at, size in zip(index, source.shape, strict=True))
        case "tt.expand_dims":
            axis = op.int_attr("axis") or 0
            return (*index[:axis], *index[axis + 1 :])
        case "tt.reshape" if isinstance(source, TensorType) and op.attr("allow_reorder") is None:
            number = 0
            for at, size in zip(index, op.results[0].type.shape, strict=True):
                number = number * size + at
            found: list[int] = []
            for size in reversed(source.shape):
                number, at = divmod(number, size)
                found.append(at)
            return tuple(reversed(found))
        case "tt.trans":
            order = op.attr("order")
            if isinstance(order, DenseArrayAttr):
                places = list(order.values)
                return tuple(index[places.index(axis)] for axis in range(len(places)))
    return None


def constant_of(op: Operation) -> int | None:
    """Of `arith.constant`, in all elements of a tensor; None of other constants."""
    value, type = op.int_attr("value"), op.result.type
    if value is None:
        dense = op.attr("value")
        text = dense.text if isinstance(dense, DenseAttr) else ""
        text = {"true": "1", "false": "0"}.get(text, text)
        value = int(text) if text.removeprefix("-").isdigit() else None
    return None if value is None else value & (1 << bits_of(type)) - 1


def _size_of_pointee(type: Type) -> int | None:
    element = type.element if isinstance(type, TensorType) else type
    if not isinstance(element, PointerType):
        return None
    return max(bits_of(element.pointee) // 8, 1)
