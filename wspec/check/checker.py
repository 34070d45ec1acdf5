"""The checker's one entry."""

from __future__ import annotations

import time
from collections.abc import Iterator

from wspec.check import code as c
from wspec.check.canonical_form import Grows
from wspec.check.clock import TimeIsOver, limited
from wspec.check.conditions import Extents
from wspec.check.engine import Engine
from wspec.check.explore import search
from wspec.check.findings import Condition, Finding, Report
from wspec.check.global_order import global_order
from wspec.check.lifetimes import lifetimes
from wspec.check.names import Names
from wspec.check.resources import resources
from wspec.check.tracked_values import Flow
from wspec.check.translate import translate
from wspec.ir.core import Operation, Value
from wspec.ir.disjoint import EVERY, NONE, Disjoint
from wspec.ir.loc import value_name
from wspec.ir.shared_memory import Placement
from wspec.ir.types import MemDescType

LIMIT_S = 20.0
ASSUMPTIONS = (
    "index arithmetic of 32 bits does not overflow",
    "the back end orders the threads of one task (bar.sync) where they touch the same buffer or signal a barrier",
    "the memory of two arguments does not overlap but where a loaded value decides what tasks do, and no other kernel "
    "writes it meanwhile",
    "an mbarrier that is in use needs no proxy fence between its initialization and TMA, as in Triton's own kernels",
)

APART = "no two allocations have the same bytes at the same time"


def check(
    module: Operation, *, limit_s: float = LIMIT_S, disjoint: Disjoint = NONE, placement: Placement | None = None
) -> Report:
    """Prove a module free of deadlocks and races, for any trip count, or say what is wrong or could not be decided.

    `disjoint`: which arguments of a function are taken to point to memory that does not overlap. The report's
    assumptions name those pairs, and what else must hold of a launch's numbers (its `conditions`). Without `disjoint`
    all may overlap: a value that is loaded in two tasks is then the same in both only if the kernel stores nothing.
    `module` may be any TTGIR, specialized or not; it is not changed. `limit_s`: seconds after which the search is given
    up (reported as undecided), in CPU time of this thread: what else the machine or the process does must not decide
    what is proved. `placement`: where the back end puts what the module keeps in shared memory, and the fences it adds;
    without it every allocation has memory of its own. Never raises for what is in the module.
    """
    start = time.thread_time()
    functions = list(_kernels(module))
    findings: list[Finding] = list(_clusters(module))
    reports: list[Report] = []
    for function in functions:
        if len(function.regions[0].blocks) != 1:
            message = "the function branches in a way that is not a for or an if"
            findings.append(Finding("undecided", "unknown-control-flow", message, function.location))
            continue
        try:
            with limited(start + limit_s):
                reports.append(_function(module, function, start + limit_s, disjoint, placement))
        except RecursionError:  # thousands of operations, each of the one before
            message = "numbers are computed from each other through too many operations to be followed"
            findings.append(Finding("undecided", "too-many-states", message, function.location))
        except TimeIsOver:
            findings.append(_over("the time was over before all of it had been looked at", function))
    findings += [one for report in reports for one in report.findings]
    return Report(
        tuple(findings),
        tuple(task for report in reports for task in report.tasks),
        sum(report.barriers for report in reports),
        sum(report.buffers for report in reports),
        sum(report.states for report in reports),
        sum(report.events for report in reports),
        time.thread_time() - start,
        (
            *ASSUMPTIONS, *(() if placement is not None else (APART,)),
            *(text for function in functions for text in _assumed(function, disjoint)),
            *dict.fromkeys(one.words for report in reports for one in report.conditions),
        ),
        tuple(one for report in reports for one in report.conditions),
    )  # fmt: skip


def _kernels(module: Operation) -> Iterator[Operation]:
    """The functions but for those that others call: what such a call does is not followed, and the caller told so."""
    called = {str(op.attr("callee")).lstrip("@") for op in module.walk() if op.name == "tt.call"}
    for op in module.walk():
        if op.name == "tt.func" and op.regions and op.regions[0].blocks and op.str_attr("sym_name") not in called:
            yield op


