"""instrument: let every warp group write down when it begins to wait, to multiply, to copy, to store and to compute.

                                      %at = start of this task's column in %wspec_trace
    ttng.wait_barrier %k       =>     stamp(%at, "begins to wait for k"); %at = next row
                                      ttng.wait_barrier %k
                                      stamp(%at, "begins to multiply")

A stamp is one word of 64 bits: the low half is the SM's clock, the high half the number of the event, which says what
*begins* there; it lasts until the task's next stamp. Scalar work between two events counts as part of the first one,
so a wait after a wait costs one stamp. One thread of the task writes it, at the position `%at`, a value that is carried
round loops and out of branches. The clock is read by volatile assembly, which neither LLVM nor ptxas moves across
waits, dots or copies; to ptxas it is a barrier for arithmetic too, so the instrumented kernel is not scheduled as
freely as the kernel itself (docs/simulator.md says what that costs). Coarser `detail` disturbs less.

The table is `[rows, columns]` of int64, a column for each task of each recorded block (block major), and of one block
more for all that are not. The launcher makes it (wspec/lab/trace/recording.py): zeros, and in row 0 the position of the
first event, or the number of positions there are, where nothing is to be written. The kernel writes into rows 1 and 2,
when the task begins, `%globaltimer` and `(%clock, %smid)`, into 3 and 4 the same when it ends, and events from row HEAD
on, as long as there is room. Runs after `finish`; nobody but a tracer launches the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wspec.ir import warp_specialize as ws
from wspec.ir.builder import Builder
from wspec.ir.core import Block, Operation, Region, Value
from wspec.ir.loc import Location, value_name
from wspec.ir.shapes import DOTS
from wspec.ir.types import (
    I1,
    I32,
    I64,
    Attribute,
    DenseArrayAttr,
    IntegerAttr,
    MemDescType,
    PointerType,
    ScalarType,
    i32,
)
from wspec.plan.plan import Plan
from wspec.plan.tile_table import add_pointer

TRACE = "wspec_trace"
"""Name of the argument the launcher adds, after all others."""

HEAD = 5  # rows before the first event

DETAILS = ("tiles", "loops", "all")
"""What is stamped: the begin of each tile; begin and end of each loop as well; every wait, dot, copy and store too."""

KINDS = ("tile", "buffer", "turn", "dot", "issue", "load", "store", "loop", "work")
"""What a warp group does: waits for a tile that TMA brings, for a buffer or value of another task, for its turn, for
dots; issues dots; issues TMA loads; stores, or waits for a store; is in a loop; computes."""

_POINTER = PointerType(I64)
_STORE: dict[str, Attribute] = {"boundaryCheck": DenseArrayAttr(I32, ()), "cache": i32(1), "evict": i32(1)}
_LOAD: dict[str, Attribute] = {
    "boundaryCheck": DenseArrayAttr(I32, ()),
    "cache": i32(1),
    "evict": i32(1),
    "isVolatile": IntegerAttr(1, I1),
    "operandSegmentSizes": DenseArrayAttr(I32, (1, 0, 0)),
}
_OF_OPERATION = {
    "ttng.warp_group_dot_wait": "dot",
    "ttng.async_tma_copy_global_to_local": "load",
    "ttng.async_tma_gather": "load",
    "ttng.async_tma_copy_local_to_global": "store",
    "ttng.async_tma_store_wait": "store",
    "ttg.local_store": "store",
    "tt.store": "store",
    "tt.descriptor_store": "store",
    **dict.fromkeys(DOTS, "issue"),
}
_FREE = ("arith.constant", "ttng.arrive_barrier", "ttng.barrier_expect", "ttng.fence_async_shared", "tt.load")
_CLOCK = "{ .reg .b64 t; .reg .b32 low, high; mov.u64 t, %clock64; mov.b64 {low, high}, t; mov.b64 $0, {low, $1}; }"
_TIME = "{ .reg .b32 t; mov.b32 t, $1; mov.u64 $0, %globaltimer; }"
_SM = "{ .reg .b32 t, s; mov.b32 s, $1; mov.u32 t, %clock; mov.u32 s, %smid; mov.b64 $0, {t, s}; }"


@dataclass(frozen=True, slots=True)
class Event:
    """What begins at a stamp."""

    number: int  # from 1
    task: int  # position among the tasks: consumers, helpers, the producer
    kind: str  # one of KINDS
    name: str  # of the value that is waited for, multiplied, copied; "" for arithmetic
    operation: str  # the operation's name, "" for arithmetic and the begin of a tile
    location: Location
    begins_tile: bool = False  # the first stamp of an iteration of an outer loop


@dataclass(frozen=True, slots=True)
class Layout:
    """The table: `rows` of `(blocks + 1) * tasks` columns."""

    rows: int
    blocks: int
    tasks: int

    @property
    def columns(self) -> int:
        return (self.blocks + 1) * self.tasks

    @property
    def positions(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True, slots=True)
class Instrumented:
    """The module, with one more argument, and what its events mean."""

    module: Operation
    events: tuple[Event, ...]
    layout: Layout
    tasks: tuple[str, ...]  # "consumer 0", "consumer 1", "producer"


def instrument(module: Operation, plan: Plan, blocks: int = 512, rows: int = 4096, detail: str = "all") -> Instrumented:
    """Add the stamps, in place. `blocks`: how many are recorded; `rows`: of the table, HEAD included."""
    op = ws.find(module)
    assert op is not None and detail in DETAILS
    names = tuple(f"{task.name} {replica}" if task.replicas > 1 else task.name for task, replica in plan.regions())
    layout = Layout(rows, blocks, len(names))
    function = next(inner for inner in module.walk() if inner.name == "tt.func")
    tables = ws.capture(op, add_pointer(function, TRACE, _POINTER))
    brought = _brought_by_tma(op)
    events: list[Event] = []
    for task, (block, table) in enumerate(zip(ws.task_blocks(op), tables, strict=True)):
        _Task(op, task, table, layout, detail, brought, events).run(block)
    return Instrumented(module, tuple(events), layout, names)


@dataclass(slots=True)
class _Task:
    """The code of one task."""

    op: Operation
    task: int
    table: Value
    layout: Layout
    detail: str
    brought: set[Value]
    events: list[Event]
    columns: list[Value] = field(default_factory=list)  # as a constant
    limit: list[Value] = field(default_factory=list)  # the same of positions

    def run(self, block: Block) -> None:
        build = Builder(block, 0, self.op.location)
        self.columns, self.limit = [build.constant(self.layout.columns)], [build.constant(self.layout.positions)]
        mine = build.create("arith.minui", [_program(build), build.constant(self.layout.blocks)], [I32]).result
        mine = build.binary("arith.muli", mine, build.constant(self.layout.tasks))
        column = build.binary("arith.addi", mine, build.constant(self.task))
        place = build.create("tt.addptr", [self.table, column], [_POINTER]).result
        at = build.create("arith.trunci", [build.create("tt.load", [place], [I64], _LOAD).result], [I32]).result
        first = at
        self._head(build, first, column, 1, _TIME, build.constant(0))
        self._head(build, first, column, 2, _SM, build.constant(0))
        if not any(op.name == "scf.for" and self._has_loops(op) for op in block.ops):  # a tile for each block
            at = self._stamp(build, at, "work", block.terminator, begins_tile=True)
        start = build.at
        assert start is not None
        at = self._block(block, start, at, outermost=True)
        build = Builder(block, len(block.ops) - 1, self.op.location)
        self._head(build, first, column, 3, _TIME, build.constant(0))
        self._head(build, first, column, 4, _SM, build.constant(0))

    def _head(self, build: Builder, first: Value, column: Value, row: int, assembly: str, value: Value) -> None:
        """A word that belongs to the task; where nothing is recorded, `first` is the limit."""
        place = build.binary("arith.addi", column, build.constant(row * self.layout.columns))
        self._write(build, place, build.compare("ult", first, self.limit[0]), assembly, value)

    # ---- control flow

    def _block(self, block: Block, start: int, at: Value, outermost: bool) -> Value:
        """Stamp the operations of a block from a position on; returns the position in the table behind it."""
        pending: Operation | None = None  # behind it something begins that has no stamp yet
        for op in block.ops[start:]:
            kind = self._kind(op)
            if kind is None and (op is block.terminator or not _is_free(op)) and pending is not None:
                build = Builder.behind(pending, op.location)
                at = self._stamp(build, at, "work", op)
                pending = None
            if kind is not None:
                build = Builder.before(op)
                at = self._stamp(build, at, kind, op)
                pending = op
            elif op.name == "scf.for" and self._has_events(op):
                if self.detail == "loops" and not (outermost and self._has_loops(op)):
                    at = self._stamp(Builder.before(op), at, "loop", op)
                    pending = op
                at = self._for(op, at, outermost)
            elif op.name == "scf.if" and self._has_events(op):
                at = self._if(op, at)
        return at

    def _for(self, op: Operation, at: Value, outermost: bool) -> Value:
        body = op.regions[0].block
        op.operands.append(at)
        inner = body.add_arg(I32, op.location)
        start = 0
        if outermost and self._has_loops(op):
            build = Builder(body, 0, op.location)
            inner = self._stamp(build, inner, "work", op, begins_tile=True)
            start = build.at or 0
        body.terminator.operands.append(self._block(body, start, inner, outermost=False))
        return _more(op)

    def _if(self, op: Operation, at: Value) -> Value:
        while len(op.regions) < 2:
            op.regions.append(Region(parent=op))
        for region in op.regions:
            if not region.blocks:
                region.add_block().append(Operation.create("scf.yield", location=op.location))
            region.block.terminator.operands.append(self._block(region.block, 0, at, outermost=False))
        return _more(op)

    def _has_loops(self, loop: Operation) -> bool:
        """Is it a loop over tiles?"""
        inside = loop.regions[0].block.walk()
        return any(inner.name == "scf.for" and self._has_events(inner) for inner in inside)

    def _has_events(self, op: Operation) -> bool:
        return any(self._seen(inner) is not None for inner in op.walk())

    def _kind(self, op: Operation) -> str | None:
        return self._seen(op) if self.detail == "all" else None

    def _seen(self, op: Operation) -> str | None:
        if op.name == "ttng.wait_barrier":
            return "tile" if self._barrier(op.operands[0]) in self.brought else "buffer"
        if op.name == "tt.elementwise_inline_asm":
            return "turn" if "bar.sync" in (op.str_attr("asm_string") or "") else None
        return _OF_OPERATION.get(op.name)

    def _barrier(self, value: Value) -> Value:
        return _root(self.op, value)

    # ---- stamps

    def _stamp(self, build: Builder, at: Value, kind: str, op: Operation, begins_tile: bool = False) -> Value:
        known = kind != "work"
        number = len(self.events) + 1
        name, operation = (value_name(op.location) or "", op.name) if known else ("", "")
        self.events.append(Event(number, self.task, kind, name, operation, op.location, begins_tile))
        return self._word(build, at, _CLOCK, build.constant(number))

    def _word(self, build: Builder, at: Value, assembly: str, value: Value) -> Value:
        self._write(build, at, build.compare("ult", at, self.limit[0]), assembly, value)
        following = build.binary("arith.addi", at, self.columns[0])
        return build.create("arith.minui", [following, self.limit[0]], [I32]).result

    def _write(self, build: Builder, at: Value, where: Value, assembly: str, value: Value) -> None:
        word = build.assembly(assembly, value, I64, "=l,r,~{memory}")
        place = build.create("tt.addptr", [self.table, at], [_POINTER]).result
        build.create("tt.store", [place, word, where], [], _STORE)


def _program(build: Builder) -> Value:
    """The number of the block in its grid."""
    x, y, z = (build.create("tt.get_program_id", [], [I32], {"axis": i32(axis)}).result for axis in range(3))
    width, height = (build.create("tt.get_num_programs", [], [I32], {"axis": i32(axis)}).result for axis in range(2))
    row = build.binary("arith.addi", build.binary("arith.muli", z, height), y)
    return build.binary("arith.addi", build.binary("arith.muli", row, width), x)


def _more(op: Operation) -> Value:
    """One more result, after the body yields one more value."""
    value = Value(I32, op, len(op.results))
    op.results.append(value)
    return value


def _is_free(op: Operation) -> bool:
    """Work on scalars and buffers' addresses, which no one waits for."""
    if op.regions:
        return False
    return op.name in _FREE or all(
        isinstance(result.type, ScalarType | PointerType | MemDescType) for result in op.results
    )


def _root(op: Operation, value: Value) -> Value:
    """The allocation that a view of shared memory, perhaps captured by a task, is part of."""
    while True:
        if value.op is not None:
            if not value.op.operands:
                return value
            value = value.op.operands[0]
        elif isinstance(value.owner, Block) and value.owner in ws.partition_blocks(op):
            value = op.operands[value.index]
        else:
            return value


def _brought_by_tma(op: Operation) -> set[Value]:
    """The barriers that count bytes."""
    expects = (inner for block in ws.task_blocks(op) for inner in block.walk())
    return {_root(op, inner.operands[0]) for inner in expects if inner.name == "ttng.barrier_expect"}
