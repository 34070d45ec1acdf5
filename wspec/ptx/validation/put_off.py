"""Arrivals that come later than they did: only arithmetic was passed, and they come in any case.

@leader mbarrier.arrive [empty];         // gone
max, shfl, max, ...                      // only computes, and leaves leader and empty as they are
setp.ne.b32 known, %max, IMPOSSIBLE;     // come: true, for %max is what a float32 instruction gave
and.pred known, known, leader;           // come
@known mbarrier.arrive [empty];          // come
"""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ptx.effects import ARITHMETIC, EXCHANGES, reads, writes
from wspec.ptx.errors import PtxError
from wspec.ptx.operands import Register
from wspec.ptx.syntax import Function, Instruction, Label
from wspec.ptx.validation.always_true import show_true


def show_put_off(
    merged: Function, gone: Sequence[Instruction], come: Sequence[Instruction], barriers: Sequence[Instruction]
) -> None:
    """Raises PtxError where an arrival that is gone does not come again.

    `merged`: the function with what is gone. `come`: all that is new, in order. `barriers`: those that are gone.
    """
    places = {id(one): at for at, one in enumerate(merged.body)}
    if len(come) != 3 * len(gone):
        raise PtxError(f"{len(gone)} arrivals are gone, and {len(come)} instructions have come")
    for number, arrival in enumerate(gone):
        test, both, again = come[3 * number : 3 * number + 3]
        start, end = places[id(arrival)], places[id(test)]
        if places[id(again)] != end + 2 or start > end:
            raise PtxError(f"'{arrival}' does not come again")
        _same_arrival(arrival, test, both, again)
        between = merged.body[start + 1 : end]
        _only_computes(arrival, between, {id(one) for one in barriers})
        show_true(test, merged.body[:end])


def _same_arrival(arrival: Instruction, test: Instruction, both: Instruction, again: Instruction) -> None:
    known = test.operands[0]
    expected = (known, known, Register(arrival.guard))
    fits = (
        isinstance(known, Register)
        and "#" in known.name
        and test.opcode == "setp.ne.b32"
        and both.opcode == "and.pred"
        and both.operands == expected
        and not (test.guard or both.guard or arrival.unless or again.unless)
        and again.guard == known.name
        and again.opcode == arrival.opcode
        and again.operands == arrival.operands
    )
    if not fits:
        raise PtxError(f"'{again}' is not '{arrival}' put off")


def _only_computes(arrival: Instruction, between: Sequence[Instruction | Label], barriers: set[int]) -> None:
    needed = set(reads(arrival))
    for one in between:
        if isinstance(one, Label):
            raise PtxError(f"'{arrival}' is put off past a place that others come to")
        if id(one) in barriers:
            continue
        if one.name not in ARITHMETIC and one.name not in EXCHANGES:
            raise PtxError(f"'{arrival}' is put off past '{one}'")
        if any(name in one.text for name in needed) and needed & set(writes(one)):
            raise PtxError(f"'{one}' changes what '{arrival}' needs")
