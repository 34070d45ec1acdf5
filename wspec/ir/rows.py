"""Rows that must lie apart: what a proof needs to hold of a launch's numbers, as a value.

A tile of pointers has elements at `p + row * stride + column`, a box of a descriptor likewise. That two tiles have no
row in common says that they have no element in common only where no row reaches into another one. The checker says
which numbers that hangs on (`Apart`), and each launch computes them. Arguments are named by their position in the
function, where a tensor descriptor is followed by its shape and strides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

UNKNOWN = "found"  # whatever fits its bits
COUNT = "place"  # at least 0 and less than `value`
INFINITE = 1 << 200  # no bound


@dataclass(frozen=True, slots=True)
class Number:
    """An integer of a launch, computed from those at the positions `operands` of the same list, all before it.

    `name`: constant, argument, program_id and num_programs, of which `value` says which; induction, of first value, end
    and step; select, cast; UNKNOWN and COUNT; or what arith calls it.
    """

    name: str
    bits: int
    operands: tuple[int, ...] = ()
    value: int = 0


@dataclass(frozen=True, slots=True)
class Dimension:
    """Coordinates of two tiles, which lie `step` apart from one to the next; numbers by their position.

    Two of them differ by no more than `spread`, nor by more than lies between `low` and `high`; None: it is not known.
    """

    step: int
    spread: int | None
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class Apart:
    """Two tiles have no coordinate of `rows` in common, and are apart if no row reaches into another one."""

    numbers: tuple[Number, ...]
    rows: Dimension
    others: tuple[Dimension, ...]

    @property
    def arguments(self) -> tuple[int, ...]:
        """The positions of the arguments that decide."""
        return tuple(sorted({one.value for one in self.numbers if one.name == "argument"}))

    def holds(self, known: Sequence[tuple[int, int]]) -> bool:
        """`known`: (least, most) of every number over all programs of a launch, and all their iterations."""
        return reaches_nowhere(_measured(self.rows, known), [_measured(one, known) for one in self.others])

    def to_data(self) -> dict[str, Any]:
        """As numbers, texts and lists, for a file."""
        dims = [[one.step, one.spread, one.low, one.high] for one in (self.rows, *self.others)]
        return {"numbers": [[n.name, n.bits, list(n.operands), n.value] for n in self.numbers], "dimensions": dims}

    @staticmethod
    def from_data(data: Any) -> Apart:
        """Read `to_data`'s form. Raises TypeError or ValueError."""
        numbers = tuple(Number(name, bits, tuple(of), value) for name, bits, of, value in data["numbers"])
        rows, *others = (Dimension(*one) for one in data["dimensions"])
        return Apart(numbers, rows, tuple(others))


Measured = tuple[int, int, int]  # least and most of what a step may be, and how many of them two elements may differ by


def _measured(one: Dimension, known: Sequence[tuple[int, int]]) -> Measured:
    low, high = known[one.step]
    if low < 0:
        low, high = (-high, -low) if high <= 0 else (0, max(-low, high))
    reach = INFINITE if one.spread is None else one.spread
    if one.low is not None and one.high is not None:
        reach = min(reach, max(0, known[one.high][1] - known[one.low][0]))
    return low, high, reach


def reaches_nowhere(rows: Measured, others: Iterable[Measured]) -> bool:
    """Is there no way from an element to one of another row that has the same place?

    Steps are taken as the digits of a number are: each is longer than all that the shorter ones can make up together.
    Those that are shorter than a row's may be anything that does not make up one. Of one row there is no other.
    """
    if not rows[2]:
        return True
    most = 0  # what the shorter ones make up
    longer = []
    for low, high, reach in sorted(one for one in others if one[2]):
        if low < rows[0]:
            most += high * reach
        else:
            longer.append((low, high, reach))
    if rows[0] <= most:
        return False
    most += rows[1] * rows[2]
    for low, high, reach in longer:
        if low <= most:
            return False
        most += high * reach
    return True
