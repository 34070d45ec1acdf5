"""The memory through which one block hands a tile's sums to another."""

from __future__ import annotations

PARTIALS = "wspec_partials"
"""The argument of such a kernel behind the table: int32, what one block leaves for another.

First the words that say that sums are there, WORDS for each of SLOTS slots, all zero between two launches; then the
sums of each slot.
"""


SLOTS, WORDS = 256, 512  # a block fills one slot at most, and a word belongs to a thread that multiplies
