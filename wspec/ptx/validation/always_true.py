"""Tests that come out true whatever is computed: that a float32 value is not a NaN which no instruction gives.

setp.ne.b32 known, %max, IMPOSSIBLE;     // %max is what a float32 instruction gave
"""

from __future__ import annotations

from collections.abc import Sequence

from wspec.ptx.effects import has_known_registers, writes
from wspec.ptx.errors import PtxError
from wspec.ptx.operands import Number, Register
from wspec.ptx.syntax import Instruction, Label

_FLOAT = frozenset(("max", "min", "add", "sub", "mul", "fma"))
_ROUNDING = frozenset(("rn", "rz", "rm", "rp", "ftz", "sat", "NaN", "f32"))
_CANONICAL = 0x7FFFFFFF  # the NaN that these instructions give (PTX ISA, floating-point instructions)


def show_true(test: Instruction, before: Sequence[Instruction | Label]) -> None:
    """Raises PtxError where the value may be the number, so that the test may fail."""
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
