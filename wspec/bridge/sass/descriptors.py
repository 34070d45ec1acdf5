"""Does every wgmma find its matrix descriptors, whichever way it was reached?

Where a loop's last product stands behind the loop, ptxas may compute its descriptor before the loop, and only on the
way that enters it: on the other way the registers still hold what something else has left there (seen with 12.8.93). To
the question whether registers are assigned (miscompiled.py) nothing is wrong with that, so another one is asked. The
upper half of a descriptor is a constant: how rows are swizzled, and how far apart groups of rows are (PTX ISA, "Matrix
descriptor"). So of the values that may be in its register all that can be told have to be the same constant, within the
carries of additions, and none may be something that such a constant never is: shifted, read from a special register.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from wspec.bridge.sass.machine_code import Code, Instruction, names, registers
from wspec.bridge.sass.program import Program, program_of
from wspec.bridge.sass.reaching import Reaching, single


class _Kind(Enum):
    UNKNOWN = "cannot be told"
    FOREIGN = "no descriptor's"


UNKNOWN: Final = _Kind.UNKNOWN
FOREIGN: Final = _Kind.FOREIGN
Value = int | Literal[_Kind.UNKNOWN, _Kind.FOREIGN]

_SUMS = frozenset({"UIADD3", "IADD3", "VIADD"})
_OPAQUE = frozenset({"LDL", "LDC", "ULDC", "ULOP3", "LOP3", "USEL", "SEL", "IMAD", "UIMAD", "PRMT", "UPRMT", "CS2R"})
"""What they bring may be a constant that was put aside, or made in a way that is not followed."""
_WORD = 1 << 32
_CARRIES = 4  # of additions on the way to an upper half: each brings 1 at most
_MOST_VALUES = 16
_IMMEDIATE = re.compile(r"-?0x[0-9a-f]+|-?\d+")
_NAME = re.compile(r"(-?)(U?R)(\d+|Z)(?:\.reuse|\.H0_H0)?")


@dataclass(frozen=True, slots=True)
class Stale:
    """A product that may find something else where its descriptor should be."""

    instruction: Instruction
    registers: tuple[str, ...]
    by: Instruction

    def __str__(self) -> str:
        there = f"{self.instruction.address:#x} ({self.instruction})"
        what = f"what {self.by.address:#x} ({self.by}) has left there for something else"
        return f"{there} reads half of a descriptor from {self.registers[0]}, which on some way there holds {what}"


def may_be_stale(program: Program) -> bool:
    """Has the upper half of a descriptor more than one source?"""
    reaching = Reaching(program)
    return any(len(reaching.at(at, one)) > 1 for at, halves in program.upper_halves.items() for one in single(halves))


def stale(code: Code) -> Iterator[Stale]:
    """Those of a section, in program order; each product once."""
    search = _Search(code)
    for at, halves in search.program.upper_halves.items():
        for register in single(halves):
            found = search.wrong(at, register)
            if found is not None:
                yield Stale(code.instructions[at], tuple(names(register)), code.instructions[found])
                break


class _Search:
    """What is in registers, as far as it is a constant."""

    def __init__(self, code: Code) -> None:
        self.code, self.program = code, program_of(code)
        self.reaching = Reaching(self.program)

    def wrong(self, at: int, register: int) -> int | None:
        """The instruction that may have left something else than the descriptor's upper half in this register."""
        sources = sorted(self.reaching.at(at, register), reverse=True)
        if len(sources) < 2:
            return None
        found = {place: self._values(place, register, frozenset()) for place in sources}
        constants = [one for values in found.values() for one in values if isinstance(one, int)]
        for place, values in found.items():
            if constants and (FOREIGN in values or any(not _near(one, constants[0]) for one in values)):
                return place
        return None

    def _values(self, place: int, register: int, seen: frozenset[int]) -> Set[Value]:
        """What the instruction may leave in one of the registers that it writes."""
        one = self.code.instructions[place]
        if place in seen:
            return frozenset()  # round a loop nothing new comes
        seen |= {place}
        root, operands = one.root, [part.strip() for part in one.operands.split(",")]
        if one.is_copy:
            return self._operand(place, operands[-1], 0, seen)
        if root in _SUMS:
            wide = ".64" in one.name
            added = [part for part in operands[1:] if not part.removeprefix("!").startswith(("UP", "P"))]
            half = int(wide and register != registers(*_first(operands[0])))
            return _sums([self._operand(place, part, half, seen) for part in added])
        return {UNKNOWN if root in _OPAQUE else FOREIGN}

    def _operand(self, place: int, text: str, half: int, seen: frozenset[int]) -> Set[Value]:
        """An operand's values; half: 1 for the upper one of a pair or of a number of 64 bits."""
        if _IMMEDIATE.fullmatch(text):
            return {(int(text, 0) >> 32 * half) % _WORD}
        match = _NAME.fullmatch(text)
        if match is None:
            return {UNKNOWN}
        sign, kind, number = match.groups()
        if number == "Z":
            return {0}
        register = registers(kind, int(number) + half)
        sources = self.reaching.at(place, register)
        found = {value for one in sources for value in self._values(one, register, seen)}
        if sign:
            found = {-value % _WORD if isinstance(value, int) else value for value in found}
        return found if len(found) <= _MOST_VALUES else {UNKNOWN}


def _sums(parts: list[Set[Value]]) -> Set[Value]:
    found: set[Value] = {0}
    for part in parts:
        found = {_sum(one, other) for one in found for other in part}
        if len(found) > _MOST_VALUES:
            return {UNKNOWN}
    return found


def _sum(one: Value, other: Value) -> Value:
    if isinstance(one, int) and isinstance(other, int):
        return (one + other) % _WORD
    return FOREIGN if FOREIGN in (one, other) else UNKNOWN


def _near(one: Value, constant: int) -> bool:
    if not isinstance(one, int):
        return True
    apart = (one - constant) % _WORD
    return min(apart, _WORD - apart) <= _CARRIES


def _first(operand: str) -> tuple[str, int]:
    kind = operand.rstrip("0123456789")
    return kind, int(operand[len(kind) :])
