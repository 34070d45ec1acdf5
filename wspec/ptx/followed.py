"""Which registers of a role's threads have to be followed, so that its events are known.

Places, phases and counts of events are computed from registers, and whether an event happens from predicates. Of these
those that are no constants are followed. Predicates, and what they are computed from, are followed always. The others
fall into parts that have nothing to do with each other (a ring's index and phase are one): each can be followed without
the others, which takes as many steps as the parts have values together, and not one for each combination of values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from networkx.utils import UnionFind

from wspec.ptx import flow
from wspec.ptx.arithmetic import width
from wspec.ptx.barrier_numbers import BarrierNumbers
from wspec.ptx.effects import has_target, reads
from wspec.ptx.errors import PtxError
from wspec.ptx.evaluation import Evaluation, Value, computes, evaluation_of
from wspec.ptx.events import Shape, may_speak, shape_of
from wspec.ptx.fixed_points import all_from, states_before
from wspec.ptx.forms import Form, Forms
from wspec.ptx.operands import Address, Number, Operand, Register, Several, Symbol, registers
from wspec.ptx.registers import Writers
from wspec.ptx.roles import Role
from wspec.ptx.syntax import Instruction

_SAME_ADDRESS = ("mov.b32", "mov.u32", "mov.b64", "mov.u64", "cvt.u64.u32", "cvta.param.u64")
"""What hands an address on; those of parameters have 32 bits in the PTX of Triton 3.9."""


@dataclass(slots=True, eq=False)
class Step:
    """An instruction of a block that matters."""

    at: int  # its place in the block
    one: Instruction
    shape: Shape | None  # of an event; None of what computes
    targets: tuple[str, ...] = ()
    known: dict[str, Value] = field(default_factory=dict)  # operands that hold one number whenever it is executed


class Followed:
    """Of one role. `own`: barriers of a task's own threads; `evaluation`: of the role, where there is one already;
    `counted`: are loops followed that are left at a number? `shapes`: the events of a block, where they are others than
    those by which threads synchronize.

    Raises PtxError for an event that is not known.
    """

    def __init__(
        self,
        blocks: Sequence[flow.Block],
        role: Role,
        writers: Writers,
        own: frozenset[int] = frozenset(),
        evaluation: Evaluation | None = None,
        counted: bool = False,
        shapes: Callable[[flow.Block], Iterable[tuple[Instruction, Shape]]] | None = None,
    ) -> None:
        self.blocks, self.role, self._writers, self._counted = blocks, role, writers, counted
        self.evaluation = evaluation or evaluation_of(role, writers)
        numbers = sorted(role.blocks | {role.start[0]})
        barriers = BarrierNumbers(blocks, writers)
        shapes = shapes or functools.partial(_events, own=own, barriers=barriers, role=role)
        self._events = {number: dict(shapes(blocks[number])) for number in numbers}
        leave = self._left_at_numbers() if counted else ()
        self.always = self._closure((*_deciding(self._events.values()), *leave))
        places = [
            name for events in self._events.values() for one, shape in events.items() for name in asked(one, shape)
        ]
        self.all = self._closure(places) | self.always
        self.watched = self._compared()
        self.counting = self._adding_up()
        self._forms: Forms | None = None
        self._coordinates: dict[Instruction, tuple[Form, ...]] = {}
        self.steps = {number: list(self._steps_of(number)) for number in {*numbers, *role.way}}
        self._find_known()
        self.parts = self._parts()

    def _closure(self, names: Iterable[str]) -> frozenset[str]:
        """With all that those registers are computed from, without constants."""
        found: set[str] = set()
        more = list(names)
        while more:
            found |= all_from(self._that_vary(more), self._sources)
            more = self._others_that_compare(found)
        return frozenset(found)

    def _that_vary(self, names: Iterable[str]) -> Iterator[str]:
        return (name for name in names if self.evaluation.constant(name) is None)

    def _sources(self, name: str) -> Iterator[str]:
        """The registers that one is computed from, without constants."""
        for one in self._writers.of(name):
            names = reads(one) if computes(one) else (one.guard,) if one.guard else ()
            yield from self._that_vary(names)

    def _left_at_numbers(self) -> list[str]:
        """Predicates of branches that compare a counter with a number."""
        turns = (self.blocks[number].turn for number in self._events)
        names = {turn.guard for turn in turns if turn is not None and turn.guard}
        return [name for name in names if self._is_left_at_number(name)]

    def _is_left_at_number(self, name: str) -> bool:
        makers = self._writers.of(name)
        if len(makers) != 1 or comparison(makers[0])[0] is None:
            return False
        compared = reads(makers[0])
        return len(compared) == 1 and self._counts_from_number(compared[0])

    def _counts_from_number(self, name: str) -> bool:
        """Is a register made by moves and additions of numbers alone?"""
        found: set[str] = set()
        work = [name]
        while work:
            name = work.pop()
            makers = self._writers.of(name)
            if not makers or any(one.name not in ("mov", "add", "sub") or one.guard for one in makers):
                return False
            if name not in found:
                found.add(name)
                work += [other for one in makers for other in reads(one)]
        return True

    def _others_that_compare(self, found: set[str]) -> list[str]:
        """Predicates of branches that compare what a predicate among those found compares."""
        keys = {key for key in map(self._key_of, found) if key is not None}
        guards = (self.blocks[number].turn for number in self._events)
        names = {one.guard for one in guards if one is not None and one.guard}
        return [name for name in names if name not in found and self._key_of(name) in keys]

    def _key_of(self, name: str) -> str | None:
        makers = self._writers.of(name)
        return comparison(makers[0])[0] if len(makers) == 1 and not makers[0].guard else None

    def _compared(self) -> dict[str, set[str]]:
        """Register -> comparisons that are remembered until it is written."""
        watched: dict[str, set[str]] = {}
        for name in self.all:
            for one in self._writers.of(name):
                key, _ = comparison(one)
                if key is not None:
                    for operand in reads(one):
                        watched.setdefault(operand, set()).add(key)
        return watched

    def _adding_up(self) -> frozenset[Instruction]:
        """Additions to what they made before, of registers that are only moved and added to. What they make is of no
        use, unless it is compared with a number."""
        made = [(name, one) for name in self.all for one in self._writers.of(name)]
        orders = ("eq", "ne", "lt", "le", "gt", "ge") if self._counted else ("eq", "ne")
        matched = {name for _, one in made if one.name == "setp" and one.opcode.split(".")[1] in orders
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

        def added(name: str) -> Iterator[str]:
            makers = (maker for maker in self._writers.of(name) if maker.name in ("mov", "add", "sub"))
            return (other for maker in makers for other in reads(maker) if other in self.all)

        return all_from((name for name in reads(one) if name in self.all), added)

    def _steps_of(self, number: int) -> Iterator[Step]:
        events = self._events.get(number, {})
        for at, one in enumerate(self.blocks[number].instructions):
            shape = events.get(one)
            if shape is not None:
                yield Step(at, one, shape)
            elif has_target(one) and one.name not in ("wgmma", "cp"):
                targets = self._writers.targets(one)
                if any(name in self.all or name in self.watched for name in targets):
                    yield Step(at, one, None, targets)

    # ---- copies

    def coordinates(self, one: Instruction, tensor: Address) -> tuple[Form, ...]:
        """Those of a bulk copy, the innermost first."""
        if one not in self._coordinates:
            if self._forms is None:
                numbers = sorted({*self.role.blocks, *self.role.way, self.role.start[0]})
                self._forms = Forms([self.blocks[at] for at in numbers], self._writers, self.evaluation)
            items = tensor.rest[0].items if tensor.rest and isinstance(tensor.rest[0], Several) else ()
            self._coordinates[one] = tuple(self._forms.of(item, one) for item in items)
        return self._coordinates[one]

    def parameter(self, operand: Operand) -> int | None:
        """The number of the entry's parameter that lies at an address; None where that is not known."""
        while isinstance(operand, Register):
            makers = self._writers.of(operand.name)
            if len(makers) != 1 or makers[0].opcode not in _SAME_ADDRESS or makers[0].guard:
                return None
            operand = makers[0].operands[1]
        name, _, number = operand.name.rpartition("_param_") if isinstance(operand, Symbol) else ("", "", "")
        return int(number) if name and number.isdigit() else None

    # ---- parts

    def _find_known(self) -> None:
        """Which operands hold one number at a step, however it is reached."""

        def behind(number: int, begin: Mapping[str, int]) -> Iterator[tuple[int, Mapping[str, int]]]:
            held: dict[str, Value] = dict(begin)
            for step in self.steps[number]:
                self._note(step, held)
            numbers = {name: value for name, value in held.items() if isinstance(value, int)}
            yield from ((way, numbers) for way in self.blocks[number].follow if way in self.steps)

        begins: dict[int, Mapping[str, int]] = {number: {} for number in (*self.role.way[:1], self.role.start[0])}
        states_before(begins, behind, _common)

    def _note(self, step: Step, held: dict[str, Value]) -> None:
        if step.shape is not None:
            return
        one = step.one
        step.known = {name: held[name] for name in reads(one) if isinstance(held.get(name), int)}
        is_known = computes(one) and not one.guard and one not in self.counting
        results = self.evaluation.results(one, held) if is_known else (None,) * len(step.targets)
        held.update(zip(step.targets, results, strict=True))

    def _parts(self) -> list[frozenset[str]]:
        names = self.all - self.always
        joined = UnionFind(names)
        for steps in self.steps.values():
            for step in steps:
                if step.shape is None:
                    linked = [name for name in reads(step.one) if name in names and name not in step.known]
                    for target in names.intersection(step.targets):
                        joined.union(target, *linked)
        used = {name for events in self._events.values() for one, shape in events.items() for name in asked(one, shape)}
        return sorted((frozenset(part) for part in joined.to_sets() if not used.isdisjoint(part)), key=min)


