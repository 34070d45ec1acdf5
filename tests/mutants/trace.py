"""What each task does with shared memory and barriers in one launch, step by step.

Tasks do not influence each other's control flow: bounds, indices, phases and predicates are integers that come from the
arguments. So a task can be followed on its own, without waiting for anybody, and its steps come in this order whatever
the others do. Where that is not so `Unknown` is raised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.mutants import facts
from tests.support.simulate import evaluate
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value
from wspec.ir.ops import info
from wspec.ir.types import IntegerAttr, MemDescType, ScalarType

AtBarrier = Literal["init", "inval", "wait", "arrive", "expect", "copy", "landed"]
InTask = Literal["gather", "dot", "dot wait", "use", "read", "write", "store", "store wait", "fence"]
AtNamed = Literal["come", "meet"]  # bar.arrive comes to a named barrier; bar.sync comes, and meets the others
Kind = AtBarrier | InTask | AtNamed
Slot = tuple[Operation, int]  # an allocation and the number of the buffer or barrier in it


_WITHIN = frozenset(("gpu.barrier", "ttg.barrier"))  # among the threads of one task
_NAMED = re.compile(r"bar\.(?P<what>sync|arrive) (?P<number>\d+), (?P<threads>\d+);")


class Unknown(Exception):
    """The launch cannot be followed."""


class OutOfRange(Exception):
    """A buffer or barrier that its allocation does not have."""


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One step of a task."""

    kind: Kind
    op: Operation
    barrier: Slot | None = None
    slots: tuple[Slot, ...] = ()  # buffers that are read or written
    number: int = 0  # arrivals, bytes, pendings, threads, or the phase that a wait asks for
    named: tuple[int, int] | None = None  # a named barrier, and for how many threads
    result: Step | None = None  # the dot whose result is used


@dataclass(frozen=True, slots=True)
class View:
    """Memory: an allocation, or one of its buffers, perhaps seen as something else."""

    allocation: Operation
    index: int | None = None

    def slots(self) -> tuple[Slot, ...]:
        if self.index is not None:
            return ((self.allocation, self.index),)
        return tuple((self.allocation, index) for index in range(facts.depth(self.allocation.result)))


@dataclass(frozen=True, slots=True)
class Pointer:
    """To an integer of a table in global memory that nobody writes."""

    table: tuple[int, ...]
    at: int = 0

    def read(self) -> int:
        if not 0 <= self.at < len(self.table):
            raise OutOfRange(f"entry {self.at} of a table of {len(self.table)}")
        return self.table[self.at]


@dataclass(frozen=True, slots=True)
class Place:
    """One program of a launch: integers and tables among the function's arguments, by index; the place in the grid."""

    integers: Mapping[int, int | Pointer]
    program: tuple[int, int, int] = (0, 0, 0)
    grid: tuple[int, int, int] = (1, 1, 1)


def traces(module: Operation, place: Place) -> list[list[Step]]:
    """The steps before the tasks, then those of each task. Raises Unknown, or OutOfRange."""
    function = next(op for op in module.walk() if op.name == "tt.func")
    found: list[list[Step]] = []
    body = function.regions[0].block
    warps = facts.warps(module)
    outer = _Task(place, {arg: place.integers.get(arg.index) for arg in body.args}, warps[0])
    outer.block(body)
    found.append(outer.steps)
    task_op = ws.find(module)
    assert task_op is not None
    for number, block in enumerate(ws.task_blocks(task_op)):
        values = dict(outer.values) if number == 0 else {}
        values.update((arg, outer.values.get(v)) for arg, v in zip(block.args, task_op.operands, strict=False))
        task = _Task(place, values, warps[number])
        task.block(block)
        found.append(task.steps)
    return found


