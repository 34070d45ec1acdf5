"""Candidates for one kernel, ranked by what the simulator expects of them.

The planner's own plan comes first; then it is asked again with one decision forced the other way, and at last with two
of those that helped. Each plan becomes a module, and the simulator plays a short and a long launch of it, all at one
clock.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass, replace

from wspec.diagnostics import Declined, Remark
from wspec.ir.core import Operation
from wspec.ir.numbering import number
from wspec.lab.search.launches import Launch, launches, tile_rows
from wspec.lab.search.timing import Timing, time_plan
from wspec.lab.search.why import why_declined, why_slower
from wspec.lab.simulate import SimulationError
from wspec.model.machine import Machine
from wspec.options import Options
from wspec.pipeline import emit
from wspec.plan.plan import Plan
from wspec.planner.decide import decide, function_of
from wspec.tune.variations import RULE, in_words, pinned, same, variations
from wspec.tune.variations import together as both

STEPS = 30_000  # of the simulator, in at most two seconds; not a time, so that every machine finds the same plans
MARGIN = 1.05  # a little more than the mean error of a comparison with the planner's own plan, docs/simulator.md


@dataclass(frozen=True, slots=True)
class Candidate:
    """One plan, or why there is none."""

    name: str  # what is different from the planner's own, in words
    plan: Plan | None
    declined: Remark | None = None  # why there is no plan
    timings: tuple[Timing, ...] = ()  # none where the simulator could not play it
    ratio: float = math.inf  # time over that of the fastest candidate, geometric mean of the launches
    why: str = ""  # why it lost

    @property
    def microseconds(self) -> float:
        """Of the long launch."""
        return self.timings[-1].microseconds if self.timings else math.inf

    @property
    def bound(self) -> str:
        """What limits the long launch; of a plan that registers forbid, these."""
        if self.timings:
            return self.timings[-1].bound
        return "registers" if self.declined is not None and self.declined.code == "registers" else ""


@dataclass(frozen=True, slots=True)
class Search:
    """What came of it. `ranked` is in the order of the expected time, `refused` has no plans."""

    launches: tuple[Launch, ...]
    ranked: tuple[Candidate, ...]
    refused: tuple[Candidate, ...]
    skipped: tuple[str, ...]  # not looked at, as others had used up the steps
    seconds: float
    note: str = ""  # why something could not be compared
    plain: tuple[Timing, ...] = ()  # of the kernel as Triton itself compiles it, where it was given

    @property
    def own(self) -> Candidate:
        """The planner's own plan."""
        return next(one for one in self.ranked if one.name == RULE)

    @property
    def best(self) -> Candidate:
        """The one expected to be the fastest."""
        return self.ranked[0]

    @property
    def chosen(self) -> Candidate:
        """The fastest one if it is expected to win by more than the simulator errs, else the planner's own."""
        return self.best if self.own.timings and self.own.ratio > MARGIN else self.own

    def keep(self, count: int) -> tuple[Candidate, ...]:
        """The planner's own and the `count` - 1 others that are expected to be the fastest."""
        others = [one for one in self.ranked if one.name != RULE and one.timings]
        return (self.own, *others[: max(0, count - 1)])


def search(
    module: Operation, machine: Machine, options: Options, steps: float = STEPS, plain: Operation | None = None
) -> Search:
    """The plans of a kernel before it is specialized. Raises Declined where even the planner's own cannot be made.

    No candidate is begun once `steps` of the simulator were played; the planner's own always is.
    Plans are made without the gate: what it says of the kernel is said elsewhere. `plain` is the kernel as Triton
    itself compiles it, to be timed too. Both modules stay as they are.
    """
    return _Searching(module, machine, options, steps, plain).run()


