"""What integer instructions compute, of numbers that are known.

A register's content is taken as so many bits without a sign (PTX ISA, "Integer Arithmetic Instructions", "Comparison
and Selection Instructions", "Logic and Shift Instructions", "Data Movement and Conversion Instructions").
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

_NOT_KNOWN = ("mul24", "mad24", "add.sat", "sub.sat", "cvt.sat", "mad.hi.sat")
_PRODUCTS = ("mul.wide.", "mul.hi.", "mad.wide.", "mad.hi.")


@functools.lru_cache(maxsize=256)
def width(type: str) -> int:
    """Bits of a type such as s16 or b32; 0 of what has none."""
    if type == "pred":
        return 1
    return int(type[1:]) if type[:1] in ("b", "s", "u") and type[1:].isdigit() else 0


@functools.lru_cache(maxsize=1024)
def words_of(opcode: str) -> tuple[str, ...]:
    """The opcode between its dots."""
    return tuple(opcode.split("."))


@functools.lru_cache(maxsize=1 << 14)
def computed(opcode: str, values: tuple[int, ...]) -> int | None:
    """The result of an instruction for its operands behind the target; None of one that is not known here."""
    return _computed(opcode, words_of(opcode), values)


def computed_each(opcode: str, several: Iterable[tuple[int, ...]]) -> list[int | None]:
    """The same for operands of several threads."""
    words = words_of(opcode)
    return [_computed(opcode, words, values) for values in several]


def _computed(opcode: str, words: Sequence[str], values: tuple[int, ...]) -> int | None:
    name, type = words[0], words[-1]
    bits = width(type)
    if not bits or opcode.startswith(_NOT_KNOWN):
        return None
    if opcode.startswith(_PRODUCTS):
        return _product(words, values, bits)
    if name == "cvta":
        return values[0]
    if name in ("mov", "cvt"):
        return _converted(words, values[0])
    whole = (1 << bits) - 1
    count = len(values)
    if count == 1:
        found = _of_one(name, values[0], whole)
    elif count == 2:
        found = _of_two(words, values[0] & whole, values[1] & whole, bits)
    elif count == 3:
        found = _of_three(words, values[0], values[1], values[2], bits)
    else:
        found = None
    return None if found is None else found & whole


def _product(words: Sequence[str], values: Sequence[int], bits: int) -> int:
    """Of twice as many bits, or the upper half of them; of `mad` with something added."""
    whole = (1 << bits) - 1
    left, right = values[0] & whole, values[1] & whole
    if words[-1].startswith("s"):
        left, right = signed(left, bits), signed(right, bits)
    is_wide, more = words[1] == "wide", values[2] if len(values) > 2 else 0
    product = left * right
    return product + more & (1 << 2 * bits) - 1 if is_wide else (product >> bits) + more & whole


def _converted(words: Sequence[str], value: int) -> int | None:
    source = width(words[-1])
    value &= (1 << source) - 1
    if words[0] == "mov":
        return value
    target = width(words[-2])
    if words[-1].startswith("s"):
        value = signed(value, source)
    return value & ((1 << target) - 1) if target else None


def signed(value: int, bits: int) -> int:
    """The number that so many bits stand for with a sign."""
    return (value ^ 1 << (bits - 1)) - (1 << (bits - 1))


def _of_one(name: str, value: int, whole: int) -> int | None:
    match name:
        case "not":
            return ~value & whole
        case "neg":
            return -value
    return None


def _of_two(words: Sequence[str], left: int, right: int, bits: int) -> int | None:
    has_sign = words[-1].startswith("s")
    match words[0]:
        case "add":
            return left + right
        case "sub":
            return left - right
        case "mul":
            return left * right
        case "and":
            return left & right
        case "or":
            return left | right
        case "xor":
            return left ^ right
        case "shl":
            return left << right if right < bits else 0
        case "shr":
            return (signed(left, bits) if has_sign else left) >> min(right, bits)
    if has_sign:
        left, right = signed(left, bits), signed(right, bits)
    match words[0]:
        case "min":
            return min(left, right)
        case "max":
            return max(left, right)
        case "div" if right:
            return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        case "rem" if right:
            return abs(left) % abs(right) * (-1 if left < 0 else 1)
        case "setp" | "set" if len(words) == 3:
            orders = {"lt": left < right, "le": left <= right, "gt": left > right, "ge": left >= right,
                      "lo": left < right, "ls": left <= right, "hi": left > right, "hs": left >= right,
                      "eq": left == right, "ne": left != right}  # fmt: skip
            found = orders.get(words[1])
            return None if found is None or words[0] == "set" else int(found)
    return None


def _of_three(words: Sequence[str], first: int, second: int, third: int, bits: int) -> int | None:
    match words[0]:
        case "selp":
            return first if third else second
        case "mad":
            return first * second + third
        case "bfe" if third & 255 and (second & 255) + (third & 255) <= bits:
            field = (first >> (second & 255)) & ((1 << (third & 255)) - 1)
            return signed(field, third & 255) if words[-1].startswith("s") else field
    return None
