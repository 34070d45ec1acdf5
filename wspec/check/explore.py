"""The search over everything that is not decided by the kernel itself: trip counts and conditions.

Between two choices the engine runs one schedule (see `engine` for why that is enough). Before each choice the state is
brought into a normal form, and a state that was seen before, or one like it that knew less of the past, is not gone on
with: loops are followed until nothing new comes, which is what makes the verdict hold for any trip count. The normal
form keeps what later verdicts can depend on: iterations relative to the task furthest behind, which events are not
known to whom, counters as far as they matter; rings are turned to their start.

Where states are alike but for what is known, the search goes on with one that knows only what all of them know. If that
finds nothing wrong, nothing is; if it finds an error that hangs on what is known, the search is repeated without.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import NamedTuple

from wspec.check import clock
from wspec.check.branch_order import holds_first
from wspec.check.canonical_form import Normal
from wspec.check.clock import limited, timed
from wspec.check.conditions import Threshold
from wspec.check.engine import Engine, NeedsChoice, TimeIsOver
from wspec.check.findings import Finding, Found
from wspec.check.happens_before import Lacks, at_least, together
from wspec.check.merge import merge
from wspec.check.names import choices
from wspec.check.state import State
from wspec.check.witness import is_possible
from wspec.ir.core import Operation

MAX_FINDINGS = 5
MAX_STATES = 20_000
MAX_WEIGHED = 64
MORE_S = 1.0  # how long the search goes on after an error
ASK_THE_PAST = frozenset(
    ("race", "unwritten", "missing-fence", "phase", "arrivals", "barrier-setup", "in-flight", "named-barrier")
)
ALIKE = 1  # states that differ only in what is known, before they are merged
MOST_ROUNDS = 32  # that a state is taken round a loop ahead of the search
LONGEST_ROUND = 64  # choices


def search(engine: Engine, deadline: float) -> tuple[list[Finding], int]:
    """All findings (at most MAX_FINDINGS, one a place), the number of states. `deadline`: of time.thread_time()."""
    merged = _Search(engine, deadline, merge=True, ahead=True)
    merged.run()
    if merged.found and "limit" not in merged.found:  # errors are shown where they are smallest
        merged = _Search(engine, deadline, merge=True)
        merged.run()
    found, states = _certain_enough(engine, deadline, merged)
    if any(one.code == "phase" and one.kind == "undecided" for one in found):
        found = _with_whole_tasks(engine, deadline, found)
    wrong = {(one.code, one.location) for one in found if one.kind == "error"}
    return [one for one in found if one.kind == "error" or (one.code, one.location) not in wrong], states


def _with_whole_tasks(engine: Engine, deadline: float, found: list[Finding]) -> list[Finding]:
    """A phase is missed for certain where it is even if the warps of a task do everything together."""
    engine.barriers.together = True
    again = _Search(engine, deadline, merge=True)
    again.run()
    certain = {(one.code, one.location) for one in again.found.values() if one.kind == "error"}
    return [replace(one, kind="error") if (one.code, one.location) in certain else one for one in found]


def _certain_enough(engine: Engine, deadline: float, merged: _Search) -> tuple[list[Finding], int]:
    """What was found, once more without merging where it may come of that."""
    doubtful = [one for one in merged.found.values() if one.kind == "error" and one.code in ASK_THE_PAST]
    certain = [one for one in merged.found.values() if one not in doubtful]
    if not merged.merged or not doubtful or any(one.kind == "error" for one in certain):
        return certain if merged.merged and certain else list(merged.found.values()), merged.states
    exact = _Search(engine, deadline, merge=False)
    exact.run()
    return list(exact.found.values()), merged.states + exact.states


class Trail(NamedTuple):
    """How a state was come to: the shape at which something was chosen last, by those seen of it; what, and the way
    there."""

    shape: list[Seen]
    value: bool
    ahead: bool  # was it taken round a loop there?
    before: Trail | None


@dataclass(slots=True)
class Seen:
    """A state that is followed: what it does not know of the past.

    `replaced`: one like it that lacks more is followed in its place, and goes the same ways. What is left to follow of
    it need not be then.
    """

    lacks: Lacks = ()
    replaced: bool = False


class _Search:
    """`merge`: states that differ only in what is known. `ahead`: take states round loops; stop at the first finding,
    which is enough to see that there is none."""

    def __init__(self, engine: Engine, deadline: float, merge: bool, ahead: bool = False) -> None:
        self.engine, self.deadline, self.merge, self.ahead = engine, deadline, merge, ahead
        self.normal = Normal(engine, twice=ahead)
        self.found: dict[Hashable, Finding] = {}
        self.seen: dict[Hashable, list[Seen]] = {}  # by shape, those that lack the most
        self.weighed: Counter[Hashable] = Counter()  # place of an error -> how many ways there were looked at
        self.holds_first: dict[Operation, bool] = {}
        self.states = 0
        self.merged = False

    def run(self) -> None:
        place = self.engine.program.codes[0].steps[-1].op
        try:
            with limited(self.deadline):
                self._run()
        except clock.TimeIsOver:
            self._give_up(place)

    def _run(self) -> None:
        stack: list[tuple[State, Seen, Trail | None]] = [(self.engine.start(), Seen(), None)]
        while stack and len(self.found) < (1 if self.ahead else MAX_FINDINGS):
            state, seen, trail = stack.pop()
            if seen.replaced:
                continue
            self.engine.deadline = self.deadline
            try:
                self.engine.run(state)
            except TimeIsOver as over:
                return self._give_up(over.op)
            except Found as stop:
                one = stop.finding if self.ahead else self._weighed(stop.finding, state)
                if not self.found:
                    self.deadline = min(self.deadline, time.thread_time() + MORE_S)
                self.found.setdefault((one.code, one.location, one.kind), one)
            except NeedsChoice as need:
                new = self._new(state, need, trail)
                if new is None:
                    continue
                state, need, shape, ahead = new
                if self.states > MAX_STATES or time.thread_time() > self.deadline:
                    return self._give_up(need.op)
                other = state.copy()
                self.engine.decide(other, need, False)
                self.engine.decide(state, need, True)
                # Usually short runs first: errors are shown where they are smallest.
                if need.op not in self.holds_first:
                    self.holds_first[need.op] = holds_first(need.op)
                ways = [(other, False), (state, True)] if self.holds_first[need.op] else [(state, True), (other, False)]
                stack += [(way, shape[-1], Trail(shape, value, ahead, trail)) for way, value in ways]

    def _weighed(self, one: Finding, state: State) -> Finding:
        """An error on a way that the kernel may never take is not certain."""
        place = (one.code, one.location)
        if one.kind == "undecided" or (*place, "error") in self.found:
            return one
        self.weighed[place] += 1
        tried = self.weighed[place] <= MAX_WEIGHED
        if not state.doubtful and tried and is_possible(self.engine.extents, state.asked):
            return one
        where = f"{one.message}, if the conditions on the way there can be so"
        return replace(one, kind="undecided", message=where, path=one.path + choices(state))

    def _give_up(self, op: Operation) -> None:
        if not self.found:
            message = f"gave up after {self.states} states"
            self.found["limit"] = Finding("undecided", "too-many-states", message, op.location)

    def _new(
        self, state: State, need: NeedsChoice, trail: Trail | None
    ) -> tuple[State, NeedsChoice, list[Seen], bool] | None:
        """The state to be followed, its shape, and whether it was taken round a loop; None where it need not be
        followed. It may be made to forget something first."""
        form, lacks, past = self.normal.form(state)
        shape = (form, _asked(need))
        before = self.seen.setdefault(shape, [])
        if any(at_least(lacks, one.lacks) for one in timed(before)):
            return None
        self.states += 1
        round: list[bool] = []
        if self.merge and len(before) >= ALIKE:
            self.merged = True
            lacks = merge(past, together([one.lacks for one in before]))
            if not self.ahead:  # more ways to an error are looked at, some of which may be certain
                lacks = past.form()
            round = _round(trail, before) if self.ahead else []
            if round:
                state, need, lacks = self._ahead(state, need, lacks, shape, round)
        for one in before:
            one.replaced = at_least(one.lacks, lacks)
        before[:] = [one for one in before if not one.replaced]
        before.append(Seen(lacks))
        return state, need, before, bool(round)

    def _ahead(
        self, state: State, need: NeedsChoice, lacks: Lacks, shape: Hashable, round: list[bool]
    ) -> tuple[State, NeedsChoice, Lacks]:
        """A state taken round a loop, by the choices that led there, until it lacks no more than before.

        What is passed on the way is not looked at: a state that is followed from there on goes by the same places,
        lacking as much. An error there is found then.
        """
        for _ in range(MOST_ROUNDS):
            next_state, next_need = state.copy(), need
            for value in round:
                self.engine.decide(next_state, next_need, value)
                try:
                    self.engine.run(next_state)
                except NeedsChoice as more:
                    next_need = more
                    continue
                except (Found, TimeIsOver):
                    pass
                return state, need, lacks
            form, now, past = self.normal.form(next_state)
            if (form, _asked(next_need)) != shape or at_least(now, lacks):
                break
            merged = merge(past, lacks)
            if not at_least(lacks, merged):  # then it does not stand for the one before
                break
            self.states += 1
            state, need, lacks = next_state, next_need, merged
        return state, need, lacks


def _asked(need: NeedsChoice) -> Hashable:
    return isinstance(need.condition, Threshold), need.key[0], need.op


def _round(trail: Trail | None, shape: list[Seen]) -> list[bool]:
    """The choices since a state was at this shape; none where it never was, or too long ago, or was taken round the
    same loop meanwhile."""
    found: list[bool] = []
    while trail is not None and len(found) < LONGEST_ROUND and not (trail.ahead and trail.shape is not shape):
        found.append(trail.value)
        if trail.shape is shape:
            return found[::-1]
        trail = trail.before
    return []
