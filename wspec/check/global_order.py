"""Tasks that touch the same global memory, one of them writing: nothing but barriers orders them, and those are not
followed for this. So what two tasks touch must be shown to lie apart, or the module is undecided.

Two boxes of a tensor, or two tiles of pointers, lie apart where

- in one dimension their coordinates never meet, by their rests: rows 128 x and 128 y + 64, of 64 rows each;
- or the coordinates differ by a number that is large enough, also where the tasks are in different iterations
  (changes.py): what they change by from one to another is known to be a multiple of something;
- or one is the other's for another tile, `min(x + 1, last)` for `x`, and both tasks do the same with their tiles,
  operation by operation: a tile that is done twice is stored twice, the same. Of scalars those are compared that
  become elements of a tile, or decide.

Two operations of which one needs a condition and the other its opposite are never both executed, where the condition is
the same in all tasks, threads and iterations.

That no row of pointers, or of a descriptor, reaches into another one is a condition on the launch's numbers (rows.py).
Two arguments are taken not to overlap. The launches of our own kernels look at both. Memory of the launcher's own is
left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from wspec.check import assembly
from wspec.check.changes import Changes, Leap
from wspec.check.clock import look, timed
from wspec.check.congruence import ANYTHING, Congruence, Congruences
from wspec.check.findings import Condition, Finding
from wspec.check.global_memory import GlobalMemory
from wspec.check.linear import Linear, Terms, constant, meaning
from wspec.check.names import Names
from wspec.check.rows import End, Rows, Side, never_meet
from wspec.check.tracked_values import Flow
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value
from wspec.ir.disjoint import Disjoint
from wspec.ir.ops import info
from wspec.ir.rows import Apart
from wspec.ir.types import I1, DenseArrayAttr, MemDescType, PointerType, TensorDescType, TensorType

_THROUGH = frozenset(
    ("tt.splat", "tt.broadcast", "tt.expand_dims", "ttg.convert_layout", "tt.trans", "tt.reshape", "arith.extsi")
)
_FAR = 2**31 - 2**16  # a copy to coordinates from there on is sent outside of any tensor
_VIEWS = frozenset(("ttg.memdesc_index", "ttg.memdesc_subslice"))
_UNTOLD = _VIEWS | {"arith.constant"}  # may stand here or there
_DEEP = 8  # of what a number is computed from
_MASKS = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2, "ttg.async_copy_global_to_local": 2}  # which operand it is
_GREATER, _LESS = 4, 2  # predicates of arith.cmpi, signed


@dataclass(frozen=True, slots=True)
class _Rows:
    """How far a tile goes in steps that are no numbers: from `first` to `last` of them behind `base`, which has no
    number added. `axes`: of the tile, along which that is."""

    step: Linear
    base: Linear
    first: int
    last: int
    axes: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Side:
    """One dimension of a tile: it begins at `form`, of that rest, and has the elements from `first` to before `last`,
    and so in each of its rows."""

    rest: Congruence
    form: Linear
    first: int
    last: int
    rows: tuple[_Rows, ...] = ()  # one of each step
    axes: frozenset[int] = frozenset()  # of a tile of pointers, along which its elements are


@dataclass(frozen=True, slots=True)
class _Access:
    """What an operation of a task touches: sides of a tile of `what`; None where that is not known."""

    op: Operation
    task: int
    writes: bool
    atomic: bool
    arguments: frozenset[int] | None
    what: Any
    sides: tuple[_Side, ...] | None
    spins: bool = False  # may a loop go on until it sees something there?
    begun: frozenset[int] = frozenset()  # spaces of loops that have come round once
    ends: tuple[End, ...] = ()  # what its mask leaves out


def global_order(
    function: Operation, flow: Flow, terms: Terms, disjoint: Disjoint, names: Names
) -> Iterator[Finding | Condition]:
    """A finding for each pair of operations of two tasks that may touch the same global memory, one of them writing;
    one for each operation that writes. And what must hold of a launch for others not to."""
    assert terms.memory is not None
    has_table = disjoint.own is not None and disjoint.own < len(function.regions[0].block.args)
    reader = _Reader(flow, terms, terms.memory, Changes(function, terms, disjoint.own), has_table=has_table)
    needed: set[Apart] = set()
    first = 1
    for region in [op for op in function.walk() if op.name == ws.NAME]:
        blocks = [ws.default_block(region), *ws.partition_blocks(region)]
        numbers = [0, *range(first, first + len(blocks) - 1)]
        first += len(blocks) - 1
        touched = [one for number, block in zip(numbers, blocks, strict=True) for one in reader.accesses(block, number)]
        told: set[Operation] = set()
        for at, one in enumerate(touched):
            for other in timed(touched[at + 1 :]):
                if one.task == other.task or not (one.writes or other.writes):
                    continue
                if one.atomic and other.atomic and not (one.spins or other.spins):
                    continue
                writer, second = (one, other) if one.writes else (other, one)
                if writer.op in told or not reader.may_meet(one, other, disjoint) or reader.never_both(one, other):
                    continue
                found = list(reader.apart(one, other))
                if not found:
                    told.add(writer.op)
                    yield _finding(writer, second, names)
                elif (apart := None if None in found else found[0]) is not None and apart not in needed:
                    needed.add(apart)
                    yield _condition(writer, second, apart, terms.memory)


def _finding(writer: _Access, other: _Access, names: Names) -> Finding:
    verb = "writes" if other.writes else "reads"
    message = (
        f"{writer.op.name} of {names.task(writer.task)} may write the global memory that {other.op.name} of "
        f"{names.task(other.task)} {verb}, and no order of the two is known"
    )
    path = ((f"{other.op.name} {verb}", other.op.location),)
    note = "let one task do both, or compute places that can be told apart"
    return Finding("undecided", "global-order", message, writer.op.location, path, note)


def _condition(writer: _Access, other: _Access, apart: Apart, memory: GlobalMemory) -> Condition:
    through = ", ".join(memory.name(argument) for argument in sorted(writer.arguments or ()))
    step = apart.numbers[apart.rows.step]
    box = isinstance(writer.op.operands[0].type, TensorDescType)
    by = memory.name(step.value) if step.name == "argument" and not box else ""
    far = f" {by} apart," if by else ""
    path = ((other.op.name, other.op.location),) if other.op.location != writer.op.location else ()
    words = f"rows that are stored through {through or 'a pointer'},{far} do not reach into each other"
    return Condition(apart, words if far else words.replace(",", "", 1), writer.op.location, path)


class _Reader:
    def __init__(self, flow: Flow, terms: Terms, memory: GlobalMemory, changes: Changes, *, has_table: bool) -> None:
        self._flow, self._terms, self._memory, self._changes = flow, terms, memory, changes
        self._rows = Rows(terms, changes, self._loops, has_table=has_table)
        self._rests = Congruences(flow)
        self._tiled: dict[int, list[Operation]] = {}  # of each task, what it does with tiles and buffers
        self._descriptions: dict[Value, Any] = {}  # what `_told` found
        self._identities: dict[Value, Any] = {}  # what `_identity` found
        self._meanings: dict[Operation, Any] = {}
        self._twins: dict[tuple[int, int], bool] = {}  # what `_are_twins` found

    # ---- accesses

    def accesses(self, block: Block, task: int) -> Iterator[_Access]:
        """Those of a task to global memory."""
        tiled = self._tiled[task] = list[Operation]()
        for top in block.ops:
            for op in timed(top.walk()):
                row = info(op.name)
                touches = any(_is_tile(value) for value in (*op.operands, *op.results))
                if op.name not in _UNTOLD and (touches or _is_of_elements(op)):
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
                    yield _Access(op, task, writes, atomic, arguments, what, sides, spins, spaces, ends)

    def _tile(self, op: Operation, begun: frozenset[Operation]) -> tuple[Any, tuple[_Side, ...] | None]:
        type = op.operands[0].type if op.operands else None
        if isinstance(type, TensorDescType):
            numbers = [value for value in op.operands[1:] if str(value.type) == "i32"]
            sizes = type.block.shape
            if len(numbers) < len(sizes):  # rows that are gathered
                return None, None
            placed = self._where_it_counts(numbers)
            sides = (self._side(value, size, begun, added) for (value, added), size in zip(placed, sizes, strict=False))
            return self._descriptor(op.operands[0]), tuple(sides)
        element = type.element if isinstance(type, TensorType) else type
        if not isinstance(element, PointerType):
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

    def _side(self, value: Value, size: int, begun: frozenset[Operation], added: int = 0) -> _Side:
        rest = self._rests.of(value, begun).plus(Congruence(0, added))
        return _Side(rest, self._terms.of(value).shifted(added), 0, size)

    def _pointers(self, value: Value, begun: frozenset[Operation]) -> tuple[Any, tuple[_Side, ...] | None]:
        """Elements of what a pointer points to: what it is counted from, and one side."""
        side, axes = _Side(Congruence(0, 0), Linear(), 0, 1), _axes(value)
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

    def _offsets(self, value: Value, begun: frozenset[Operation], axes: _Axes) -> _Side | None:
        """Of integers, a tensor of them or one. `axes`: those of the tile that its own ones are."""
        value = self._flow.captured.get(value, value)
        op = value.op
        if not isinstance(value.type, TensorType):
            return self._side(value, 1, begun)
        if op is None:
            return None
        if op.name == "tt.make_range":
            first, last = op.int_attr("start") or 0, op.int_attr("end") or 0
            return _Side(Congruence(0, 0), Linear(), first, last, axes=frozenset(axes))
        if op.name == "arith.constant":
            number = constant(op)
            return None if number is None else _Side(Congruence(0, number), Linear((), number), 0, 1)
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
        pending = [value for value in op.operands[at : at + 1] if _element(value) == I1]
        seen: set[Value] = set()
        while pending:
            value = pending.pop()
            value = self._flow.captured.get(value, value)
            if value in seen:
                continue
            seen.add(value)
            if not isinstance(value.type, TensorType):
                yield value
            elif value.op is not None and (value.op.name == "arith.andi" or value.op.name in _THROUGH):
                pending += value.op.operands

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
        ended = (loop for loop in timed(self._loops) if self._terms.space(loop).number not in around)
        loops += [loop for loop in ended if self._same(loop.operands[1], greater)]
        yield from (loop for loop in loops if self._same(loop.operands[0], less))

    @cached_property
    def _loops(self) -> list[Operation]:
        return [op for op in self._flow.root.walk() if op.name == "scf.for"]

    def _same(self, one: Value, other: Value) -> bool:
        return one is other or (self._terms.of(one) - self._terms.of(other)) == Linear()

    # ---- pairs

    def may_meet(self, one: _Access, other: _Access, disjoint: Disjoint) -> bool:
        """Do they go through one argument? Of one that is not known they may.

        Where one waits for what it sees there, through two that may overlap.
        """
        if one.arguments is None or other.arguments is None:
            return True
        own = disjoint.own
        if one.spins or other.spins:
            return any(not disjoint.apart(a, b) for a in one.arguments for b in other.arguments)
        return any(own is None or argument < own for argument in one.arguments & other.arguments)

    def apart(self, one: _Access, other: _Access) -> Iterator[Apart | None]:
        """Why no element is in both tiles, in whichever iterations the tasks are: None, or where numbers of a launch
        are so. Nothing comes where some may be."""
        if one.sides is None or other.sides is None or one.what != other.what or len(one.sides) != len(other.sides):
            return
        begun = one.begun & other.begun

        def leap(form: Linear) -> int:
            return self._changes.of(form, begun)

        moved = math.gcd(*map(leap, _forms(one.what)))
        if moved and isinstance(one.what[0], str):  # another tensor each time
            return
        sides = ([replace(side, form=self._in_the_loop(side.form)) for side in each]
                 for each in (one.sides, other.sides))  # fmt: skip
        pairs = list(zip(*sides, strict=True))
        written = list(zip(one.sides, other.sides, strict=True))
        steps = self._steps(one.op.operands[0])
        for both in (written, pairs):
            apart = [at for at, (a, b) in enumerate(both) if _apart(a, b, moved, leap, self._changes.divisor)]
            if steps is None or len(steps) != len(both):
                yield from [None] * len(apart)  # numbers; or what is taken for granted of a descriptor
            else:
                boxes = [(_box(a, *of), _box(b, *of)) for (a, b), of in zip(both, steps, strict=True)]
                for at in apart:
                    yield from self._rows.apart(boxes, at, ((), ()), leap)
        if not moved and len(pairs) == 1:
            for ((a, b),) in (written, pairs):
                yield from self._in_other_rows(a, b, (one.ends, other.ends), leap)
        if not moved and self._of_another_tile(pairs, leap) and self._alike(one, other):
            yield None

    def _in_other_rows(
        self, one: _Side, other: _Side, ends: tuple[tuple[End, ...], tuple[End, ...]], leap: Leap
    ) -> Iterator[Apart | None]:
        """Where two tiles of pointers have no row in common, or no column."""
        pairs = list(zip(_dimensions(one), _dimensions(other), strict=False))
        if not one.rows or len(one.rows) != len(other.rows):
            return
        if any(a.step != b.step or a.base != b.base or leap(a.step) for a, b in pairs):
            return
        for at, (a, b) in enumerate(pairs):
            if never_meet((a.first, a.last + 1), (b.first, b.last + 1), leap(a.base)):
                yield from self._rows.apart(pairs, at, ends, leap)

    def _steps(self, descriptor: Value) -> list[tuple[Linear, Linear]] | None:
        """The strides and extents of a descriptor that the kernel is given."""
        type, form = descriptor.type, self._terms.of(descriptor)
        key: Any = self._changes.keys()[form.terms[0][0]] if len(form.terms) == 1 else ()
        if not isinstance(type, TensorDescType) or key[:1] != ("argument",):
            return None
        rank, first = len(type.block.shape), key[1] + 1
        numbers = [Linear(((self._terms.atom(("argument", first + at), ()), 1),)) for at in range(2 * rank)]
        return list(zip(numbers[rank:], numbers[:rank], strict=True))

    def never_both(self, one: _Access, other: _Access) -> bool:
        """Does one need a condition, and the other that it does not hold?"""
        needs = self._conditions(one.op)
        return any((form, not holds) in needs for form, holds in self._conditions(other.op))

    def _conditions(self, op: Operation) -> set[tuple[Linear, bool]]:
        """What decides, once and for all threads of all tasks, whether an operation is executed."""
        found: set[tuple[Linear, bool]] = set()
        inner = op
        for outer in op.ancestors():
            if outer.name == "scf.if":
                form = self._terms.of(outer.operands[0])
                if not self._terms.chain_of(form) and not self._terms.diverges(form):
                    found.add((form, inner.parent is outer.regions[0].block))
            inner = outer
        return found

    def _in_the_loop(self, form: Linear) -> Linear:
        """With what a loop carries in the place of what it leaves behind: the same of another iteration."""
        keys = self._changes.keys()
        known: dict[Linear, Linear] = {}

        def inside(part: Linear) -> Linear:
            look()
            if part not in known:
                known[part] = replaced(part)
            return known[part]

        def replaced(part: Linear) -> Linear:
            found = Linear((), part.const)
            for atom, factor in part.terms:
                key = keys[atom]
                if key[0] == "result":
                    key = ("carried", key[1], key[3])
                elif key[0] == "op":
                    key = (*key[:5], tuple(map(inside, key[5])))
                found = found + Linear(((self._terms.numbers.get(key, atom), factor),))
            return found

        return inside(form)

    def _of_another_tile(self, pairs: list[tuple[_Side, _Side]], leap: Leap) -> bool:
        """Are they the same, but for the number of a tile in a team, as `min(x + 1, last)` is for `x`?

        What leads to one tile only must not lead to another one's in another iteration.
        """
        if all(a.form == b.form for a, b in pairs):
            return False
        if any(leap(Linear(((first, 1),))) for pair in pairs for side in pair for first in self._led(side.form)):
            return False
        return all(self._leader(a.form) == self._leader(b.form) and a.first == b.first and a.last == b.last
                   and a.rows == b.rows for a, b in pairs)  # fmt: skip

    def _alike(self, one: _Access, other: _Access) -> bool:
        """Do their tasks do the same with tiles and buffers, in the same order?"""
        tasks = [self._tiled[access.task] for access in (one, other)]
        at = [next((at for at, op in enumerate(ops) if op is access.op), None)
              for ops, access in zip(tasks, (one, other), strict=True)]  # fmt: skip
        if len(tasks[0]) != len(tasks[1]) or at[0] is None or at[0] != at[1]:  # None: of one element, not of a tile
            return False
        key = one.task, other.task
        if key not in self._twins:
            self._twins[key] = self._are_twins(*tasks)
        return self._twins[key]

    def _are_twins(self, first: list[Operation], second: list[Operation]) -> bool:
        paired: dict[Any, Any] = {}
        for a, b in timed(zip(first, second, strict=True)):
            if a.name != b.name or self._meaning(a) != self._meaning(b) or len(a.operands) != len(b.operands):
                return False
            for v, w in [*zip(a.operands, b.operands, strict=True), *zip(a.results, b.results, strict=False)]:
                if (_is_tile(v) or _is_of_elements(a)) and paired.setdefault(
                    self._identity(v), self._identity(w)
                ) != self._identity(w):
                    return False
            asked = a.operands[:1] if a.name == "scf.if" else a.operands if _makes_elements(a) else ()
            if any(not _is_tile(v) and self._told(v) != self._told(w) for v, w in zip(asked, b.operands, strict=False)):
                return False
        return len(set(paired.values())) == len(paired)

    def _meaning(self, op: Operation) -> Any:
        if op not in self._meanings:
            self._meanings[op] = meaning(op)
        return self._meanings[op]

    def _identity(self, value: Value) -> Any:
        """What is the same for two values that are one: of a constant what it is, of a view its allocation."""
        if value not in self._identities:
            self._identities[value] = self._identified(value)
        return self._identities[value]

    def _identified(self, value: Value) -> Any:
        value = self._flow.captured.get(value, value)
        while value.op is not None and value.op.name in _VIEWS:
            value = self._flow.captured.get(value.op.operands[0], value.op.operands[0])
        op = value.op
        return (meaning(op), str(value.type)) if op is not None and op.name == "arith.constant" else value

    def _told(self, value: Value) -> Any:
        """How a number is computed, with the first tile of a team in the place of another member's."""
        if value not in self._descriptions:
            self._descriptions[value] = self._described(self._terms.of(value), 0)
        return self._descriptions[value]

    def _described(self, part: Any, depth: int) -> Any:
        look()
        if isinstance(part, Linear) and depth < _DEEP:
            part = self._leader(part)
            terms = ((self._described(self._changes.keys()[atom], depth + 1), factor) for atom, factor in part.terms)
            return tuple(sorted(terms, key=str)), part.const
        if isinstance(part, tuple):
            return tuple(self._described(one, depth) for one in part)
        return part

    def _leader(self, form: Linear) -> Linear:
        """With the first tile of a team in the place of another member's."""
        found = Linear((), form.const)
        for atom, factor in form.terms:
            first = self._first_of_team(atom)
            found = found + Linear(((atom if first is None else first, factor),))
        return found

    def _led(self, form: Linear) -> Iterator[int]:
        """The first tiles of teams that `_leader` puts in the place of others."""
        yield from (first for atom, _ in form.terms if (first := self._first_of_team(atom)) is not None)

    def _first_of_team(self, atom: int) -> int | None:
        """`x` of `min(x + 1, last)`, as atoms."""
        key = self._changes.keys()[atom]
        first = key[5][0] if key[:2] == ("op", "arith.minsi") else None
        one = isinstance(first, Linear) and len(first.terms) == 1 and first.terms[0][1] == 1
        return first.terms[0][0] if one and first is not None else None


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


