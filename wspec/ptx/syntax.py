"""What a text of PTX consists of."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from wspec.ptx.errors import PtxError
from wspec.ptx.operands import Operand, operands_of


@dataclass(eq=False)
class Instruction:
    """One instruction. Its operands are read when they are first asked for."""

    opcode: str  # with its modifiers: mbarrier.try_wait.parity.shared.b64
    name: str  # the first word of it
    text: str  # of the operands, without comments
    guard: str  # the predicate under which it is executed; "" without one
    unless: bool  # `@!p`
    start: int  # characters of the text, with the guard and the semicolon
    end: int
    loc: str  # what the last .loc says: file, line, column; "" before the first
    declared: Mapping[str, str]  # by blocks around it: names of registers -> unique ones
    blocks: tuple[int, ...] = ()  # the inner blocks that it is in, by their numbers, from the outside

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        """Raises PtxError."""
        return operands_of(self.text, self.declared)

    @property
    def modifiers(self) -> list[str]:
        """The opcode's words behind the first."""
        return self.opcode.split(".")[1:]

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for instructions that do the same."""
        return (self.opcode, self.guard, self.unless, self.operands)

    def __str__(self) -> str:
        guard = f"@{'!' if self.unless else ''}{self.guard} " if self.guard else ""
        return f"{guard}{self.opcode} {' '.join(self.text.split())}".rstrip() + ";"


@dataclass(frozen=True, slots=True)
class Label:
    """A place that branches name."""

    name: str  # with `#n` behind it in the inner block n
    start: int
    blocks: tuple[int, ...] = ()  # the inner blocks that it is in


@dataclass(frozen=True, slots=True)
class Directive:
    """`.reg`, `.pragma`, ..., but for `.loc`, which the instructions have."""

    name: str  # with the dot
    text: str  # what follows
    start: int


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment, with what begins and ends it."""

    text: str
    start: int


@dataclass(slots=True)
class Function:
    """An entry or a function that has a body."""

    name: str
    is_entry: bool
    header: str
    start: int = 0  # of the text: where the header begins
    body: list[Instruction | Label] = field(default_factory=list)
    directives: list[Directive] = field(default_factory=list)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of brx.idx: label -> labels
    types: dict[str, str] = field(default_factory=dict)  # `%r<260>` or a name -> its type, e.g. b32

    @property
    def instructions(self) -> list[Instruction]:
        return [one for one in self.body if isinstance(one, Instruction)]


@dataclass(slots=True)
class Module:
    """A file."""

    text: str
    functions: list[Function] = field(default_factory=list)
    directives: list[Directive] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)

    def line(self, start: int) -> int:
        """The line of a place in the text, from 1."""
        return self.text.count("\n", 0, start) + 1

    def entry(self) -> Function:
        """The only entry. Raises PtxError."""
        found = [one for one in self.functions if one.is_entry]
        if len(found) != 1:
            raise PtxError(f"there are {len(found)} entries")
        return found[0]
