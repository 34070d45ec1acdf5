"""Addresses that are known: a variable, and how many bytes behind it."""

from __future__ import annotations

from wspec.ptx.effects import writes
from wspec.ptx.operands import Address, Number, Operand, Register, Symbol
from wspec.ptx.syntax import Function, Instruction

Place = tuple[str, int]
"""A variable and an offset in bytes."""


class Addresses:
    """Of one function; a register counts where a single instruction writes it."""

    def __init__(self, function: Function) -> None:
        self._instructions = function.instructions
        self._known: dict[str, Place | None] = {}

    def of(self, operand: Operand) -> Place | None:
        """The place that an address or a value stands for; None where it is not known."""
        match operand:
            case Address(base, offset, ()):
                return _moved(self.of(base), offset)
            case Symbol(name):
                return name, 0
            case Register(name, False):
                if name not in self._known:
                    self._known[name] = None  # of one that depends on itself
                    self._known[name] = self._made(name)
                return self._known[name]
        return None

    def _made(self, name: str) -> Place | None:
        makers = [one for one in self._instructions if name in one.text and name in writes(one)]
        if len(makers) != 1 or makers[0].guard:
            return None
        return self._result(makers[0])

    def _result(self, one: Instruction) -> Place | None:
        if one.opcode in ("mov.b32", "mov.u32", "mov.b64", "mov.u64"):
            return self.of(one.operands[1])
        if one.opcode in ("add.s32", "add.u32", "add.s64", "add.u64") and isinstance(one.operands[2], Number):
            by = one.operands[2].value
            return None if by is None else _moved(self.of(one.operands[1]), by)
        return None


def _moved(place: Place | None, by: int) -> Place | None:
    return None if place is None else (place[0], place[1] + by)
