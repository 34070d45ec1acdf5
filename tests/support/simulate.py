"""Run the skeleton of a kernel: control flow and barriers for real, tensors as terms.

A plain module and what was made of it must store equal terms at equal places. The specialized one runs its tasks and
its TMA copies in an order drawn from a seed; a wait that never ends, a buffer overwritten while somebody reads it, a
ring filled more often than it is read, a store that nobody waits for and a turn that nobody takes are errors. It knows
nothing of the compiler, and of the operations only what it needs; what it does not know it takes for a pure function of
its operands.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value
from wspec.ir.loc import value_name
from wspec.ir.types import DenseAttr, FloatAttr, IntegerAttr, ScalarType
from wspec.tile_scheduler import TABLE

Item = Any  # int: a scalar that is known; Term: anything else in registers; Buffer, View or Entry: memory
Result = tuple[Item, ...]
Steps = Generator[Any, None, Result]  # yields what a task waits for, or None where others may go on


@dataclass(eq=False, slots=True)
class Term:
    """A value as an expression; equal expressions are one object."""

    key: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"{self.key[0]}({', '.join(map(repr, self.key[1:]))})"


_terms: dict[tuple[Any, ...], Term] = {}


def term(*key: Any) -> Term:
    """The term of a name and its parts."""
    return _terms.setdefault(key, Term(key))


@dataclass(eq=False, slots=True)
class Buffer:
    """One buffer, or a whole ring taken as one: what it holds, and whether TMA is writing it or storing from it."""

    name: str
    content: Item = None
    filling: bool = False
    storing: bool = False
    parts: tuple[Buffer, ...] = ()  # of a whole ring


@dataclass(frozen=True, slots=True)
class View:
    """A buffer seen differently."""

    buffer: Buffer
    how: Term


@dataclass(frozen=True, slots=True)
class Entry:
    """The address of a number of the table of tiles."""

    at: int


@dataclass(eq=False, slots=True)
class Barrier:
    """An mbarrier: arrivals and bytes still to come in this phase."""

    name: str
    count: int
    pending: int = 0
    bytes: int = 0
    phase: int = 0
    waits: Counter[int] = field(default_factory=Counter)  # task -> how often it has passed
    phases: int = 0

    def settle(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending, self.phases = self.phase ^ 1, self.count, self.phases + 1


@dataclass(eq=False, slots=True)
class Turn:
    """A named hardware barrier: the tasks that have arrived in this round."""

    tasks: list[int] = field(default_factory=list)
    rounds: int = 0

    def arrive(self, task: int, count: int) -> None:
        assert task not in self.tasks, f"task {task} arrives twice in one round of a named barrier"
        self.tasks.append(task)
        if len(self.tasks) == count:
            self.tasks, self.rounds = [], self.rounds + 1


@dataclass(frozen=True, slots=True)
class World:
    """What a kernel is launched with: integers by the name of the argument, place in the grid, table of tiles."""

    integers: Mapping[str, int]
    program: tuple[int, int, int] = (0, 0, 0)
    grid: tuple[int, int, int] = (1, 1, 1)
    blind: bool = False  # leave coordinates and ranges out of the terms: for replicas that work on other rows
    table: tuple[int, ...] = ()  # of a kernel whose blocks walk through tiles


def stores_of_plain(module: Operation, world: World) -> list[Term]:
    """What an unspecialized kernel stores, in order."""
    run = _Run(world)
    for _ in run.task(0, _function(module).regions[0].block, run.arguments(module)):
        pass
    return run.stored_by(1)[0]


def stores_of_tasks(module: Operation, world: World, seed: int) -> list[list[Term]]:
    """What each task of a specialized kernel stores, in order. Raises AssertionError for deadlocks and races."""
    run = _Run(world)
    body = _function(module).regions[0].block
    values = run.arguments(module)
    for _ in run.task(0, body, values):
        pass
    op = ws.find(module)
    assert op is not None
    blocks = ws.task_blocks(op)
    tasks = {}
    for index, block in enumerate(blocks):
        inside = dict(values) if index == 0 else {}
        inside.update(zip(block.args, (values[v] for v in op.operands), strict=False))
        tasks[index] = run.task(index, block, inside)
    run.interleave(tasks, random.Random(seed))
    run.assert_drained(len(blocks) - 1)
    return run.stored_by(len(blocks))


def _function(module: Operation) -> Operation:
    return next(op for op in module.walk() if op.name == "tt.func")


@dataclass
class _Run:
    """One block of the grid."""

    world: World
    rings: dict[tuple[Operation, int], Buffer | Barrier] = field(default_factory=dict)
    stored: dict[int, list[Term]] = field(default_factory=dict)
    reading: dict[int, list[list[Buffer]]] = field(default_factory=dict)  # task -> buffers of its dots in flight
    copies: list[tuple[Buffer, Barrier, int, Term]] = field(default_factory=list)  # in flight; no bytes: all threads'
    pieces: dict[int, list[tuple[Buffer, Term]]] = field(default_factory=dict)  # task -> its copies without an arrival
    staged: dict[int, list[Buffer]] = field(default_factory=dict)  # task -> buffers it is storing from
    turns: dict[int, Turn] = field(default_factory=dict)  # by the number of the hardware barrier
    waiting: dict[int, str] = field(default_factory=dict)

    def arguments(self, module: Operation) -> dict[Value, Item]:
        found: dict[Value, Item] = {}
        for arg in _function(module).regions[0].block.args:
            name = value_name(arg.location) or f"argument {arg.index}"
            known = self.world.integers.get(name) if _is_integer(arg) else None
            found[arg] = term("argument", arg.index) if known is None else known
            if name == TABLE and self.world.table:
                found[arg] = Entry(0)
        return found

    def stored_by(self, count: int) -> list[list[Term]]:
        return [self.stored.get(task, []) for task in range(count)]

    # ---- scheduling

    def interleave(self, tasks: dict[int, Steps], draw: random.Random) -> None:
        """Run the tasks and the copies to their ends, the next step drawn from those that can be taken."""
        blocked: dict[int, Callable[[], bool]] = {}
        while tasks:
            ready = [task for task in tasks if task not in blocked or blocked[task]()]
            choices = ready + [-1] * bool(self.copies)
            assert choices, f"everybody waits: {[self.waiting[task] for task in tasks]}"
            task = draw.choice(choices)
            if task < 0:
                self._land(self.copies.pop(draw.randrange(len(self.copies))))
                continue
            blocked.pop(task, None)
            try:
                condition = next(tasks[task])
            except StopIteration:
                del tasks[task]
                continue
            if condition is not None:
                blocked[task] = condition

    def _land(self, copy: tuple[Buffer, Barrier, int, Term]) -> None:
        buffer, barrier, size, content = copy
        buffer.filling, buffer.content = False, content
        if size:
            barrier.bytes -= size
        else:
            assert barrier.pending == barrier.count, f"{barrier.name}: more arrivals than it waits for"
            barrier.pending = 0
        barrier.settle()

    def assert_drained(self, producer: int) -> None:
        """At the end nothing is on its way, and every ring was read as often as it was filled."""
        assert not self.copies, "a copy is still on its way when the kernel ends"
        for barrier in self.rings.values():
            if isinstance(barrier, Barrier):
                for task, passed in barrier.waits.items():
                    assert task == producer or passed == barrier.phases, f"{barrier.name}: {passed} != {barrier.phases}"
        for number, turn in self.turns.items():
            assert not turn.tasks, f"the last turn of barrier {number} is not taken"

    # ---- control flow

    def task(self, task: int, block: Block, values: dict[Value, Item]) -> Steps:
        result = yield from self._block(task, block, values)
        assert not self.reading.get(task), "a dot is still running when its task ends"
        assert not self.staged.get(task), "a store is still running when its task ends"
        return result

    def _block(self, task: int, block: Block, values: dict[Value, Item]) -> Steps:
        for op in block.ops:
            operands = tuple(values[v] for v in op.operands)
            if op.name == "scf.for":
                results = yield from self._loop(task, op, operands, values)
            elif op.name == "scf.if":
                assert isinstance(operands[0], int), "a condition that is not known"
                region = op.regions[0 if operands[0] else 1]
                results = (yield from self._block(task, region.block, values)) if region.blocks else ()
            elif op.name == ws.NAME:
                return ()
            elif op is block.ops[-1]:
                return operands
            else:
                results = yield from self._simple(task, op, operands)
            values.update(zip(op.results, results, strict=True))
        return ()

    def _loop(self, task: int, op: Operation, operands: Result, values: dict[Value, Item]) -> Steps:
        lower, upper, step, *carried = operands
        assert all(isinstance(v, int) for v in (lower, upper, step)), "a bound that is not known"
        body = op.regions[0].block
        for position in range(lower, upper, step):
            values.update(zip(body.args, [position, *carried], strict=True))
            carried = list((yield from self._block(task, body, values)))
        return tuple(carried)

    # ---- operations

    def _simple(self, task: int, op: Operation, operands: Result) -> Steps:
        if op.name == "ttng.wait_barrier":
            yield self._wait(task, operands)
            operands[0].waits[task] += 1
            return ()
        named = _NAMED.match(op.str_attr("asm_string") or "")
        if named is not None:
            yield from self._turn(task, *named.groups())
            return tuple(term("effect", op.name) for _ in op.results)
        handler = _SHARED.get(op.name)
        if handler is None:
            return self._pure(task, op, operands)
        yield None
        return handler(self, task, op, operands)

    def _wait(self, task: int, operands: Result) -> Callable[[], bool]:
        barrier, phase = operands[0], operands[1]
        self.waiting[task] = f"task {task} for {barrier.name}, phase {phase}"
        return lambda: bool(barrier.phase != phase)

    def _turn(self, task: int, what: str, number: str, threads: str) -> Generator[Any, None, None]:
        """`bar.sync` or `bar.arrive` of one warp group."""
        turn = self.turns.setdefault(int(number), Turn())
        yield None
        before = turn.rounds
        turn.arrive(task, int(threads) // _GROUP)
        if what == "sync":
            self.waiting[task] = f"task {task} for its turn at barrier {number}"
            yield lambda: turn.rounds > before

    def _pure(self, task: int, op: Operation, operands: Result) -> Result:
        if op.name in _STORES:
            if _does_nothing(op, operands):
                return tuple(term("effect", op.name) for _ in op.results)
            self.stored.setdefault(task, []).append(self._store(op, operands))
            return tuple(term("effect", op.name) for _ in op.results)
        if op.name == "ttg.local_alloc" and not operands:
            return (op,)
        if op.name == "ttg.local_alloc":
            return (self._own_buffer(task, op, operands[0]),)
        if op.name == "ttg.memdesc_index":
            return (self._element(operands[0], operands[1]),)
        if op.name == "ttg.memdesc_reinterpret":
            ring: Operation = operands[0]
            parts = tuple(self._element(ring, index) for index in range(_shape(ring.result)[0]))
            return (
                Buffer(f"all of {value_name(ring.location)}", parts=tuple(p for p in parts if isinstance(p, Buffer))),
            )
        if op.name == "ttg.memdesc_trans" and isinstance(operands[0], Buffer):
            return (View(operands[0], term("trans")),)
        if op.name == "ttg.local_load":
            return (self._read(operands[0]),)
        if op.name in _SAME:
            return (operands[0],)
        if op.name == "tt.descriptor_load":
            return (self._tile(operands),)
        if op.name == "tt.load" and len(_shape(op.results[0])) == 2:
            return (self._gathered(operands),)
        if operands and isinstance(operands[0], Entry):
            at = operands[0].at
            return (Entry(at + operands[1]) if op.name == "tt.addptr" else self.world.table[at],)
        if op.name == "tt.get_program_id":
            return (self.world.program[op.int_attr("axis") or 0],)
        if op.name == "tt.get_num_programs":
            return (self.world.grid[op.int_attr("axis") or 0],)
        return evaluate(op, operands, self.world.blind)

    def _element(self, ring: Operation, index: int) -> Buffer | Barrier:
        name = f"{value_name(ring.location) or 'ring'}[{index}]"
        is_barrier = str(getattr(ring.result.type, "element", "")) == "i64"
        return self.rings.setdefault((ring, index), Barrier(name, 0) if is_barrier else Buffer(name))

    def _whole(self, item: Item) -> Buffer:
        """The buffer that an operation reads or writes, which may be an allocation that is no ring."""
        if isinstance(item, Operation):
            item = self.rings.setdefault((item, -1), Buffer(f"the buffer allocated at {value_name(item.location)}"))
        assert isinstance(item, Buffer)
        return item

    def _own_buffer(self, task: int, op: Operation, content: Item) -> Buffer:
        """A tensor put into shared memory: the same place every time."""
        buffer = self.rings.setdefault((op, task), Buffer(f"the buffer made at {value_name(op.location)}"))
        assert isinstance(buffer, Buffer)
        self._assert_free(buffer)
        buffer.content = content
        return buffer

    def _assert_free(self, buffer: Buffer) -> None:
        for part in buffer.parts:
            self._assert_free(part)
        assert not buffer.filling, f"{buffer.name} is overwritten while TMA fills it"
        assert not buffer.storing, f"{buffer.name} is overwritten while TMA stores it"
        for task, dots in self.reading.items():
            busy = any(buffer in buffers for buffers in dots)
            assert not busy, f"{buffer.name} is overwritten while task {task} reads it"

    def _read(self, item: Item) -> Item:
        buffer = item.buffer if isinstance(item, View) else item
        if isinstance(buffer, Operation):
            buffer = self._whole(buffer)
        if not isinstance(buffer, Buffer):
            return item
        assert not buffer.filling and buffer.content is not None, f"{buffer.name} is read before it is filled"
        return term("trans", buffer.content) if isinstance(item, View) else buffer.content

    def _tile(self, operands: Result) -> Term:
        return term("tile", operands[0], *(() if self.world.blind else operands[1:]))

    def _gathered(self, operands: Result) -> Term:
        """A tile that is loaded through pointers; zeros where the mask, if there is one, is false."""
        return term("gathered", *(() if self.world.blind else operands[:2]))

    def _store(self, op: Operation, operands: Result) -> Term:
        if op.name in ("tt.descriptor_store", "ttng.async_tma_copy_local_to_global"):
            first, last = (1, 0) if op.name == "tt.descriptor_store" else (-1, -1)
            place = operands[2:] if last == 0 else operands[1:-1]
            return term("stored", operands[0], self._read(operands[first]), *(() if self.world.blind else place))
        if op.name == "tt.store" and len(operands) > 2 and operands[2] in (1, _everywhere(1)):
            operands = operands[:2]
        return term(op.name, *map(self._read, operands))

    # ---- operations on what tasks share; each lets the others go first

    def _init(self, task: int, op: Operation, operands: Result) -> Result:
        barrier = operands[0]
        barrier.count = barrier.pending = op.int_attr("count") or 0
        return ()

    def _arrive(self, task: int, op: Operation, operands: Result) -> Result:
        barrier, predicate = operands[0], operands[1]
        if predicate:
            assert barrier.pending > 0, f"{barrier.name}: more arrivals than it waits for"
            barrier.pending -= 1
            barrier.settle()
        return ()

    def _expect(self, task: int, op: Operation, operands: Result) -> Result:
        barrier = operands[0]
        assert barrier.pending > 0, f"{barrier.name}: more arrivals than it waits for"
        barrier.bytes += op.int_attr("size") or 0
        barrier.pending -= 1
        return ()

    def _copy(self, task: int, op: Operation, operands: Result) -> Result:
        desc, *place, barrier, buffer, _ = operands
        self._assert_free(buffer)
        buffer.filling = True
        self.copies.append((buffer, barrier, _bytes(op.operands[-2]), self._tile((desc, *place))))
        return ()

    def _pieces(self, task: int, op: Operation, operands: Result) -> Result:
        """cp.async: on its way from now on, and reported on the barrier that the task then arrives at."""
        pointers, buffer, *mask = operands
        self._assert_free(buffer)
        buffer.filling = True
        self.pieces.setdefault(task, []).append((buffer, self._gathered((pointers, *mask))))
        return (term("token"),)

    def _landed(self, task: int, op: Operation, operands: Result) -> Result:
        """All threads arrive when what was copied since the last arrival has landed."""
        ((buffer, tile),) = self.pieces.pop(task)
        self.copies.append((buffer, operands[0], 0, tile))
        return ()

    def _dot(self, task: int, op: Operation, operands: Result) -> Result:
        result = term("dot", *map(self._read, operands[:3]))
        flag = op.attr("isAsync")
        if isinstance(flag, IntegerAttr) and flag.value:
            sources = [item.buffer if isinstance(item, View) else item for item in operands[:2]]
            self.reading.setdefault(task, []).append([item for item in sources if isinstance(item, Buffer)])
        return (result,)

    def _dot_wait(self, task: int, op: Operation, operands: Result) -> Result:
        dots = self.reading.get(task, [])
        del dots[: max(0, len(dots) - (op.int_attr("pendings") or 0))]
        return operands

    def _local_store(self, task: int, op: Operation, operands: Result) -> Result:
        content, buffer = operands[0], self._whole(operands[1])
        self._assert_free(buffer)
        for part in (buffer, *buffer.parts):
            part.content, part.storing = None, True
            self.staged.setdefault(task, []).append(part)
        buffer.content = content
        return ()

    def _store_wait(self, task: int, op: Operation, operands: Result) -> Result:
        assert not op.int_attr("pendings"), "which stores have ended is not known"
        for buffer in self.staged.pop(task, []):
            buffer.storing = False
        return ()


def _does_nothing(op: Operation, operands: Result) -> bool:
    """A store whose mask is false throughout, or far outside of its tensor."""
    if op.name == "ttng.async_tma_copy_local_to_global":
        return isinstance(operands[1], int) and operands[1] > _FAR
    return op.name == "tt.store" and len(operands) > 2 and operands[2] in (0, _everywhere(0))


def _everywhere(flag: int) -> Term:
    """A mask that is the same number for all elements."""
    return term("tt.splat", 0, flag, *("None" for _ in _MATTERS))


_FAR = 2**30  # no tensor of these tests has so many rows


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, ScalarType) and not value.type.is_float


def _shape(buffer: Value) -> tuple[int, ...]:
    shape: tuple[int, ...] = getattr(buffer.type, "shape", ())
    return shape


def _bytes(buffer: Value) -> int:
    return math.prod(_shape(buffer)) * int(getattr(buffer.type, "element", ScalarType("i8")).bits) // 8


_SHARED: dict[str, Callable[..., Result]] = {
    "ttng.init_barrier": _Run._init,
    "ttng.arrive_barrier": _Run._arrive,
    "ttng.barrier_expect": _Run._expect,
    "ttng.async_tma_copy_global_to_local": _Run._copy,
    "ttg.async_copy_global_to_local": _Run._pieces,
    "ttng.async_copy_mbarrier_arrive": _Run._landed,
    "ttng.warp_group_dot": _Run._dot,
    "ttng.warp_group_dot_wait": _Run._dot_wait,
    "ttg.local_store": _Run._local_store,
    "ttng.async_tma_store_wait": _Run._store_wait,
}
_STORES = frozenset(
    {
        "tt.store",
        "tt.descriptor_store",
        "tt.descriptor_reduce",
        "tt.atomic_rmw",
        "tt.atomic_cas",
        "ttng.async_tma_copy_local_to_global",
    }
)
_SAME = frozenset({"ttg.convert_layout", "tt.reshape"})
_NAMED = re.compile(r"bar\.(sync|arrive) (\d+), (\d+);")
_GROUP = 128  # threads of a warp group, and of every task that takes turns

# ------------------------------------------------------------------------------------------------ pure values


def _floor(a: int, b: int) -> int:
    """Division by zero does not trap on a GPU."""
    return a // b if b else 0


def _quotient(a: int, b: int) -> int:
    """Towards zero."""
    return _floor(abs(a), abs(b)) * (1 if (a < 0) == (b < 0) else -1)


_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divsi": lambda a, b: _quotient(a, b),
    "arith.remsi": lambda a, b: a - b * _quotient(a, b),
    "arith.ceildivsi": lambda a, b: -_floor(-a, b),
    "arith.floordivsi": lambda a, b: _floor(a, b),
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
    "arith.minsi": min,
    "arith.maxsi": max,
}
_COMPARISONS: tuple[Callable[[int, int], bool], ...] = (
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
)
_MATTERS = ("predicate", "axis", "order", "start", "atomic_rmw_op")


def evaluate(op: Operation, operands: Result, blind: bool = False) -> Result:
    """Integers are computed; everything else becomes a term, 2^x the same one however it is computed."""
    value = op.attr("value")
    if op.name == "arith.constant":
        if isinstance(value, IntegerAttr):
            return (value.value,)
        return (term("constant", value.text if isinstance(value, FloatAttr | DenseAttr) else str(value)),)
    if operands and all(isinstance(v, int) for v in operands):
        if op.name in _INTEGERS:
            return (_INTEGERS[op.name](*operands),)
        if op.name == "arith.cmpi":
            return (int(_COMPARISONS[op.int_attr("predicate") or 0](*operands)),)
        if op.name in ("arith.extsi", "arith.trunci", "arith.index_cast"):
            return (operands[0],)
    if op.name == "arith.select" and isinstance(operands[0], int):
        return (operands[1] if operands[0] else operands[2],)
    marks = tuple(str(op.attr(name)) for name in _MATTERS if name != "start" or not blind)
    inner = tuple(o.name for region in op.regions for block in region.blocks for o in block.ops)
    name = "math.exp2" if "ex2.approx" in (op.str_attr("asm_string") or "") else op.name
    return tuple(term(name, index, *operands, *marks, *inner) for index in range(len(op.results)))
