"""What stands elsewhere in the machine code than in the module: waits for dots and tiles, arrivals, barriers.

Nothing but a dot's results orders arithmetic with a wait for it, and a wait for a tile only what reads the tile, so
ptxas moves waits. And PTX is edited before (wspec/bridge/ptx/edits.py). Seen in the SASS of attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wspec.lab.simulate.actions import Action, Flow, Kind, Piece
from wspec.lab.simulate.steps import SCALAR, AtBarrier, Emit, Step
from wspec.plan.plan import Plan

_HELD = 1 / 3
"""Of the exponentials, those that come before a wait that is held; counted in the SASS of attention."""


@dataclass(frozen=True, slots=True)
class Edits:
    """What was done to the PTX, as the plan says: barriers that order nothing are out, waits are held."""

    elide_barriers: bool = False
    hold_waits: bool = False

    @staticmethod
    def of(plan: Plan | None) -> Edits:
        """Those of a plan; none of a kernel that has none."""
        return NO_EDITS if plan is None else Edits(plan.elide_barriers, plan.hold_waits)


NO_EDITS = Edits()


def add_wait(wait: Emit, steps: list[Step], hold: bool = False) -> None:
    """A wait for dots after a stretch of arithmetic: ptxas moves it up, into the first gap of the stretch.

    Nothing but the dots' results orders arithmetic with a wait, and a wait is put where warps would idle anyway: after
    the first reduction's first shuffle. So arithmetic that stands before a wait mostly runs after it. With `hold` the
    wait comes later, where it can be held, and so does the arrival that holds it.
    """
    work = steps[-1].actions[0] if steps and isinstance(steps[-1], Emit) else None
    gap = None
    if work is not None and work.kind is Kind.WORK:
        gap = next((at for at, piece in enumerate(work.pieces) if not isinstance(piece, Flow)), None)
    if work is None or gap is None:
        steps.append(wait)
        return
    if hold and (arrival := _holding(wait, steps)) is not None and isinstance(flow := _at(work, gap + 1), Flow):
        early, late = (_share(flow, share) for share in (_HELD, 1 - _HELD))
        first, rest = (*work.pieces[: gap + 1], early), (late, *work.pieces[gap + 2 :])
        steps[arrival:] = [Emit((_part(work, first),)), *steps[arrival:-1], wait, Emit((_part(work, rest),))]
        return
    before, after = (_part(work, pieces) for pieces in (work.pieces[:gap], work.pieces[gap:]))
    steps[-1:] = [Emit((before,)), wait, Emit((after,))] if gap else [wait, Emit((after,))]


def add_arrival(arrival: AtBarrier, steps: list[Step]) -> None:
    """An arrival that stands behind a wait for dots stays there when arithmetic comes in front of both."""
    timed = [at for at in range(len(steps)) if not isinstance(steps[at], SCALAR)]
    steps.append(arrival)
    if len(timed) > 1 and _kind(steps[timed[-1]]) is Kind.WORK and _kind(steps[timed[-2]]) is Kind.DOT_WAIT:
        steps.append(steps.pop(timed[-1]))


def joined(work: Action, more: Action) -> Action | None:
    """Two stretches that now follow each other, as one: what the second does runs beside the first's last flow.

    None where either has none. In attention the accumulators are scaled between the last exponentials, once the arrival
    that stood there is gone.
    """
    places = [at for at, piece in enumerate(work.pieces) if isinstance(piece, Flow)]
    if not places or len(more.pieces) != 1 or not isinstance(flow := more.pieces[0], Flow):
        return None
    last = work.pieces[places[-1]]
    assert isinstance(last, Flow)
    busy = dict(last.busy)
    for unit, cycles in flow.busy:
        busy[unit] = busy.get(unit, 0.0) + cycles
    both = Flow.of(busy, max(last.cycles, flow.cycles))
    made = _part(work, (*work.pieces[: places[-1]], both, *work.pieces[places[-1] + 1 :]))
    return replace(made, ops=(*work.ops, *more.ops))


def _holding(wait: Emit, steps: Sequence[Step]) -> int | None:
    """Where the arrival is, with the meeting before it, that can hold a wait behind the arithmetic that ends the steps.

    It stands between a wait for fewer dots and that arithmetic (wspec/bridge/ptx/held_waits.py).
    """
    timed = [at for at, one in enumerate(steps[:-1]) if not isinstance(one, SCALAR)]
    if not timed or not _is_arrival(steps[timed[-1]]):
        return None
    at = timed.pop()
    if timed and _kind(steps[timed[-1]]) is Kind.TASK_SYNC:
        at = timed.pop()
    before = steps[timed[-1]] if timed else None
    if not isinstance(before, Emit) or before.actions[0].kind is not Kind.DOT_WAIT:
        return None
    return at if before.actions[0].a > wait.actions[0].a else None


def _is_arrival(step: Step) -> bool:
    return isinstance(step, AtBarrier) and step.kind is Kind.ARRIVE


def _kind(step: Step) -> Kind | None:
    return step.actions[0].kind if isinstance(step, Emit) else None


def _at(work: Action, place: int) -> Piece | None:
    return work.pieces[place] if place < len(work.pieces) else None


def after_arithmetic(steps: Sequence[Step]) -> bool:
    """Does arithmetic on tensors come right before? ptxas tries a wait as early as it may, and branches on the outcome
    after the arithmetic."""
    before = next((one for one in reversed(steps) if not isinstance(one, SCALAR)), None)
    if not isinstance(before, Emit) or before.actions[0].kind is not Kind.WORK:
        return False
    return any(isinstance(piece, Flow) for piece in before.actions[0].pieces)


def _share(flow: Flow, share: float) -> Flow:
    return Flow(flow.cycles * share, tuple((unit, cycles * share) for unit, cycles in flow.busy))


def _part(work: Action, pieces: tuple[Piece, ...]) -> Action:
    cycles = sum(piece.cycles if isinstance(piece, Flow) else piece for piece in pieces)
    return replace(work, pieces=pieces, cycles=cycles)
