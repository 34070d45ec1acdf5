"""python -m tests.passes.pointer_promotion [COUNT] [FIRST] [sequences]: drawn kernels against their promoted forms.

With `sequences` those whose rows, experts and pages are numbers in memory.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.passes.pointer_promotion import sequences, traps
from tests.passes.pointer_promotion.traps import Count


def main() -> int:
    """How many launches differ."""
    given = [text for text in sys.argv[1:] if text != "sequences"]
    same = sequences.same if len(given) < len(sys.argv) - 1 else traps.same
    total, first = (int(text) for text in (*given, *("500", "0")[len(given) :]))
    count = Count()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + total):
            for found in same(seed, Path(folder), count):
                print(found)
    print(count)
    return count.wrong


if __name__ == "__main__":
    sys.exit(min(main(), 1))
