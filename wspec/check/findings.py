"""What the checker found, as values and as text for a person."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from wspec.diagnostics import REASONS, Remark, render
from wspec.ir.loc import UNKNOWN, Location
from wspec.ir.rows import Apart

Kind = Literal["error", "undecided"]

CODES: dict[str, str] = {
    "deadlock": "tasks wait for what never comes",
    "race": "two accesses to a buffer, at least one a write, have no order",
    "unwritten": "a buffer is read that nobody has written",
    "missing-fence": "the asynchronous proxy touches what ordinary accesses touched, without a proxy fence between",
    "phase": "a wait may see another phase of its barrier than the one it is meant for",
    "arrivals": "a barrier is arrived on in a phase that may not have begun",
    "bytes": "a barrier's expected bytes and those that come differ",
    "barrier-setup": "a barrier is used before it is initialized, or initialized while it is used",
    "in-flight": "an asynchronous operation may still run when what it uses is given up",
    "range": "an index is outside its ring",
    "registers": "the registers asked for do not exist",
    "shared-memory": "a block has less shared memory than is asked for",
    "warps": "a task has the wrong number of warps for what it does",
    "named-barrier": "a named barrier is used in two ways",
    "unknown-index": "the place of a buffer or the phase of a wait cannot be followed",
    "unknown-operation": "an operation may synchronize, and the checker does not know it",
    "unknown-memory": "where the back end puts allocations is not known",
    "unknown-control-flow": "control flow that the checker cannot follow",
    "overwritten": "a loaded value that decides what tasks do may be written between their loads",
    "global-order": "two tasks may touch the same global memory, one of them writing, and no order is known",
    "too-many-states": "the search was given up",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong (an error), or that could not be decided."""

    kind: Kind
    code: str  # a key of CODES
    message: str
    location: Location = UNKNOWN
    path: tuple[tuple[str, Location], ...] = ()  # the steps that lead there, in order
    note: str = ""  # what to change

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"unknown finding {self.code!r}; add it to wspec.check.findings.CODES")

    def __str__(self) -> str:
        return render(self.remark())

    def remark(self) -> Remark:
        """The same as a remark of the compiler."""
        code = "check-failed" if self.kind == "error" else "check-undecided"
        assert code in REASONS
        severity = "error" if self.kind == "error" else "warning"
        message = self.message if self.kind == "error" else f"undecided: {self.message}"
        return Remark(code, f"{message} ({self.code})", self.location, self.path, self.note, severity)


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold of the numbers of a launch, or the verdict does not."""

    apart: Apart
    words: str
    location: Location = UNKNOWN  # what it is about
    path: tuple[tuple[str, Location], ...] = ()

    def remark(self) -> Remark:
        """What is so in a launch of which it does not hold."""
        message = self.words.replace(" do not ", " ", 1)
        note = "give it rows that are as far apart as they are long"
        return Remark("rows-overlap", message, self.location, self.path, note)


class Found(Exception):
    """Raised where a path of the search ends with a finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict on one module."""

    findings: tuple[Finding, ...]
    tasks: tuple[str, ...] = ()
    barriers: int = 0  # mbarriers, each slot of a ring counted
    buffers: int = 0
    states: int = 0  # distinct states at which the search branched
    events: int = 0  # synchronizing operations executed over all branches
    seconds: float = 0.0  # of CPU time
    assumptions: tuple[str, ...] = field(default=())
    conditions: tuple[Condition, ...] = ()  # which a launch has to look at; `assumptions` has them in words

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.kind == "error")

    @property
    def undecided(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.kind == "undecided")

    @property
    def ok(self) -> bool:
        """Proved: no error, and nothing that could not be decided."""
        return not self.findings

    def __str__(self) -> str:
        return "\n\n".join([self.summary(), *map(str, self.findings)])

    def summary(self, *, timed: bool = True) -> str:
        """One line: the verdict and how much was looked at; with `timed`, for how long."""
        size = f"{len(self.tasks)} task{'s' if len(self.tasks) != 1 else ''}, {self.barriers} barriers, "
        size += f"{self.buffers} buffers, {self.states} states"
        size += f", {self.seconds * 1000:.0f} ms" if timed else ""
        if self.ok:
            return f"proved: no deadlock and no race, for any trip count ({size})"
        verdict = f"{len(self.errors)} error{'s' if len(self.errors) != 1 else ''}" if self.errors else "not proved"
        return f"{verdict}, {len(self.undecided)} undecided ({size})"
