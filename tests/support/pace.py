"""How fast the machine is just now, for bounds on time that are given for one that is not slow."""

from __future__ import annotations

import time

ROUNDS = 200_000
USUAL_S = 0.02
"""What the loop takes on a core of 3 GHz that has nothing else to do, CPython 3.11."""


def slowness() -> float:
    """By what a time is longer here than it would be there: the best of five loops over the usual time, at least 1."""
    return max(1.0, min(_loop() for _ in range(5)) / USUAL_S)


def _loop() -> float:
    start, total = time.process_time(), 0
    for at in range(ROUNDS):
        total += at * at
    return time.process_time() - start
