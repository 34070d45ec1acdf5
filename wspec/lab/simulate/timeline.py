"""What the simulation of an SM leaves behind: who did what when, and for what it waited."""

from __future__ import annotations

from dataclasses import dataclass, field

from wspec.ir.core import Operation
from wspec.lab.simulate.costs import UNITS

CAUSES = ("tile", "buffer", "dot", "named barrier", "warps of the task", "store", "copies", "units", "latency", "start")
"""What a warp group waits for: a tile that TMA brings; an arrival of another task; a dot; a named barrier; the other
warps of its task; a store that reads its tile; cp.async; units that others keep busy; latencies of its own arithmetic;
the start of the block and of its tasks."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A span of time on a track, cycles."""

    track: str
    name: str
    start: float
    end: float
    op: Operation | None
    cause: str = ""  # one of CAUSES; "" for what is no waiting
    ops: tuple[Operation, ...] = ()  # of a stretch of arithmetic
    size: int = 0  # bytes of a transfer, FLOP of a dot


@dataclass(frozen=True, slots=True)
class Arrow:
    """From what completed a barrier to the wait that it ended."""

    from_track: str
    from_time: float
    to_track: str
    to_time: float


@dataclass(frozen=True, slots=True)
class Sample:
    """How busy the units are from a time on, 0 to 1."""

    time: float
    busy: tuple[float, ...]


@dataclass(slots=True)
class Record:
    """A timeline."""

    slices: list[Slice] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)


@dataclass(slots=True)
class SmResult:
    """What playing blocks on one SM came to, in cycles."""

    cycles: float = 0.0
    busy: list[float] = field(default_factory=lambda: [0.0] * len(UNITS))
    waits: dict[str, dict[str, float]] = field(default_factory=dict)  # track of a warp group -> cause -> cycles
    blocks: list[tuple[int, float, float]] = field(default_factory=list)  # slot, start, end; in the order of their end
    steps: int = 0
    skipped: float = 0.0  # cycles that are repetitions of a period
    approximated: float = 0.0  # of these, those of a period that does not repeat exactly
    record: Record | None = None

    @property
    def utilization(self) -> dict[str, float]:
        """Unit -> share of the time it was busy."""
        return {unit: self.busy[at] / self.cycles if self.cycles else 0.0 for at, unit in enumerate(UNITS)}
