"""Which instructions write which registers of a function."""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ptx.effects import has_target, writes
from wspec.ptx.syntax import Function, Instruction


class Writers:
    """Of one function."""

    def __init__(self, function: Function) -> None:
        self._found: dict[str, list[Instruction]] = {}
        self._targets: dict[Instruction, tuple[str, ...]] = {}
        for one in function.instructions:
            if has_target(one):
                self._targets[one] = _targets(one)
                for name in self._targets[one]:
                    self._found.setdefault(name, []).append(one)

    def targets(self, one: Instruction) -> tuple[str, ...]:
        """The registers that an instruction of the function writes."""
        return self._targets.get(one, ())

    def of(self, name: str) -> Sequence[Instruction]:
        """All that write the register."""
        return self._found.get(name, ())


def _targets(one: Instruction) -> tuple[str, ...]:
    """`writes`, from the text where that is plain: most operands are never read otherwise."""
    if one.declared:
        return writes(one)
    head, found, _ = one.text.partition(",")
    if found and head.isascii() and "{" not in head and "|" not in head and "[" not in head:
        return (head.strip(),)
    if one.text.lstrip().startswith("{"):
        inside = one.text[one.text.index("{") + 1 : one.text.index("}")]
        return tuple(name for name in (part.strip() for part in inside.split(",")) if name != "_")
    return writes(one)
