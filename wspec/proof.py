"""The checker, as the bridge asks it: about the module that is compiled, for a limited time.

It is imported when there is something to check: a launch from the cache needs none of it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from wspec import bridge, ir
from wspec.bridge import Proof
from wspec.bridge.collector import collector_paused
from wspec.ir.disjoint import NONE, Disjoint
from wspec.ir.shared_memory import Placement

if TYPE_CHECKING:
    from wspec.check import Report

_GENERIC = '"builtin.module"('  # how a module begins in generic form
LIMIT_S = 10.0  # of CPU time; a launch waits for it: most kernels take 20 to 200 ms, rings of 12 tiles up to 4 s


class Placing(Protocol):
    """Says where Triton puts what a module keeps in shared memory, or raises BridgeError."""

    def __call__(self, module: ir.Operation, *, limit_s: float) -> Placement: ...


def prove(final: str, disjoint: Disjoint = NONE) -> Proof:
    """What the checker says of a module that libtriton wrote, in either form, if these arguments do not overlap.

    What it raises is a bug.
    """
    return proof_of(checked(read_final(final), LIMIT_S, disjoint=disjoint), LIMIT_S)


def checked(
    module: ir.Operation, limit_s: float, *, disjoint: Disjoint = NONE, placing: Placing | None = None
) -> Report:
    """What the checker says of a module, with the shared memory that the installed Triton gives it, if these arguments
    do not overlap.

    Undecided where Triton cannot say: it refuses the module. `placing` is asked instead of `bridge.placement`.
    """
    from wspec.check import Finding, check

    start = time.thread_time()

    def left() -> float:
        return limit_s - (time.thread_time() - start)

    try:
        placed = (placing or bridge.placement)(module, limit_s=limit_s)
        with collector_paused():
            report = check(module, limit_s=left(), disjoint=disjoint, placement=placed)
    except bridge.BridgeError as error:
        report = check(module, limit_s=left(), disjoint=disjoint)
        message = f"Triton does not say where this is put in shared memory: {error.message.splitlines()[0]}"
        finding = Finding("undecided", "unknown-memory", message, module.location)
        report = replace(report, findings=(*report.findings, finding))
    return report if left() > 0 else replace(report, seconds=max(report.seconds, limit_s))  # over, wherever that was


def read_final(final: str) -> ir.Operation:
    """The module of a text that libtriton wrote, in its own syntax or in generic form."""
    return ir.read(final if _GENERIC in final else bridge.generic_text(bridge.reparse(final)))


def proof_of(report: Report, limit_s: float) -> Proof:
    """The same without how long it took, so that equal kernels have equal proofs."""
    errors, undecided = (tuple(one.remark() for one in kind) for kind in (report.errors, report.undecided))
    rows = tuple((one.apart, one.remark()) for one in report.conditions)
    return Proof(report.summary(timed=False), errors, undecided, timed_out=report.seconds >= limit_s, rows=rows)
