"""tune=N, the part that knows plans: which kernels are timed at a first launch. `wspec.bridge.tuning` times them.

Nothing is simulated: what the launch is like is known when it is measured, and the plan says enough to leave out what
is worse by the model's own account.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from wspec import bridge, ir
from wspec.bridge import Choice, Group, KernelSource, Result, Tuning
from wspec.diagnostics import Declined, Remark
from wspec.ir.core import Operation
from wspec.model.machine import Machine, load_machine
from wspec.options import Options
from wspec.pipeline import prepare
from wspec.plan.plan import Plan, is_shallow
from wspec.planner.decide import decide, function_of
from wspec.tune.variations import RULE, in_words, pinned, same, variations
from wspec.tune.writes import written_arguments

PLAIN = "the plain kernel"
WithPlan = Callable[[KernelSource, Plan], tuple[Result, Group]]
Announce = Callable[[tuple[Remark, ...], Options], None]


def tuning(source: KernelSource, result: Result, options: Options, with_plan: WithPlan, announce: Announce) -> Tuning:
    """How the kernel of `result` is tuned: against other plans, and under the gate against the plain kernel."""
    place = bridge.kernel_location(source)

    def say(message: str) -> None:
        announce((Remark("tuned", message, place),), options)

    def load(choice: Choice) -> Any | None:
        if not choice.plan:
            return bridge.load_kernel(source, Result(False, ()), {})
        made, group = with_plan(source, Plan.from_text(choice.plan))
        if made.specialized:
            return bridge.load_kernel(source, made, group)
        why = made.reason.message if made.reason is not None else "no reason given"
        say(f"not timed: {choice.name}: {why}")
        return None

    @cache
    def choices() -> tuple[Choice, ...]:
        try:
            found = candidates(ir.read(bridge.lower(source)[1]), load_machine(options.machine), options)
        except Declined:
            return ()
        kept = list(found.items())[: options.tune]
        made = [Choice(name, plan.to_text()) for name, plan in kept if not (result.specialized and name == RULE)]
        if result.specialized and options.gate == "model":
            made.append(Choice(PLAIN, ""))
        return tuple(made)

    def written() -> frozenset[str] | None:
        try:
            return written_arguments(function_of(ir.read(bridge.lower(source)[1])))
        except Declined:
            return None

    own = RULE if result.specialized else PLAIN
    key = bridge.cache_key(source, options) + str(options.tune)
    return Tuning(key, list(source.ast.signature), own, choices, load, written, say)


def candidates(module: Operation, machine: Machine, options: Options) -> dict[str, Plan]:
    """Name -> plan: the planner's own, then those with one decision made otherwise that are kernels of their own.

    Those stand in the order of the model: by the cycles of an iteration that the plan predicts (of an SM, with all
    blocks and groups that share it); of equals, which differ in what no prediction has in it, plans with a ring of one
    buffer come last, then those whose blocks do not walk through tiles (start and end of a tile take 2 to 25 %,
    docs/results), and else `variations` says what matters most. Plans are made without the gate, as the clock
    decides. The module, a kernel before it is specialized, stays as it is. Raises Declined where even the planner's own
    plan cannot be made.
    """
    module = module.clone({})
    prepare(module, options)
    own = decide(module, machine, options.replace(gate="off"))
    fixed = pinned(options, own)
    others: dict[str, Plan] = {}
    for change in variations(options, own):
        try:
            plan = decide(module, machine, fixed.replace(**change))
        except Declined:
            continue
        if not any(same(plan, other) for other in (own, *others.values())):
            others[in_words(change)] = plan
    return {RULE: own, **dict(sorted(others.items(), key=lambda one: _expected(one[1])))}


def _expected(plan: Plan) -> tuple[float, bool, bool]:
    """What orders plans, the best first."""
    return plan.prediction.iteration_cycles, is_shallow(plan.channels), not plan.persistent
