"""What mutations need to know of a specialized module: tasks, rings, who reads which buffer. From the IR alone.

A *ring* is an allocation of buffers that TMA copies fill, with the barriers that go with it: those the copies complete
(full), and those their task waits for at the same index before it fills a buffer (empty). A *root* is the allocation
behind a view, seen through the arguments of partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value
from wspec.ir.core import uses as uses_below
from wspec.ir.ops import info, is_pure
from wspec.ir.types import I64, DenseArrayAttr, IntegerAttr, MemDescType

ARRIVE, WAIT, INIT = "ttng.arrive_barrier", "ttng.wait_barrier", "ttng.init_barrier"
EXPECT = "ttng.barrier_expect"
COPY = "ttng.async_tma_copy_global_to_local"
GATHER, LANDED = "ttg.async_copy_global_to_local", "ttng.async_copy_mbarrier_arrive"  # cp.async
TMA_STORE = "ttng.async_tma_copy_local_to_global"
STORE_WAIT = "ttng.async_tma_store_wait"
FENCE = "ttng.fence_async_shared"
DOT, DOT_WAIT = "ttng.warp_group_dot", "ttng.warp_group_dot_wait"
INDEX, LOCAL_STORE = "ttg.memdesc_index", "ttg.local_store"


@dataclass(eq=False, slots=True)
class Ring:
    """Allocations, outside the tasks."""

    buffers: Value
    full: Value
    empty: Value | None

    @property
    def depth(self) -> int:
        return depth(self.buffers)

    @property
    def values(self) -> tuple[Value, ...]:
        """What the ring is made of, full barriers after the buffers, then empty ones."""
        return tuple(value for value in (self.buffers, self.full, self.empty) if value is not None)


class Kernel:
    """A specialized module and what can be asked of it. Raises ValueError when it has no tasks."""

    def __init__(self, module: Operation) -> None:
        found = ws.find(module)
        if found is None:
            raise ValueError("the module has no ttg.warp_specialize")
        self.module, self.op, self.tasks = module, found, ws.task_blocks(found)

    # ---- operations

    def named(self, *names: str) -> list[Operation]:
        """All operations of these names, in program order."""
        return [op for op in self.module.walk() if op.name in names]

    def task_of(self, op: Operation) -> int | None:
        """The task an operation belongs to; None for what runs around the tasks."""
        return self._tasks.get(op)

    @cached_property
    def _tasks(self) -> dict[Operation, int]:
        blocks = enumerate(self.tasks)
        return {inner: number for number, block in blocks for op in block.ops for inner in op.walk()}

    @cached_property
    def order(self) -> dict[Operation | None, int]:
        """Operations by their place in the program."""
        return {op: place for place, op in enumerate(self.module.walk())}

    @cached_property
    def uses(self) -> dict[Value, list[tuple[Operation, int]]]:
        """Who uses what, in the whole module."""
        return uses_below(self.module)

    # ---- memory

    def root(self, value: Value) -> Value:
        """The allocation (or whatever else) behind a view of memory."""
        while True:
            owner = value.owner
            if isinstance(owner, Block):
                if owner not in self.tasks[1:]:
                    return value
                value = self.op.operands[value.index]
            elif owner.operands and (row := info(owner.name)) is not None and row.category == "view":
                value = owner.operands[0]
            else:
                return value

    def element(self, value: Value) -> Operation | None:
        """The memdesc_index that picks the buffer or barrier `value` is (a view of), if one does."""
        op = value.op
        while op is not None and op.name != INDEX:
            row = info(op.name)
            op = op.operands[0].op if op.operands and row is not None and row.category == "view" else None
        return op

    def index(self, value: Value) -> Value | None:
        """The index at which `value` was picked from its ring."""
        element = self.element(value)
        return None if element is None else element.operands[1]

    def reads(self, ring: Ring) -> list[Operation]:
        """The operations of tasks that read, or overwrite, a buffer of the ring; not the copies that fill it."""
        found = [op for op in self.module.walk() if not op.regions and op.name != COPY]
        return [op for op in found if self.task_of(op) is not None and self.touches(op, ring.buffers)]

    @cached_property
    def rings(self) -> list[Ring]:
        """Every ring, in the order in which they are allocated."""
        found: dict[Value, Ring] = {}
        for copy in self.named(COPY):
            buffers, full = self.root(copy.operands[-2]), self.root(copy.operands[-3])
            found.setdefault(buffers, Ring(buffers, full, self._empty(copy)))
        return sorted(found.values(), key=lambda ring: self.order[ring.buffers.op])

    def _empty(self, copy: Operation) -> Value | None:
        """The barriers that the copy's task waits for, at the copy's index, nearest before the copy."""
        element = self.element(copy.operands[-2])
        if element is None:
            return None
        for op in before(copy):
            barrier = self.element(op.operands[0]) if op.name == WAIT else None
            if barrier is not None and barrier.operands[1] is element.operands[1]:
                return self.root(barrier.operands[0])
        return None

    def ring_of(self, value: Value) -> Ring | None:
        """The ring a buffer, a barrier or a view of one belongs to."""
        root = self.root(value)
        return next((ring for ring in self.rings if root in ring.values), None)

    def seen(self, value: Value, task: int) -> Value:
        """What a value around the tasks is called in one of them; itself where it is not passed in."""
        if task == 0 or value not in self.op.operands:
            return value
        return self.tasks[task].args[self.op.operands.index(value)]

    def touches(self, op: Operation, buffers: Value) -> bool:
        """Does the operation, or anything inside it, read or write a buffer of the allocation?"""
        for inner in op.walk():
            row = info(inner.name)
            if row is None or row.category == "view" or inner is self.op:
                continue
            if any(isinstance(v.type, MemDescType) and self.root(v) is buffers for v in inner.operands):
                return True
        return False


def warps(module: Operation) -> list[int]:
    """Of each task of a specialized module."""
    op = ws.find(module)
    found = op.attr("partitionNumWarps") if op is not None else None
    return [module.int_attr("ttg.num-warps") or 4, *(found.values if isinstance(found, DenseArrayAttr) else ())]


def depth(value: Value) -> int:
    """Tiles or barriers in an allocation. A tile has two dimensions, a barrier one."""
    assert isinstance(value.type, MemDescType)
    own = 1 if is_barriers(value) else 2
    return value.type.shape[0] if len(value.type.shape) > own else 1


def is_barriers(value: Value) -> bool:
    """An allocation of mbarriers."""
    return isinstance(value.type, MemDescType) and value.type.element == I64


def constant(value: Value) -> int | None:
    """The integer a value is known to be."""
    found = value.op.attr("value") if value.op is not None and value.op.name == "arith.constant" else None
    return found.value if isinstance(found, IntegerAttr) else None


def needed(op: Operation) -> list[Operation]:
    """The pure operations of the same block that only serve to compute what `op` uses, in order, `op` not included.

    They can be moved, or copied, along with it.
    """
    wanted, found = set(op.operands), []
    for earlier in before(op):
        if wanted.intersection(earlier.results) and is_pure(earlier):
            found.append(earlier)
            wanted.update(earlier.operands)
    return found[::-1]


def has_effects(op: Operation) -> bool:
    """Does moving another operation across it change the order of anything?"""
    return not is_pure(op)


def before(op: Operation) -> Iterator[Operation]:
    """The operations in front of `op` in its block, nearest first."""
    assert op.parent is not None
    yield from reversed(op.parent.ops[: op.parent.ops.index(op)])


def after(op: Operation) -> Iterator[Operation]:
    """The operations behind `op` in its block."""
    assert op.parent is not None
    yield from op.parent.ops[op.parent.ops.index(op) + 1 :]


def history(value: Value) -> set[Value]:
    """The values a ring's index or phase may have been: through loops, branches, and what moves it on."""
    seen: set[Value] = set()
    work = [value]
    while work:
        current = work.pop()
        if current not in seen:
            seen.add(current)
            work.extend(_sources(current))
    return seen


def _sources(value: Value) -> list[Value]:
    """Where a value comes from, one step back, if that is control flow or an advance."""
    op = value.op
    if op is None:
        loop = value.owner.parent_op if isinstance(value.owner, Block) else None
        return _carried(loop, value.index - 1) if loop is not None and loop.name == "scf.for" and value.index else []
    if op.name == "scf.for":
        return _carried(op, value.index)
    if op.name == "scf.if":
        return [region.block.terminator.operands[value.index] for region in op.regions]
    if op.name == "arith.select":
        return op.operands[1:]
    return op.operands[:1] if op.name in ("arith.addi", "arith.xori") else []


def _carried(loop: Operation, index: int) -> list[Value]:
    """What the loop-carried value `index` starts with, and what becomes of it."""
    return [loop.operands[3 + index], loop.regions[0].block.terminator.operands[index]]
