"""What ptxas moves: waits for dots and tiles. Seen in the SASS of attention.

Nothing but a dot's results orders arithmetic with a wait for it, and a wait for a tile only what reads the tile. So the
machine code has another order than the module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wspec.simulate.actions import Action, Flow, Kind, Piece
from wspec.simulate.steps import SCALAR, Emit, Step


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


def _part(work: Action, pieces: tuple[Piece, ...]) -> Action:
    cycles = sum(piece.cycles if isinstance(piece, Flow) else piece for piece in pieces)
    return replace(work, pieces=pieces, cycles=cycles)
