"""Two functions side by side: what one has and the other has not.

Both have the same labels and branches in the same order, so their graphs of control flow are the same, and a place in
one is a place in the other. All instructions are equal, names of inner blocks aside, but for those that are listed:
barriers and arrivals that are gone, instructions that do nothing and are gone, and instructions that have come.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wspec.ptx.errors import PtxError
from wspec.ptx.flow import BRANCHES, reached
from wspec.ptx.operands import Number, Register, registers
from wspec.ptx.syntax import Function, Instruction, Label, Module


@dataclass(slots=True)
class Aligned:
    """The edited function with what is gone still in its place."""

    after: Function
    merged: Function
    gone: list[Instruction] = field(default_factory=list)
    come: list[Instruction] = field(default_factory=list)


def align(before: Module, after: Module) -> Aligned:
    """The entries side by side. Raises PtxError where they differ in another way."""
    one, other = before.entry(), after.entry()
    outside = [[(d.name, " ".join(d.text.split())) for d in module.directives] for module in (before, after)]
    if outside[0] != outside[1] or one.header != other.header or len(before.functions) != len(after.functions):
        raise PtxError("what stands outside of the functions differs")
    for function, again in zip(before.functions, after.functions, strict=True):
        if not function.is_entry and _Alignment(function, again).run().gone:
            raise PtxError(f"{function.name} differs")
    return _Alignment(one, other).run()


class _Alignment:
    def __init__(self, before: Function, after: Function) -> None:
        if before.tables.keys() != after.tables.keys() or list(before.tables.values()) != list(after.tables.values()):
            raise PtxError("a table of branches differs")
        self.before, self.after = before, after
        self.blocks: dict[int, int] = {}  # inner blocks: those of the first -> those of the second
        self.taken: set[int] = set()
        self.found = Aligned(after, Function(after.name, after.is_entry, after.header, after.start))

    def run(self) -> Aligned:
        """Raises PtxError where they differ otherwise."""
        left, right = reached(self.before), reached(self.after)
        body = self.found.merged.body
        i = j = 0
        while i < len(left) or j < len(right):
            a, b = left[i] if i < len(left) else None, right[j] if j < len(right) else None
            if a is not None and b is not None and self._same(a, b):
                body.append(b)
                i, j = i + 1, j + 1
            elif isinstance(b, Instruction) and self._has_come(b):
                body.append(b)
                self.found.come.append(b)
                j += 1
            elif isinstance(a, Instruction) and _may_go(a):
                body.append(a)
                self.found.gone.append(a)
                i += 1
            else:
                raise PtxError(f"{_shown(b)} stands where {_shown(a)} stood")
        self.found.merged.tables = self.after.tables
        self._types()
        return self.found

    def _same(self, a: Instruction | Label, b: Instruction | Label) -> bool:
        if isinstance(a, Label) or isinstance(b, Label):
            both = isinstance(a, Label) and isinstance(b, Label)
            return both and self._same_blocks(a.blocks, b.blocks) and self._name(a.name) == b.name
        if a.opcode != b.opcode or a.unless != b.unless or len(a.blocks) != len(b.blocks):
            return False
        if not a.blocks and not b.blocks:
            return a.text == b.text and a.guard == b.guard
        return self._same_inside(a, b)

    def _same_inside(self, a: Instruction, b: Instruction) -> bool:
        """Of two instructions in inner blocks, which may have other numbers."""
        if not self._same_blocks(a.blocks, b.blocks):
            return False
        if _bare(a.text) != _bare(b.text) or self._name(a.guard) != b.guard:
            return False
        names = [[name for operand in one.operands for name in registers(operand)] for one in (a, b)]
        return [self._name(name) for name in names[0]] == names[1]

    def _same_blocks(self, mine: tuple[int, ...], others: tuple[int, ...]) -> bool:
        """Are the inner blocks the same? What is first met is taken to be."""
        if len(mine) != len(others):
            return False
        for one, other in zip(mine, others, strict=True):
            if one not in self.blocks and other not in self.taken:
                self.blocks[one] = other
                self.taken.add(other)
            if self.blocks.get(one) != other:
                return False
        return True

    def _name(self, name: str) -> str:
        """What a name of the first function is in the second."""
        plain, mark, number = name.partition("#")
        return f"{plain}#{self.blocks.get(int(number), -1)}" if mark else name

    def _has_come(self, one: Instruction) -> bool:
        """Is it an early start, or does it work with a register of a block that the first function does not have?"""
        if one.name == "griddepcontrol":
            return True
        new = bool(one.blocks) and one.blocks[-1] not in self.taken
        return new and one.name not in BRANCHES and any("#" in name for name in _names(one))

    def _types(self) -> None:
        expected = {self._name(name): type for name, type in self.before.types.items()}
        if any(self.after.types.get(name) != type for name, type in expected.items()):
            raise PtxError("a register is declared otherwise")
        more = self.after.types.keys() - expected.keys()
        if any("#" not in name for name in more if not name.startswith("%") or "<" in name):
            raise PtxError("there are more registers")


def _names(one: Instruction) -> list[str]:
    return [one.guard, *(name for operand in one.operands for name in registers(operand))]


def _may_go(one: Instruction) -> bool:
    """May it be missing, if it can be shown that it is not needed?"""
    if one.opcode == "bar.sync":
        return not one.guard
    if one.opcode.startswith("mbarrier.arrive.shared"):
        return bool(one.guard)
    first, *rest = one.operands if one.opcode == "mov.b32" else (None,)
    constant = len(rest) == 1 and isinstance(rest[0], Number)
    return isinstance(first, Register) and constant and not one.guard


def _bare(text: str) -> str:
    return " ".join(text.split())


def _shown(one: Instruction | Label | None) -> str:
    return "the end" if one is None else f"the label {one.name}" if isinstance(one, Label) else f"'{one}'"
