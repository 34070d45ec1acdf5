"""Writing down what a launch came to, so that one like it can be made without deciding anything anew."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Derived(NamedTuple):
    """A descriptor that a launch made."""

    place: int  # in the launch
    argument: int  # the place of the one whose address it is made of
    offset: int  # so many bytes behind that it begins
    begins: Callable[[int], bool] | None = None  # can it, at an address? None: anywhere


@dataclass(slots=True)
class Recorded:
    """What a launch came to."""

    block: Any = None  # in which it was laid out (`launcher.Block`)
    contents: bytearray = field(default_factory=bytearray)  # of that, then
    function: int = 0
    places: Sequence[int] = ()  # in the block, of the address of each argument; -1: it has none
    kept: list[Any] = field(default_factory=list)  # memory that it takes for granted
    relied: list[Callable[[], Any]] = field(default_factory=list)
    """What it takes for granted for a while: None of one of these says at a launch that it is over."""
    derived: list[Derived] | None = None  # the descriptors that the launch made
    scratch: Any = None  # the memory that it took for itself (`launcher.Scratch`)
    apart: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Arguments that must not share memory: (one, its bytes, another, its bytes), by their place in the launch."""
    guard: Any = None  # that looked at `apart`
    rows: Any = None  # what looked at rows (`row_guard.RowGuard`)
    chooser: Any = None  # which of several binaries (`choice.Chooser`), and
    chosen: Any = None  # what it said
    tables: Any = None  # of tiles, of which the launch has one (`persistent.Tables`)
    launches: int = 0
    once: bool = False  # what was decided holds for this launch only
    alone: bool = False  # or for others of its size only


class _Recording(threading.local):
    """Of the launches of a thread."""

    now: Recorded | None = None


class _State:
    def __init__(self) -> None:
        self.count = 0  # launches being recorded, in all threads: nobody else looks further
        self.of_thread = _Recording()
        self.lock = threading.Lock()

    @contextmanager
    def on(self) -> Iterator[Recorded]:
        """Record the launch of this thread inside."""
        with self.lock:
            self.count += 1
        self.of_thread.now = now = Recorded()
        try:
            yield now
        finally:
            self.of_thread.now = None
            with self.lock:
                self.count -= 1

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is launched inside is no part of the launch that is recorded."""
        now, self.of_thread.now = self.of_thread.now, None
        try:
            yield
        finally:
            self.of_thread.now = now

    @property
    def now(self) -> Recorded | None:
        """Of this thread, if it is recording."""
        return self.of_thread.now if self.count else None

    def keep(self, *memory: Any) -> None:
        """What the launch takes for granted."""
        if (now := self.of_thread.now) is not None:
            now.kept += memory

    def rely(self, one: Any) -> None:
        """What the launch takes for granted while somebody else keeps it."""
        if (now := self.of_thread.now) is not None:
            now.relied.append(weakref.ref(one))

    def alone(self) -> None:
        """Nothing is said of launches of other sizes."""
        if self.count and (now := self.of_thread.now) is not None:
            now.alone = True

    def once(self) -> None:
        """The next launch like it may be another."""
        if (now := self.of_thread.now) is not None:
            now.once = True

    def has_table(self, tables: Any) -> None:
        """The launch has one of those."""
        if (now := self.of_thread.now) is not None:
            now.tables = tables

    def note(self, block: Any, function: int, places: Sequence[int], scratch: Any = None) -> None:
        """The launch that was made."""
        if (now := self.of_thread.now) is not None:
            now.block, now.contents, now.function, now.places = block, block.contents(), function, places
            now.scratch = scratch
            now.launches += 1


recording = _State()
