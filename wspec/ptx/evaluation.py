"""What registers hold in the threads of a role, as far as it is computed from constants and the threads' numbers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

from wspec.ptx.arithmetic import computing, width
from wspec.ptx.effects import ARITHMETIC, reads, writes
from wspec.ptx.operands import Address, Number, Operand, Register, Several, Symbol
from wspec.ptx.registers import Writers
from wspec.ptx.roles import WARP, Role
from wspec.ptx.syntax import Instruction

SHARED = "global_smem"  # Triton's name of the block's shared memory

_LANES = (1 << WARP) - 1
_MOST_WRITERS = 8  # of a register that is asked for

Value = int | tuple[int, ...] | None
"""Of a register: the same in all threads, one for each thread of the role, or not known."""


class Evaluation:
    """Of one role."""

    def __init__(self, threads: Sequence[int], writers: Writers) -> None:
        self.threads, self._writers = threads, writers
        self._constants: dict[str, Value] = {}

    def constant(self, name: str) -> Value:
        """What a register holds at all times, once it is written; None where that is not known."""
        if name in self._constants:
            return self._constants[name]
        self._constants[name] = None  # of one that depends on itself
        found = self._special(name)
        makers = self._writers.of(name)
        if found is None and 0 < len(makers) <= _MOST_WRITERS and not any(one.guard for one in makers):
            found = self._made(makers[0], name)
            if any(found is None or self._made(one, name) != found for one in makers[1:]):
                found = None
        self._constants[name] = found
        return found

    def _made(self, one: Instruction, name: str) -> Value:
        """What an instruction writes to a register each time."""
        if not computes(one) or any(self.constant(other) is None for other in reads(one)):
            return None
        return self.results(one, {})[writes(one).index(name)]

    def _special(self, name: str) -> Value:
        if name == "%tid.x":
            return tuple(self.threads)
        return tuple(thread % WARP for thread in self.threads) if name == "%laneid" else None

    def value(self, operand: Operand, held: Mapping[str, Value]) -> Value:
        if isinstance(operand, Register):
            name = operand.name
            found = held[name] if name in held else self.constant(name)
            return each_of(lambda one: 1 - one, found) if operand.negated else found
        if isinstance(operand, Number):
            return operand.value
        if isinstance(operand, Symbol):
            return 0 if operand.name == SHARED else None
        if isinstance(operand, Address):
            found, offset = self.value(operand.base, held), operand.offset
            return each_of(lambda one: one + offset & 0xFFFFFFFF, found) if offset else found
        return None

    def results(self, one: Instruction, held: Mapping[str, Value]) -> tuple[Value, ...]:
        """Of all registers that an instruction writes, without its guard."""
        if one.name == "elect":
            if not self.is_of_all(one.operands[-1], held):
                return (None,) * len(writes(one))
            leaders = tuple(int(thread % WARP == 0) for thread in self.threads)
            return (0, leaders) if len(writes(one)) == 2 else (leaders,)
        operands = one.operands
        if isinstance(operands[0], Several):
            return (None,) * len(operands[0].items)
        if one.name == "shfl":
            return (self._shuffled(one, held),)
        return (remembered(one.opcode, tuple([self.value(operand, held) for operand in operands[1:]])),)

    def is_of_all(self, mask: Operand, held: Mapping[str, Value]) -> bool:
        """Does it name all lanes of a warp? What others get is not defined."""
        found = self.value(mask, held)
        return isinstance(found, int) and found & _LANES == _LANES

    def _shuffled(self, one: Instruction, held: Mapping[str, Value]) -> Value:
        value, lane = self.value(one.operands[1], held), self.value(one.operands[2], held)
        if not self.is_of_all(one.operands[-1], held):
            return None
        if isinstance(value, int):
            return value
        if value is None or not isinstance(lane, int) or not one.opcode.startswith("shfl.sync.idx.b32"):
            return None
        return same(tuple(value[at - at % WARP + lane % WARP] for at in range(len(value))))


def evaluation_of(role: Role, writers: Writers) -> Evaluation:
    """Of the threads of a role."""
    return Evaluation([WARP * warp + lane for warp in role.warps for lane in range(WARP)], writers)


def computes(one: Instruction) -> bool:
    """May its result be known: does it compute integers or predicates?"""
    return _computes(one.name, one.opcode)


@functools.lru_cache(maxsize=1024)
def _computes(name: str, opcode: str) -> bool:
    return width(opcode.rpartition(".")[2]) > 0 if name in ARITHMETIC else name in ("shfl", "elect")


def result(opcode: str, values: Sequence[Value]) -> Value:
    """What an instruction makes of its operands behind the target."""
    if None in values:
        return _despite(opcode, values)
    found = computing(opcode)
    if found is None or found.operands != len(values):
        return None
    if tuple not in map(type, values):
        return found.of(*values)
    each = tuple(map(found.of, *[value if isinstance(value, tuple) else itertools.repeat(value) for value in values]))
    return same(each) if None not in each else None  # type: ignore[arg-type]


remembered = functools.lru_cache(maxsize=1 << 12)(result)
"""The same, of what is asked for again and again."""


def _despite(opcode: str, values: Sequence[Value]) -> Value:
    """What is known although an operand is not."""
    if opcode.startswith("and.") and 0 in values:
        return 0
    if opcode == "or.pred" and 1 in values:
        return 1
    if opcode.startswith("selp.") and len(values) == 3 and isinstance(values[2], int):
        return values[0 if values[2] else 1]
    return None


def each_of(change: Callable[[int], int], found: Value) -> Value:
    if isinstance(found, tuple):
        return tuple(change(one) for one in found)
    return None if found is None else change(found)


def same(found: tuple[int, ...]) -> Value:
    """One number where it is the same in all threads."""
    return found[0] if found.count(found[0]) == len(found) else found
