"""What a role's registers and shared memory hold in one launch, as its instructions are executed one after the other.

Where threads copy elements, some lanes of each warp are looked at (copies.py), or all are executed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wspec.ptx.arithmetic import computed, width
from wspec.ptx.drawn_launch import Launch
from wspec.ptx.effects import COPIES_OF_ELEMENTS, space, writes
from wspec.ptx.evaluation import Evaluation, Value, computes, each_of, result, same
from wspec.ptx.operands import Address, Operand, Register, Several, Symbol
from wspec.ptx.roles import WARP
from wspec.ptx.stored import WORD, Stored
from wspec.ptx.syntax import Instruction

_REGISTERS = {"%rs": 16, "%r": 32, "%rd": 64}  # bits, by their names
IDS = {f"%ctaid.{axis}": ("block", at) for at, axis in enumerate("xyz")} | {
    f"%nctaid.{axis}": ("blocks", at) for at, axis in enumerate("xyz")
}
"""Registers that say which block it is -> the field of a launch, and the axis."""
_THREAD = ("%tid.x", "%laneid")


class Copied(NamedTuple):
    """By one thread: a box of a tile, by its coordinates, the innermost first; or elements, by where they begin."""

    place: int | None  # in shared memory
    source: tuple[int | None, ...]
    size: int | None = 0  # of elements: how many bytes, 0 where they are filled with zeros instead


class Copy(NamedTuple):
    """An instruction, and what the threads do that execute it; or a mark."""

    one: Instruction
    by: tuple[Copied, ...]  # () of a mark


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction that copies hang on."""

    at: int  # its place in the block
    one: Instruction
    is_event: bool  # a copy or a mark
    targets: tuple[str, ...]
    constants: list[Value] | None = None  # what it makes, where that is always the same
    sources: tuple[str | int | None, ...] = ()  # registers and numbers that it computes its one result from
    of: Callable[..., int | None] | None = None  # what it makes of these
    stores: bool = False  # to shared memory, or to anywhere


def is_executed(one: Instruction) -> bool:
    """May what it makes be known here?"""
    return computes(one) or one.name == "redux"


def _extended(value: Value, bits: int, register: str) -> Value:
    """A number with a sign in a register, which may be wider; LLVM's names say how wide."""
    whole, half = (1 << _REGISTERS.get(register.rstrip("0123456789"), 0)) - 1, 1 << (bits - 1)
    return each_of(lambda one: (one ^ half) - half & whole, value) if whole else None


