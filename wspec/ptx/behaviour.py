"""What a role's threads do where they synchronize: which events follow each other, at which places, in which phases.

The way of all threads of a role is followed together, through each block for all values that the registers may hold
there which events depend on: addresses of mbarriers and buffers, phases, counts and predicates. Of these, what is
computed from the threads' numbers and constants alone is known once for each thread. What is carried round loops (a
ring's index, a phase) takes few values, so all of them are gone through. A predicate that is computed from what is not
known may be either, and is remembered while it is needed. What takes more than `MOST_VALUES` values (a counter, a
pointer) is not known.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wspec.ptx import flow
from wspec.ptx.arithmetic import computed, width
from wspec.ptx.effects import ARITHMETIC, has_target, reads, writes
from wspec.ptx.errors import PtxError
from wspec.ptx.events import Event, Shape, may_speak, shape_of
from wspec.ptx.operands import Address, Number, Operand, Register, Several, Symbol, registers
from wspec.ptx.registers import Writers
from wspec.ptx.roles import WARP, Role
from wspec.ptx.syntax import Instruction

MOST_VALUES = 64  # of one register at the beginning of one block
SHARED = "global_smem"  # Triton's name of the block's shared memory

Value = int | tuple[int, ...] | None
"""Of a register: the same in all threads, one for each thread of the role, or not known."""

Environment = tuple[Value, ...]
"""What the registers hold that are followed and live at the beginning of a block, in the order of their names."""

Outcome = tuple[tuple[tuple[Instruction, Event], ...], tuple[tuple[int, Environment], ...], bool]
"""Of a block: the events, where it goes on, and whether the role may end there."""


@dataclass(frozen=True, slots=True)
class _Step:
    """An instruction of a block that matters."""

    one: Instruction
    shape: Shape | None  # of an event; None of what computes
    targets: tuple[str, ...] = ()
    is_constant: bool = False  # an event that depends on constants alone


class Behaviour:
    """Of one role. `own`: barriers of a task's own threads."""

    def __init__(self, blocks: Sequence[flow.Block], role: Role, writers: Writers, own: frozenset[int]) -> None:
        self._blocks, self._role, self._writers = blocks, role, writers
        self.threads = [WARP * warp + lane for warp in role.warps for lane in range(WARP)]
        self._constants: dict[str, Value] = {}
        numbers = sorted(role.blocks | {role.start[0]})
        self._events = {number: list(_events(blocks[number], own)) for number in numbers}
        self._watched: dict[str, set[str]] = {}  # register -> comparisons that are remembered until it is written
        self._followed = self._slice()
        self._counting = self._adding_up()
        self._steps = {number: list(self._steps_of(number)) for number in {*numbers, *role.way}}
        self._live = self._liveness()
        self._known: dict[tuple[int, Environment], list[Outcome]] = {}
        self._values: dict[tuple[int, str], set[Value]] = {}
        self._entered: Counter[int] = Counter()
        self._always: dict[Instruction, Event | None] = {}  # events that depend on constants alone
        self._holding: dict[tuple[int, ...], list[int]] = {}

    # ---- which registers

    def _slice(self) -> frozenset[str]:
        """The registers that events depend on and that are no constants."""
        found: set[str] = set()
        work = [name for events in self._events.values() for one, shape in events for name in _asked(one, shape)]
        while work:
            self._close(work, found)
            work = self._others_that_compare(found)
        self._watched = self._compared(found)
        return frozenset(found)

    def _close(self, work: list[str], found: set[str]) -> None:
        """With all that those registers are computed from."""
        while work:
            name = work.pop()
            if name in found or self._constant(name) is not None:
                continue
            found.add(name)
            for one in self._writers.of(name):
                if _computes(one):
                    work += reads(one)
                elif one.guard:
                    work.append(one.guard)

    def _others_that_compare(self, found: set[str]) -> list[str]:
        """Predicates of branches that compare what a predicate among those found compares."""
        keys = {key for key in map(self._key_of, found) if key is not None}
        guards = (self._blocks[number].turn for number in self._events)
        names = {one.guard for one in guards if one is not None and one.guard}
        return [name for name in names if name not in found and self._key_of(name) in keys]

    def _key_of(self, name: str) -> str | None:
        makers = self._writers.of(name)
        return comparison(makers[0])[0] if len(makers) == 1 and not makers[0].guard else None

    def _compared(self, found: set[str]) -> dict[str, set[str]]:
        """Register -> comparisons that are remembered until it is written."""
        watched: dict[str, set[str]] = {}
        for name in found:
            for one in self._writers.of(name):
                key, _ = comparison(one)
                if key is not None:
                    for operand in reads(one):
                        watched.setdefault(operand, set()).add(key)
        return watched

    def _adding_up(self) -> frozenset[Instruction]:
        """Additions to what they made before, of registers that are only moved and added to. What they make is of no
        use, unless it is compared with a number."""
        made = [(name, one) for name in self._followed for one in self._writers.of(name)]
        matched = {name for _, one in made if one.name == "setp" and one.opcode.split(".")[1] in ("eq", "ne")
                   and any(isinstance(operand, Number) for operand in one.operands) for name in reads(one)}  # fmt: skip
        found = set[Instruction]()
        for name, one in made:
            if one.name == "add":
                chain = self._chain(one)
                if name in chain and matched.isdisjoint(chain):
                    found.add(one)
        return frozenset(found)

    def _chain(self, one: Instruction) -> set[str]:
        """The registers that it moves or adds up, from wherever they come."""
        found: set[str] = set()
        work = list(reads(one))
        while work:
            name = work.pop()
            if name not in found and name in self._followed:
                found.add(name)
                work += [other for maker in self._writers.of(name) if maker.name in ("mov", "add", "sub")
                         for other in reads(maker)]  # fmt: skip
        return found

    def _constant(self, name: str) -> Value:
        """What a register holds at all times, once it is written; None where that is not known."""
        if name in self._constants:
            return self._constants[name]
        self._constants[name] = None  # of one that depends on itself
        found = self._special(name)
        makers = self._writers.of(name)
        if found is None and len(makers) == 1 and not makers[0].guard and _computes(makers[0]):
            one = makers[0]
            if all(self._constant(other) is not None for other in reads(one)):
                results = self._results(one, {})
                found = results[writes(one).index(name)]
        self._constants[name] = found
        return found

    def _special(self, name: str) -> Value:
        if name == "%tid.x":
            return tuple(self.threads)
        return tuple(thread % WARP for thread in self.threads) if name == "%laneid" else None

    def _steps_of(self, number: int) -> Iterator[_Step]:
        events = {id(one): shape for one, shape in self._events.get(number, ())}
        for one in self._blocks[number].instructions:
            shape = events.get(id(one))
            if shape is not None:
                yield _Step(one, shape, (), self._followed.isdisjoint(_asked(one, shape)))
            elif has_target(one) and self._followed and one.name not in ("wgmma", "cp"):
                targets = self._writers.targets(one)
                if not self._followed.isdisjoint(targets) or not self._watched.keys().isdisjoint(targets):
                    yield _Step(one, None, tuple(targets))

    def _liveness(self) -> dict[int, tuple[str, ...]]:
        """The registers that are followed and needed, at the beginning of each block."""
        begins: dict[int, tuple[set[str], set[str]]] = {}
        for number, steps in self._steps.items():
            needed, made = set[str](), set[str]()
            for step in steps:
                one = step.one
                asked = [*_asked(one, step.shape)] if step.shape is not None else [*reads(one)]
                asked += step.targets if one.guard else ()
                needed |= {name for name in asked if name in self._followed and name not in made}
                key = comparison(one)[0]
                needed |= {key} - made if key is not None and step.targets else set()
                made.update(step.targets, *(self._watched.get(name, ()) for name in step.targets))
            turn = self._blocks[number].turn
            if turn is not None and turn.guard in self._followed and turn.guard not in made:
                needed.add(turn.guard)
            begins[number] = needed, made
        live = {number: set(needed) for number, (needed, _) in begins.items()}
        work = list(reversed(live))
        before: dict[int, list[int]] = {}
        for number in live:
            for way in self._blocks[number].follow:
                before.setdefault(way, []).append(number)
        while work:
            number = work.pop()
            for way in before.get(number, ()):
                more = live[number] - begins[way][1] - live[way]
                if more:
                    live[way] |= more
                    work.append(way)
        return {number: tuple(sorted(names)) for number, names in live.items()}

    # ---- values

    def _value(self, operand: Operand, held: dict[str, Value]) -> Value:
        match operand:
            case Number():
                return operand.value
            case Symbol(name):
                return 0 if name == SHARED else None
            case Register(name, negated):
                found = held[name] if name in held else self._constant(name)
                if negated:
                    return _each(lambda one: 1 - one, found)
                return found
            case Address(base, offset, _):
                found = self._value(base, held)
                return _each(lambda one: one + offset & 0xFFFFFFFF, found) if offset else found
        return None

    def _results(self, one: Instruction, held: dict[str, Value]) -> tuple[Value, ...]:
        """Of all registers that an instruction writes, without its guard."""
        if one.name == "elect":
            leaders = tuple(int(thread % WARP == 0) for thread in self.threads)
            return (0, leaders) if len(writes(one)) == 2 else (leaders,)
        operands = one.operands
        if isinstance(operands[0], Several):
            return (None,) * len(operands[0].items)
        if one.name == "shfl":
            return (self._shuffled(one, held),)
        return (_result(one.opcode, tuple(self._value(operand, held) for operand in operands[1:])),)

    def _shuffled(self, one: Instruction, held: dict[str, Value]) -> Value:
        value, lane = self._value(one.operands[1], held), self._value(one.operands[2], held)
        if isinstance(value, int):
            return value
        if value is None or not isinstance(lane, int) or not one.opcode.startswith("shfl.sync.idx.b32"):
            return None
        return _same(tuple(value[at - at % WARP + lane % WARP] for at in range(len(value))))

    # ---- the way through a block

    def starts(self) -> list[tuple[int, Environment]]:
        """Where the role begins, and what may be held there."""
        number, place = self._role.start
        before = {id(one) for one in self._blocks[number].instructions[:place]}
        self._begin = [step for step in self._steps[number] if id(step.one) not in before]
        ways: list[dict[str, Value]] = [{}]
        for passed in self._role.way:
            for step in self._steps[passed]:
                if step.shape is None and (passed != number or id(step.one) in before):
                    ways = [way for held in ways for way in self._set(step, held)]
        self._begin_live = tuple(sorted({name for held in ways for name in held}))
        return [(number, tuple(held.get(name) for name in self._begin_live)) for held in ways]

    def outcomes(self, number: int, environment: Environment, begins: bool = False) -> list[Outcome]:
        """All ways through a block, of the first one from where the role begins. Raises PtxError for an event of which
        not all is known."""
        if begins:
            held = dict(zip(self._begin_live, environment, strict=True))
            return list(self._outcomes(self._blocks[number], self._begin, held))
        key = number, environment
        if key not in self._known:
            held = dict(zip(self._live[number], environment, strict=True))
            self._known[key] = list(self._outcomes(self._blocks[number], self._steps[number], held))
        return self._known[key]

    def _outcomes(self, block: flow.Block, steps: Sequence[_Step], begin: dict[str, Value]) -> Iterator[Outcome]:
        work: list[tuple[int, dict[str, Value], list[tuple[Instruction, Event]]]] = [(0, begin, [])]
        while work:
            at, held, events = work.pop()
            forked = False
            while at < len(steps) and not forked:
                step = steps[at]
                at += 1
                if step.shape is not None:
                    event = self._event_of(step, held)
                    events += [] if event is None else [(step.one, event)]
                else:
                    ways = self._set(step, held)
                    held = ways[0]
                    if len(ways) > 1:
                        work += [(at, way, list(events)) for way in ways]
                        forked = True
            if not forked:
                ways_on, ends = self._turn(block, held)
                yield tuple(events), ways_on, ends

    def _set(self, step: _Step, held: dict[str, Value]) -> list[dict[str, Value]]:
        """What is held behind an instruction: of a predicate that is not known, both."""
        one = step.one
        guard = self._guard(one, held)
        if guard == 0:
            return [held]
        known = _computes(one) and guard == 1 and one not in self._counting
        results = self._results(one, held) if known else (None,) * len(step.targets)
        for name, value in zip(step.targets, results, strict=True):
            if name in self._followed:
                held[name] = value
            for key in self._watched.get(name, ()):
                held[key] = None
        if len(step.targets) == 1 and known and results[0] is None and _is_predicate(one):
            return self._either(step, held)
        return [held]

    def _either(self, step: _Step, held: dict[str, Value]) -> list[dict[str, Value]]:
        """A predicate that is not known holds or not, as what compares the same did before."""
        (target,) = step.targets
        if target not in self._followed:
            return [held]
        key, is_negated = comparison(step.one)
        if key is None:
            return [held | {target: value} for value in (0, 1)]
        ways = [before] if isinstance(before := held.get(key), int) else [0, 1]
        return [held | {target: way ^ is_negated, key: way} for way in ways]

    def _guard(self, one: Instruction, held: dict[str, Value]) -> Value:
        """1 where all threads execute it, 0 where none does."""
        if not one.guard:
            return 1
        found = held[one.guard] if one.guard in held else self._constant(one.guard)
        return _each(lambda value: 1 - value, found) if one.unless else found

    def _turn(self, block: flow.Block, held: dict[str, Value]) -> tuple[tuple[tuple[int, Environment], ...], bool]:
        ways, turn = block.follow, block.turn
        if turn is not None and turn.name == "bra" and turn.guard and len(ways) == 2:
            taken = self._guard(turn, held)
            if isinstance(taken, int):
                ways = ways[:1] if taken else ways[1:]
        inside = [way for way in dict.fromkeys(ways) if way in self._role.blocks]
        leaves = len(inside) < len(set(ways)) and block.number != self._role.start[0]
        on = tuple((way, self._environment(way, held)) for way in inside if not (way == block.number and block.spins))
        return on, leaves or not block.follow

    def _environment(self, number: int, held: dict[str, Value]) -> Environment:
        names = self._live[number]
        self._entered[number] += 1
        if self._entered[number] > MOST_VALUES:
            for name in names:
                values = self._values.setdefault((number, name), set())
                values.add(held.get(name))
                if len(values) > MOST_VALUES:
                    held[name] = None
        return tuple([held.get(name) for name in names])

    # ---- events

    def _event_of(self, step: _Step, held: dict[str, Value]) -> Event | None:
        assert step.shape is not None
        if not step.is_constant:
            return self._event(step.one, step.shape, held)
        if step.one not in self._always:
            self._always[step.one] = self._event(step.one, step.shape, held)
        return self._always[step.one]

    def _event(self, one: Instruction, shape: Shape, held: dict[str, Value]) -> Event | None:
        """None where no thread does it."""
        guard = 1 if shape.who == "any" else self._guard(one, held)
        if guard is None:
            raise PtxError(f"which threads execute '{one}' is not known")
        if guard == 0:
            return None
        active = self._active(guard)
        if (shape.who == "one" and len(active) != 1) or (shape.who == "all" and guard != 1):
            raise PtxError(f"'{one}' is executed by {len(active)} of {len(self.threads)} threads")
        numbers = tuple(self._one(one, number, active, held) for number in shape.numbers)
        if shape.who == "each":
            numbers = (numbers[0] * len(active), *numbers[1:])
        at = None if shape.at is None else self._one(one, shape.at, active, held)
        phase = None if shape.phase is None else self._one(one, shape.phase, active, held)
        buffers: tuple[int, ...] = ()
        if shape.buffer is not None:
            found = self._known_value(one, shape.buffer, held)
            places = [found] * len(active) if isinstance(found, int) else [found[number] for number in active]
            buffers = tuple(sorted(places))
        return Event(shape.kind, numbers, at, phase, buffers)

    def _active(self, guard: int | tuple[int, ...]) -> Sequence[int]:
        """The threads for which a predicate holds, by their places among the role's."""
        if isinstance(guard, int):
            return range(len(self.threads))
        if guard not in self._holding:
            self._holding[guard] = [at for at, holds in enumerate(guard) if holds]
        return self._holding[guard]

    def _one(self, one: Instruction, operand: Operand | int, active: Sequence[int], held: dict[str, Value]) -> int:
        found = operand if isinstance(operand, int) else self._known_value(one, operand, held)
        if isinstance(found, int):
            return found
        if len({found[at] for at in active}) != 1:
            raise PtxError(f"threads execute '{one}' at several places")
        return found[active[0]]

    def _known_value(self, one: Instruction, operand: Operand, held: dict[str, Value]) -> int | tuple[int, ...]:
        found = self._value(operand, held)
        if found is None:
            raise PtxError(f"the operands of '{one}' are not known")
        return found


