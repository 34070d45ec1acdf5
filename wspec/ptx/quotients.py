"""Quotients by constants, which LLVM writes as products with magic numbers: are these right, for all numbers?

The upper half of a product of x with M, shifted by k more, is floor(x M / 2^p), with p = n + k for n bits. That is the
quotient of x by d for all x up to N if M d = 2^p + e with 0 <= e x < 2^p for the last of them that is one less than a
multiple of d (Granlund and Montgomery, "Division by Invariant Integers using Multiplication"). A number with a sign has
N = 2^(n-1), and the sign's bit is added behind, which makes it the quotient of negative ones as well; for the lowest
one e x may be 2^p. How far a number without a sign goes LLVM may know. But if the quotient is not right up to twice the
divisor, it is none.

Products that are used otherwise are not looked at, and neither is which divisor it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from wspec.ptx.arithmetic import signed, width
from wspec.ptx.errors import PtxError
from wspec.ptx.operands import Number, Register, number_of
from wspec.ptx.syntax import Instruction


def show_quotients(instructions: Iterable[Instruction]) -> None:
    """Raises PtxError where a product with a magic number is no quotient."""
    found = list(instructions)
    products = [one for one in found if one.opcode.startswith("mul.hi.") and not one.guard]
    if not products:
        return
    shifts: dict[str, set[tuple[str, int]]] = {}
    sums: dict[frozenset[str], set[str]] = {}
    for one in found:
        if one.name not in ("shr", "add"):
            continue
        target, *rest = one.operands
        if one.name == "shr" and isinstance(rest[0], Register) and isinstance(rest[1], Number):
            shifts.setdefault(rest[0].name, set()).add((one.opcode.rpartition(".")[2][:1], rest[1].value or 0))
        elif one.name == "add" and isinstance(target, Register):
            both = frozenset(operand.name for operand in rest if isinstance(operand, Register))
            sums.setdefault(both, set()).add(target.name)
    for one in products:
        target, factor, magic = one.operands
        value = number_of(magic)
        if not isinstance(target, Register) or not isinstance(factor, Register) or value is None:
            continue
        kind = one.opcode.rpartition(".")[2]
        bits, names = width(kind), {target.name}
        if kind.startswith("s") and signed(value & (1 << bits) - 1, bits) < 0:
            names = sums.get(frozenset((target.name, factor.name)), set())  # x is added to make up for the sign
        by = set[tuple[str, int]]().union(*(shifts.get(name, set()) for name in names))
        if not _may_be_quotient(value & (1 << bits) - 1, bits, kind.startswith("s"), by):
            raise PtxError(f"'{one}' is no quotient by any number")


def _may_be_quotient(magic: int, bits: int, has_sign: bool, shifts: set[tuple[str, int]]) -> bool:
    """Is it one, or not used like one? `shifts`: of the product, with what fills up ("s": its sign)."""
    filled = {count for kind, count in shifts if kind != "s"}
    if has_sign and filled != {bits - 1}:
        return True
    by = {count for kind, count in shifts if kind == "s"} or {0} if has_sign else filled
    if len(by) != 1 or magic < 2:
        return True
    whole = 1 << bits + by.pop()
    divisor = -(-whole // magic)
    more = magic * divisor - whole
    if not has_sign:
        return 2 * divisor * more < whole
    most = 1 << bits - 1
    worst = (most + 1) // divisor * divisor - 1
    return more * worst < whole + (worst == most)
