"""With or without a chain: the faster one by the model, unless a person has decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wspec.diagnostics import Declined
from wspec.ir.core import Operation
from wspec.model.machine import Machine
from wspec.options import Options
from wspec.plan.fitted import CHAIN_MARGIN
from wspec.plan.partition import Site, decline
from wspec.plan.plan import Plan
from wspec.planner.chain import chain_plans
from wspec.planner.chain_cost import unchained_cycles
from wspec.planner.cuts import STORE

Single = Callable[[Options], Plan]


def choose(
    function: Operation, loops: list[Operation], sites: list[Site], machine: Machine, options: Options, single: Single
) -> Plan:
    """The plan of `single`, or of a chain. Raises Declined where neither pays, or a chain is asked for in vain."""
    plans, refused = chain_plans(function, loops, sites, machine, options)
    plans.sort(key=lambda pair: pair[0].prediction.iteration_cycles)
    if options.chain == "on":
        if not plans:
            raise refused[0] if refused else decline(
                "no-chain", "no value of this kernel could be computed by one task and read by the next",
                function.location, "chain=auto specializes without a third task",
            )  # fmt: skip
        return plans[0][0]
    plan, declined = _without(single, options)
    notes = [refusal.remark.message for refusal in refused]
    for chained, cut in plans:
        alone = unchained_cycles(plan, chained, cut, loops, machine)
        plain = alone * plan.prediction.plain_iteration_cycles / plan.prediction.iteration_cycles
        if cut.kind == STORE:
            plain = max(plain, alone)  # its store is exposed as well
        expected = chained.prediction.iteration_cycles
        if expected < min(alone, plain) * CHAIN_MARGIN:
            return replace(chained, prediction=replace(chained.prediction, plain_iteration_cycles=round(plain, 1)))
        task = chained.helpers[0].name
        notes.append(
            f"with a task {task!r} an iteration would take {expected:.0f} cycles, {min(alone, plain):.0f} without"
        )
    if declined is not None:
        raise declined
    best = plans[0][0].prediction.iteration_cycles if plans else 0.0
    return replace(plan, prediction=replace(plan.prediction, chain_cycles=best, chain_note="; ".join(notes)))


def _without(single: Single, options: Options) -> tuple[Plan, Declined | None]:
    """The plan without a chain; where it would not pay, also why. Raises Declined where it cannot be made."""
    try:
        return single(options), None
    except Declined as declined:
        if declined.remark.code != "gate-slower":
            raise
        return single(options.replace(gate="off")), declined
