"""Which values loaded from global memory are the same wherever they are loaded, and which a store may change between.

A load gives the same value in two tasks, or at two places, if nothing can write what it reads. What may write it is any
store of the kernel (of threads, of TMA, atomics, assembly) through the same argument, through one whose memory may
overlap, or through a pointer that cannot be traced to an argument. Which arguments' memory does not overlap is an
assumption that the checker is given; without one, all may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from wspec.check import assembly
from wspec.check.clock import Once, timed
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value
from wspec.ir.disjoint import Disjoint
from wspec.ir.loc import value_name
from wspec.ir.ops import info
from wspec.ir.shapes import element_of
from wspec.ir.types import PointerType, ScalarType, TensorDescType

_THROUGH = frozenset(
    ("tt.addptr", "tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.bitcast", "tt.reshape", "tt.trans",
     "tt.advance", "tt.make_tensor_ptr", "tt.make_tensor_descriptor", "ttg.convert_layout",
     "ttng.reinterpret_tensor_descriptor")
)  # fmt: skip
_SCRATCH = "ttg.global_scratch_alloc"
_MADE = "ttng.tensormap_create"  # writes a descriptor of the memory at its second operand to that at its first


class GlobalMemory:
    """What the loads of one function may see; a snapshot.

    `sources`: what a block argument, or the result of a loop or branch, may be.
    """

    def __init__(self, function: Operation, sources: Callable[[Value], Iterable[Value]], disjoint: Disjoint) -> None:
        self.function, self.sources, self.disjoint = function, sources, disjoint
        self._found: dict[Operation, Operation | None] = {}
        self._doubts: dict[Value, Operation | None] = {}

    def changed_by(self, load: Operation) -> Operation | None:
        """A store that may come between this load and another one of the same address; None when nothing can.

        A load that is volatile or atomic, or assembly that loads, sees what others may write at any time: the answer
        is the load itself. None as well for what loads nothing.
        """
        if load not in self._found:
            self._found[load] = self._changed_by(load)
        return self._found[load]

    def doubt(self, value: Value) -> Operation | None:
        """A load that the value is computed from, and that another task may see changed; None when there is none."""
        if value not in self._doubts:
            loads = (op for op in self.origins(value) if self.changed_by(op) is not None)
            self._doubts[value] = next(loads, None)
        return self._doubts[value]

    def origins(self, value: Value) -> Iterator[Operation]:
        """The operations that a value is computed from, wherever it comes from."""
        pending = Once([value])
        for one in pending:
            if one.op is not None:
                yield one.op
                pending.add(one.op.operands if one.op.name != ws.NAME else [])
            pending.add(self.sources(one))

    def text(self, load: Operation) -> str:
        """What comes between, in words."""
        store = self.changed_by(load)
        if store is load or store is None:
            return "sees whatever is in memory at the time"
        pairs = [self._pairs(load, one) for one in timed(self._stores)]
        known = {pair for found in pairs for pair in found or ()}
        through = ", ".join(f"{one} and {other}" for one, other in sorted(known)) if None not in pairs else ""
        unless = f", unless these do not overlap: {through}" if through else ""
        return f"may be overwritten by {store.name} between the tasks' loads{unless}"

    def place(self, load: Operation) -> Operation:
        """The store, or the load itself where none is named."""
        return self.changed_by(load) or load

    # ---- which memory

    def _changed_by(self, load: Operation) -> Operation | None:
        if load.name == assembly.NAME:
            return load if assembly.of(load).loads else None
        row = info(load.name)
        if row is None or not load.results or "global" not in row.reads:
            return None
        if row.category == "atomic" or load.int_attr("isVolatile"):
            return load
        mine = self._arguments(load.operands[:1])
        return next((store for store in timed(self._stores) if self._may_meet(mine, self._written(store))), None)

    def _may_meet(self, mine: frozenset[int] | None, theirs: frozenset[int] | None) -> bool:
        if mine is None or theirs is None:
            return True
        return any(not self.disjoint.apart(one, other) for one in mine for other in theirs)

    def _pairs(self, load: Operation, store: Operation) -> set[tuple[str, str]] | None:
        """The names of arguments that would have to be disjoint; None where that would not do."""
        mine, theirs = self._arguments(load.operands[:1]), self._written(store)
        if mine is None or theirs is None or mine & theirs:
            return None
        meet = {(one, other) for one in mine for other in theirs if not self.disjoint.apart(one, other)}
        return {(self.name(one), self.name(other)) for one, other in meet}

    def name(self, argument: int) -> str:
        """What an argument is called in the source."""
        value = self.function.regions[0].block.args[argument]
        return value_name(value.location) or f"argument {argument}"

    @cached_property
    def _stores(self) -> list[Operation]:
        return [op for op in timed(self.function.walk()) if self.stores_something(op)]

    @staticmethod
    def loads_something(op: Operation) -> bool:
        """Does it read global memory?"""
        if op.name == assembly.NAME:
            return assembly.of(op).loads
        row = info(op.name)
        return row is not None and not op.regions and "global" in row.reads

    def touched(self, op: Operation) -> frozenset[int] | None:
        """The arguments through which it reads or writes; None when that cannot be seen."""
        return self._written(op)

    @staticmethod
    def stores_something(op: Operation) -> bool:
        """Does it write global memory?"""
        if op.name == assembly.NAME:
            return assembly.of(op).stores  # whatever its flag says
        row = info(op.name)
        if row is None:
            return not op.regions and any(
                isinstance(element_of(v.type), PointerType | TensorDescType) for v in op.operands
            )
        return not op.regions and "global" in row.writes

    def _written(self, store: Operation) -> frozenset[int] | None:
        """The arguments through which it may write."""
        if store.name != assembly.NAME and info(store.name) is not None:
            return self._arguments(store.operands[:1])
        pointers = [value for value in store.operands if isinstance(element_of(value.type), PointerType)]
        numbers = [value for value in store.operands if _may_be_address(value)]
        return self._arguments(pointers) if pointers and not numbers else None

    def _arguments(self, pointers: Iterable[Value]) -> frozenset[int] | None:
        """The function's arguments that a pointer or descriptor may come from; None when that cannot be seen."""
        found: set[int] = set()
        pending = Once(pointers)
        for value in pending:
            op = value.op
            if op is None:
                block = value.owner
                if isinstance(block, Block) and block is self.function.regions[0].block:
                    found.add(value.index)
                    continue
            elif op.name == "arith.select":
                pending.add(op.operands[1:])
                continue
            elif op.name in _THROUGH:
                pending.add(op.operands[:1])
                continue
            elif op.name == _SCRATCH:
                pending.add([one.operands[1] for at, one in self._described if at in (op, None)])
                continue
            sources = list(self.sources(value))
            if not sources:
                return None
            pending.add(sources)
        return frozenset(found)

    def made(self, descriptor: Value) -> Operation | None:
        """The operation that makes a descriptor on the device, by which alone it is written; None of other ones."""
        allocation = self._allocation(descriptor)
        found = [op for at, op in self._described if at in (allocation, None)]
        return found[0] if allocation is not None and len(found) == 1 else None

    @cached_property
    def _described(self) -> list[tuple[Operation | None, Operation]]:
        """What makes descriptors on the device, and the allocation that each is written to; None where that is not
        known."""
        return [(self._allocation(op.operands[0]), op) for op in self.function.walk() if op.name == _MADE]

    def _allocation(self, pointer: Value) -> Operation | None:
        """Of scratch memory, that a pointer points into."""
        while pointer.op is not None and pointer.op.name in _THROUGH:
            pointer = pointer.op.operands[0]
        op = pointer.op
        return op if op is not None and op.name == _SCRATCH else None


def _may_be_address(value: Value) -> bool:
    """Is it a number wide enough to be an address?"""
    element = element_of(value.type)
    return isinstance(element, ScalarType) and not element.is_float and element.bits >= 64
