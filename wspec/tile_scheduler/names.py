"""Names that kernels and launches share."""

from __future__ import annotations

TABLE = "wspec_tiles"
"""The argument of a persistent kernel that takes the table, as wspec/passes/persist.py names it."""

PARTIALS = "wspec_partials"
"""The argument behind the table of a kernel that divides tiles: int32, the sums that one block leaves for another.

First the words that say that sums are there, WORDS for each of SLOTS slots, all zero between two launches; then the
sums of each slot.
"""

SLOTS, WORDS = 256, 512  # a block fills one slot at most, and a word belongs to a thread that multiplies
