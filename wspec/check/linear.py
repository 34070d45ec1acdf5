"""Scalar values as linear forms over atoms, the same for all tasks that compute the same.

Two values with equal forms are equal whenever they are evaluated at the same iterations of the loops they depend on:
this is how the checker knows that loops of different tasks run equally often. Index arithmetic is taken not to
overflow. Loads from global memory at equal addresses give equal values where nothing can write there
(global_memory.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wspec.check import assembly, scalars
from wspec.check.clock import look
from wspec.check.global_memory import GlobalMemory
from wspec.ir.core import Block, Operation, Value
from wspec.ir.ops import info, is_pure
from wspec.ir.shapes import element_of
from wspec.ir.types import DenseAttr, IntegerAttr, ScalarType, TensorType

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Linear:
    """`const + sum(coefficient * atom)`; atoms by number, sorted."""

    terms: tuple[tuple[int, int], ...] = ()
    const: int = 0

    def __add__(self, other: Linear) -> Linear:
        return _combine(self, other, 1)

    def __sub__(self, other: Linear) -> Linear:
        return _combine(self, other, -1)

    def scaled(self, factor: int) -> Linear:
        if factor == 0:
            return Linear()
        return Linear(tuple((atom, factor * c) for atom, c in self.terms), factor * self.const)

    def shifted(self, by: int) -> Linear:
        return Linear(self.terms, self.const + by)

    @property
    def constant(self) -> int | None:
        return None if self.terms else self.const

    def coefficient(self, atom: int) -> int:
        return next((c for a, c in self.terms if a == atom), 0)

    def without(self, atom: int) -> Linear:
        return Linear(tuple((a, c) for a, c in self.terms if a != atom), self.const)


def _combine(left: Linear, right: Linear, sign: int) -> Linear:
    look()
    if not right.terms:
        return Linear(left.terms, left.const + sign * right.const)
    found = dict(left.terms)
    for atom, c in right.terms:
        found[atom] = found.get(atom, 0) + sign * c
    terms = tuple(sorted((atom, c) for atom, c in found.items() if c))
    return Linear(terms, left.const + sign * right.const)


@dataclass(frozen=True, slots=True)
class Space:
    """The iterations of loops that start at the same place and take the same steps, in the same surroundings."""

    number: int
    chain: tuple[int, ...]  # the spaces around it, outermost first
    atom: int  # stands for the number of the iteration, from 0
    lower: Linear
    step: int | None  # None: not constant


_THROUGH = frozenset(("arith.extsi", "arith.index_cast", "ttg.convert_layout"))
_THREADS = frozenset(("ttg.warp_id", "gpu.thread_id", "gpu.lane_id"))  # differ from thread to thread
_READS = frozenset(("tt.load", "tt.get_program_id", "tt.get_num_programs"))
_NOTES = frozenset(("async_task_id", "asyncTaskId"))  # who an operation is for
_DIFFERENT = "different"  # in a tree: what may be another thing in every thread and at any time
_MAX_TREE = 2000  # nodes of the description of a loop-carried value


class Terms:
    """Forms of values, and the spaces of loops. One for all tasks of a kernel."""

    def __init__(self, memory: GlobalMemory | None = None) -> None:
        self.memory = memory  # None: nothing is written
        self.numbers: dict[Key, int] = {}
        self.divergent: set[int] = set()  # atoms that differ from thread to thread
        self.depends: list[tuple[int, ...]] = []  # atom -> the chain of spaces it changes with
        self._forms: dict[Value, Linear] = {}
        self._spaces: dict[Key, Space] = {}
        self.spaces: list[Space] = []
        self._space_of: dict[Operation, Space] = {}
        self._captured: dict[Block, list[Value]] = {}
        self._varying: dict[Operation, bool] = {}

    def capture(self, block: Block, values: list[Value]) -> None:
        """The arguments of a partition are these values of the code around it."""
        self._captured[block] = values

    # ---- atoms

    def atom(self, key: Key, depends: tuple[int, ...]) -> int:
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.depends)
            self.depends.append(depends)
        return number

    def _one(self, key: Key, depends: tuple[int, ...]) -> Linear:
        return Linear(((self.atom(key, depends), 1),))

    def chain_of(self, form: Linear) -> tuple[int, ...]:
        """The innermost chain of spaces the form changes with."""
        return max((self.depends[atom] for atom, _ in form.terms), key=len, default=())

    def diverges(self, form: Linear) -> bool:
        """May the value differ between the threads of a task?"""
        return any(atom in self.divergent for atom, _ in form.terms)

    # ---- loops

    def chain(self, op: Operation | None) -> tuple[int, ...]:
        """The spaces of the loops around an operation, outermost first."""
        found: list[int] = []
        look()
        while op is not None:
            if op.name == "scf.for":
                found.append(self.space(op).number)
            elif op.name == "scf.while":
                found.append(self._while_space(op).number)
            op = op.parent_op
        return tuple(reversed(found))

    def space(self, loop: Operation) -> Space:
        """The space of an `scf.for`."""
        found = self._space_of.get(loop)
        if found is None:
            chain = self.chain(loop.parent_op)
            lower, step = self.of(loop.operands[0]), self.of(loop.operands[2])
            found = self._space_of[loop] = self._make(("for", chain, lower, step), chain, lower, step.constant)
        return found

    def _while_space(self, loop: Operation) -> Space:
        found = self._space_of.get(loop)
        if found is None:
            chain = self.chain(loop.parent_op)
            found = self._space_of[loop] = self._make(("while", id(loop)), chain, Linear(), None)
        return found

    def _make(self, key: Key, chain: tuple[int, ...], lower: Linear, step: int | None) -> Space:
        found = self._spaces.get(key)
        if found is None:
            number = len(self.spaces)
            atom = self.atom(("iteration", key), (*chain, number))
            found = self._spaces[key] = Space(number, chain, atom, lower, step)
            self.spaces.append(found)
        return found

    def steps(self) -> Iterator[tuple[Space, Linear]]:
        """The spaces of `scf.for`, and by what their positions rise."""
        for key, space in self._spaces.items():
            if key[0] == "for":
                yield space, key[3]

    # ---- values

    def of(self, value: Value) -> Linear:
        """The form of a scalar value."""
        found = self._forms.get(value)
        if found is None:
            found = self._forms[value] = self._make_form(value)
        return found

    def _make_form(self, value: Value) -> Linear:
        look()
        op = value.op
        if op is None:
            return self._argument(value)
        if op.name == "arith.constant":
            number = constant(op)
            if number is None:  # two tasks that compute with one number compute the same
                return self._pure(op, value) if isinstance(value.type, ScalarType) else self._unique(value)
            return Linear((), number)
        if op.name in ("arith.addi", "arith.subi", "arith.muli", "arith.shli"):
            return self._pure(op, value) if scalars.wraps(op) else self._arithmetic(op)
        if op.name in _THROUGH and not _is_bit(op):
            return self.of(op.operands[0])
        if op.regions:
            return self._structured(op, value)
        if assembly.differs(op) or not (_computes(op) or op.name in _READS):
            return self._unique(value)
        return self._unique(value) if self.may_change(op) else self._pure(op, value)

    def may_change(self, op: Operation) -> bool:
        """Does the operation load what may be written between it and another load of the same address?"""
        return self.memory is not None and self.memory.changed_by(op) is not None

    def doubt(self, value: Value) -> Operation | None:
        """A load that the value is computed from and for which that is so."""
        return self.memory.doubt(value) if self.memory is not None else None

    def is_of_shared(self, value: Value) -> bool:
        """Is the value computed from what somebody has written to shared memory, and others may read as well?"""
        origins = self.memory.origins(value) if self.memory is not None else ()
        rows = (info(op.name) for op in origins if op.name != "scf.for")
        return any(row is not None and not row.nested and "shared" in row.reads for row in rows)

    def _unique(self, value: Value) -> Linear:
        owner = value.op if value.op is not None else value.owner
        inside = value.op if value.op is not None else value.owner.parent_op if isinstance(value.owner, Block) else None
        key, chain = ("unique", id(owner), value.index), self.chain(inside)
        if inside is not None and self._varies(inside):
            self.divergent.add(self.atom(key, chain))
        return self._one(key, chain)

    def _varies(self, op: Operation) -> bool:
        """May what comes of an operation differ from thread to thread? Of a reduction over a tensor it does not."""
        if op not in self._varying:
            controls = op.name.startswith("scf.")
            inside = controls and any(one.name in _THREADS or assembly.differs(one) for one in op.walk())
            self._varying[op] = False  # while its own values are asked for
            given = controls and any(self.diverges(self.of(value)) for value in op.operands)
            self._varying[op] = assembly.differs(op) or inside or given
        return self._varying[op]

    def _pure(self, op: Operation, value: Value) -> Linear:
        operands = tuple(self.of(v) for v in op.operands)
        attributes = meaning(op)
        types = tuple(_held(r) for r in op.results)
        depends = max((self.chain_of(form) for form in operands), key=len, default=())
        if op.name in _THREADS or any(self.diverges(form) for form in operands):
            key: Key = ("op", op.name, value.index, attributes, types, operands)
            self.divergent.add(self.atom(key, depends))
        return self._one(("op", op.name, value.index, attributes, types, operands), depends)

    def _arithmetic(self, op: Operation) -> Linear:
        left, right = self.of(op.operands[0]), self.of(op.operands[1])
        if op.name == "arith.addi":
            return left + right
        if op.name == "arith.subi":
            return left - right
        if op.name == "arith.shli":
            by = right.constant
            return left.scaled(1 << by) if by is not None and 0 <= by < 32 else self._pure(op, op.result)
        if right.constant is not None:
            return left.scaled(right.constant)
        if left.constant is not None:
            return right.scaled(left.constant)
        return self._pure(op, op.result)

    def _argument(self, value: Value) -> Linear:
        block = value.owner
        assert isinstance(block, Block)
        if block in self._captured:
            return self.of(self._captured[block][value.index])
        parent = block.parent_op
        if parent is None or parent.name == "tt.func":
            return self._one(("argument", value.index), ())
        if parent.name != "scf.for":
            return self._unique(value)
        space = self.space(parent)
        if value.index > 0:
            return self._carried(parent, value.index - 1, space)
        if space.step is None:
            return self._one(("position", space.number), (*space.chain, space.number))
        return space.lower + Linear(((space.atom, space.step),))

    def _carried(self, loop: Operation, index: int, space: Space) -> Linear:
        tree = _Trees(self).carried(loop, index, ())
        if tree is None:
            return self._unique(loop.regions[0].block.args[index + 1])
        return self._of_tree(("carried", space.number, tree), (*space.chain, space.number), tree)

    def _of_tree(self, key: Key, depends: tuple[int, ...], tree: Key) -> Linear:
        if _threads_differ(tree, self):
            self.divergent.add(self.atom(key, depends))
        return self._one(key, depends)

    def _structured(self, op: Operation, value: Value) -> Linear:
        if op.name == "scf.for":
            tree = _Trees(self).carried(op, value.index, ())
            upper = self.of(op.operands[1])
            space = self.space(op)
            if tree is not None:
                return self._of_tree(("result", space.number, upper, tree), space.chain, tree)
        if op.name == "scf.if" and len(op.regions) == 2 and op.regions[1].blocks:
            arms = [self.of(region.block.terminator.operands[value.index]) for region in op.regions]
            condition = self.of(op.operands[0])
            depends = max((self.chain_of(form) for form in (condition, *arms)), key=len)
            if any(self.diverges(form) for form in (condition, *arms)):
                self.divergent.add(self.atom(("if", condition, *arms), depends))
            return self._one(("if", condition, *arms), depends)
        if op.name == "tt.reduce" and all(_is_whole(v) for v in op.operands):  # in any order, by whichever threads
            operands = tuple(self.of(v) for v in op.operands)
            depends = max((self.chain_of(form) for form in operands), key=len, default=())
            if not any(self.diverges(form) for form in operands):
                shapes = tuple(_held(v) for v in op.operands)
                return self._one(("reduce", value.index, meaning(op), _body(op), shapes, operands), depends)
        return self._unique(value)


class _Trees:
    """Loop-carried values as trees that are equal when the values are: start, and what becomes of it each time."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.size = 0
        self._known: dict[tuple[Value, tuple[tuple[Operation, int], ...]], tuple[Key | None, int]] = {}

    def carried(self, loop: Operation, index: int, above: tuple[tuple[Operation, int], ...]) -> Key | None:
        """The tree of carried value `index` of `loop`; `above` are those we are inside of. None: too large."""
        if (loop, index) in above:
            return ("up", len(above) - above.index((loop, index)))
        first = loop.operands[3 + index]
        start = self.tree(first, above) if above else self.terms.of(first)
        inside = self.tree(loop.regions[0].block.terminator.operands[index], (*above, (loop, index)))
        return None if start is None or inside is None else ("carry", start, inside)

    def tree(self, value: Value, above: tuple[tuple[Operation, int], ...]) -> Key | None:
        """The tree of a value; what stands outside of the outermost of the loops `above` is a form."""
        look()
        key = value, above
        if key in self._known:
            found, size = self._known[key]
            self.size += size
            return found if self.size <= _MAX_TREE else None
        before = self.size
        found = self._made(value, above)
        self._known[key] = found, self.size - before
        return found

    def _made(self, value: Value, above: tuple[tuple[Operation, int], ...]) -> Key | None:
        self.size += 1
        if self.size > _MAX_TREE:
            return None
        op, loop = value.op, above[0][0]
        if op is None:
            return self._argument(value, above)
        if not op.is_inside(loop) or (not op.operands and not op.regions):
            return ("form", self.terms.of(value))
        if op.name == "scf.for":
            return self._result(op, value, above)
        if op.name == "scf.if" and len(op.regions) == 2 and op.regions[1].blocks:
            arms = (region.block.terminator.operands[value.index] for region in op.regions)
            return self._joined("if", [self.tree(one, above) for one in (op.operands[0], *arms)])
        if op.regions:
            return None
        if assembly.differs(op):
            return (_DIFFERENT, id(op))
        if not (_computes(op) or op.name == "tt.load") or self.terms.may_change(op):
            return None
        parts = [self.tree(operand, above) for operand in op.operands]
        return self._joined((op.name, value.index, meaning(op), str(value.type)), parts)

    def _argument(self, value: Value, above: tuple[tuple[Operation, int], ...]) -> Key | None:
        block = value.owner
        parent = block.parent_op if isinstance(block, Block) else None
        outermost = above[0][0]
        if parent is None or parent.name != "scf.for" or not (parent is outermost or parent.is_inside(outermost)):
            return ("form", self.terms.of(value))
        if value.index > 0:
            return self.carried(parent, value.index - 1, above)
        depth = sum(one.name == "scf.for" for one in parent.ancestors())
        begins = [self.tree(one, above) for one in (parent.operands[0], parent.operands[2])]
        return self._joined(("position", depth), begins)

    def _result(self, op: Operation, value: Value, above: tuple[tuple[Operation, int], ...]) -> Key | None:
        bounds = [self.tree(one, above) for one in op.operands[:3]]
        return self._joined("result", [*bounds, self.carried(op, value.index, above)])

    def _joined(self, what: Any, parts: list[Key | None]) -> Key | None:
        return None if any(part is None for part in parts) else (what, *parts)


