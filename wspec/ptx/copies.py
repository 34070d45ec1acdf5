"""Which tiles and elements of global memory a role's copies take, in a launch whose numbers are known.

The role's code is executed as far as branches and copies hang on it, in one thread of each warp: integers, predicates,
parameters, and what is loaded from global memory. Loops run as often as they do in that launch. A branch that hangs on
something else goes either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from wspec.ptx import flow
from wspec.ptx.arithmetic import width
from wspec.ptx.drawn_launch import Launch
from wspec.ptx.effects import reads, space
from wspec.ptx.evaluation import Evaluation, Value, computes
from wspec.ptx.operands import Address, Operand, Register, Several, Symbol
from wspec.ptx.registers import Writers
from wspec.ptx.roles import WARP, Role
from wspec.ptx.syntax import Instruction

MOST_BLOCKS = 400  # that are passed in one launch
MOST_COPIES = 32  # that are looked at in one launch, or so many times those that there are:
_TIMES = 5
BULK = ("cp.async.bulk.tensor.", "cp.reduce.async.bulk.tensor.")
ELEMENTS = ("cp.async.ca.", "cp.async.cg.")
LANES = (0, 31)  # that are looked at of each warp where threads copy elements

_IDS = {f"%ctaid.{axis}": ("block", at) for at, axis in enumerate("xyz")} | {
    f"%nctaid.{axis}": ("blocks", at) for at, axis in enumerate("xyz")
}


_THREAD = ("%tid.x", "%laneid")


class Copied(NamedTuple):
    """By one thread: a box of a tile, by its coordinates, the innermost first; or elements, by where they begin."""

    place: int | None  # in shared memory
    source: tuple[int | None, ...]
    size: int | None = 0  # of elements: how many bytes, 0 where they are filled with zeros instead


class Copy(NamedTuple):
    """An instruction, and what the threads do that execute it."""

    one: Instruction
    by: tuple[Copied, ...]


class _Step(NamedTuple):
    """An instruction that copies hang on."""

    at: int  # its place in the block
    one: Instruction
    is_copy: bool
    targets: tuple[str, ...]
    constants: list[Value] | None  # what it makes, where that is always the same


class Copies:
    """Of one role."""

    def __init__(self, blocks: Sequence[flow.Block], role: Role, writers: Writers) -> None:
        self._blocks, self._role, self._writers = blocks, role, writers
        numbers = {*role.blocks, *role.way, role.start[0]}
        inside = {number: blocks[number].instructions for number in sorted(numbers)}
        self.all = [one for number in inside if number in role.blocks or number == role.start[0]
                    for one in inside[number] if is_copy(one)]  # fmt: skip
        lanes = LANES if any(one.opcode.startswith(ELEMENTS) for one in self.all) else LANES[:1]
        self._threads = [WARP * warp + lane for warp in role.warps for lane in lanes]
        self._evaluation = _Lanes(self._threads, writers)
        needed = self._needed(inside) if self.all else frozenset[str]()
        self._steps = {number: list(self._steps_of(found, needed)) for number, found in inside.items()}

    def _steps_of(self, instructions: Sequence[Instruction], needed: frozenset[str]) -> Iterator[_Step]:
        for at, one in enumerate(instructions):
            targets = self._writers.targets(one)
            if is_copy(one):
                yield _Step(at, one, True, (), None)
            elif not needed.isdisjoint(targets):
                constants = [self._evaluation.constant(name) for name in targets]
                yield _Step(at, one, False, targets, None if None in constants else constants)

    def _needed(self, inside: Mapping[int, Sequence[Instruction]]) -> frozenset[str]:
        """The registers that copies and branches hang on."""
        work: list[str] = []
        for number in inside:
            block = self._blocks[number]
            if block.turn is not None and not block.spins:
                work += reads(block.turn)
        for one in self.all:
            work += reads(one)
        found: set[str] = set()
        while work:
            name = work.pop()
            if name not in found and name not in _IDS:
                found.add(name)
                for one in self._writers.of(name):
                    if computes(one) or one.name == "ld":
                        work += reads(one)
                    elif one.guard:
                        work.append(one.guard)
        return frozenset(found)

    def in_launch(self, launch: Launch, choose: Callable[[], bool]) -> tuple[list[Copy], bool]:
        """The copies in their order, and whether the role comes to its end with them."""
        run = _Run(self._evaluation, launch, len(self._threads))
        number, place = self._role.start
        for passed in self._role.way:
            for step in self._steps[passed]:
                if passed != number or step.at < place:
                    run.execute(step)
        found: list[Copy] = []
        for _ in range(MOST_BLOCKS):
            block = self._blocks[number]
            for step in self._steps[number]:
                if step.at < place:
                    continue
                if step.is_copy:
                    copy = run.copy(step.one)
                    found += [copy] if copy.by else []
                else:
                    run.execute(step)
            place = 0
            if len(found) >= max(MOST_COPIES, _TIMES * len(self.all)):
                break
            way = self._way(block, run, choose)
            if way is None:
                return found, True
            number = way
        return found, False

    def _way(self, block: flow.Block, run: _Run, choose: Callable[[], bool]) -> int | None:
        """Where it goes on; None where it leaves the role."""
        ways, turn = list(block.follow), block.turn
        if block.spins:
            ways.remove(block.number)
        elif turn is not None and turn.name == "bra" and turn.guard and len(ways) == 2:
            taken = run.guard(turn)
            if not isinstance(taken, int):
                taken = choose()
            ways = ways[:1] if taken else ways[1:]
        elif turn is not None and turn.name == "brx":
            index = run.value(turn.operands[0])
            ways = [ways[index]] if isinstance(index, int) and index < len(ways) else []
        inside = [way for way in ways if way in self._role.blocks]
        return inside[0] if inside else None


def is_copy(one: Instruction) -> bool:
    """Of a tile, or of elements?"""
    return one.name == "cp" and one.opcode.startswith((*BULK, *ELEMENTS))


class _Run:
    """What registers hold."""

    def __init__(self, evaluation: Evaluation, launch: Launch, threads: int) -> None:
        self._evaluation, self._launch, self._threads = evaluation, launch, threads
        self._held: dict[str, Value] = {name: getattr(launch, what)[at] for name, (what, at) in _IDS.items()}
        self._held |= {name: evaluation.constant(name) for name in _THREAD}

    def value(self, operand: Operand) -> Value:
        return self._evaluation.value(operand, self._held)

    def guard(self, one: Instruction) -> Value:
        """1 where all threads execute it, 0 where none does."""
        return self.value(Register(one.guard, one.unless)) if one.guard else 1

    def execute(self, step: _Step) -> None:
        one, targets = step.one, step.targets
        guard = self.guard(one) if one.guard else 1
        if guard == 0:
            return
        results: Sequence[Value]
        if step.constants is not None:
            results = step.constants
        elif computes(one):
            results = self._evaluation.results(one, self._held)
        elif one.name == "ld":
            results = self._loaded(one, len(targets))
        else:
            results = (None,) * len(targets)
        for name, value in zip(targets, results, strict=True):
            self._held[name] = value if guard == 1 else self._merged(guard, value, self._held.get(name))

    def _merged(self, guard: Value, now: Value, before: Value) -> Value:
        if guard is None or now is None or before is None or isinstance(guard, int):
            return None
        both = zip(guard, self._each(now), self._each(before), strict=True)
        found = tuple(new if holds else old for holds, new, old in both)
        return found[0] if found.count(found[0]) == len(found) else found

    def _each(self, value: int | tuple[int, ...]) -> tuple[int, ...]:
        return (value,) * self._threads if isinstance(value, int) else value

    def _loaded(self, one: Instruction, count: int) -> Sequence[Value]:
        unknown = (None,) * count
        source = one.operands[1]
        size = width(one.opcode.rpartition(".")[2]) // 8
        if not isinstance(source, Address) or not size:
            return unknown
        if space(one) == "param":
            number = source.base.name.rpartition("_param_")[2] if isinstance(source.base, Symbol) else ""
            is_known = number.isdigit() and int(number) < len(self._launch.arguments) and not source.offset
            return (self._launch.arguments[int(number)],) if is_known and count == 1 else unknown
        base = self._evaluation.value(source.base, self._held)
        if space(one) != "global" or base is None:
            return unknown
        found: list[Value] = []
        for at in range(count):
            offset = source.offset + at * size
            if isinstance(base, int):
                found.append(self._launch.memory(base + offset, size))
            else:
                each = tuple(self._launch.memory(thread + offset, size) for thread in base)
                found.append(each[0] if each.count(each[0]) == len(each) else each)
        return found

    def copy(self, one: Instruction) -> Copy:
        guard = self.guard(one)
        if guard is None:
            return Copy(one, (Copied(None, (None,), None),))
        threads = [at for at, holds in enumerate(self._each(guard)) if holds]
        operands = one.operands
        if one.opcode.startswith(ELEMENTS):
            place, source = self._spread(operands[0]), self._spread(operands[1])
            size = self._spread(operands[3] if len(operands) > 3 else operands[2])
            return Copy(one, tuple(Copied(place[at], (source[at],), size[at]) for at in threads))
        is_load = ".mbarrier::complete_tx" in one.opcode
        place = self._spread(operands[0] if is_load else operands[1])
        tensor = operands[1] if is_load else operands[0]
        rest = tensor.rest if isinstance(tensor, Address) else ()
        items = rest[0].items if rest and isinstance(rest[0], Several) else ()
        coordinates = [self._spread(item) for item in items]
        if is_load and self.value(operands[2]) is None:  # the mbarrier
            place = (None,) * self._threads
        return Copy(one, tuple(Copied(place[at], tuple(each[at] for each in coordinates)) for at in threads))

    def _spread(self, operand: Operand) -> Sequence[int | None]:
        if isinstance(operand, Address):
            base = self._evaluation.value(operand.base, self._held)
            whole = (1 << 64) - 1
            if base is None:
                return (None,) * self._threads
            return tuple(one + operand.offset & whole for one in self._each(base))
        found = self.value(operand)
        return (None,) * self._threads if found is None else self._each(found)


class _Lanes(Evaluation):
    """Where only some lanes of each warp are looked at, and registers hold nothing before they are written."""

    def value(self, operand: Operand, held: Mapping[str, Value]) -> Value:
        is_written = not held or not isinstance(operand, Register) or operand.name in held
        return super().value(operand, held) if is_written else None

    def _shuffled(self, one: Instruction, held: Mapping[str, Value]) -> Value:
        value, lane = self.value(one.operands[1], held), self.value(one.operands[2], held)
        if value is None or isinstance(value, int):
            return value
        if lane != 0 or not one.opcode.startswith("shfl.sync.idx.b32"):
            return None
        at = {thread: number for number, thread in enumerate(self.threads)}
        found = tuple(value[at[thread - thread % WARP]] for thread in self.threads)
        return found[0] if found.count(found[0]) == len(found) else found
