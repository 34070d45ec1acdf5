"""What a task of the TTGIR may do: which synchronizing operations follow each other, where and in which phases.

The task as an automaton, made of its loops and branches, which may be taken any number of times and either way. Its
states hold the values that barriers, phases and buffers are computed from: what is carried round loops takes few values
(a ring's index, a phase), and all of them are gone through. A loop's position is followed too where such a value
depends on it, and what takes more than `MOST_VALUES` values is not known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from wspec.ir import warp_specialize as ws
from wspec.ir.core import Block, Operation, Value
from wspec.ir.shared_memory import Area, size_bytes
from wspec.ir.types import I1, Layout, MemDescType, ScalarType, StringAttr
from wspec.ptx.arithmetic import computed
from wspec.ptx.errors import PtxError
from wspec.ptx.events import ELSEWHERE, FENCE, MEETING, Event, shape_of
from wspec.ptx.inline import read_inline
from wspec.ptx.operands import Number

MOST_VALUES = 64  # of one value
MOST_ROWS = 256  # of one bulk copy, in each dimension (CUDA driver API, cuTensorMapEncodeTiled)

Held = tuple[int | None, ...]
State = tuple[int, Held, tuple[int, ...]]
"""A node, the values that are followed and needed there, and which copies of its operation are done."""

_VIEWS = frozenset(("ttg.memdesc_trans", "ttg.memdesc_reinterpret", "ttg.memdesc_reshape"))
_LOADS = frozenset(("ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather"))
_STORES = frozenset(("ttng.async_tma_copy_local_to_global", "ttng.async_tma_reduce", "ttng.async_tma_scatter"))
_ROWS = frozenset(("ttng.async_tma_gather", "ttng.async_tma_scatter"))
_BINARY = {
    "arith.addi": "add.u", "arith.subi": "sub.u", "arith.muli": "mul.lo.u", "arith.andi": "and.b",
    "arith.ori": "or.b", "arith.xori": "xor.b", "arith.shli": "shl.b", "arith.shrui": "shr.u", "arith.shrsi": "shr.s",
    "arith.divui": "div.u", "arith.divsi": "div.s", "arith.remui": "rem.u", "arith.remsi": "rem.s",
    "arith.minui": "min.u", "arith.minsi": "min.s", "arith.maxui": "max.u", "arith.maxsi": "max.s",
}  # fmt: skip
_WIDENINGS = {"arith.extui": "u", "arith.extsi": "s", "arith.trunci": "u"}
_ORDERS = ("eq.s", "ne.s", "lt.s", "le.s", "gt.s", "ge.s", "lt.u", "le.u", "gt.u", "ge.u")


@dataclass(frozen=True, slots=True)
class Action:
    """An event of the TTGIR, and the values it depends on."""

    kind: str
    numbers: tuple[int, ...] = ()
    at: Value | None = None
    phase: Value | None = None
    buffer: Value | None = None
    several: bool = False  # once or more often


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
        actions = list(_actions(op))
        predicate = next((one for one in op.operands if actions and one.type == I1), None)
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
        asked = (one for node in self._nodes if node.action is not None for one in _asked(node.action))
        conditions = (node.condition for node in self._nodes if node.condition is not None)
        return self._closure((*asked, *conditions))

    def _closure(self, values: Iterable[Value]) -> frozenset[Value]:
        """With all that they are computed from, but for constants."""
        found: set[Value] = set()
        work = list(values)
        while work:
            value = self.captured(work.pop())
            if value not in found and self.constant(value) is None:
                found.add(value)
                work += self._sources(value)
        return frozenset(found)

    def _sources(self, value: Value) -> Sequence[Value]:
        """What it is made of, or takes over."""
        if value not in self._made_of:
            self._made_of[value] = value.op.operands if value.op is not None and _computes(value.op) else ()
        return self._made_of[value]

    def _parts(self) -> dict[Value, frozenset[Value]]:
        """Value -> all that have to do with it, of those that are not followed always."""
        parts: dict[Value, set[Value]] = {value: {value} for value in self.followed - self.always}
        for value in list(parts):
            for source in map(self.captured, self._sources(value)):
                if source in parts and parts[source] is not parts[value]:
                    joined = parts[source] | parts[value]
                    parts |= dict.fromkeys(joined, joined)
        frozen = {id(part): frozenset(part) for part in parts.values()}
        return {value: frozen[id(part)] for value, part in parts.items()}

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

    def area(self, value: Value) -> Area | None:
        """The memory that a part of a buffer lies in; None of what is none."""
        value = self.captured(value)
        while value.op is not None and value.op.name in ("ttg.memdesc_index", *_VIEWS):
            value = self.captured(value.op.operands[0])
        return self._places.get(value.op) if value.op is not None else None

    def computed(self, op: Operation, held: Mapping[Value, int | None]) -> int | None:
        """The result of an operation."""
        if op.name == "arith.constant":
            value = op.int_attr("value")
            return None if value is None else value & (1 << _bits(op.result)) - 1
        if op.name == "ttg.local_alloc":
            return self._places[op].start if op in self._places else None
        values = tuple(self.value(value, held) for value in op.operands)
        key = op, values
        if key not in self._results:
            self._results[key] = _result(op, values)
        return self._results[key]


class Together(Exception):
    """A value must be followed as well."""

    def __init__(self, part: frozenset[Value]) -> None:
        super().__init__()
        self.part = part


class Ways:
    """Of a task, while some values are followed: `part`, and those that are always. What is looked at elsewhere is not
    taken for what is followed here; it may be, `loose`."""

    def __init__(
        self, task: Protocol, part: frozenset[Value], loose: bool = False, most_values: int = MOST_VALUES
    ) -> None:
        self._most = most_values
        self._task, self._followed, self._loose = task, part | task.always, loose
        self._nodes = [replace(node, follow=list(node.follow), moves=self._moves(node)) for node in task.nodes]
        self._short()
        entered = Counter(way for node in self._nodes for way in node.follow)
        self._joins = frozenset(number for number, times in entered.items() if times > 1)
        self._live = self._liveness()
        self._closures: dict[tuple[int, Held], frozenset[State]] = {}
        self._steps: dict[tuple[State, Event], frozenset[State]] = {}
        self._values: dict[Value, set[int | None]] = {value: set() for value in self._followed}

    def _moves(self, node: Node) -> list[tuple[Value, Value]]:
        return [(target, source) for target, source in node.moves if target in self._followed]

    def _short(self) -> None:
        """Ways past nodes at which nothing happens."""
        to = list(range(len(self._nodes)))
        for number in reversed(range(len(self._nodes))):
            node = self._nodes[number]
            idle = node.action is None and not node.moves and node.counts is None and len(node.follow) == 1
            if idle and (node.op is None or node.op.result not in self._followed) and number:
                to[number] = node.follow[0]
        for node in self._nodes:
            for at, way in enumerate(node.follow):
                passed = {way}
                while to[way] not in passed:
                    way = to[way]
                    passed.add(way)
                node.follow[at] = way

    def _liveness(self) -> list[tuple[Value, ...]]:
        """The values that are followed and needed, at the beginning of each node."""
        used: list[set[Value]] = []
        made: list[set[Value]] = []
        before: list[list[int]] = [[] for _ in self._nodes]
        for number, node in enumerate(self._nodes):
            uses, makes = self._used_and_made(node)
            used.append({value for value in uses if value in self._followed})
            made.append({value for value in makes if value in self._followed})
            for way in node.follow:
                before[way].append(number)
        live = [set(one) for one in used]
        work = list(range(len(live)))
        while work:
            number = work.pop()
            for way in before[number]:
                more = live[number] - made[way] - live[way]
                if more:
                    live[way] |= more
                    work.append(way)
        order = {value: at for at, value in enumerate(self._followed)}
        return [tuple(sorted(one, key=order.__getitem__)) for one in live]

    def _used_and_made(self, node: Node) -> tuple[list[Value], list[Value]]:
        uses: list[Value] = []
        makes: list[Value] = []
        if node.op is not None and node.op.result in self._followed:
            uses += node.op.operands
            makes += node.op.results
        if node.action is not None:
            uses += _asked(node.action)
        uses += [source for target, source in node.moves if target in self._followed]
        makes += [target for target, _ in node.moves]
        for loop in (node.tests, node.counts):
            if loop is not None and loop.regions[0].block.args[0] in self._followed:
                uses += [loop.regions[0].block.args[0], *loop.operands[1:3]]
        uses += [node.condition] if node.condition is not None else []
        return [self._task.captured(value) for value in uses], makes

    # ---- the ways

    def begin(self) -> frozenset[State]:
        """Where the task begins."""
        return self._closure(0, {})

    def ends(self, states: frozenset[State]) -> bool:
        """May the task be over?"""
        return any(number == self._task.end for number, _, _ in states)

    def after(self, states: frozenset[State], event: Event) -> frozenset[State]:
        """Where an event leads. Raises PtxError where not all is known of what would be it."""
        found: set[State] = set()
        for state in states:
            key = state, event
            if key not in self._steps:
                self._steps[key] = self._step(state, event)
            found |= self._steps[key]
        return frozenset(found)

    def expected(self, states: frozenset[State]) -> frozenset[str]:
        """The kinds of events that may come."""
        actions = (self._nodes[number].action for number, _, _ in states)
        return frozenset(action.kind for action in actions if action is not None)

    def _step(self, state: State, event: Event) -> frozenset[State]:
        number, environment, done = state
        action = self._nodes[number].action
        if action is None or action.kind != event.kind or action.numbers != event.numbers:
            return frozenset()
        held = dict(zip(self._live[number], environment, strict=True))
        if self._differs(action.at, event.at, held) or self._differs(action.phase, event.phase, held):
            return frozenset()
        on = [self._closure(way, held) for way in self._nodes[number].follow]
        if action.buffer is None:
            again = frozenset((state,)) if action.several else frozenset()
            return again.union(*on)
        done_or_not = frozenset((state,)).union(*on)
        assert isinstance(action.buffer.type, MemDescType)
        if event.buffers == (ELSEWHERE,):
            return frozenset() if self._differs(action.buffer, ELSEWHERE, held) else done_or_not
        start = self._task.value(action.buffer, held)
        if start is None:
            raise self._unknown(action.buffer)
        each = None if action.several else bytes_of_copy(action.buffer.type)
        size = size_bytes(action.buffer.type)
        if each is None:
            inside = all(start <= place < start + size for place in event.buffers)
            return done_or_not if inside else frozenset()
        copied = tuple(sorted((*done, *event.buffers)))
        if len(set(copied)) != len(copied) or not set(event.buffers) <= set(range(start, start + size, each)):
            return frozenset()
        return frozenset(((number, environment, copied),)) if len(copied) * each < size else frozenset().union(*on)

    def _differs(self, value: Value | None, found: int | None, held: Mapping[Value, int | None]) -> bool:
        if value is None or found is None:
            return (value is None) != (found is None)
        if found == ELSEWHERE:
            return not self._loose and self._task.captured(value) in self._followed
        expected = self._task.value(value, held)
        if expected is None:
            area = self._task.area(value)
            if area is not None and not area.start <= found < area.stop:
                return True
            raise self._unknown(value)
        return expected != found

    def _unknown(self, value: Value) -> Exception:
        """What to raise about a value that is not known: that it must be followed, or that it cannot be."""
        value = self._task.captured(value)
        if value in self._task.followed and value not in self._followed:
            return Together(self._task.part_of[value])
        return PtxError("the place or the phase of an operation of the TTGIR is not known")

    def _closure(self, number: int, held: Mapping[Value, int | None]) -> frozenset[State]:
        """The actions that come next, and the end."""
        key = number, tuple(held.get(value) for value in self._live[number])
        if key not in self._closures:
            self._closures[key] = frozenset(self._next(*key))
        return self._closures[key]

    def _next(self, number: int, environment: Held) -> Iterator[State]:
        seen = set[tuple[int, Held]]()
        work = [(number, dict(zip(self._live[number], environment, strict=True)))]
        while work:
            number, held = work.pop()
            node = self._nodes[number]
            stays = node.action is not None or number == self._task.end
            if stays or number in self._joins:
                key = number, tuple(held.get(value) for value in self._live[number])
                if key in seen:
                    continue
                seen.add(key)
                if stays:
                    yield *key, ()
                    continue
                held = dict(zip(self._live[number], key[1], strict=True))
            for after in self._passed(node, held):
                ways = self._ways(node, after)
                work += [(way, dict(after)) for way in ways[1:]]
                work += [(way, after) for way in ways[:1]]

    def _passed(self, node: Node, held: dict[Value, int | None]) -> list[dict[Value, int | None]]:
        """What is held behind a node: of a condition that is not known, both."""
        if node.op is not None and node.op.result in self._followed:
            result = node.op.result
            held[result] = self._task.computed(node.op, held)
            if held[result] is None and result.type == I1:
                return [held | {result: value} for value in (0, 1)]
        moves = [(target, self._task.value(source, held)) for target, source in node.moves]
        held |= moves
        if node.counts is not None:
            position, step = node.counts.regions[0].block.args[0], node.counts.operands[2]
            if position in self._followed:
                at, by = held.get(position), self._task.value(step, held)
                held[position] = None if at is None or by is None else at + by & (1 << _bits(position)) - 1
        for target, _ in moves:
            values = self._values[target]
            values.add(held[target])
            if len(values) > self._most:
                held[target] = None
        return [held]

    def _ways(self, node: Node, held: Mapping[Value, int | None]) -> Sequence[int]:
        if len(node.follow) < 2:
            return node.follow
        if node.tests is not None:
            position = node.tests.regions[0].block.args[0]
            at, stop = held.get(position), self._task.value(node.tests.operands[1], held)
            bits = _bits(position)
            holds = None if at is None or stop is None else computed(f"setp.lt.s{bits}", (at, stop))
        else:
            holds = None if node.condition is None else self._task.value(node.condition, held)
        return node.follow if holds is None else node.follow[:1] if holds else node.follow[1:]


def _bits(value: Value) -> int:
    return value.type.bits if isinstance(value.type, ScalarType) else 64


def _computes(op: Operation) -> bool:
    """May its result be known?"""
    if len(op.results) != 1 or not isinstance(op.result.type, ScalarType | MemDescType):
        return False
    known = op.name in _BINARY or op.name in _WIDENINGS or op.name in _VIEWS
    others = ("arith.constant", "arith.cmpi", "arith.select", "ttg.local_alloc", "ttg.memdesc_index")
    return known or op.name in others


def _result(op: Operation, values: tuple[int | None, ...]) -> int | None:
    if op.name == "arith.select" and values[0] is not None:
        return values[1 if values[0] else 2]
    known = tuple(value for value in values if value is not None)
    if len(known) < len(values):
        return None
    type, bits = op.result.type, _bits(op.operands[0])
    if isinstance(type, MemDescType):
        return known[0] + (known[1] * size_bytes(type) if op.name == "ttg.memdesc_index" else 0)
    if op.name == "arith.cmpi":
        return computed(f"setp.{_ORDERS[op.int_attr('predicate') or 0]}{bits}", known)
    if op.name in _WIDENINGS:
        sign = _WIDENINGS[op.name]
        return computed(f"cvt.{sign}{_bits(op.result)}.{sign}{bits}", known)
    return computed(f"{_BINARY[op.name]}{bits}", known) if op.name in _BINARY else None


def bytes_of_copy(type: MemDescType) -> int | None:
    """How many bytes of a buffer one bulk copy moves; None where that is not known.

    A copy is as wide as what is swizzled together (CUDA driver API, CU_TENSOR_MAP_SWIZZLE_*).
    """
    layout = type.encoding
    if not isinstance(layout, Layout) or layout.name != "ttg.nvmma_shared" or layout.get("fp4Padded"):
        return None
    swizzled, bits = layout.get("swizzlingByteWidth"), layout.get("elementBitWidth")
    if not isinstance(swizzled, int) or not isinstance(bits, int):
        return None
    shape = [min(size, MOST_ROWS) for size in type.shape]
    if swizzled:
        shape[0 if layout.get("transposed") else -1] = 8 * swizzled // bits
    return math.prod(shape) * bits // 8


def _asked(action: Action) -> list[Value]:
    return [value for value in (action.at, action.phase, action.buffer) if value is not None]


def _actions(op: Operation) -> Iterator[Action]:
    """What an operation does to others."""
    buffers = [value for value in op.operands if isinstance(value.type, MemDescType)]
    match op.name:
        case "ttng.init_barrier":
            yield Action("init", (op.int_attr("count") or 0,), buffers[0])
        case "ttng.inval_barrier":
            yield Action("inval", (), buffers[0])
        case "ttng.barrier_expect":
            yield Action("expect", (op.int_attr("size") or 0,), buffers[0])
        case "ttng.arrive_barrier":
            yield Action("arrive", (op.int_attr("count") or 1,), buffers[0])
        case "ttng.wait_barrier":
            yield Action("wait", (), buffers[0], op.operands[1])
        case "ttng.async_tma_store_wait":
            yield Action("store wait", (op.int_attr("pendings") or 0,))
        case "ttng.fence_async_shared" | "ttng.fence":
            yield Action(FENCE.kind)
        case "ttng.warp_group_dot":
            yield Action("product")
            if str(op.attr("isAsync")) != "true":
                yield Action("product wait", (0,))
        case "ttng.warp_group_dot_wait":
            yield Action("product wait", (op.int_attr("pendings") or 0,))
        case "ttg.async_copy_global_to_local":
            yield Action("element", several=True)
        case "ttg.async_commit_group":
            yield Action("element commit")
        case "ttg.async_wait":
            yield Action("element wait", (op.int_attr("num") or 0,))
        case "ttng.async_copy_mbarrier_arrive":
            yield Action("element arrive", (), buffers[0])
        case "tt.elementwise_inline_asm":
            yield from _of_assembly(op)
        case name if name in _LOADS:
            yield Action("load", (), buffers[0], None, buffers[1], name in _ROWS)
        case name if name in _STORES:
            yield Action("store", (), None, None, buffers[0], name in _ROWS)
            yield Action("commit")


def _of_assembly(op: Operation) -> Iterator[Action]:
    text = op.attr("asm_string")
    for one in read_inline(text.plain if isinstance(text, StringAttr) else "").instructions:
        shape = shape_of(one, frozenset())
        if shape is None:
            continue
        numbers = [number.value if isinstance(number, Number) else None for number in shape.numbers]
        known = tuple(number for number in numbers if number is not None)
        if shape.at is not None or len(known) < len(numbers) or one.guard:
            raise PtxError(f"'{one}' of inline assembly is not compared")
        yield Action(shape.kind, known)
