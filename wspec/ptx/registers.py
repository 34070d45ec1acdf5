"""Which instructions write which registers of a function."""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ptx.effects import writes
from wspec.ptx.syntax import Function, Instruction


class Writers:
    """Of one function."""

    def __init__(self, function: Function) -> None:
        self._found: dict[str, list[Instruction]] = {}
        self._targets: dict[Instruction, tuple[str, ...]] = {}
        for one in function.instructions:
            made = writes(one)
            if made:
                self._targets[one] = made
            for name in made:
                self._found.setdefault(name, []).append(one)

    def targets(self, one: Instruction) -> tuple[str, ...]:
        """The registers that an instruction of the function writes."""
        return self._targets.get(one, ())

    def of(self, name: str) -> Sequence[Instruction]:
        """All that write the register."""
        return self._found.get(name, ())
