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
from dataclasses import replace
from typing import Any

from wspec.check.accesses import Access, Accesses, Side, is_of_elements, is_tile
from wspec.check.changes import Changes, Leap
from wspec.check.clock import look, timed
from wspec.check.congruence import Congruence
from wspec.check.findings import Condition, Finding
from wspec.check.global_memory import GlobalMemory
from wspec.check.linear import Linear, Terms, meaning
from wspec.check.names import Names
from wspec.check.rows import Coordinates, End, Rows, never_meet
from wspec.check.tracked_values import Flow
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Operation, Value
from wspec.ir.disjoint import Disjoint
from wspec.ir.rows import Apart
from wspec.ir.types import DenseArrayAttr, ScalarType, TensorDescType, TensorType, Type

_VIEWS = frozenset(("ttg.memdesc_index", "ttg.memdesc_subslice"))
_DEEP = 8  # of what a number is computed from


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
        touched = [
            one for number, block in zip(numbers, blocks, strict=True) for one in reader.accesses.of(block, number)
        ]
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


def _finding(writer: Access, other: Access, names: Names) -> Finding:
    verb = "writes" if other.writes else "reads"
    message = (
        f"{writer.op.name} of {names.task(writer.task)} may write the global memory that {other.op.name} of "
        f"{names.task(other.task)} {verb}, and no order of the two is known"
    )
    path = ((f"{other.op.name} {verb}", other.op.location),)
    note = "let one task do both, or compute places that can be told apart"
    return Finding("undecided", "global-order", message, writer.op.location, path, note)


def _condition(writer: Access, other: Access, apart: Apart, memory: GlobalMemory) -> Condition:
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
        self.accesses = Accesses(flow, terms, memory)
        self._rows = Rows(terms, changes, self.accesses.loops, has_table=has_table)
        self._descriptions: dict[Value, Any] = {}  # what `_told` found
        self._identities: dict[Value, Any] = {}  # what `_identity` found
        self._meanings: dict[Operation, Any] = {}
        self._twins: dict[tuple[int, int], bool] = {}  # what `_are_twins` found

    def may_meet(self, one: Access, other: Access, disjoint: Disjoint) -> bool:
        """Do they go through one argument? Of one that is not known they may.

        Where one waits for what it sees there, through two that may overlap.
        """
        if one.arguments is None or other.arguments is None:
            return True
        own = disjoint.own
        if one.spins or other.spins:
            return any(not disjoint.apart(a, b) for a in one.arguments for b in other.arguments)
        return any(own is None or argument < own for argument in one.arguments & other.arguments)

    def apart(self, one: Access, other: Access) -> Iterator[Apart | None]:
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
            if not isinstance(one.op.operands[0].type, TensorDescType):
                yield from [None] * len(apart)
            elif steps is not None:
                boxes = [(_line(a, *of), _line(b, *of)) for (a, b), of in zip(both, steps, strict=True)]
                for at in apart:
                    yield from self._rows.apart(boxes, at, ((), ()), leap)
        if not moved and len(pairs) == 1:
            for ((a, b),) in (written, pairs):
                yield from self._in_other_rows(a, b, (one.ends, other.ends), leap)
        if not moved and self._of_another_tile(pairs, leap) and self._alike(one, other):
            yield None

    def _in_other_rows(
        self, one: Side, other: Side, ends: tuple[tuple[End, ...], tuple[End, ...]], leap: Leap
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
        """The strides and extents of a descriptor that the kernel is given, or makes."""
        type, form, made = descriptor.type, self._terms.of(descriptor), self._memory.made(descriptor)
        if not isinstance(type, TensorDescType):
            return None
        rank = len(type.block.shape)
        key: Any = self._changes.keys()[form.terms[0][0]] if len(form.terms) == 1 else ()
        if made is not None:
            return self._steps_of_map(made, rank, type.block.element)
        if key[:1] != ("argument",):
            return None
        first = key[1] + 1
        numbers = [Linear(((self._terms.atom(("argument", first + at), ()), 1),)) for at in range(2 * rank)]
        steps = [*numbers[rank:-1], Linear((), 1)]  # elements of a row always lie side by side
        return list(zip(steps, numbers[:rank], strict=True))

    def _steps_of_map(self, made: Operation, rank: int, element: Type) -> list[tuple[Linear, Linear]] | None:
        """In bytes. Extents and strides begin with the last dimension, whose stride is an element."""
        segments = made.attr("operandSegmentSizes")
        if not isinstance(segments, DenseArrayAttr) or not isinstance(element, ScalarType):
            return None
        _, _, boxes, extents, strides, _ = segments.values
        if (extents, strides) != (rank, rank - 1):
            return None
        forms = [self._terms.of(value) for value in made.operands[2 + boxes : 2 + boxes + extents + strides]]
        steps = [Linear((), element.bits // 8), *forms[extents:]]
        return list(zip(reversed(steps), reversed(forms[:extents]), strict=True))

    def never_both(self, one: Access, other: Access) -> bool:
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

    def _of_another_tile(self, pairs: list[tuple[Side, Side]], leap: Leap) -> bool:
        """Are they the same, but for the number of a tile in a team, as `min(x + 1, last)` is for `x`?

        What leads to one tile only must not lead to another one's in another iteration.
        """
        if all(a.form == b.form for a, b in pairs):
            return False
        if any(leap(Linear(((first, 1),))) for pair in pairs for side in pair for first in self._led(side.form)):
            return False
        return all(self._leader(a.form) == self._leader(b.form) and a.first == b.first and a.last == b.last
                   and a.rows == b.rows for a, b in pairs)  # fmt: skip

    def _alike(self, one: Access, other: Access) -> bool:
        """Do their tasks do the same with tiles and buffers, in the same order?"""
        tasks = [self.accesses.tiled[access.task] for access in (one, other)]
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
                if (is_tile(v) or is_of_elements(a)) and paired.setdefault(
                    self._identity(v), self._identity(w)
                ) != self._identity(w):
                    return False
            asked = a.operands[:1] if a.name == "scf.if" else a.operands if _makes_elements(a) else ()
            if any(not is_tile(v) and self._told(v) != self._told(w) for v, w in zip(asked, b.operands, strict=False)):
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


def _dimensions(side: Side) -> list[Coordinates]:
    """Columns, and rows of each step."""
    return [_line(side, Linear((), 1)), *side.rows]


def _line(side: Side, step: Linear, extent: Linear | None = None) -> Coordinates:
    """Without its rows."""
    number = side.form.const
    ends = number + side.first, number + side.last - 1
    return Coordinates(step, Linear(side.form.terms), *ends, side.axes, extent)


def _makes_elements(op: Operation) -> bool:
    """Do numbers that it is given become elements of a tensor?"""
    return not op.regions and any(isinstance(result.type, TensorType) for result in op.results)


def _forms(what: Any) -> Iterator[Linear]:
    """The forms in what a tile is of."""
    if isinstance(what, Linear):
        yield what
    elif isinstance(what, tuple):
        for one in what:
            yield from _forms(one)


def _apart(one: Side, other: Side, moved: int, leap: Leap, divisor: Leap) -> bool:
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
