"""What the TTGIR's operations on integers make of numbers that are known."""

from __future__ import annotations

from wspec.ir.core import Operation
from wspec.ir.types import ScalarType, TensorType, Type
from wspec.ptx.arithmetic import computed, signed

BINARY = {
    "arith.addi": "add.u", "arith.subi": "sub.u", "arith.muli": "mul.lo.u", "arith.andi": "and.b",
    "arith.ori": "or.b", "arith.xori": "xor.b", "arith.shli": "shl.b", "arith.shrui": "shr.u", "arith.shrsi": "shr.s",
    "arith.divui": "div.u", "arith.divsi": "div.s", "arith.remui": "rem.u", "arith.remsi": "rem.s",
    "arith.minui": "min.u", "arith.minsi": "min.s", "arith.maxui": "max.u", "arith.maxsi": "max.s",
}  # fmt: skip
_ROUNDED = {"arith.ceildivsi": True, "arith.floordivsi": False, "arith.ceildivui": True}  # upwards?
DIVISIONS = frozenset((*_ROUNDED, "arith.divsi", "arith.divui", "arith.remsi", "arith.remui"))
WIDENINGS = {"arith.extui": "u", "arith.extsi": "s", "arith.trunci": "u"}
_ORDERS = ("eq.s", "ne.s", "lt.s", "le.s", "gt.s", "ge.s", "lt.u", "le.u", "gt.u", "ge.u")


def bits_of(type: Type) -> int:
    """Of a number, or of each element of a tensor."""
    element = type.element if isinstance(type, TensorType) else type
    return element.bits if isinstance(element, ScalarType) else 64


def result_of(op: Operation, values: tuple[int | None, ...]) -> int | None:
    """The result of an operation on integers, of a tensor's one for each element; None where it is not known."""
    if op.name == "arith.select" and values[0] is not None:
        return values[1 if values[0] else 2]
    known = tuple(value for value in values if value is not None)
    if len(known) < len(values) or not known:
        return None
    bits = bits_of(op.operands[0].type)
    if op.name in _ROUNDED:
        return _quotient(known, bits, op.name.endswith("si"), _ROUNDED[op.name])
    if op.name in ("arith.index_cast", "arith.index_castui"):
        sign = "s" if op.name == "arith.index_cast" else "u"
        return computed(f"cvt.{sign}{bits_of(op.result.type)}.{sign}{bits}", known)
    if op.name == "arith.cmpi":
        return computed(f"setp.{_ORDERS[op.int_attr('predicate') or 0]}{bits}", known)
    if op.name in WIDENINGS:
        sign = WIDENINGS[op.name]
        return computed(f"cvt.{sign}{bits_of(op.result.type)}.{sign}{bits}", known)
    return computed(f"{BINARY[op.name]}{bits}", known) if op.name in BINARY else None


def _quotient(values: tuple[int, ...], bits: int, has_sign: bool, is_up: bool) -> int | None:
    left, right = (signed(value, bits) if has_sign else value for value in values)
    if not right:
        return None
    return (-(-left // right) if is_up else left // right) & (1 << bits) - 1
