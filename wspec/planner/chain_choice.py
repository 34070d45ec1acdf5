"""With or without a chain, and of how many tasks: the faster one by the model, unless a person has decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wspec.diagnostics import Declined
from wspec.ir.core import Operation
from wspec.model.fitted import MARGIN
from wspec.model.machine import Machine
from wspec.options import Options
from wspec.plan.graph import Dataflow
from wspec.plan.partition import Site, decline
from wspec.plan.plan import Plan
from wspec.planner.chain import Cuts, bounding, names_of, plan_chain
from wspec.planner.chain_cost import unchained_cycles
from wspec.planner.cuts import Cut, find_cuts

Single = Callable[[Options], Plan]


def choose(
    flow: Dataflow, loops: list[Operation], sites: list[Site], machine: Machine, options: Options, single: Single
) -> Plan:
    """The plan of `single`, or of a chain. Raises Declined where neither pays, or a chain is asked for in vain."""
    plans, refused = _chains(flow, loops, sites, machine, options)
    if options.chain in ("on", "all"):
        if not plans:
            raise refused[0] if refused else decline(
                "no-chain", "no value of this kernel could be computed by one task and read by the next",
                flow.function.location, "chain=auto specializes without a third task",
            )  # fmt: skip
        return plans[0][0]
    plan, declined = _without(single, options)
    notes = [refusal.remark.message for refusal in refused]
    for chained, cuts in plans:
        alone = max(unchained_cycles(plan, chained, cut, loops, machine) for cut in cuts)
        plain = alone * plan.prediction.plain_iteration_cycles / plan.prediction.iteration_cycles
        if any(cut.stores for cut in cuts):
            plain = max(plain, alone)  # its store is exposed as well
        expected = chained.prediction.iteration_cycles
        if expected < min(alone, plain) * MARGIN:
            return replace(chained, prediction=replace(chained.prediction, plain_iteration_cycles=round(plain, 1)))
        names = " and ".join(repr(helper.name) for helper in chained.helpers)
        tasks = f"a task {names}" if len(cuts) == 1 else f"tasks {names}"
        notes.append(f"with {tasks} an iteration would take {expected:.0f} cycles, {min(alone, plain):.0f} without")
    if declined is not None:
        raise declined
    best = plans[0][0].prediction.iteration_cycles if plans else 0.0
    return replace(plan, prediction=replace(plan.prediction, chain_cycles=best, chain_note="; ".join(notes)))


Chains = list[tuple[Plan, Cuts]]


def _chains(
    flow: Dataflow, loops: list[Operation], sites: list[Site], machine: Machine, options: Options
) -> tuple[Chains, list[Declined]]:
    """The chains that can be made, the one to take first, and why others cannot.

    One for each cut; beyond that the fastest of them with one more task where that is expected to pay, again and again,
    or with as many as can be had (`chain=all`).
    """
    found: Chains = []
    refused: list[Declined] = []

    def attempt(cuts: Cuts) -> Plan | None:
        try:
            plan = plan_chain(flow, loops, sites, cuts, machine, options)
        except Declined as declined:
            if len(cuts) == 1:
                refused.append(declined)
            return None
        found.append((plan, cuts))
        return plan

    places = find_cuts(flow, loops, machine)
    for cut in places:
        attempt((cut,))
    found.sort(key=_cycles)
    longest = found[0] if found else None
    while longest is not None and len(places) > 1:
        longest = _extended(longest, places, attempt, options.chain == "all")
        if longest is not None:
            found.remove(longest)
            found.insert(0, longest)
    return found[:1] if options.chain == "all" else sorted(found, key=_cycles), refused


def _cycles(pair: tuple[Plan, Cuts]) -> float:
    return pair[0].prediction.iteration_cycles


def _extended(
    chain: tuple[Plan, Cuts], places: list[Cut], attempt: Callable[[Cuts], Plan | None], always: bool
) -> tuple[Plan, Cuts] | None:
    """The chain with one task more, where there is one; unless `always`, where it divides what bounds an iteration."""
    plan, cuts = chain
    for cut in places:
        if cut in cuts:
            continue
        longer = tuple(sorted((*cuts, cut), key=lambda cut: cut.place))
        if not always and names_of(cuts)[longer.index(cut)] != bounding(plan):
            continue
        made = attempt(longer)
        if made is not None and (always or _cycles((made, longer)) < MARGIN * _cycles(chain)):
            return made, longer
    return None


def _without(single: Single, options: Options) -> tuple[Plan, Declined | None]:
    """The plan without a chain; where it would not pay, also why. Raises Declined where it cannot be made."""
    try:
        return single(options), None
    except Declined as declined:
        if declined.remark.code != "gate-slower":
            raise
        return single(options.replace(gate="off")), declined
