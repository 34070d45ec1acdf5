"""python -m tests.passes.pointer_promotion [COUNT] [FIRST]: drawn kernels against their promoted forms."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.passes.pointer_promotion.traps import Count, same


def main() -> int:
    """How many launches differ."""
    total, first = (int(text) for text in (*sys.argv[1:], "500", "0")[:2])
    count = Count()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + total):
            for found in same(seed, Path(folder), count):
                print(found)
    print(count)
    return count.wrong


if __name__ == "__main__":
    sys.exit(min(main(), 1))
