"""Integer arithmetic of scalar operations, and which part of an operand a result depends on.

Counters that only serve for `counter % depth` and `counter / depth % 2` grow without bound; two states of a task that
differ in them by a multiple of `2 * depth` behave the same. `operand_moduli` says how far that goes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from wspec.ir.core import Operation
from wspec.ir.types import ScalarType, Type

EXACT = 0  # the whole integer matters
NOTHING = 1  # nothing of it matters
LIMIT = 1 << 12  # larger moduli count as EXACT


def _divide(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_BINARY: dict[str, Callable[[int, int], int]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divsi": _divide,
    "arith.divui": _divide,
    "arith.remsi": lambda a, b: a - b * _divide(a, b),
    "arith.remui": lambda a, b: a - b * _divide(a, b),
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
    "arith.shli": lambda a, b: a << b,
    "arith.shrsi": lambda a, b: a >> b,
    "arith.shrui": lambda a, b: a >> b,
    "arith.maxsi": max,
    "arith.minsi": min,
    "arith.maxui": max,
    "arith.minui": min,
}
_COMPARE: tuple[Callable[[int, int], bool], ...] = (
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
)
_SIGNED_ORDER = {6: 2, 7: 3, 8: 4, 9: 5}  # unsigned predicates, as positions in _COMPARE
_UNSIGNED = frozenset(("arith.divui", "arith.remui", "arith.shrui", "arith.maxui", "arith.minui"))
_CASTS = frozenset(
    ("arith.extsi", "arith.extui", "arith.index_cast", "arith.index_castui", "arith.trunci", "tt.bitcast")
)


SAFE_BITS = 32
WIDEST = 1 << 64
_OVERFLOWING = frozenset(("arith.addi", "arith.subi", "arith.muli", "arith.shli"))


def is_scalar(type: Type) -> bool:
    return isinstance(type, ScalarType) and not type.is_float


def function(op: Operation) -> Callable[..., int] | None:
    """How the integer result comes from integer operands; None when the operation is not one of these."""
    if len(op.results) != 1 or not is_scalar(op.results[0].type):
        return None
    if op.name in _BINARY:
        plain = _safe(_BINARY[op.name])
        if op.name in _UNSIGNED:
            return _unsigned(plain, op)
        return _wrapped(plain, bits(op.results[0].type)) if wraps(op) else plain
    if op.name == "arith.cmpi":
        code = op.int_attr("predicate") or 0
        compare = _COMPARE[_SIGNED_ORDER.get(code, code)]
        return _unsigned(compare, op) if code in _SIGNED_ORDER else lambda a, b: int(compare(a, b))
    if op.name in _CASTS:
        return _cast(op)
    return None


def wraps(op: Operation) -> bool:
    """May the integer result overflow in a kernel that is worth running? Counters of 32 bits do not get there.

    At a hundred nanoseconds an iteration they would take three minutes.
    """
    return op.name in _OVERFLOWING and bits(op.results[0].type) < SAFE_BITS


def _wrapped(plain: Callable[[int, int], int], width: int) -> Callable[[int, int], int]:
    """The low bits of the result, as a signed integer; single bits are 0 and 1."""
    mask, half = (1 << width) - 1, 1 << (width - 1)

    def computed(a: int, b: int) -> int:
        found = plain(a, b) & mask
        return found - mask - 1 if width > 1 and found >= half else found

    return computed


def _safe(plain: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def computed(a: int, b: int) -> int:
        try:
            return plain(a, b)
        except (ZeroDivisionError, ValueError):  # undefined in the kernel too
            return 0

    return computed


def kept(value: int) -> int | None:
    """The number, unless it is beyond all that registers hold: squares of squares soon fill the memory."""
    return value if abs(value) < WIDEST else None


def is_computed(name: str) -> bool:
    """Is this an operation on integers that `computed` knows?"""
    return name in _BINARY or name in _CASTS or name in ("arith.cmpi", "arith.select")


def computed(name: str, attributes: Mapping[str, str], values: Sequence[int]) -> int:
    """Its result for small operands, which do not overflow; attributes as text."""
    if name == "arith.select":
        return values[1] if values[0] else values[2]
    if name == "arith.cmpi":
        code = int(attributes["predicate"].split()[0])
        return int(_COMPARE[_SIGNED_ORDER.get(code, code)](values[0], values[1]))
    return _safe(_BINARY[name])(values[0], values[1]) if name in _BINARY else values[0]


def _unsigned(plain: Callable[[int, int], int], op: Operation) -> Callable[[int, int], int]:
    """Of operands taken as unsigned; the result as signed again."""
    width, result = bits(op.operands[0].type), bits(op.results[0].type)
    mask, half, whole = (1 << width) - 1, 1 << (result - 1), 1 << result

    def computed(a: int, b: int) -> int:
        found = int(plain(a & mask, b & mask))
        return found - whole if result > 1 and found >= half else found

    return computed


def bits(type: Type) -> int:
    """Width of a scalar integer."""
    return type.bits if isinstance(type, ScalarType) else 64


def _cast(op: Operation) -> Callable[[int], int]:
    source, target = op.operands[0].type, op.results[0].type
    assert isinstance(source, ScalarType) and isinstance(target, ScalarType)
    if op.name == "arith.extsi" and source.bits == 1:
        return lambda a: -a
    if op.name in ("arith.extui", "arith.index_castui"):
        known = (1 << source.bits) - 1
        return lambda a: a & known
    if op.name == "arith.trunci":
        mask = (1 << target.bits) - 1
        half = 1 << (target.bits - 1) if target.bits > 1 else mask + 1
        return lambda a: (a & mask) - (mask + 1 if (a & mask) >= half else 0)
    return lambda a: a


def join(left: int, right: int) -> int:
    """What matters when both matter."""
    if EXACT in (left, right):
        return EXACT
    both = math.lcm(left, right)
    return both if both <= LIMIT else EXACT


def _is_odd(modulus: int, op: Operation) -> bool:
    """Does a multiple of 2 to the width of the result matter?"""
    return (1 << bits(op.results[0].type)) % modulus != 0


def operand_moduli(op: Operation, modulus: int, constants: tuple[int | None, ...]) -> tuple[int, ...]:
    """What matters of each operand when `modulus` matters of the result; `constants`: the operands that are known."""
    last = constants[-1] if constants else None
    known = last if last is not None and last > 0 else None
    match op.name:
        case _ if modulus == NOTHING:
            return (NOTHING,) * len(op.operands)
        case "arith.addi" | "arith.subi" | "arith.muli" if wraps(op) and (modulus == EXACT or _is_odd(modulus, op)):
            return (EXACT, EXACT)  # what is left of a sum by 3 is not left of the sum less 256
        case "arith.addi" | "arith.subi" | "arith.muli":
            return (modulus, modulus)
        case "arith.remsi" | "arith.remui" if known is not None:
            return (known if known <= LIMIT else EXACT, NOTHING)
        case "arith.divsi" | "arith.divui" if known is not None and modulus != EXACT:
            return (join(known * modulus, 1), NOTHING)
        case "arith.shrsi" | "arith.shrui" if last is not None and 0 <= last < 16 and modulus != EXACT:
            return (join((1 << last) * modulus, 1), NOTHING)
        case "arith.andi" if known is not None and known & (known + 1) == 0:
            return (join(known + 1, 1), NOTHING)
        case "arith.xori" | "arith.ori" | "arith.andi" if modulus & (modulus - 1) == 0:
            return (modulus, modulus)
        case "arith.trunci":
            target = op.results[0].type
            bits = target.bits if isinstance(target, ScalarType) else 64
            whole = 1 << bits if bits <= 12 else EXACT
            if modulus != EXACT and modulus & (modulus - 1) == 0:
                return (min(modulus, whole) if whole else modulus,)
            return (whole,)
        case "arith.extsi" | "arith.extui" | "arith.index_cast" | "arith.index_castui" | "tt.bitcast":
            return (modulus,)
        case "arith.select":
            return (EXACT, modulus, modulus)
    return (EXACT,) * len(op.operands)