class _Searching:
    def __init__(
        self, module: Operation, machine: Machine, options: Options, steps: float, plain: Operation | None
    ) -> None:
        self.began = time.thread_time()
        self.module, self.machine, self.options, self.steps_left = module, machine, options, steps
        self.found: dict[str, Candidate] = {}
        self.modules: dict[str, Operation] = {}  # of those that were not played yet
        self.skipped: list[str] = []
        self.launches = launches(tile_rows(module), 0, machine)
        self.note, self.plain = "", plain

    def run(self) -> Search:
        own = self._plan(RULE, self.options.replace(gate="off"))
        if own.plan is None:
            assert own.declined is not None
            raise Declined(own.declined)
        self._time(RULE)
        fixed = pinned(self.options, own.plan)
        changes = {in_words(change): change for change in variations(self.options, own.plan)}
        made = [name for name, change in changes.items() if self._plan(name, fixed.replace(**change)).plan is not None]
        for name in made:
            self._time(name)
        useful = [
            changes[name] for name in made if name in self.found and _time(self.found[name]) < _time(self.found[RULE])
        ]
        for pair in itertools.starmap(both, itertools.combinations(useful[:3], 2)):
            if pair is not None and self._plan(in_words(pair), fixed.replace(**pair)).plan is not None:
                self._time(in_words(pair))
        return self._ranked()

    def _plan(self, name: str, options: Options) -> Candidate:
        """A candidate without times. One that equals another one is not kept."""
        copy = self.module.clone({})
        try:
            number(function_of(copy))
            plan = decide(copy, self.machine, options)
        except Declined as declined:
            made = self.found[name] = Candidate(name, None, declined.remark)
            return made
        made = Candidate(name, plan)
        if not any(one.plan is not None and same(one.plan, plan) for one in self.found.values()):
            self.found[name], self.modules[name] = made, copy
        return made

    def _time(self, name: str) -> None:
        """Play it, if it was kept and there are steps left."""
        module = self.modules.pop(name, None)
        if module is None:
            return
        one = self.found[name]
        assert one.plan is not None
        if self.steps_left <= 0 and name != RULE:
            self.skipped.append(name)
            return
        try:
            timings = time_plan(emit(module, one.plan), one.plan, self.machine, self.launches, self._clocks())
            self.found[name] = replace(one, timings=timings)
            self.steps_left -= sum(timing.steps for timing in timings)
        except SimulationError as error:
            self.note = f"the simulator cannot play {'this kernel' if name == RULE else name}: {error}"

    def _clocks(self) -> list[float]:
        """Of the planner's own plan, for all: the card's clock follows a mean of about a second, and plans that take
        turns were foretold better at one clock than at one each (docs/simulator.md)."""
        return [timing.clock_mhz for timing in self.found[RULE].timings] if RULE in self.found else []

    def _ranked(self) -> Search:
        known = [one for name, one in self.found.items() if one.plan is not None and name not in self.skipped]
        least = min((_time(one) for one in known if one.timings), default=1.0)
        ranked = [replace(one, ratio=_time(one) / least) if one.timings else one for one in known]
        ranked.sort(key=lambda one: (one.ratio, one.name != RULE))
        best = ranked[0]
        ranked = [
            one if one is best else replace(one, why=why_slower(one.timings, best.timings, one.ratio)) for one in ranked
        ]
        refused = [
            replace(one, why=why_declined(one.declined)) for one in self.found.values() if one.declined is not None
        ]
        spent = time.thread_time() - self.began
        skipped, plain = tuple(self.skipped), self._plain_timings()
        return Search(self.launches, tuple(ranked), tuple(refused), skipped, spent, self.note, plain)

    def _plain_timings(self) -> tuple[Timing, ...]:
        if self.plain is None:
            return ()
        try:
            return time_plan(self.plain, None, self.machine, self.launches, self._clocks())
        except SimulationError as error:
            self.note = self.note or f"the simulator cannot play the plain kernel: {error}"
            return ()


def _time(one: Candidate) -> float:
    """The geometric mean of the launches; a plan that was not played comes last."""
    if not one.timings:
        return math.inf
    return math.exp(sum(math.log(timing.microseconds) for timing in one.timings) / len(one.timings))
