"""What integer instructions compute, of numbers that are known.

A register's content is taken as so many bits without a sign (PTX ISA, "Integer Arithmetic Instructions", "Comparison
and Selection Instructions", "Logic and Shift Instructions", "Data Movement and Conversion Instructions"). An opcode is
read once; what it stands for is a function that is applied to many numbers.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

_NOT_KNOWN = ("mul24", "mad24", "add.sat", "sub.sat", "cvt.sat", "mad.hi.sat")
_PRODUCTS = ("mul.wide.", "mul.hi.", "mad.wide.", "mad.hi.")
_NARROWEST = 16  # bits of a register
_ORDERS = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip


class Computing(NamedTuple):
    """What an instruction computes."""

    operands: int  # how many, behind the target
    of: Callable[..., int | None]  # None of those that it is not known for


@functools.lru_cache(maxsize=256)
def width(type: str) -> int:
    """Bits of a type such as s16 or b32; 0 of what has none."""
    if type == "pred":
        return 1
    return int(type[1:]) if type[:1] in ("b", "s", "u") and type[1:].isdigit() else 0


@functools.lru_cache(maxsize=1024)
def computing(opcode: str) -> Computing | None:
    """None of one that is not known here."""
    words = opcode.split(".")
    bits = width(words[-1])
    if not bits or opcode.startswith(_NOT_KNOWN):
        return None
    if opcode.startswith(_PRODUCTS):
        return _product(words, bits)
    whole, half = (1 << bits) - 1, 1 << (bits - 1) if words[-1].startswith("s") else 0
    match words[0]:
        case "cvta":
            return Computing(1, lambda value: value)
        case "mov":
            return Computing(1, lambda value: value & whole)
        case "cvt":
            return _conversion(words[-2], whole, half)
        case "not":
            return Computing(1, lambda value: ~value & whole)
        case "neg":
            return Computing(1, lambda value: -value & whole)
        case "selp":
            return Computing(3, lambda first, second, which: (first if which else second) & whole)
        case "mad":
            return Computing(3, lambda first, second, more: first * second + more & whole)
        case "bfe":
            return Computing(3, functools.partial(_field, bits, bool(half)))
        case "setp" if len(words) == 3 and words[1] in _ORDERS:
            return Computing(2, _comparison(_ORDERS[words[1]], whole, half))
    of = _of_bits(words[0], bits, whole, half) or _of_numbers(words[0], whole, half)
    return None if of is None else Computing(2, of)


def computed(opcode: str, values: Sequence[int]) -> int | None:
    """The result of an instruction for its operands behind the target; None of one that is not known here."""
    found = computing(opcode)
    return None if found is None or found.operands != len(values) else found.of(*values)


def _of_bits(name: str, bits: int, whole: int, half: int) -> Callable[[int, int], int] | None:
    """Of two operands, of which only the bits that there are count."""
    match name:
        case "add":
            return lambda left, right: left + right & whole
        case "sub":
            return lambda left, right: left - right & whole
        case "mul":
            return lambda left, right: left * right & whole
        case "and":
            return lambda left, right: left & right & whole
        case "or":
            return lambda left, right: (left | right) & whole
        case "xor":
            return lambda left, right: (left ^ right) & whole
        case "shl":
            return lambda left, right: left << (right & whole) & whole if right & whole < bits else 0
        case "shr":
            return lambda left, right: (((left & whole) ^ half) - half) >> min(right & whole, bits) & whole
    return None


def _of_numbers(name: str, whole: int, half: int) -> Callable[[int, int], int | None] | None:
    """Of two operands that are numbers, with their signs. A quotient is rounded towards nothing."""
    of: Callable[[int, int], int]
    match name:
        case "min":
            of = min
        case "max":
            of = max
        case "div":
            of = _quotient
        case "rem":
            of = _rest
        case _:
            return None
    divides = name in ("div", "rem")

    def found(left: int, right: int) -> int | None:
        left, right = ((left & whole) ^ half) - half, ((right & whole) ^ half) - half
        return None if divides and not right else of(left, right) & whole

    return found


def _quotient(left: int, right: int) -> int:
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def _rest(left: int, right: int) -> int:
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


def _comparison(order: Callable[[int, int], bool], whole: int, half: int) -> Callable[[int, int], int]:
    """1 where it holds. Turning the sign's bit puts numbers with a sign in their order."""
    return lambda left, right: int(order((left & whole) ^ half, (right & whole) ^ half))


def _product(words: Sequence[str], bits: int) -> Computing:
    """Of twice as many bits, or the upper half of them; of `mad` with something added."""
    whole, half = (1 << bits) - 1, 1 << (bits - 1) if words[-1].startswith("s") else 0
    shift = 0 if words[1] == "wide" else bits
    kept = (1 << 2 * bits) - 1 if words[1] == "wide" else whole

    def found(left: int, right: int, more: int = 0) -> int:
        product = (((left & whole) ^ half) - half) * (((right & whole) ^ half) - half)
        return (product >> shift) + more & kept

    return Computing(3 if words[0] == "mad" else 2, found)


def _conversion(type: str, whole: int, half: int) -> Computing | None:
    """What is narrower than any register is extended to one, with its sign if it has one."""
    target = width(type)
    if not target:
        return None
    kept, sign = (1 << target) - 1, 1 << (target - 1) if type.startswith("s") and target < _NARROWEST else 0
    register = (1 << max(target, _NARROWEST)) - 1
    return Computing(1, lambda value: (((((value & whole) ^ half) - half & kept) ^ sign) - sign) & register)


def _field(bits: int, has_sign: bool, value: int, first: int, count: int) -> int | None:
    """So many bits of a number, from one on."""
    first, count = first & 255, count & 255
    if not count or first + count > bits:
        return None
    found = value >> first & (1 << count) - 1
    return signed(found, count) & (1 << bits) - 1 if has_sign else found


def signed(value: int, bits: int) -> int:
    """The number that so many bits stand for with a sign."""
    return (value ^ 1 << (bits - 1)) - (1 << (bits - 1))
