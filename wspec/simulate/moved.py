"""What ptxas moves: waits for dots and tiles, and arithmetic beside them. Seen in the SASS of attention.

Nothing but a dot's operands and results orders arithmetic with it, and a wait for a tile only what reads the tile. So
the machine code has another order than the module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wspec.ir.core import Operation
from wspec.ir.types import TensorType
from wspec.simulate.actions import Action, Flow, Kind, Piece
from wspec.simulate.costs import ISSUE, Numbers
from wspec.simulate.steps import SCALAR, AtBarrier, Emit, Step

_FLOATS = frozenset(("arith.mulf", "arith.addf", "arith.subf", "math.fma"))
_REPEATS = frozenset(("tt.splat", "tt.broadcast", "tt.expand_dims"))


def add_queued_dot(dot: Emit, steps: list[Step], numbers: Numbers) -> None:
    """A dot whose issue does not wait for the tensor core, after multiplications and additions that it does not
    need: ptxas puts them between its instructions. Of attention these are the multiplications of the accumulators,
    which only the next dot needs. They take the issue slots that a warp group has beside a busy tensor core.
    """
    at = next((n for n in reversed(range(len(steps))) if not _passes(steps[n])), None)
    work = steps[at] if at is not None else None
    if at is None or not isinstance(work, Emit) or not _is_multiplying(work.actions[0], dot.actions[0].op):
        steps.append(dot)
        return
    del steps[at]
    for step in steps[at:]:
        if isinstance(step, AtBarrier):
            step.early = after_arithmetic(steps[:at])
    flows = [piece for piece in work.actions[0].pieces if isinstance(piece, Flow)]
    slots = sum(cycles for flow in flows for unit, cycles in flow.busy if unit == ISSUE)
    more = slots / numbers.issue_one
    steps.append(Emit((replace(dot.actions[0], held=max(more, dot.actions[0].held or 0.0)),)))


def add_wait(wait: Emit, steps: list[Step]) -> None:
    """A wait for dots after a stretch of arithmetic: ptxas moves it up, into the first gap of the stretch.

    Nothing but the dots' results orders arithmetic with a wait, and a wait is put where warps would idle anyway: after
    the first reduction's first shuffle. So arithmetic that stands before a wait mostly runs after it.
    """
    work = steps[-1].actions[0] if steps and isinstance(steps[-1], Emit) else None
    gap = None
    if work is not None and work.kind is Kind.WORK:
        gap = next((at for at, piece in enumerate(work.pieces) if not isinstance(piece, Flow)), None)
    if work is None or gap is None:
        steps.append(wait)
        return
    before, after = (_part(work, pieces) for pieces in (work.pieces[:gap], work.pieces[gap:]))
    steps[-1:] = [Emit((before,)), wait, Emit((after,))] if gap else [wait, Emit((after,))]


def after_arithmetic(steps: Sequence[Step]) -> bool:
    """Does arithmetic on tensors come right before? ptxas tries a wait as early as it may, and branches on the outcome
    after the arithmetic."""
    before = next((one for one in reversed(steps) if not isinstance(one, SCALAR)), None)
    if not isinstance(before, Emit) or before.actions[0].kind is not Kind.WORK:
        return False
    return any(isinstance(piece, Flow) for piece in before.actions[0].pieces)


def _passes(step: Step) -> bool:
    """Arithmetic on accumulators moves past it: integers, waits for tiles and turns, descriptors."""
    if isinstance(step, AtBarrier):
        return step.kind is Kind.WAIT
    if not isinstance(step, Emit):
        return isinstance(step, SCALAR)
    action = step.actions[0]
    return action.kind is Kind.SYNC or (action.kind is Kind.WORK and not _FLOATS & {op.name for op in action.ops})


def _is_multiplying(action: Action, dot: Operation) -> bool:
    """Is this work on numbers of which the dot uses none, without reductions or conversions?"""
    if action.kind is not Kind.WORK or not _FLOATS & {op.name for op in action.ops}:
        return False
    large = [op for op in action.ops if op.results and isinstance(op.results[0].type, TensorType)]
    names = {op.name for op in large}
    return names <= _FLOATS | _REPEATS and not any(value.op in large for value in dot.operands)


def _part(work: Action, pieces: tuple[Piece, ...]) -> Action:
    cycles = sum(piece.cycles if isinstance(piece, Flow) else piece for piece in pieces)
    return replace(work, pieces=pieces, cycles=cycles)
