"""Which instructions' values may be in a register."""

from __future__ import annotations

from collections.abc import Iterator

from wspec.bridge.sass.program import Program, blocks


class Reaching:
    """Of one section of code. An instruction under a predicate may leave what was there before."""

    def __init__(self, program: Program) -> None:
        self.program, self.parts = program, blocks(program)
        self.block_of = {at: first for first, part in self.parts.items() for at in range(first, part.end)}
        self.before: dict[int, list[int]] = {}
        for first, part in self.parts.items():
            for after in part.next:
                self.before.setdefault(after, []).append(first)

    def at(self, place: int, register: int) -> set[int]:
        """The instructions whose value of that register (a set of one) may be there before the one at `place`."""
        found: set[int] = set()
        seen: set[int] = set()
        todo = [(self.block_of[place], place)]
        while todo:
            first, end = todo.pop()
            for one in range(end - 1, first - 1, -1):
                if self.program.writes[one] & register:
                    found.add(one)
                    if one not in self.program.guarded:
                        break
            else:
                for before in self.before.get(first, ()):
                    if before not in seen:
                        seen.add(before)
                        todo.append((before, self.parts[before].end))
        return found


def single(registers: int) -> Iterator[int]:
    """Each register of a set, as a set of one."""
    while registers:
        low = registers & -registers
        yield low
        registers ^= low
