"""A launch whose numbers are drawn: what a kernel's arguments are, which block runs, and what lies in memory.

For comparing two texts of one kernel by what they compute: where two sums differ, they differ for nearly all numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_REGION = 40  # bits of an address that say where in an argument's memory it is
_MIXED, _SHIFT = 0x9E3779B97F4A7C15, 40
_BITS64 = (1 << 64) - 1
_LARGEST = 16  # above what integers are in memory


@dataclass(frozen=True, slots=True)
class Launch:
    """`arguments`: by number; None of those that are no integers and no pointers. `sizes`: by number of a pointer, of
    how many bytes the elements are that it points to."""

    seed: int
    arguments: Sequence[int | None]
    sizes: Mapping[int, int]
    block: tuple[int, int, int]
    blocks: tuple[int, int, int]

    def memory(self, address: int, size: int) -> int:
        """The bytes there, the lowest first: small integers of the size of the elements."""
        element = self.sizes.get((address >> _REGION) - 1, 4)
        found = 0
        for at in range(size):
            if not (address + at) % element:
                mixed = (address + at + self.seed) * _MIXED & _BITS64
                found |= (mixed >> _SHIFT) % _LARGEST << 8 * at
        return found


def base_of(number: int) -> int:
    """Where an argument's memory begins."""
    return number + 1 << _REGION
