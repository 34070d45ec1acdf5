"""A task of the TTGIR as an automaton: which synchronizing operations may follow each other, with which values.

It is made of the task's loops and branches, which may be taken any number of times and either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from networkx.utils import UnionFind

from wspec.bridge.ptx.actions import VIEWS, Action, actions_of, asked, predicate_of
from wspec.bridge.ptx.scalars import BINARY, WIDENINGS, bits_of, result_of
from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value
from wspec.ir.shared_memory import Area, size_bytes
from wspec.ir.types import MemDescType, ScalarType
from wspec.ptx.errors import PtxError
from wspec.ptx.events import MEETING
from wspec.ptx.fixed_points import all_from


@dataclass(slots=True)
class Node:
    """First an operation computes, or an action is taken; then values move, all at once; then it goes on."""

    op: Operation | None = None
    action: Action | None = None
    moves: list[tuple[Value, Value]] = field(default_factory=list)
    follow: list[int] = field(default_factory=list)
    condition: Value | None = None  # of an action: the first of two ways where it holds
    tests: Operation | None = None  # a loop, of two ways: the first where it goes on
    counts: Operation | None = None  # a loop, whose position moves on


class Protocol:
    """Of one task. `block`: of the function, or of a partition; None of warps without a task. `places`: where
    allocations begin and end; `captured`: what the partitions' arguments are."""

    def __init__(self, block: Block | None, places: Mapping[Operation, Area], captured: Mapping[Value, Value]) -> None:
        self._places, self._captured = places, captured
        self._constants: dict[Value, int | None] = {}
        self._made_of: dict[Value, Sequence[Value]] = {}
        self._results: dict[tuple[Operation, tuple[int | None, ...]], int | None] = {}
        self._nodes: list[Node] = []
        self._end = self._node()
        if block is not None:
            self._block(block)
        self._meet()
        self._then()
        self.end = self._end
        self._made_of = self._taken_over()
        self.nodes, self.followed = self._nodes, self._slice()
        self.always = self._closure(node.condition for node in self._nodes if node.condition is not None)
        self.part_of = self._parts()

    def named_barriers(self) -> Iterator[int]:
        """Those that threads of the task wait at by what the kernel's author wrote."""
        for node in self._nodes:
            if node.action is not None and node.action.kind in ("bar.sync", "barrier.sync"):
                yield node.action.numbers[0]

    # ---- the automaton

    def _node(self) -> int:
        self._nodes.append(Node())
        return len(self._nodes) - 1

    def _then(self) -> Node:
        """A node behind what is there."""
        number = self._node()
        self._nodes[self._end].follow.append(number)
        self._end = number
        return self._nodes[number]

    def _join(self, ends: Sequence[int]) -> Node:
        """A node behind several."""
        self._end = self._node()
        for end in ends:
            self._nodes[end].follow.append(self._end)
        return self._nodes[self._end]

    def _meet(self) -> None:
        self._then().action = Action(MEETING.kind)

    def _block(self, block: Block) -> None:
        for op in block.ops:
            if op.name == ws.NAME:
                self._meet()
                self._meet()
                self._block(ws.default_block(op))
                self._meet()
            elif op.name == "scf.for":
                self._for(op)
            elif op.name == "scf.while":
                self._while(op)
            elif op.name == "scf.if":
                self._if(op)
            elif op.regions and op.name.startswith(("scf.", "cf.")):
                raise PtxError(f"{op.name} is not compared")
            else:
                self._plain(op)

    def _for(self, op: Operation) -> None:
        body = op.regions[0].block
        self._then().moves = list(zip(body.args, (op.operands[0], *op.operands[3:]), strict=True))
        self._then().tests = op
        top = self._end
        self._then()
        self._block(body)
        again = self._then()
        again.moves = list(zip(body.args, (body.args[0], *body.terminator.operands), strict=True))
        again.counts = op
        again.follow.append(top)
        self._join((top,)).moves = list(zip(op.results, body.args[1:], strict=True))

    def _while(self, op: Operation) -> None:
        before, after = (region.block for region in op.regions)
        self._then().moves = list(zip(before.args, op.operands, strict=True))
        self._then()
        top = self._end
        self._block(before)
        values = before.terminator.operands[1:]
        self._then()
        asks = self._end
        self._then().moves = list(zip(after.args, values, strict=True))
        self._block(after)
        again = self._then()
        again.moves = list(zip(before.args, after.terminator.operands, strict=True))
        again.follow.append(top)
        self._join((asks,)).moves = list(zip(op.results, values, strict=True))

    def _if(self, op: Operation) -> None:
        self._then()
        begin, ends = self._end, list[int]()
        for region in op.regions:
            self._end = begin
            self._then()
            if region.blocks:
                self._block(region.block)
                self._then().moves = list(zip(op.results, region.block.terminator.operands, strict=True))
            ends.append(self._end)
        self._join((*ends, *([begin] if len(ends) < 2 else [])))

    def _plain(self, op: Operation) -> None:
        actions = list(actions_of(op))
        predicate = predicate_of(op) if actions else None
        may_be_skipped = predicate is not None and self.constant(predicate) != 1
        if may_be_skipped:
            self._then().condition = predicate
        begin = self._end
        for number, action in enumerate(actions):
            if number == 0 and may_be_skipped:
                self._then()
            self._then().action = action
        if may_be_skipped:
            self._join((self._end, begin))
        if _computes(op) and self.constant(op.result) is None:
            self._then().op = op

    # ---- which values

    def positions(self) -> frozenset[Value]:
        """Of loops that begin and end at numbers."""
        loops = (node.tests for node in self.nodes if node.tests is not None)
        return frozenset(
            loop.regions[0].block.args[0]
            for loop in loops
            if all(self.constant(bound) is not None for bound in loop.operands[:3])
        )

    def _taken_over(self) -> dict[Value, Sequence[Value]]:
        """Arguments and results of loops and branches -> what they may be."""
        found: dict[Value, list[Value]] = {}
        for node in self._nodes:
            for target, source in node.moves:
                found.setdefault(target, []).append(source)
            if node.counts is not None:
                position = node.counts.regions[0].block.args[0]
                found.setdefault(position, []).extend(node.counts.operands[1:3])
        return dict(found)

    def _slice(self) -> frozenset[Value]:
        """The values that actions depend on, and that are no constants."""
        places = (one for node in self._nodes if node.action is not None for one in asked(node.action))
        conditions = (node.condition for node in self._nodes if node.condition is not None)
        return self._closure((*places, *conditions))

    def _closure(self, values: Iterable[Value]) -> frozenset[Value]:
        """With all that they are computed from, but for constants."""

        def that_vary(some: Iterable[Value]) -> Iterator[Value]:
            return (value for value in map(self.captured, some) if self.constant(value) is None)

        return frozenset(all_from(that_vary(values), lambda value: that_vary(self._sources(value))))

    def _sources(self, value: Value) -> Sequence[Value]:
        """What it is made of, or takes over."""
        if value not in self._made_of:
            self._made_of[value] = value.op.operands if value.op is not None and _computes(value.op) else ()
        return self._made_of[value]

    def _parts(self) -> dict[Value, frozenset[Value]]:
        """Value -> all that have to do with it, of those that are not followed always."""
        values = self.followed - self.always
        joined = UnionFind(values)
        for value in values:
            joined.union(value, *values.intersection(map(self.captured, self._sources(value))))
        return {value: part for part in map(frozenset, joined.to_sets()) for value in part}

    def captured(self, value: Value) -> Value:
        """What an argument of a partition is outside; any other value as it is."""
        return self._captured.get(value, value)

    def constant(self, value: Value) -> int | None:
        """What a value is at all times; None where that is not known."""
        value = self.captured(value)
        if value not in self._constants:
            op = value.op
            self._constants[value] = self.computed(op, {}) if op is not None and _computes(op) else None
        return self._constants[value]

    def value(self, value: Value, held: Mapping[Value, int | None]) -> int | None:
        """What it is, where `held` says what those are that are followed."""
        value = self.captured(value)
        return held[value] if value in held else self.constant(value)

    def parameter(self, value: Value) -> int | None:
        """Which of the function's arguments it is; None of what is none."""
        value = self.captured(value)
        block = value.owner if value.op is None else None
        outside = isinstance(block, Block) and block.parent_op is not None and block.parent_op.name == "tt.func"
        return value.index if outside else None

    def area(self, value: Value) -> Area | None:
        """The memory that a part of a buffer lies in; None of what is none."""
        value = self.captured(value)
        while value.op is not None and value.op.name in ("ttg.memdesc_index", *VIEWS):
            value = self.captured(value.op.operands[0])
        return self._places.get(value.op) if value.op is not None else None

    def computed(self, op: Operation, held: Mapping[Value, int | None]) -> int | None:
        """The result of an operation."""
        if op.name == "arith.constant":
            value = op.int_attr("value")
            return None if value is None else value & (1 << bits_of(op.result.type)) - 1
        if op.name == "ttg.local_alloc":
            return self._places[op].start if op in self._places else None
        values = tuple(self.value(value, held) for value in op.operands)
        key = op, values
        if key not in self._results:
            self._results[key] = _result(op, values)
        return self._results[key]


def _computes(op: Operation) -> bool:
    """May its result be known?"""
    if len(op.results) != 1 or not isinstance(op.result.type, ScalarType | MemDescType):
        return False
    known = op.name in BINARY or op.name in WIDENINGS or op.name in VIEWS
    others = ("arith.constant", "arith.cmpi", "arith.select", "ttg.local_alloc", "ttg.memdesc_index")
    return known or op.name in others


def _result(op: Operation, values: tuple[int | None, ...]) -> int | None:
    type = op.result.type
    if not isinstance(type, MemDescType) or op.name == "arith.select":
        return result_of(op, values)
    known = tuple(value for value in values if value is not None)
    if len(known) < len(values):
        return None
    return known[0] + (known[1] * size_bytes(type) if op.name == "ttg.memdesc_index" else 0)
