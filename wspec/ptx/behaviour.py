"""What a role's threads do where they synchronize: which events follow each other, at which places, in which phases.

The way of all threads of a role is followed together, through each block for all values that the registers may hold
there which are followed. What is computed from the threads' numbers and constants alone is known for each thread. What
is carried round loops (a ring's index, a phase) takes few values, so all of them are gone through. A predicate that is
computed from what is not known may be either, and is remembered while it is needed. What takes more than `most_values`
values (a counter, a pointer) is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from wspec.ptx import flow
from wspec.ptx.effects import EXCHANGES, reads
from wspec.ptx.errors import PtxError
from wspec.ptx.evaluation import Value, computes, each_of, remembered
from wspec.ptx.events import ELSEWHERE, Event, Shape
from wspec.ptx.fixed_points import live_before
from wspec.ptx.followed import Followed, Step, asked, comparison, places_of
from wspec.ptx.forms import in_thread
from wspec.ptx.operands import Operand, Register, Several
from wspec.ptx.syntax import Instruction

MOST_VALUES = 64  # of one register at the beginning of one block

Environment = tuple[Value, ...]
"""What the registers hold that are followed and live at the beginning of a block, in the order of their names."""

Outcome = tuple[tuple[tuple[Instruction, Event], ...], tuple[tuple[int, Environment], ...], bool]
"""Of a block: the events, where it goes on, and whether the role may end there."""


class Behaviour:
    """Of one role, while the registers of `part` are followed, and those that are always. What hangs on other parts is
    `ELSEWHERE`."""

    def __init__(self, code: Followed, part: frozenset[str], most_values: int = MOST_VALUES) -> None:
        self._code, self._blocks, self._role, self._most = code, code.blocks, code.role, most_values
        self._evaluation, self._counting = code.evaluation, code.counting
        self._threads = len(code.evaluation.threads)
        self._followed = part | code.always
        self._elsewhere = code.all - self._followed
        self._watched = self._remembered()
        self._steps = {number: [step for step in steps if self._matters(step)] for number, steps in code.steps.items()}
        self._live = self._liveness()
        self._known: dict[tuple[int, Environment], list[Outcome]] = {}
        self._values: dict[tuple[int, str], set[Value]] = {}
        self._entered: Counter[int] = Counter()
        self._fixed: dict[Instruction, Event | None] = {}  # events that depend on constants alone; by instruction
        self._sources: dict[Step, list[Value | str] | None] = {}
        self._holding: dict[tuple[int, ...], list[int]] = {}

    def _remembered(self) -> dict[str, set[str]]:
        """Register -> comparisons of what is followed, which are remembered until it is written."""
        steps = (step for found in self._code.steps.values() for step in found if step.shape is None)
        asks = {comparison(step.one)[0] for step in steps if not self._followed.isdisjoint(step.targets)}
        return {name: keys & asks for name, keys in self._code.watched.items() if not keys.isdisjoint(asks)}

    def _matters(self, step: Step) -> bool:
        return step.shape is not None or any(name in self._followed or name in self._watched for name in step.targets)

    def _liveness(self) -> dict[int, tuple[str, ...]]:
        """The registers that are followed and needed, at the beginning of each block."""
        uses: dict[int, set[str]] = {}
        makes: dict[int, set[str]] = {}
        for number, steps in self._steps.items():
            needed, made = set[str](), set[str]()
            for step in steps:
                needed |= {name for name in self._needs(step) if name not in made}
                made.update(step.targets, *(self._watched.get(name, ()) for name in step.targets))
            turn = self._blocks[number].turn
            if turn is not None and turn.guard in self._followed and turn.guard not in made:
                needed.add(turn.guard)
            uses[number], makes[number] = needed, made
        follow = {number: self._blocks[number].follow for number in uses}
        return {number: tuple(sorted(names)) for number, names in live_before(follow, uses, makes).items()}

    def _needs(self, step: Step) -> Iterator[str]:
        """The registers and comparisons that a step depends on."""
        one = step.one
        if step.shape is not None:
            yield from (name for name in asked(one, step.shape) if name in self._followed)
        elif not self._followed.isdisjoint(step.targets):
            names = (*reads(one), *step.targets) if one.guard else reads(one)
            yield from (name for name in names if name in self._followed and name not in step.known)
            key, _ = comparison(one)
            if key is not None:
                yield key

    # ---- the way through a block

    def starts(self) -> list[tuple[int, Environment]]:
        """Where the role begins, and what may be held there."""
        number, place = self._role.start
        self._begin = [step for step in self._steps[number] if step.at >= place]
        ways: list[dict[str, Value]] = [{}]
        for passed in self._role.way:
            for step in self._steps[passed]:
                if step.shape is None and (passed != number or step.at < place):
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

    def _outcomes(self, block: flow.Block, steps: Sequence[Step], begin: dict[str, Value]) -> Iterator[Outcome]:
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

    def _set(self, step: Step, held: dict[str, Value]) -> list[dict[str, Value]]:
        """What is held behind an instruction: of a predicate that is not known, both."""
        one = step.one
        guard = self._guard(one, held)
        if guard == 0:
            return [held]
        known = guard == 1 and one not in self._counting and computes(one)
        results = self._results(step, held) if known else (None,) * len(step.targets)
        for name, value in zip(step.targets, results, strict=True):
            if name in self._followed:
                held[name] = value
            for key in self._watched.get(name, ()):
                held[key] = None
        if len(step.targets) == 1 and known and results[0] is None and _is_predicate(one):
            return self._either(step, held)
        return [held]

    def _results(self, step: Step, held: dict[str, Value]) -> tuple[Value, ...]:
        if step not in self._sources:
            self._sources[step] = self._sources_of(step)
        sources = self._sources[step]
        if sources is None:
            return self._evaluation.results(step.one, {**held, **step.known} if step.known else held)
        values = [self._held(one, held) if isinstance(one, str) else one for one in sources]
        return (remembered(step.one.opcode, tuple(values)),)

    def _held(self, name: str, held: dict[str, Value]) -> Value:
        return held[name] if name in held else self._evaluation.constant(name)

    def _sources_of(self, step: Step) -> list[Value | str] | None:
        """What an instruction computes its one result from: registers that are followed, and what others hold. None of
        one that is not so simple."""
        one = step.one
        if one.name in EXCHANGES or isinstance(one.operands[0], Several):
            return None
        found: list[Value | str] = []
        for operand in one.operands[1:]:
            if not isinstance(operand, Register):
                found.append(self._evaluation.value(operand, {}))
            elif operand.negated:
                return None
            elif operand.name in self._followed and operand.name not in step.known:
                found.append(operand.name)
            else:
                found.append(self._evaluation.value(operand, step.known))
        return found

    def _either(self, step: Step, held: dict[str, Value]) -> list[dict[str, Value]]:
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
        found = self._held(one.guard, held)
        return each_of(lambda value: 1 - value, found) if one.unless else found

    def _turn(self, block: flow.Block, held: dict[str, Value]) -> tuple[tuple[tuple[int, Environment], ...], bool]:
        ways, turn = block.follow, block.turn
        if turn is not None and turn.name == "bra" and turn.guard and len(ways) == 2:
            taken = self._guard(turn, held)
            if isinstance(taken, int):
                ways = ways[:1] if taken else ways[1:]
        inside = [way for way in dict.fromkeys(ways) if way in self._role.blocks]
        leaves = len(inside) < len(set(ways)) and (bool(self._role.way) or block.number != self._role.start[0])
        if block.number in inside and block.spins:
            inside.remove(block.number)
        return tuple([(way, self._environment(way, held)) for way in inside]), leaves or not block.follow

    def _environment(self, number: int, held: dict[str, Value]) -> Environment:
        names = self._live[number]
        self._entered[number] += 1
        if self._entered[number] > self._most:
            for name in names:
                values = self._values.setdefault((number, name), set())
                values.add(held.get(name))
                if len(values) > self._most:
                    held[name] = None
        return tuple([held.get(name) for name in names])

    # ---- events

    def _event_of(self, step: Step, held: dict[str, Value]) -> Event | None:
        one, shape = step.one, step.shape
        assert shape is not None
        if one in self._fixed:
            return self._fixed[one]
        found = self._event(one, shape, held)
        if self._followed.isdisjoint(asked(one, shape)):
            self._fixed[one] = found
        return found

    def _event(self, one: Instruction, shape: Shape, held: dict[str, Value]) -> Event | None:
        """None where no thread does it."""
        guard = self._guard(one, held)
        if guard is None and shape.who == "any":
            guard = 1
        if guard is None:
            raise PtxError(f"which threads execute '{one}' is not known")
        if guard == 0:
            return None
        active = self._active(guard)
        if (shape.who == "one" and len(active) != 1) or (shape.who == "all" and guard != 1):
            raise PtxError(f"'{one}' is executed by {len(active)} of {self._threads} threads")
        numbers = tuple(self._one(one, number, active, held) for number in shape.numbers)
        if shape.who == "each":
            numbers = (numbers[0] * len(active), *numbers[1:])
        at = None if shape.at is None else self._one(one, shape.at, active, held)
        phase = None if shape.phase is None else self._one(one, shape.phase, active, held)
        found = Event(shape.kind, numbers, at, phase, size=shape.size)
        return found if shape.buffer is None else self._with_buffers(found, one, shape, active, held)

    def _with_buffers(
        self, found: Event, one: Instruction, shape: Shape, active: Sequence[int], held: dict[str, Value]
    ) -> Event:
        assert shape.buffer is not None
        if shape.who == "any" and self._evaluation.value(shape.buffer, held) is None:
            elsewhere = not self._elsewhere.isdisjoint(places_of(shape.buffer))
            return found._replace(buffers=(ELSEWHERE,) if elsewhere else ())  # let pass where it is not known
        place = self._known_value(one, shape.buffer, held)
        if place == ELSEWHERE:
            return found._replace(buffers=(ELSEWHERE,))
        places = [place] * len(active) if isinstance(place, int) else [place[number] for number in active]
        if shape.tensor is None:
            return found._replace(buffers=tuple(sorted(set(places) if shape.who == "any" else places)))
        forms = self._code.coordinates(one, shape.tensor)
        boxes = sorted(zip(places, active, strict=True))
        return found._replace(
            buffers=tuple(place for place, _ in boxes),
            tensor=self._code.parameter(shape.tensor.base),
            coordinates=tuple(tuple(in_thread(form, thread) for form in forms) for _, thread in boxes),
        )

    def _active(self, guard: int | tuple[int, ...]) -> Sequence[int]:
        """The threads for which a predicate holds, by their places among the role's."""
        if isinstance(guard, int):
            return range(self._threads)
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
        found = self._evaluation.value(operand, held)
        if found is None and not self._elsewhere.isdisjoint(places_of(operand)):
            return ELSEWHERE
        if found is None:
            raise PtxError(f"the operands of '{one}' are not known")
        return found


def _is_predicate(one: Instruction) -> bool:
    return one.name == "setp" or one.opcode.endswith(".pred")
