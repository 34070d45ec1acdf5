"""The checker, as the bridge asks it: about the module that is compiled, for a limited time."""

from __future__ import annotations

from wspec import bridge, ir
from wspec.bridge import Proof
from wspec.check import Report, check
from wspec.ir.disjoint import NONE, Disjoint

_GENERIC = '"builtin.module"('  # how a module begins in generic form
LIMIT_S = 10.0  # of CPU time; a launch waits for it: most kernels take 20 to 200 ms, rings of 12 tiles up to 4 s


def prove(final: str, disjoint: Disjoint = NONE) -> Proof:
    """What the checker says of a module that libtriton wrote, in either form, if these arguments do not overlap.

    What it raises is a bug.
    """
    return proof_of(check(read_final(final), limit_s=LIMIT_S, disjoint=disjoint), LIMIT_S)


def read_final(final: str) -> ir.Operation:
    """The module of a text that libtriton wrote, in its own syntax or in generic form."""
    return ir.read(final if _GENERIC in final else bridge.generic_text(bridge.reparse(final)))


def proof_of(report: Report, limit_s: float) -> Proof:
    """The same without how long it took, so that equal kernels have equal proofs."""
    errors, undecided = (tuple(one.remark() for one in kind) for kind in (report.errors, report.undecided))
    return Proof(report.summary(timed=False), errors, undecided, timed_out=report.seconds >= limit_s)
