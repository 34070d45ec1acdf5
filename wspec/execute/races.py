"""Races inside one program: two tasks touch the same bytes, one of them writes, nothing orders them.

What a task knows is, for each of the others, up to which moment of that one it comes after: a number that counts what
the other one has told anybody (vector clocks). Arrivals tell a barrier, waits learn from it. A copy or a store by TMA
is somebody of its own, whom the task that waits for it learns of. Whether two accesses are ordered does not hang on the
schedule, but which accesses there are does.

Two stores of the same value to global memory are let pass: a team's last member may do its neighbour's tile once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from wspec.diagnostics import place_text
from wspec.execute.errors import ExecutionError
from wspec.ir.core import Operation

Known = dict[int, int]  # somebody -> up to which of their moments
Addresses = npt.NDArray[np.int64]
Kind = Literal["reads", "writes", "changes"]  # changes: by an atomic operation


def learn(known: Known, more: Mapping[int, int]) -> None:
    """Know what `more` says too."""
    for who, moment in more.items():
        if known.get(who, 0) < moment:
            known[who] = moment


class Owner(Protocol):
    """A task, as an access sees it."""

    @property
    def title(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Party:
    """Who touches memory: a task, or something that it has issued."""

    who: int
    moment: int
    known: Known
    task: Owner
    op: Operation


@dataclass(frozen=True, slots=True)
class Access:
    """What was touched: bytes of elements, between the first and the one behind the last."""

    kind: Kind
    first: int
    last: int
    size: int  # bytes of an element
    addresses: Callable[[], Addresses]  # of the elements
    party: Party

    def meets(self, other: Access) -> bool:
        """Is there a byte of both?"""
        if self.last <= other.first or other.last <= self.first:
            return False
        return bool(np.intersect1d(self._bytes(), other._bytes()).size)

    def _bytes(self) -> Addresses:
        return (self.addresses().reshape(-1, 1) + np.arange(self.size)).reshape(-1)


@dataclass(slots=True)
class Races:
    """The accesses of one program so far, by the allocation they are to."""

    party: Party | None = None  # who is about to touch memory
    reads: dict[int, list[Access]] = field(default_factory=dict)
    writes: dict[int, list[Access]] = field(default_factory=dict)

    def note(
        self, kind: Kind, allocation: int, first: int, last: int, size: int, addresses: Callable[[], Addresses],
        same: Callable[[], bool],
    ) -> None:  # fmt: skip
        """An access, before it is made. `same`: does memory hold already what is written?

        Raises ExecutionError for one that nothing orders with an earlier one.
        """
        if self.party is None or first >= last:
            return
        now = Access(kind, first, last, size, addresses, self.party)
        earlier = self.writes.get(allocation, ())
        if kind != "reads":
            earlier = [*earlier, *self.reads.get(allocation, ())]
        for one in earlier:
            if self._ordered(one, now) or not one.meets(now):
                continue
            if one.kind == now.kind == "writes" and same():
                continue
            raise _race(one, now)
        kept = self.reads if kind == "reads" else self.writes
        kept.setdefault(allocation, []).append(now)

    def _ordered(self, before: Access, now: Access) -> bool:
        if before.kind == now.kind == "changes" or before.party.task is now.party.task:
            return True
        return now.party.known.get(before.party.who, 0) >= before.party.moment


def _race(before: Access, now: Access) -> ExecutionError:
    one, other = before.party, now.party
    where = place_text(one.op.location)
    text = f"{other.op.name} {now.kind} global memory that {one.op.name} of {one.task.title} {before.kind}"
    return ExecutionError(f"{text}{f' at {where}' if where else ''}, and nothing orders the two", other.op.location)


class Bytes(Protocol):
    """A view of shared memory."""

    def overlaps(self, other: Self) -> bool: ...


View = TypeVar("View", bound=Bytes)


@dataclass(slots=True)
class _History:
    write: Party | None = None
    reads: dict[int, Party] = field(default_factory=dict)  # by who


@dataclass(slots=True)
class SharedRaces(Generic[View]):
    """The last accesses of one program to each view of shared memory. What is still under way, the buffers know."""

    seen: dict[View, _History] = field(default_factory=dict)

    def note(self, view: View, now: Party, writes: bool, as_party: Party | None = None) -> Party | None:
        """An access, before it is made: an earlier one that nothing orders with it, if there is one.

        `as_party`: who it is done by, where that is a copy and not the task.
        """
        for other, history in self.seen.items():
            if other is not view and not other.overlaps(view):
                continue
            found: list[Party | None] = [history.write, *(history.reads.values() if writes else ())]
            for before in found:
                if before is not None and not _comes_after(now, before):
                    return before
        kept = self.seen.setdefault(view, _History())
        if writes:
            kept.write, kept.reads = as_party or now, {}
        else:
            kept.reads[now.who] = now
        return None


def _comes_after(now: Party, before: Party) -> bool:
    return before.task is now.task or now.known.get(before.who, 0) >= before.moment
