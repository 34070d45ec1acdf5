"""The checker's one entry."""

from __future__ import annotations

import time

from wspec.check import code as c
from wspec.check.canonical_form import Grows
from wspec.check.engine import Engine
from wspec.check.explore import search
from wspec.check.findings import Finding, Report
from wspec.check.lifetimes import lifetimes
from wspec.check.names import Names
from wspec.check.resources import resources
from wspec.check.tracked_values import Flow
from wspec.check.translate import translate
from wspec.ir.core import Operation, Value
from wspec.ir.shared_memory import Placement
from wspec.ir.types import MemDescType

LIMIT_S = 20.0
ASSUMPTIONS = (
    "index arithmetic of 32 bits does not overflow, and loads from global memory at equal addresses give equal values",
    "the back end orders the threads of one task (bar.sync) where they touch the same buffer or signal a barrier",
    "accesses to global memory are not looked at",
    "an mbarrier that is in use needs no proxy fence between its initialization and TMA, as in Triton's own kernels",
)

APART = "no two allocations have the same bytes at the same time"


def check(module: Operation, *, limit_s: float = LIMIT_S, placement: Placement | None = None) -> Report:
    """Prove a module free of deadlocks and races, for any trip count, or say what is wrong or could not be decided.

    `module` may be any TTGIR, specialized or not; it is not changed. `limit_s`: seconds after which the search is given
    up (reported as undecided), in CPU time of this thread: what else the machine or the process does must not decide
    what is proved. `placement`: where the back end puts what the module keeps in shared memory, and the fences it adds;
    without it every allocation has memory of its own. Never raises for what is in the module.
    """
    start = time.thread_time()
    functions = [op for op in module.walk() if op.name == "tt.func" and op.regions and op.regions[0].blocks]
    findings: list[Finding] = []
    reports: list[Report] = []
    for function in functions:
        if len(function.regions[0].blocks) != 1:
            message = "the function branches in a way that is not a for or an if"
            findings.append(Finding("undecided", "unknown-control-flow", message, function.location))
            continue
        reports.append(_function(module, function, start + limit_s, placement))
    findings += [one for report in reports for one in report.findings]
    return Report(
        tuple(findings),
        tuple(task for report in reports for task in report.tasks),
        sum(report.barriers for report in reports),
        sum(report.buffers for report in reports),
        sum(report.states for report in reports),
        sum(report.events for report in reports),
        time.thread_time() - start,
        ASSUMPTIONS if placement is not None else (*ASSUMPTIONS, APART),
    )


def _function(module: Operation, function: Operation, deadline: float, placement: Placement | None) -> Report:
    unknown: frozenset[Value] = frozenset()
    while True:
        program, extents = translate(module, function, unknown, placement)
        names = Names(program, Flow(function))
        engine = Engine(program, names, extents)
        try:
            found, states = search(engine, deadline)
            break
        except Grows as grown:
            unknown |= {grown.value}
    findings = [*resources(module, function, program, names), *found]
    if placement is None:
        findings += lifetimes(function, program, names)
    slots = sum(_slots(program, root) for root in names.barriers)
    buffers = sum(_slots(program, root) for root in range(len(program.roots)) if root not in names.barriers)
    return Report(tuple(findings), tuple(names.tasks), slots, buffers, states, engine.events)


def _slots(program: c.Program, root: int) -> int:
    """How many buffers or barriers an allocation holds: a barrier is one i64, so a ring of them has two dimensions."""
    if program.roots[root].name != "ttg.local_alloc":
        return 0
    type = program.roots[root].result.type
    if not isinstance(type, MemDescType) or len(type.shape) < 2:
        return 1
    ring = len(type.shape) > 2 or type.shape[1] == 1
    return type.shape[0] if ring else 1
