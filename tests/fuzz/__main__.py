"""`python -m tests.fuzz`. See docs/fuzzing.md."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Processes are forked and must have no threads: that is said before numpy and torch are loaded."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from tests.fuzz.command import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