@dataclass(slots=True)
class _Task:
    """Follows one task; a value that is not known is None."""

    place: Place
    values: dict[Value, Any]
    warps: int
    steps: list[Step] = field(default_factory=list)

    def block(self, block: Block) -> list[Any]:
        """Everything in the block; what it ends with."""
        for op in block.ops[:-1]:
            self.op(op)
        return [self.values.get(value) for value in block.terminator.operands]

    def op(self, op: Operation) -> None:
        if op.name == "scf.for":
            results = self.loop(op)
        elif op.name == "scf.if":
            results = self.branch(op)
        elif op.name == ws.NAME:
            results = []
        else:
            results = self.simple(op)
        self.values.update(zip(op.results, results, strict=True))

    def loop(self, op: Operation) -> list[Any]:
        lower, upper, step = (self.integer(value) for value in op.operands[:3])
        carried = [self.values.get(value) for value in op.operands[3:]]
        body = op.regions[0].block
        for position in range(lower, upper, step):
            self.values.update(zip(body.args, [position, *carried], strict=True))
            carried = self.block(body)
        return carried

    def branch(self, op: Operation) -> list[Any]:
        region = op.regions[0 if self.integer(op.operands[0]) else 1]
        return self.block(region.block) if region.blocks else []

    def integer(self, value: Value) -> int:
        found = self.values.get(value)
        if not isinstance(found, int):
            raise Unknown(f"an integer that is not known decides what {value!r} does")
        return found

    # ---- operations

    def simple(self, op: Operation) -> list[Any]:
        handler = _STEPS.get(op.name)
        if op.name == facts.DOT_WAIT:
            self.add("dot wait", op, number=op.int_attr("pendings") or 0)
            return [self.values.get(value) for value in op.operands]
        if op.name == facts.DOT:
            return [self.dot(op)]
        self.uses(op, op.operands)
        if handler is not None:
            handler(self, op)
        if any(isinstance(result.type, MemDescType) for result in op.results):
            return [self.view(op)]
        if handler is None:
            self.other(op)
        if op.name == "tt.get_program_id":
            return [self.place.program[op.int_attr("axis") or 0]]
        if op.name == "tt.get_num_programs":
            return [self.place.grid[op.int_attr("axis") or 0]]
        return self.computed(op)

    def computed(self, op: Operation) -> list[Any]:
        """Integers; everything else is not known."""
        operands = tuple(self.values.get(value) for value in op.operands)
        scalar = all(isinstance(result.type, ScalarType) for result in op.results)
        known = all(isinstance(value, int) for value in operands)
        if operands and isinstance(operands[0], Pointer):
            return self.pointed(op, operands[0], *operands[1:])
        if op.name == "arith.select" and isinstance(operands[0], int):
            return [operands[1] if operands[0] else operands[2]]
        if not scalar or not known or not op.name.startswith("arith."):
            return [None] * len(op.results)
        if op.name == "arith.extui":
            return list(operands)
        return [value if isinstance(value, int) else None for value in evaluate(op, operands)]

    def pointed(self, op: Operation, pointer: Pointer, *others: Any) -> list[Any]:
        """What is read of a table, or a place in it."""
        if op.name == "tt.load" and not others:
            return [pointer.read()]
        if op.name == "tt.addptr" and isinstance(others[0], int):
            return [Pointer(pointer.table, pointer.at + others[0])]
        return [None] * len(op.results)

    def dot(self, op: Operation) -> Step | None:
        """The result of an asynchronous dot is its step; the next one may go on adding to it while it runs."""
        self.uses(op, op.operands[:2])
        views = [value for value in op.operands[:2] if isinstance(value.type, MemDescType)]
        slots = tuple(slot for value in views for slot in self.slots(value))
        flag = op.attr("isAsync")
        if isinstance(flag, IntegerAttr) and flag.value:
            self.add("dot", op, slots=slots)
            return self.steps[-1]
        self.add("read", op, slots=slots)
        return None

    def uses(self, op: Operation, operands: list[Value]) -> None:
        for value in operands:
            found = self.values.get(value)
            if isinstance(found, Step):
                self.add("use", op, result=found)

    def view(self, op: Operation) -> View | None:
        if op.name == "ttg.local_alloc":
            return View(op)
        source = self.values.get(op.operands[0])
        if not isinstance(source, View):
            raise Unknown(f"{op.name} of memory that is not known")
        if op.name != facts.INDEX:
            if size_in_bytes(op.result) > size_in_bytes(op.operands[0]):
                raise OutOfRange(f"{op.name}: more bytes than there are")
            return source
        index = self.integer(op.operands[1])
        if source.index is not None:
            raise Unknown("a buffer of a buffer")
        if not 0 <= index < facts.depth(source.allocation.result):
            raise OutOfRange(f"buffer {index} of {facts.depth(source.allocation.result)}")
        return View(source.allocation, index)

    def other(self, op: Operation) -> None:
        """An operation without a step of its own must leave shared memory alone."""
        views = [self.values.get(value) for value in op.operands if isinstance(value.type, MemDescType)]
        if any(view is not None for view in views):
            raise Unknown(f"{op.name} uses shared memory")
        if op.name in _WITHIN:
            return
        row = info(op.name)
        if row is None or row.category == "barrier":
            raise Unknown(f"{op.name} may synchronize")
        if op.name == "tt.elementwise_inline_asm":
            self.named_barrier(op)

    def named_barrier(self, op: Operation) -> None:
        """`bar.sync` and `bar.arrive`, alone and with numbers."""
        text = op.str_attr("asm_string") or ""
        found = _NAMED.fullmatch(text)
        if found is None and "bar" in text:
            raise Unknown(f"assembly that may synchronize: {text}")
        if found is not None:
            named = int(found["number"]), int(found["threads"])
            self.add("come", op, named=named, number=32 * self.warps)
            if found["what"] == "sync":
                self.add("meet", op, named=named)

    def slots(self, value: Value) -> tuple[Slot, ...]:
        view = self.values.get(value)
        if not isinstance(view, View):
            raise Unknown("memory that is not known")
        return view.slots()

    def barrier(self, value: Value) -> Slot:
        (slot,) = self.slots(value)
        return slot

    def add(self, kind: Kind, op: Operation, **details: Any) -> None:
        self.steps.append(Step(kind, op, **details))