def _clusters(module: Operation) -> Iterator[Finding]:
    blocks = module.int_attr("ttg.num-ctas") or 1
    if blocks > 1:
        message = f"clusters of several blocks are not modelled: num-ctas is {blocks}"
        yield Finding("undecided", "unknown-operation", message, module.location)


def _assumed(function: Operation, disjoint: Disjoint) -> Iterator[str]:
    """In words, what of the arguments' memory is taken for granted."""
    if disjoint.every:
        yield "no two arguments point to memory that overlaps"
        return
    names = [value_name(arg.location) or f"argument {at}" for at, arg in enumerate(function.regions[0].blocks[0].args)]
    pairs = [f"{names[a]} and {names[b]}" for a, b in sorted(disjoint.pairs) if b < len(names)]
    if pairs:
        yield f"the memory of these arguments does not overlap: {', '.join(pairs)}"
    if disjoint.own is not None and disjoint.own < len(names):
        yield f"no other argument reaches the memory of {', '.join(names[disjoint.own :])}, which the launcher makes"


def _function(
    module: Operation, function: Operation, deadline: float, disjoint: Disjoint, placement: Placement | None
) -> Report:
    unknown: frozenset[Value] = frozenset()
    while True:
        program, extents = translate(module, function, disjoint, unknown, placement)
        names = Names(program, Flow(function))
        engine = Engine(program, names, extents)
        try:
            found, states = search(engine, deadline)
            over = any(one.code == "too-many-states" for one in found)
            if found and not over and extents.has_long_nests():  # perhaps because of what these were taken for
                extents.count_nests()
                engine = Engine(program, names, extents)
                found, states = search(engine, deadline)
            break
        except Grows as grown:
            unknown |= {grown.value}
    findings, conditions = [*resources(module, function, program, names), *found], list[Condition]()
    try:
        _more(findings, conditions, function, names, extents, program, disjoint)
        if any(one.code == "overwritten" for one in findings) and not disjoint.every:
            apart = _function(module, function, deadline, EVERY, placement)
            if any(one.kind == "error" for one in apart.findings):  # wrong wherever arguments lie
                return apart
    except TimeIsOver:  # what was found holds all the same
        if all(one.code != "too-many-states" for one in findings):  # that is said once
            findings.append(_over("the time was over before all that tasks touch had been compared", function))
    slots = sum(_slots(program, root) for root in names.barriers)
    buffers = sum(_slots(program, root) for root in range(len(program.roots)) if root not in names.barriers)
    return Report(
        tuple(findings), tuple(names.tasks), slots, buffers, states, engine.events, conditions=tuple(conditions)
    )


def _more(
    findings: list[Finding],
    conditions: list[Condition],
    function: Operation,
    names: Names,
    extents: Extents,
    program: c.Program,
    disjoint: Disjoint,
) -> None:
    """Add what the search does not ask for, as far as the time goes."""
    if any(one.kind == "undecided" for one in findings):
        findings.extend(_overwritten(extents))
    for found in global_order(function, names.flow, extents.terms, disjoint, names):
        if isinstance(found, Condition):
            conditions.append(found)
        else:
            findings.append(found)
    if program.placement is None:
        findings.extend(lifetimes(function, program, names))


def _over(message: str, function: Operation) -> Finding:
    return Finding("undecided", "too-many-states", message, function.location)


def _overwritten(extents: Extents) -> Iterator[Finding]:
    """Why two tasks may disagree on what decides something, where that keeps the kernel from being proved."""
    memory = extents.terms.memory
    for load in extents.changing if memory is not None else ():
        assert memory is not None
        store = memory.place(load)
        message = f"what {load.name} loads here decides what tasks do, and {memory.text(load)}"
        path = ((f"{store.name} writes", store.location),) if store is not load else ()
        note = "load it in one task that hands it on, or say that the arguments do not overlap and see to it"
        yield Finding("undecided", "overwritten", message, load.location, path, note)


def _slots(program: c.Program, root: int) -> int:
    """How many buffers or barriers an allocation holds: a barrier is one i64, so a ring of them has two dimensions."""
    if program.roots[root].name != "ttg.local_alloc":
        return 0
    type = program.roots[root].result.type
    if not isinstance(type, MemDescType) or len(type.shape) < 2:
        return 1
    ring = len(type.shape) > 2 or type.shape[1] == 1
    return type.shape[0] if ring else 1
