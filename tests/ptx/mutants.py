"""Mutants of PTX: every instruction by which threads wait for each other left out, done twice, moved, or changed.

They are made of the parsed text. A wait at an mbarrier is its whole loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wspec.ptx.syntax import Function, Instruction, Label, Module

Statement = Instruction | Label
_NAMES = ("mbarrier", "bar", "barrier", "fence", "wgmma", "setmaxnreg", "griddepcontrol")
_NUMBER = re.compile(r"(?<![\w%.$])(\d+)(?![\w.])")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change: what was done to which instruction."""

    operator: str
    what: str
    past: str  # what it was moved past; ""
    body: list[Statement]

    def of(self, module: Module) -> Module:
        """The module with the change."""
        entry = module.entry()
        changed = Function(
            entry.name, True, entry.header, entry.start, self.body, entry.directives, entry.tables, entry.types
        )
        functions = [changed if one is entry else one for one in module.functions]
        return Module(module.text, functions, module.directives, module.comments)


def mutants(module: Module) -> Iterator[Mutant]:
    """All of the entry."""
    body = module.entry().body
    units = list(_units(body))
    for number, (start, end) in enumerate(units):
        unit = body[start:end]
        one = next(statement for statement in unit if isinstance(statement, Instruction))
        what = str(one)
        yield Mutant("drop", what, "", [*body[:start], *body[end:]])
        yield Mutant("double", what, "", [*body[:end], *unit, *body[end:]])
        if number > 0:
            place, past = units[number - 1][0], _shown(body, units[number - 1])
            if past != what or units[number - 1][1] != start:
                yield Mutant("hoist", what, past, [*body[:place], *unit, *body[place:start], *body[end:]])
        if number + 1 < len(units):
            place, past = units[number + 1][1], _shown(body, units[number + 1])
            if past != what or units[number + 1][0] != end:
                yield Mutant("sink", what, past, [*body[:start], *body[end:place], *unit, *body[place:]])
        for operator, changed in _changes(one, body):
            at = body.index(one, start, end)
            yield Mutant(operator, what, "", [*body[:at], changed, *body[at + 1 :]])


def _shown(body: Sequence[Statement], unit: tuple[int, int]) -> str:
    return str(next(one for one in body[slice(*unit)] if isinstance(one, Instruction)))


def _units(body: Sequence[Statement]) -> Iterator[tuple[int, int]]:
    """The places of what synchronizes: of an instruction, or of the loop of a wait."""
    for at, one in enumerate(body):
        if not isinstance(one, Instruction) or not _synchronizes(one):
            continue
        if one.opcode.startswith("mbarrier.try_wait"):
            yield at - 1, at + 2  # its label, and the branch back
        else:
            yield at, at + 1


def _synchronizes(one: Instruction) -> bool:
    if one.opcode.startswith("wgmma.mma_async"):
        return False
    return one.name in _NAMES or one.opcode.startswith("cp.async")


def _changes(one: Instruction, body: Sequence[Statement]) -> Iterator[tuple[str, Instruction]]:
    """Other numbers, another phase, another address, another predicate."""
    for match in _NUMBER.finditer(one.text):
        number = int(match[1])
        for other in {number + 1, max(number - 1, 0), 2 * number, number ^ 128} - {number}:
            inside = one.text.count("[", 0, match.start()) > one.text.count("]", 0, match.start())
            yield (
                "offset" if inside else "number",
                _with(one, text=f"{one.text[: match.start()]}{other}{one.text[match.end() :]}"),
            )
    registers = re.findall(r"%r\d+", one.text)
    others = (name for other in body if isinstance(other, Instruction) and other.opcode == one.opcode
              for name in re.findall(r"%r\d+", other.text))  # fmt: skip
    for name in dict.fromkeys(registers):
        found = next((other for other in others if other != name), "%r0")
        yield "register", _with(one, text=re.sub(rf"{name}\b", found, one.text))
    if one.guard:
        yield "predicate", _with(one, guard="")
        yield "predicate", _with(one, unless=not one.unless)
    else:
        yield "predicate", _with(one, guard="%p1")


def _with(one: Instruction, **changes: object) -> Instruction:
    return replace(one, **changes)  # type: ignore[arg-type]