def _events(block: flow.Block, own: frozenset[int]) -> Iterator[tuple[Instruction, Shape]]:
    for one in block.instructions:
        if may_speak(one):
            shape = shape_of(one, own)
            if shape is not None:
                if shape.kind == "wait" and not block.spins:
                    raise PtxError(f"'{one}' is not repeated until it holds")
                yield one, shape


def _asked(one: Instruction, shape: Shape) -> Iterator[str]:
    """The registers that an event depends on."""
    if one.guard and shape.who != "any":
        yield one.guard
    for operand in (*shape.numbers, shape.at, shape.phase, shape.buffer):
        if operand is not None and not isinstance(operand, int):
            base = operand.base if isinstance(operand, Address) else operand
            yield from registers(base)


def _computes(one: Instruction) -> bool:
    """May its result be known: does it compute integers or predicates?"""
    if one.name in ARITHMETIC:
        return width(one.opcode.rpartition(".")[2]) > 0
    return one.name in ("shfl", "elect")


@functools.lru_cache(maxsize=4096)
def comparison(one: Instruction) -> tuple[str | None, bool]:
    """What an instruction compares, the same for all that compare the same numbers, and whether it asks for the
    opposite; None of what compares no integers."""
    words = one.opcode.split(".")
    operands = one.operands
    if words[0] != "setp" or len(words) != 3 or len(operands) != 3 or not width(words[2]):
        return None, False
    order, left, right = words[1], operands[1], operands[2]
    if order in ("eq", "ne"):
        first, second = sorted((str(left), str(right)))
        return f"{first} = {second} {words[2]}", order == "ne"
    if order not in ("lt", "le", "gt", "ge"):
        return None, False
    if isinstance(right, Number) and right.value is not None and order in ("le", "gt"):
        return f"{left} < {Number(str(right.value + 1))} {words[2]}", order == "gt"
    if order in ("gt", "le"):
        left, right = right, left
    return f"{left} < {right} {words[2]}", order in ("ge", "le")


