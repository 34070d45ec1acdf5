"""A launch whose numbers are drawn: what a kernel's arguments are, which block runs, and what lies in memory.

For comparing two texts of one kernel by what they compute: where two sums differ, they differ for nearly all numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_REGION = 40  # bits of an address that say where in an argument's memory it is
_MIXED, _SHIFT, _WHICH, _HOW = 0x9E3779B97F4A7C15, 40, 30, 20
_BITS64 = (1 << 64) - 1
_BESIDE, _OF = (-1, 0, 1), 6  # what is added to multiples, of so many numbers
SMALL = (3, 16)
MIXED = (3, 16, 256, 4096, 16, 256, 4096, 1 << 24)
"""Above what integers are in memory; of several, each place has one."""


@dataclass(frozen=True, slots=True)
class Launch:
    """`arguments`: by number; None of those that are no integers and no pointers. `sizes`: by number of a pointer, of
    how many bytes the elements are that it points to."""

    seed: int
    arguments: Sequence[int | None]
    sizes: Mapping[int, int]
    block: tuple[int, int, int]
    blocks: tuple[int, int, int]
    largest: tuple[int, ...] = SMALL
    near: tuple[int, ...] = ()  # half of the integers in memory are a multiple of one of these, one less or one more

    def memory(self, address: int, size: int) -> int:
        """The bytes there, the lowest first: small integers of the size of the elements."""
        element = self.sizes.get((address >> _REGION) - 1, 4)
        found, at = 0, address - address % element
        while at < address + size:
            by = 8 * (at - address)
            value = self._element(at, 8 * element)
            found |= value << by if by >= 0 else value >> -by
            at += element
        return found & (1 << 8 * size) - 1

    def _element(self, address: int, bits: int) -> int:
        mixed = (address + self.seed) * _MIXED & _BITS64
        found = mixed >> _SHIFT
        largest = self.largest[(mixed >> _WHICH) % len(self.largest)]
        found %= min(largest, 1 << bits - 1)
        which, by = divmod((mixed >> _HOW) % (_OF * len(self.near)), _OF) if self.near else (0, _OF)
        if by >= len(_BESIDE):
            return found
        near = self.near[which]
        return found // near * near + _BESIDE[by] & (1 << bits) - 1


def base_of(number: int) -> int:
    """Where an argument's memory begins."""
    return number + 1 << _REGION