def size_in_bytes(value: Value) -> int:
    """Of memory, by its type."""
    type = value.type
    assert isinstance(type, MemDescType) and isinstance(type.element, ScalarType)
    bits = type.element.bits
    for extent in type.shape:
        bits *= extent
    return bits // 8


# --------------------------------------------------------------------------------------------------------- steps


def _init(task: _Task, op: Operation) -> None:
    task.add("init", op, barrier=task.barrier(op.operands[0]), number=op.int_attr("count") or 0)


def _invalidate(task: _Task, op: Operation) -> None:
    task.add("inval", op, barrier=task.barrier(op.operands[0]))


def _wait(task: _Task, op: Operation) -> None:
    if len(op.operands) < 3 or task.integer(op.operands[2]):
        task.add("wait", op, barrier=task.barrier(op.operands[0]), number=task.integer(op.operands[1]))


def _arrive(task: _Task, op: Operation) -> None:
    if len(op.operands) < 2 or task.integer(op.operands[1]):
        task.add("arrive", op, barrier=task.barrier(op.operands[0]), number=op.int_attr("count") or 0)


def _expect(task: _Task, op: Operation) -> None:
    if task.integer(op.operands[1]):
        task.add("expect", op, barrier=task.barrier(op.operands[0]), number=op.int_attr("size") or 0)


def _copy(task: _Task, op: Operation) -> None:
    *_, barrier, buffer, predicate = op.operands
    if task.integer(predicate):
        slots, size = task.slots(buffer), size_in_bytes(buffer)
        task.add("copy", op, barrier=task.barrier(barrier), slots=slots, number=size)


def _gather(task: _Task, op: Operation) -> None:
    task.add("gather", op, slots=task.slots(op.operands[1]))


def _landed(task: _Task, op: Operation) -> None:
    """Every thread of the task arrives, once the copies that it began before have landed."""
    if op.attr("noIncrement") is None:
        raise Unknown("an arrival that the barrier was not told of")
    task.add("landed", op, barrier=task.barrier(op.operands[0]), number=32 * task.warps)


def _load(task: _Task, op: Operation) -> None:
    task.add("read", op, slots=task.slots(op.operands[0]))


def _local_store(task: _Task, op: Operation) -> None:
    task.add("write", op, slots=task.slots(op.operands[1]))


def _alloc(task: _Task, op: Operation) -> None:
    if op.operands:
        task.add("write", op, slots=((op, 0),))


def _store(task: _Task, op: Operation) -> None:
    task.add("store", op, slots=task.slots(op.operands[-1]))


def _store_wait(task: _Task, op: Operation) -> None:
    task.add("store wait", op, number=op.int_attr("pendings") or 0)


def _fence(task: _Task, op: Operation) -> None:
    task.add("fence", op)


_STEPS: dict[str, Callable[[_Task, Operation], None]] = {
    facts.INIT: _init,
    "ttng.inval_barrier": _invalidate,
    facts.WAIT: _wait,
    facts.ARRIVE: _arrive,
    facts.EXPECT: _expect,
    facts.COPY: _copy,
    facts.GATHER: _gather,
    facts.LANDED: _landed,
    "ttg.local_load": _load,
    facts.LOCAL_STORE: _local_store,
    "ttg.local_alloc": _alloc,
    facts.TMA_STORE: _store,
    facts.STORE_WAIT: _store_wait,
    facts.FENCE: _fence,
}