def _threads_differ(tree: Any, terms: Terms) -> bool:
    """Does a tree hold something that differs from thread to thread?"""
    work, seen = [tree], set[int]()  # parts are often the same
    while work:
        part = work.pop()
        if isinstance(part, Linear):
            if terms.diverges(part):
                return True
        elif isinstance(part, tuple):
            if id(part) not in seen:
                seen.add(id(part))
                work += part
        elif isinstance(part, str) and (part in _THREADS or part == _DIFFERENT):
            return True
    return False


def _computes(op: Operation) -> bool:
    """Does an operation give the same for the same operands? Assembly may, whatever its flag says (`differs`)."""
    return op.name == assembly.NAME or is_pure(op)


def _is_bit(op: Operation) -> bool:
    """Does the operation widen truth values, of which it makes other numbers?"""
    return op.name != "ttg.convert_layout" and str(element_of(op.operands[0].type)) == "i1"


def _held(value: Value) -> str:
    """A type without who holds which elements."""
    type = value.type
    return f"{type.shape} {type.element}" if isinstance(type, TensorType) else str(type)


def _is_whole(value: Value) -> bool:
    """Is it a tensor of integers?"""
    type = value.type
    return isinstance(type, TensorType) and isinstance(type.element, ScalarType) and not type.element.is_float


def _body(op: Operation) -> Key:
    """What the region of a reduction computes."""
    block = op.regions[0].block
    numbers: dict[Value, int] = {arg: at for at, arg in enumerate(block.args)}
    found = []
    for one in block.ops:
        found.append((one.name, meaning(one), tuple(numbers.get(v, id(v)) for v in one.operands)))
        numbers.update((result, len(numbers)) for result in one.results)
    return tuple(found)


def meaning(op: Operation) -> Key:
    """The attributes that say what an operation computes, not who computes it."""
    found = op.properties | {name: a for name, a in op.attributes.items() if "." not in name and name not in _NOTES}
    return tuple(sorted((name, str(attribute)) for name, attribute in found.items()))


def constant(op: Operation) -> int | None:
    """The integer of an `arith.constant`; of a tensor when all its elements are the same."""
    value = op.attr("value")
    if isinstance(value, IntegerAttr):
        return value.value
    if isinstance(value, DenseAttr):
        text = {"true": "1", "false": "0"}.get(value.text, value.text)
        return int(text) if text.lstrip("-").isdigit() else None
    return None
