"""Which instructions write which registers of a function."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from wspec.ptx.effects import writes
from wspec.ptx.syntax import Function, Instruction


class Writers:
    """Of one function, which is looked through when something is first asked for."""

    def __init__(self, function: Function) -> None:
        self._function = function

    @functools.cached_property
    def _targets(self) -> dict[Instruction, tuple[str, ...]]:
        made = ((one, writes(one)) for one in self._function.body if isinstance(one, Instruction))
        return {one: names for one, names in made if names}

    @functools.cached_property
    def _found(self) -> dict[str, list[Instruction]]:
        found: dict[str, list[Instruction]] = {}
        for one, names in self._targets.items():
            for name in names:
                if name in found:
                    found[name].append(one)
                else:
                    found[name] = [one]
        return found

    def targets(self, one: Instruction) -> tuple[str, ...]:
        """The registers that an instruction of the function writes."""
        return self._targets.get(one, ())

    def of(self, name: str) -> Sequence[Instruction]:
        """All that write the register."""
        return self._found.get(name, ())
