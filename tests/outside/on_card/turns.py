"""Processes that share a card: many may compare at a time, one that times is alone with it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path


class Turns:
    """A lock that all processes of a run share. Whoever holds nothing only uses the processor."""

    def __init__(self, path: Path, settle: Callable[[], object] = lambda: None) -> None:
        """`settle` waits for the card, before it is given to others."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        self._door = os.open(path.with_name(f"{path.name}.door"), os.O_RDWR | os.O_CREAT)
        self._settle = settle
        self._held = fcntl.LOCK_UN

    @contextlib.contextmanager
    def _hold(self, kind: int) -> Iterator[None]:
        before = self._held
        self._to(kind)
        try:
            yield
        finally:
            self._to(before)

    def _to(self, kind: int) -> None:
        if self._held != fcntl.LOCK_UN:
            self._settle()
            fcntl.flock(self._file, fcntl.LOCK_UN)  # changing a lock is no single step anyway
        if kind != fcntl.LOCK_UN:
            fcntl.flock(self._door, kind)  # who waits to be alone keeps it shut
            fcntl.flock(self._file, kind)
            fcntl.flock(self._door, fcntl.LOCK_UN)
        self._held = kind

    def beside_others(self) -> contextlib.AbstractContextManager[None]:
        """On the card, beside others that do not time."""
        return self._hold(fcntl.LOCK_SH)

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """On the card, and nobody else."""
        return self._hold(fcntl.LOCK_EX)

    def away(self) -> contextlib.AbstractContextManager[None]:
        """Not on the card."""
        return self._hold(fcntl.LOCK_UN)
