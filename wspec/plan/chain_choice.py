"""With or without a chain: the faster one by the model, unless a person has decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wspec.diagnostics import Declined
from wspec.ir.core import Operation
from wspec.options import Options
from wspec.plan.chain import chain_plans
from wspec.plan.chain_cost import unchained_cycles
from wspec.plan.machine import Machine
from wspec.plan.partition import Site, decline
from wspec.plan.plan import Plan


def choose(
    function: Operation,
    loops: list[Operation],
    sites: list[Site],
    machine: Machine,
    options: Options,
    single: Callable[[], Plan],
) -> Plan:
    """The plan of `single`, or of a chain. Raises Declined where a chain is asked for and cannot be had."""
    plans, refused = chain_plans(function, loops, sites, machine, options)
    plans.sort(key=lambda pair: pair[0].prediction.iteration_cycles)
    if options.chain == "on":
        if not plans:
            raise refused[0] if refused else decline(
                "no-chain", "no value of this kernel could be computed by one task and read by the next",
                function.location, "chain=auto specializes without a third task",
            )  # fmt: skip
        return plans[0][0]
    plan = single()
    notes: list[str] = [declined.remark.message for declined in refused]
    for chained, cut in plans:
        alone = unchained_cycles(plan, chained, cut, loops, machine)
        expected = chained.prediction.iteration_cycles
        if expected < alone:
            before = plan.prediction.plain_iteration_cycles + alone - plan.prediction.iteration_cycles
            return replace(chained, prediction=replace(chained.prediction, plain_iteration_cycles=round(before, 1)))
        task = chained.helpers[0].name
        notes.append(f"a task {task!r} of its own would take {expected:.0f} cycles an iteration instead of {alone:.0f}")
    best = plans[0][0].prediction.iteration_cycles if plans else 0.0
    return replace(plan, prediction=replace(plan.prediction, chain_cycles=best, chain_note="; ".join(notes)))
