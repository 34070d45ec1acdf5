"""Barriers in shared memory (mbarrier) and named barriers, as the hardware counts them."""

from __future__ import annotations

from dataclasses import dataclass, field

from wspec.execute.errors import ExecutionError
from wspec.execute.races import Known, learn

MAX_ARRIVALS = (1 << 20) - 1
MAX_BYTES = (1 << 20) - 1
"""Limits of the pending and of the byte count (PTX ISA, mbarrier)."""


@dataclass(eq=False, slots=True)
class Barrier:
    """An mbarrier: a phase ends when nobody is missing and no byte is on its way.

    `phase` is the parity of the phase that is going on; a fresh barrier is in phase 0, as if a phase 1 had just ended.
    """

    count: int  # arrivals that end a phase
    pending: int = 0  # of them still to come
    bytes: int = 0  # expected and not yet arrived; negative while more have arrived than were expected
    phase: int = 0
    phases: int = 0  # completed so far
    waiting: int = 0  # tasks in a wait
    gathered: Known = field(default_factory=dict)  # what those know who came in this phase (races.py)
    ready: Known = field(default_factory=dict)  # and in the phases that have ended

    def __post_init__(self) -> None:
        if not 0 < self.count <= MAX_ARRIVALS:
            raise ExecutionError(f"a barrier for {self.count} arrivals; it can count from 1 to {MAX_ARRIVALS}")
        self.pending = self.count

    def passed(self, parity: int) -> bool:
        """Does a wait for `parity` pass: has the phase of that parity ended, and the next one not?"""
        return self.phase != parity & 1

    def arrive(self, count: int = 1) -> None:
        """`count` arrivals. Raises ExecutionError for more than the phase waits for."""
        if count > self.pending:
            raise ExecutionError(
                f"{count} arrival{'s' if count > 1 else ''}, but the phase waits for {self.pending} of {self.count}"
            )
        self.pending -= count
        self._settle()

    def learn(self, known: Known) -> None:
        """Who is about to arrive knows this, and so do those who wait, when the phase has ended."""
        learn(self.gathered, known)

    def add(self, count: int) -> None:
        """The phase waits for `count` more arrivals."""
        self.pending += count

    def expect(self, size: int) -> None:
        """The phase also waits for `size` bytes. Raises ExecutionError for more than the hardware counts."""
        self.bytes += size
        if self.bytes > MAX_BYTES:
            raise ExecutionError(f"{self.bytes} bytes are expected in one phase; a barrier counts up to {MAX_BYTES}")

    def complete(self, size: int) -> None:
        """`size` bytes have arrived."""
        self.bytes -= size
        self._settle()

    def _settle(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending, self.phases = self.phase ^ 1, self.count, self.phases + 1
            learn(self.ready, self.gathered)
            self.gathered = {}

    def __str__(self) -> str:
        state = f"in phase {self.phase} ({self.phases} completed), {self.pending} of {self.count} arrivals missing"
        if self.bytes < 0:
            return f"{state}, {-self.bytes} bytes there that nobody expected"
        return f"{state}, {self.bytes} bytes missing" if self.bytes else state


@dataclass(eq=False, slots=True)
class NamedBarrier:
    """One of a block's 16 hardware barriers: opens when `threads` threads are there, then begins again."""

    number: int
    threads: int = 0  # that it waits for; what the first to come says
    arrived: int = 0
    opened: int = 0  # how often
    gathered: Known = field(default_factory=dict)  # as of a Barrier
    ready: Known = field(default_factory=dict)

    def arrive(self, threads: int, expected: int) -> int:
        """`threads` come to a barrier that they say is for `expected`; returns what `opened` will be when it opens."""
        if self.arrived == 0:
            self.threads = expected
        if expected != self.threads:
            raise ExecutionError(
                f"named barrier {self.number} for {expected} threads, but others wait there for {self.threads}"
            )
        self.arrived += threads
        if self.arrived > self.threads:
            raise ExecutionError(f"named barrier {self.number} is for {self.threads} threads; {self.arrived} came")
        ticket = self.opened + 1
        if self.arrived == self.threads:
            self.arrived, self.opened = 0, ticket
            learn(self.ready, self.gathered)
            self.gathered = {}
        return ticket

    def has_opened(self, ticket: int) -> bool:
        """Has it opened for whoever got that ticket?"""
        return self.opened >= ticket

    def __str__(self) -> str:
        return f"named barrier {self.number}, {self.arrived} of {self.threads} threads there"
