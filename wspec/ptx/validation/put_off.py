"""Arrivals that come later than they did: only arithmetic was passed, and they come in any case.

@leader mbarrier.arrive [empty];         // gone
max, shfl, max, ...                      // only computes, and leaves leader and empty as they are
setp.ne.b32 known, %max, IMPOSSIBLE;     // come: true, for %max is what a float32 instruction gave
and.pred known, known, leader;           // come
@known mbarrier.arrive [empty];          // come
"""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ptx.effects import ARITHMETIC, EXCHANGES, has_known_registers, reads, writes
from wspec.ptx.errors import PtxError
from wspec.ptx.operands import Number, Register
from wspec.ptx.syntax import Function, Instruction, Label

_FLOAT = frozenset(("max", "min", "add", "sub", "mul", "fma"))
_ROUNDING = frozenset(("rn", "rz", "rm", "rp", "ftz", "sat", "NaN", "f32"))
_CANONICAL = 0x7FFFFFFF  # the NaN that these instructions give (PTX ISA, floating-point instructions)


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
        _is_never_that(test, merged.body[:end])


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


def _is_never_that(test: Instruction, before: Sequence[Instruction | Label]) -> None:
    """Raises PtxError where the value may be the number, so that the arrival might not come."""
    value, number = test.operands[1], test.operands[2]
    if not isinstance(value, Register) or not isinstance(number, Number):
        raise PtxError(f"'{test}' is no test of a value")
    for one in reversed(before):
        if isinstance(one, Label):
            break
        if not has_known_registers(one):
            break
        if value.name in writes(one):
            words = one.opcode.split(".")
            fits = words[0] in _FLOAT and words[-1] == "f32" and set(words[1:]) <= _ROUNDING and not one.guard
            bits = number.value or 0
            is_nan = bits >> 23 & 0xFF == 0xFF and bits & 0x7FFFFF != 0
            if fits and is_nan and bits not in (_CANONICAL, _CANONICAL | 1 << 31):
                return
            break
    raise PtxError(f"the value of '{test}' may be that number")
