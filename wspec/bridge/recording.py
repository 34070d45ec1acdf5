"""Writing down what a launch came to, so that one like it can be made without deciding anything anew."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Recorded:
    """What a launch came to."""

    block: Any = None  # a copy of its arguments (`launcher.Block`)
    function: int = 0
    places: Sequence[int] = ()  # in the block, of the address of each argument; -1: it has none
    kept: list[Any] = field(default_factory=list)  # memory that it takes for granted
    relied: list[weakref.ref[Any]] = field(default_factory=list)  # that others keep, for a while
    guards: list[Any] = field(default_factory=list)  # that looked at the arguments
    launches: int = 0
    once: bool = False  # what was decided holds for this launch only


class _Recording(threading.local):
    """Of the launches of a thread."""

    now: Recorded | None = None


class _State:
    def __init__(self) -> None:
        self.count = 0  # launches being recorded, in all threads: nobody else looks further
        self._of_thread = _Recording()
        self._lock = threading.Lock()

    @contextmanager
    def on(self) -> Iterator[Recorded]:
        """Record the launch of this thread inside."""
        made = Recorded()
        with self._lock:
            self.count += 1
        self._of_thread.now = made
        try:
            yield made
        finally:
            self._of_thread.now = None
            with self._lock:
                self.count -= 1

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is launched inside is no part of the launch that is recorded."""
        now, self._of_thread.now = self._of_thread.now, None
        try:
            yield
        finally:
            self._of_thread.now = now

    @property
    def now(self) -> Recorded | None:
        """Of this thread, if it is recording."""
        return self._of_thread.now if self.count else None

    def keep(self, *memory: Any) -> None:
        """What the launch takes for granted."""
        if (now := self._of_thread.now) is not None:
            now.kept += memory

    def rely(self, one: Any) -> None:
        """What the launch takes for granted while somebody else keeps it."""
        if (now := self._of_thread.now) is not None:
            now.relied.append(weakref.ref(one))

    def note(self, block: Any, function: int, places: Sequence[int]) -> None:
        """The launch that was made."""
        if (now := self._of_thread.now) is not None:
            now.block, now.function, now.places = block.copy(), function, places
            now.launches += 1

    def start(self, early: bool) -> None:
        """Made again, the launch that was just made starts so, whatever it did this once."""
        if (now := self._of_thread.now) is not None and now.block is not None:
            now.block.start(early)


recording = _State()