def _dimensions(side: _Side) -> list[Side]:
    """Columns, and rows of each step."""
    number = side.form.const
    columns = Side(Linear((), 1), Linear(side.form.terms), number + side.first, number + side.last - 1, side.axes)
    return [columns, *(Side(one.step, one.base, one.first, one.last, one.axes) for one in side.rows)]


def _box(side: _Side, stride: Linear, extent: Linear) -> Side:
    number = side.form.const
    base = Linear(side.form.terms)
    return Side(stride, base, number + side.first, number + side.last - 1, extent=extent)


def _makes_elements(op: Operation) -> bool:
    """Do numbers that it is given become elements of a tensor?"""
    return not op.regions and any(isinstance(result.type, TensorType) for result in op.results)


def _is_of_elements(op: Operation) -> bool:
    """Does it say what a reduction, or the like, does with the elements of a tensor?"""
    return op.parent_op is not None and op.parent_op.name in ("tt.reduce", "tt.scan", "tt.map_elementwise")


def _element(value: Value) -> object:
    return value.type.element if isinstance(value.type, TensorType) else value.type


def _is_tile(value: Value) -> bool:
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


def _sum(left: _Side, right: _Side) -> _Side:
    rows = {one.step: one for one in left.rows}
    for one in right.rows:
        known = rows.get(one.step, _Rows(one.step, Linear(), 0, 0))
        ends, axes = (known.first + one.first, known.last + one.last), known.axes | one.axes
        rows[one.step] = _Rows(one.step, known.base + one.base, *ends, axes)
    found = tuple(sorted(rows.values(), key=lambda one: (one.step.terms, one.step.const)))
    first, last = left.first + right.first, left.last + right.last - 1
    return _Side(left.rest.plus(right.rest), left.form + right.form, first, last, found, left.axes | right.axes)