class Run:
    """What registers hold, and words of shared memory, but for those of `buffers`. `seen`: the threads whose copies are
    told; those that they change places with, in so many `turns` of an instruction."""

    def __init__(
        self,
        evaluation: Evaluation,
        launch: Launch,
        threads: int,
        seen: Sequence[int],
        buffers: frozenset[int],
        turns: int,
    ) -> None:
        self._evaluation, self._launch, self._threads = evaluation, launch, threads
        self._seen, self._buffers, self._turns = seen, buffers, turns
        self._times = Counter[Instruction]()
        self._stored = Stored(self._buffers)  # by the role's threads
        self._held: dict[str, Value] = {name: getattr(launch, what)[at] for name, (what, at) in IDS.items()}
        self._held |= {name: evaluation.constant(name) for name in _THREAD}

    def value(self, operand: Operand) -> Value:
        return self._evaluation.value(operand, self._held)

    def guard(self, one: Instruction) -> Value:
        """1 where all threads execute it, 0 where none does."""
        if not one.guard:
            return 1
        found = self._held.get(one.guard)
        return each_of(lambda value: 1 - value, found) if one.unless else found

    def execute(self, step: Step) -> None:
        one, targets = step.one, step.targets
        guard = self.guard(one) if one.guard else 1
        if guard == 0:
            return
        if step.stores:
            self._store(one, guard)
        results: Sequence[Value]
        held = self._held
        if step.of is not None:
            values = [held.get(it) if isinstance(it, str) else it for it in step.sources]
            if all(value.__class__ is int for value in values):
                found: Value = step.of(*values)
            else:
                found = result(one.opcode, values)
            (name,) = targets
            held[name] = found if guard == 1 else self._merged(guard, found, held.get(name))
            return
        if step.constants is not None:
            results = step.constants
        elif is_executed(one):
            results = self._evaluation.results(one, held)
        elif one.name == "ld":
            results = self._loaded(one)
        else:
            results = (None,) * len(targets)
        for name, value in zip(targets, results, strict=True):
            held[name] = value if guard == 1 else self._merged(guard, value, held.get(name))

    def _merged(self, guard: Value, now: Value, before: Value) -> Value:
        if guard is None or now is None or before is None or isinstance(guard, int):
            return None
        both = zip(guard, self._each(now), self._each(before), strict=True)
        return same(tuple(new if holds else old for holds, new, old in both))

    def _each(self, value: int | tuple[int, ...]) -> tuple[int, ...]:
        return (value,) * self._threads if isinstance(value, int) else value

    def _loaded(self, one: Instruction) -> Sequence[Value]:
        """What each register gets, but for those that are none."""
        target, source = one.operands[0], one.operands[1]
        items = target.items if isinstance(target, Several) else (target,)
        wanted = [at for at, item in enumerate(items) if not (isinstance(item, Register) and item.name == "_")]
        unknown = (None,) * len(writes(one))
        kind = one.opcode.rpartition(".")[2]
        size = width(kind) // 8
        if not isinstance(source, Address) or not size or len(wanted) != len(unknown):
            return unknown
        where = space(one)
        if where == "param":
            number = source.base.name.rpartition("_param_")[2] if isinstance(source.base, Symbol) else ""
            is_known = number.isdigit() and int(number) < len(self._launch.arguments) and not source.offset
            return (self._launch.arguments[int(number)],) if is_known and len(items) == 1 else unknown
        base = self._evaluation.value(source.base, self._held)
        if base is None or where not in ("global", "shared"):
            return unknown
        read = self._launch.memory if where == "global" else self._stored.read
        found = [self._read(base, source.offset + at * size, size, read) for at in wanted]
        if not kind.startswith("s"):
            return found
        return [_extended(value, 8 * size, name) for value, name in zip(found, writes(one), strict=True)]

    @staticmethod
    def _read(base: int | tuple[int, ...], offset: int, size: int, read: Callable[[int, int], int | None]) -> Value:
        if isinstance(base, int):
            return read(base + offset, size)
        found: list[int] = []
        for thread in base:
            value = read(thread + offset, size)
            if value is None:
                return None
            found.append(value)
        return same(tuple(found))

    # ---- shared memory

    def _store(self, one: Instruction, guard: Value) -> None:
        """Nothing is known any more behind a store that cannot be followed."""
        operands = one.operands
        target = operands[0] if one.name == "st" and len(operands) == 2 else None
        size = width(one.opcode.rpartition(".")[2]) // 8
        base = self._evaluation.value(target.base, self._held) if isinstance(target, Address) else None
        if not isinstance(target, Address) or base is None or guard is None or space(one) != "shared":
            self._stored.forget()
            return
        items = operands[1].items if isinstance(operands[1], Several) else operands[1:]
        places = [place + target.offset for place in self._each(base)]
        if not size or any(place % min(size, WORD) for place in places):
            self._stored.forget()
            return
        threads = [at for at, holds in enumerate(self._each(guard)) if holds]
        for number, item in enumerate(items):
            value = self.value(item)
            each = None if value is None else self._each(value)
            if each is None and not self._stored:
                continue
            for at in threads:
                self._stored.write(places[at] + number * size, size, None if each is None else each[at])

    def copy(self, one: Instruction) -> Copy:
        guard = self.guard(one)
        if guard is None:
            return Copy(one, (Copied(None, (None,), None),))
        if guard == 0:
            return Copy(one, ())
        holds = self._each(guard)
        operands = one.operands
        if one.opcode.startswith(COPIES_OF_ELEMENTS):
            turn = self._times[one] % self._turns  # changes a lane's number, where all lanes are there
            self._times[one] += 1
            threads = [at ^ turn for at in self._seen if holds[at ^ turn]]
            place, source = self._spread(operands[0]), self._spread(operands[1])
            size = self._spread(operands[3] if len(operands) > 3 else operands[2])
            return Copy(one, tuple(Copied(place[at], (source[at],), size[at]) for at in threads))
        threads = [at for at in self._seen if holds[at]]
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


class Lanes(Evaluation):
    """Where only some lanes of each warp are looked at, and registers hold nothing before they are written."""

    def value(self, operand: Operand, held: Mapping[str, Value]) -> Value:
        is_written = not held or not isinstance(operand, Register) or operand.name in held
        return super().value(operand, held) if is_written else None

    def results(self, one: Instruction, held: Mapping[str, Value]) -> tuple[Value, ...]:
        return (self._reduced(one, held),) if one.name == "redux" else super().results(one, held)

    def _reduced(self, one: Instruction, held: Mapping[str, Value]) -> Value:
        """Of each warp's lanes, all of them."""
        *words, kind = one.opcode.split(".")
        value = self.value(one.operands[1], held)
        if value is None or not self.is_of_all(one.operands[2], held):
            return None
        if len(words) != 3 or len(self.threads) % WARP:  # words: redux, sync, and what it does
            return None
        each = (value,) * len(self.threads) if isinstance(value, int) else value
        found: list[int] = []
        for first in range(0, len(each), WARP):
            if self.threads[first : first + WARP] != list(range(self.threads[first], self.threads[first] + WARP)):
                return None
            total: int | None = each[first]
            for other in each[first + 1 : first + WARP]:
                total = None if total is None else computed(f"{words[2]}.{kind}", (total, other))
            if total is None:
                return None
            found += [total] * WARP
        return same(tuple(found))

    def _shuffled(self, one: Instruction, held: Mapping[str, Value]) -> Value:
        value, lane = self.value(one.operands[1], held), self.value(one.operands[2], held)
        if not self.is_of_all(one.operands[-1], held):
            return None
        if value is None or isinstance(value, int):
            return value
        if not isinstance(lane, int) or not 0 <= lane < WARP:
            return None
        at = {thread: number for number, thread in enumerate(self.threads)}
        if one.opcode.startswith("shfl.sync.idx.b32"):
            sources = [thread - thread % WARP + lane for thread in self.threads]
        elif one.opcode.startswith("shfl.sync.bfly.b32") and self.value(one.operands[3], held) == WARP - 1:
            sources = [thread ^ lane for thread in self.threads]
        else:
            return None
        if any(source not in at for source in sources):
            return None
        return same(tuple(value[at[source]] for source in sources))
