"""Which arguments of a function are taken to point to memory that does not overlap: an assumption, as a value.

The compiler makes it where a task may load before another one stores, the launcher compares the arguments' memory, and
the checker is told. Arguments are named by their position in the function, where a tensor descriptor is followed by its
shape and strides.
"""

from __future__ import annotations

from dataclasses import dataclass

Pair = tuple[int, int]  # positions of two arguments, the lower one first


@dataclass(frozen=True, slots=True)
class Disjoint:
    """What of an argument's memory no other argument reaches."""

    pairs: frozenset[Pair] = frozenset()  # compared at each launch
    own: int | None = None  # from this position on arguments are memory of the launcher's own, which no other reaches
    every: bool = False  # no two arguments overlap

    def apart(self, one: int, other: int) -> bool:
        """Is the memory of two arguments taken not to overlap? An argument's overlaps itself."""
        if one == other:
            return False
        low, high = min(one, other), max(one, other)
        return self.every or (self.own is not None and high >= self.own) or (low, high) in self.pairs


NONE = Disjoint()
EVERY = Disjoint(every=True)
