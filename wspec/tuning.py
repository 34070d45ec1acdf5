"""tune=N, the part that knows plans: which kernels are timed at a first launch. `wspec.bridge.tuning` times them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from wspec import bridge, ir
from wspec.bridge import Choice, Group, KernelSource, Result, Tuning
from wspec.diagnostics import Declined, Remark
from wspec.model.machine import load_machine
from wspec.options import Options
from wspec.plan.plan import Plan

PLAIN = "the plain kernel"
WithPlan = Callable[[KernelSource, Plan], tuple[Result, Group]]
Announce = Callable[[tuple[Remark, ...], Options], None]


def tuning(source: KernelSource, result: Result, options: Options, with_plan: WithPlan, announce: Announce) -> Tuning:
    """How the kernel of `result` is tuned: against plans of a search, and under the gate against the plain kernel."""
    from wspec.lab.search import RULE, search, written_arguments
    from wspec.planner.decide import function_of

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
            found = search(ir.read(bridge.lower(source)[1]), load_machine(options.machine), options)
        except Declined:
            return ()
        kept = [one for one in found.keep(options.tune) if not (result.specialized and one.name == RULE)]
        made = [Choice(one.name, one.plan.to_text()) for one in kept if one.plan is not None]
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