def _common(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in one.items() if other.get(name) == value}


def _deciding(events: Iterable[Mapping[Instruction, Shape]]) -> Iterator[str]:
    """The registers that say whether and how often something happens."""
    for found in events:
        for one, shape in found.items():
            if one.guard and shape.who != "any":
                yield one.guard
            for number in shape.numbers:
                yield from () if isinstance(number, int) else registers(number)


def _events(
    block: flow.Block, own: frozenset[int], barriers: BarrierNumbers, role: Role
) -> Iterator[tuple[Instruction, Shape]]:
    for one in block.instructions:
        if may_speak(one):
            shape = shape_of(one, own, barriers.of(one, role) if one.name in ("bar", "barrier") else None)
            if shape is not None:
                if shape.kind == "wait" and not block.spins:
                    raise PtxError(f"'{one}' is not repeated until it holds")
                yield one, shape


def asked(one: Instruction, shape: Shape) -> Iterator[str]:
    """The registers that an event depends on."""
    if one.guard and shape.who != "any":
        yield one.guard
    for operand in (*shape.numbers, shape.at, shape.phase, shape.buffer):
        if operand is not None and not isinstance(operand, int):
            yield from places_of(operand)


def places_of(operand: Operand) -> Iterator[str]:
    """The registers of a value or an address, but for coordinates."""
    return registers(operand.base if isinstance(operand, Address) else operand)


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
