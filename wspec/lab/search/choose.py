"""search=1: the plan that the simulator prefers, where it is sure enough."""

from __future__ import annotations

from wspec.diagnostics import Declined, Remark
from wspec.ir.core import Operation
from wspec.lab.search.search import search
from wspec.model.machine import load_machine
from wspec.options import Options
from wspec.plan.plan import Plan
from wspec.planner.decide import function_of


def preferred(module: Operation, options: Options) -> tuple[Plan | None, tuple[Remark, ...]]:
    """Another plan than the planner's own, and what to say of it; None where its own is to be used.

    The module, a kernel before it is specialized, stays as it is.
    """
    try:
        found = search(module, load_machine(options.machine), options)
    except Declined:
        return None, ()
    best, own = found.chosen, found.own
    if best is own or best.plan is None:
        return None, ()
    less = 100 * (1 - best.ratio / own.ratio)
    message = f"{best.name}: expected to take {less:.0f} % less time than the planner's own plan ({own.why})"
    return best.plan, (Remark("searched", message, function_of(module).location),)