def _product(left: _Side, right: _Side) -> _Side | None:
    """By a number, or by what is none: rows that far from each other. None where it is neither."""
    if right.rows or right.first != 0 or right.last != 1:
        return None
    number = right.form.constant
    if number is not None and number >= 0:
        scaled = (
            _Rows(one.step, one.base.scaled(number), number * one.first, number * one.last, one.axes)
            for one in left.rows
        )
        span = number * left.first, number * (left.last - 1) + 1
        return _Side(left.rest.times(right.rest), left.form.scaled(number), *span, tuple(scaled), left.axes)
    if number is not None or left.rows:
        return None
    base, added = Linear(left.form.terms), left.form.const
    rows = _Rows(right.form, base, added + left.first, added + left.last - 1, left.axes)
    return _Side(ANYTHING, Linear(), 0, 1, (rows,))


def _forms(what: Any) -> Iterator[Linear]:
    """The forms in what a tile is of."""
    if isinstance(what, Linear):
        yield what
    elif isinstance(what, tuple):
        for one in what:
            yield from _forms(one)


def _apart(one: _Side, other: _Side, moved: int, leap: Leap, divisor: Leap) -> bool:
    """By their rests, or by what is known of the difference, in whichever iterations the tasks are.

    `moved`: by multiples of what the place is moved that both are counted from.
    """
    if one.rows or other.rows:
        return False
    first = one.rest.plus(Congruence(0, one.first))
    second = other.rest.plus(Congruence(moved, other.first))
    if first.keeps_apart(one.last - one.first, second, other.last - other.first):
        return True
    ahead = other.form - one.form
    number, far = ahead.const, math.gcd(moved, leap(other.form), divisor(Linear(ahead.terms)))
    return never_meet((one.first, one.last), (number + other.first, number + other.last), far)