def _is_predicate(one: Instruction) -> bool:
    return one.name == "setp" or one.opcode.endswith(".pred")


@functools.lru_cache(maxsize=1 << 12)
def _result(opcode: str, values: tuple[Value, ...]) -> Value:
    if None in values:
        return _despite(opcode, values)
    threads = next((len(value) for value in values if isinstance(value, tuple)), 0)
    if not threads:
        return computed(opcode, values)  # type: ignore[arg-type]
    spread = [value if isinstance(value, tuple) else itertools.repeat(value, threads) for value in values]
    found = [computed(opcode, each) for each in zip(*spread, strict=True)]  # type: ignore[arg-type]
    known = tuple(value for value in found if value is not None)
    return _same(known) if len(known) == threads else None


def _despite(opcode: str, values: Sequence[Value]) -> Value:
    """What is known although an operand is not."""
    if opcode.startswith("and.") and 0 in values:
        return 0
    if opcode == "or.pred" and 1 in values:
        return 1
    if opcode.startswith("selp.") and len(values) == 3 and isinstance(values[2], int):
        return values[0 if values[2] else 1]
    return None


def _each(change, found: Value) -> Value:  # type: ignore[no-untyped-def]
    if isinstance(found, tuple):
        return tuple(change(one) for one in found)
    return None if found is None else change(found)


def _same(found: tuple[int, ...]) -> Value:
    """One number where it is the same in all threads."""
    return found[0] if found.count(found[0]) == len(found) else found
