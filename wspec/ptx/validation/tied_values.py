"""Values that wait for another one and stay what they are.

setp.ne.b32 known, %b, IMPOSSIBLE;     // come: true, for %b is what a float32 instruction gave
selp.b32 %a, %a, %b, known;            // come, for one value or several
"""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ptx.errors import PtxError
from wspec.ptx.operands import Register
from wspec.ptx.syntax import Function, Instruction
from wspec.ptx.validation.always_true import show_true

SELECT = "selp.b32"


def tied_in(come: Sequence[Instruction]) -> list[list[Instruction]]:
    """Of what has come: tests with the selections behind them."""
    found: list[list[Instruction]] = []
    for at, one in enumerate(come):
        if one.opcode == SELECT:
            if come[at - 1].opcode != SELECT or not found:
                found.append([come[at - 1]] if at else [])
            found[-1].append(one)
    return found


def show_tied(merged: Function, groups: Sequence[Sequence[Instruction]]) -> int:
    """How many values are tied. Raises PtxError where one may change.

    `merged`: the function with what has come.
    """
    places = {id(one): at for at, one in enumerate(merged.body)}
    for group in groups:
        test, *selections = group
        if test.opcode != "setp.ne.b32" or test.guard or not selections:
            raise PtxError(f"'{test}' is no test of a value")
        known, at = test.operands[0], places[id(test)]
        for number, one in enumerate(selections, 1):
            if places[id(one)] != at + number or one.guard or not _keeps(one, known):
                raise PtxError(f"'{one}' may change a value")
        show_true(test, merged.body[:at])
    return sum(len(group) - 1 for group in groups)


def _keeps(one: Instruction, known: object) -> bool:
    """Is it the same value where the test is true?"""
    operands = one.operands
    fits = len(operands) == 4 and isinstance(operands[0], Register) and operands[0] == operands[1]
    return fits and isinstance(known, Register) and "#" in known.name and operands[3] == known
