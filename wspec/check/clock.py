"""How long a check may take. What takes longer the larger a module is looks at the clock meanwhile.

The clock is that of the thread, in its own processor time: what else the machine or the process does must not decide
what is proved.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")
_BETWEEN = 127  # looks at which nothing is done: some tenths of a millisecond. Odd, for threads that take turns
_LOOKS = itertools.count()  # of all threads: an attribute of a thread's own for each look took 8 % of a proof


class TimeIsOver(Exception):
    """The check has taken as long as it may."""


class _Running(threading.local):
    deadline = math.inf  # of time.thread_time()


_RUNNING = _Running()


@contextmanager
def limited(until: float) -> Iterator[None]:
    """Until a time of time.thread_time(), or that of a limit around when this is earlier."""
    before = _RUNNING.deadline
    _RUNNING.deadline = min(before, until)
    try:
        yield
    finally:
        _RUNNING.deadline = before


def deadline() -> float:
    """When the time is over, as time.thread_time() says it."""
    return _RUNNING.deadline


def look() -> None:
    """Raises TimeIsOver when the time is over."""
    if next(_LOOKS) % _BETWEEN == 0 and time.thread_time() > _RUNNING.deadline:
        raise TimeIsOver


def timed(items: Iterable[T]) -> Iterator[T]:
    """The same items, with a look at the clock before each: `look`, without a call for every item."""
    looks = _LOOKS
    for item in items:
        if next(looks) % _BETWEEN == 0 and time.thread_time() > _RUNNING.deadline:
            raise TimeIsOver
        yield item


class Once(Generic[T]):
    """Things in no order, each once, and others that are added meanwhile, with a look at the clock before each."""

    def __init__(self, things: Iterable[T]) -> None:
        self.seen: set[T] = set()
        self._pending = list(things)

    def add(self, things: Iterable[T]) -> None:
        self._pending += things

    def __iter__(self) -> Iterator[T]:
        while self._pending:
            look()
            one = self._pending.pop()
            if one not in self.seen:
                self.seen.add(one)
                yield one
