"""The ways that a task of the TTGIR may take: which events lead from which states to which.

States hold the values that barriers, phases and buffers are computed from. What is carried round loops takes few values
(a ring's index, a phase), and all of them are gone through. A loop's position is followed too where such a value hangs
on it; what takes too many values is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from wspec.bridge.ptx.actions import Action, asked, bytes_of_copy, elements_of_box
from wspec.bridge.ptx.protocol import Node, Protocol
from wspec.bridge.ptx.scalars import bits_of
from wspec.ir.core import Value
from wspec.ir.shared_memory import size_bytes
from wspec.ir.types import I1, MemDescType
from wspec.ptx.arithmetic import computed
from wspec.ptx.errors import PtxError
from wspec.ptx.events import ELSEWHERE, Event
from wspec.ptx.fixed_points import live_before
from wspec.ptx.forms import Form, may_be_a_sum, shifted

MOST_VALUES = 64  # of one value

Held = tuple[int | None, ...]


class Done(NamedTuple):
    """What has been done of an operation that takes several instructions."""

    places: tuple[int, ...] = ()  # where they have copied to or from
    first: tuple[Form, ...] = ()  # by each of these copies: the coordinates of the first box


State = tuple[int, Held, Done]
"""A node, the values that are followed and needed there, and what has been done of its operation."""


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
        self._nodes = [self._copied(node) for node in task.nodes]
        self._short()
        entered = Counter(way for node in self._nodes for way in node.follow)
        self._joins = frozenset(number for number, times in entered.items() if times > 1)
        self._live = self._liveness()
        self._closures: dict[tuple[int, Held], frozenset[State]] = {}
        self._steps: dict[tuple[State, Event], frozenset[State]] = {}
        self._values: dict[Value, set[int | None]] = {value: set() for value in self._followed}

    def _copied(self, node: Node) -> Node:
        """With the values alone that are followed."""
        moves = [(target, source) for target, source in node.moves if target in self._followed]
        return Node(node.op, node.action, moves, list(node.follow), node.condition, node.tests, node.counts)

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
        both = [self._used_and_made(node) for node in self._nodes]
        uses = {number: self._followed.intersection(used) for number, (used, _) in enumerate(both)}
        makes = {number: self._followed.intersection(made) for number, (_, made) in enumerate(both)}
        live = live_before({number: node.follow for number, node in enumerate(self._nodes)}, uses, makes)
        order = {value: at for at, value in enumerate(self._followed)}
        return [tuple(sorted(live[number], key=order.__getitem__)) for number in range(len(self._nodes))]

    def _used_and_made(self, node: Node) -> tuple[list[Value], list[Value]]:
        uses: list[Value] = []
        makes: list[Value] = []
        if node.op is not None and node.op.result in self._followed:
            uses += node.op.operands
            makes += node.op.results
        if node.action is not None:
            uses += asked(node.action)
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
        number, environment, _ = state
        action = self._nodes[number].action
        if action is None or action.kind != event.kind or action.numbers != event.numbers:
            return frozenset()
        held = dict(zip(self._live[number], environment, strict=True))
        if self._differs(action.at, event.at, held) or self._differs(action.phase, event.phase, held):
            return frozenset()
        on = frozenset[State]().union(*(self._closure(way, held) for way in self._nodes[number].follow))
        if action.buffer is None:
            return on | {state} if action.several else on
        if event.buffers == (ELSEWHERE,):
            return frozenset() if self._differs(action.buffer, ELSEWHERE, held) else on | {state}
        if action.kind == "element":
            return self._elements(state, event, action, held, on)
        return self._copies(state, event, action, held, on)

    def _elements(
        self, state: State, event: Event, action: Action, held: Mapping[Value, int | None], on: frozenset[State]
    ) -> frozenset[State]:
        """Threads copy elements: all of them fill the buffer, and nothing besides; a place may be filled twice."""
        number, environment, done = state
        assert action.buffer is not None and isinstance(action.buffer.type, MemDescType)
        start, size = self._task.value(action.buffer, held), size_bytes(action.buffer.type)
        if start is None and self._is_followed_elsewhere(action.buffer):
            raise self._unknown(action.buffer)
        if start is None or not event.buffers or not event.size or size % event.size:
            return on | {state}
        if not all(place in range(start, start + size, event.size) for place in event.buffers):
            return frozenset()
        places = tuple(sorted({*done.places, *event.buffers}))
        now = number, environment, Done(places)
        return on | {now} if len(places) * event.size == size else frozenset((now,))

    def _copies(
        self, state: State, event: Event, action: Action, held: Mapping[Value, int | None], on: frozenset[State]
    ) -> frozenset[State]:
        """One thread, or one of each warp, copies boxes of a tile, each of them once."""
        number, environment, done = state
        assert action.buffer is not None and isinstance(action.buffer.type, MemDescType)
        if self._is_other_tensor(action, event):
            return frozenset()
        start = self._task.value(action.buffer, held)
        if start is None:
            raise self._unknown(action.buffer)
        type = action.buffer.type
        each = None if action.several else bytes_of_copy(type)
        size = size_bytes(type)
        if each is None:
            inside = all(start <= place < start + size for place in event.buffers)
            return on | {state} if inside else frozenset()
        places = tuple(sorted((*done.places, *event.buffers)))
        if len(set(places)) != len(places) or not set(event.buffers) <= set(range(start, start + size, each)):
            return frozenset()
        firsts = {done.first} - {()}
        width = elements_of_box(type)
        if width is not None and size > each:
            firsts |= {_first(box, (place - start) // each * width)
                       for place, box in zip(event.buffers, event.coordinates, strict=True)}  # fmt: skip
        if len(firsts) > 1 and not any(may_be_a_sum(form) for box in firsts for form in box):
            return frozenset()
        first = next(iter(firsts)) if len(firsts) == 1 else done.first
        return frozenset(((number, environment, Done(places, first)),)) if len(places) * each < size else on

    def _is_other_tensor(self, action: Action, event: Event) -> bool:
        """Is a copy not seen to be of the tensor that the kernel is given?"""
        expected = None if action.tensor is None else self._task.parameter(action.tensor)
        return expected is not None and expected != event.tensor

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

    def _is_followed_elsewhere(self, value: Value) -> bool:
        value = self._task.captured(value)
        return value in self._task.followed and value not in self._followed

    def _unknown(self, value: Value) -> Exception:
        """What to raise about a value that is not known: that it must be followed, or that it cannot be."""
        if self._is_followed_elsewhere(value):
            return Together(self._task.part_of[self._task.captured(value)])
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
                    yield *key, Done()
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
                held[position] = None if at is None or by is None else at + by & (1 << bits_of(position.type)) - 1
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
            bits = bits_of(position.type)
            holds = None if at is None or stop is None else computed(f"setp.lt.s{bits}", (at, stop))
        else:
            holds = None if node.condition is None else self._task.value(node.condition, held)
        return node.follow if holds is None else node.follow[:1] if holds else node.follow[1:]


def _first(box: tuple[Form, ...], by: int) -> tuple[Form, ...]:
    """The coordinates of a tile's first box, by those of one that lies so many elements further."""
    return (shifted(box[0], -by), *box[1:]) if box else box
