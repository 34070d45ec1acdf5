"""At which barrier of the block a role's threads meet, where the number stands in a register.

LLVM merges equal ends of tasks. What is different in them, as the barrier of a task's own threads, it puts in a
register that each of the tasks has set before (`mov.b32 %r9, 3; ... bar.sync %r9, 128;`).
"""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ptx.fixed_points import all_from
from wspec.ptx.flow import Block
from wspec.ptx.operands import Number, Register, number_of
from wspec.ptx.registers import Writers
from wspec.ptx.roles import Role
from wspec.ptx.syntax import Instruction


class BarrierNumbers:
    """Of a function with these blocks."""

    def __init__(self, blocks: Sequence[Block], writers: Writers) -> None:
        self._blocks, self._writers = blocks, writers
        self._found: dict[tuple[Instruction, Role], int | None] = {}

    def of(self, one: Instruction, role: Role) -> int | None:
        """The number at a barrier (`bar.sync number, threads`) whenever threads of the role come to it; None where that
        is not known."""
        first = one.operands[0] if one.operands else None
        if isinstance(first, Number):
            return first.value
        if not isinstance(first, Register) or first.negated:
            return None
        if (one, role) not in self._found:
            self._found[one, role] = self._set_to(first.name, one, role)
        return self._found[one, role]

    def _set_to(self, name: str, one: Instruction, role: Role) -> int | None:
        """The one number that a role sets a register to, on every way to an instruction."""
        writers = set(self._writers.of(name))
        reached = {0, *role.blocks, *role.way}
        values = {_number(one) for number in reached for one in self._blocks[number].instructions if one in writers}
        return values.pop() if len(values) == 1 and self._is_set(one, role, writers) else None

    def _is_set(self, one: Instruction, role: Role, setters: set[Instruction]) -> bool:
        """Does every way from the role's start to the instruction lead through one of those that set the register?"""
        if any(not setters.isdisjoint(self._blocks[number].instructions) for number in role.way[:-1]):
            return True

        def unset(number: int) -> list[int]:
            block = self._blocks[number]
            return [way for way in block.follow if way in role.blocks] if setters.isdisjoint(block.instructions) else []

        reached = (self._blocks[number].instructions for number in all_from((role.start[0],), unset))
        return not any(one in inside and setters.isdisjoint(inside[: inside.index(one)]) for inside in reached)


def _number(one: Instruction) -> int | None:
    """What `mov` sets a register to; None of anything else."""
    return number_of(one.operands[1]) if one.name == "mov" and not one.guard and len(one.operands) == 2 else None
