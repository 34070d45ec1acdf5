"""Between which numbers the integers of a launch lie, whatever program asks: intervals instead of arrays.

`scalars.evaluate` computes integers for every program id. Here each is bounded, which takes some microseconds for any
grid: what must hold for all programs of a launch is looked at before it, on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wspec.ir.builder import PREDICATES
from wspec.ir.core import Operation, Value
from wspec.tile_scheduler.scalars import Scalar, Slice, Unknown

Interval = tuple[int, int]
COUNTER = "counter"  # how often a loop has gone round before; operands: its first value, its end, its step
FOUND = "found"  # what only the kernel knows, such as a number that it loads; `value`: which of these it is
PLACE = "place"  # of an element along one side of a tile; `value`: the side's size


_VARYING = ("program_id", "induction", COUNTER, FOUND, PLACE)


class LaunchSlice(Slice):
    """Scalars that come from constants, arguments, program ids, counters of loops, and what only the kernel knows."""

    def __init__(self, function: Operation) -> None:
        super().__init__(function)
        self._uniform: list[bool] = []
        self._found: list[tuple[bool, bool]] = []  # by itself; through a loop's counter too
        self._serial: dict[Value, int] = {}

    def counter(self, loop: Operation) -> int:
        """The position of how often a scf.for has gone round before. Raises Unknown."""
        return self._put(Scalar(COUNTER, 64, tuple(self.position(bound) for bound in loop.operands[:3])))

    def place(self, size: int) -> int:
        """The position of an element's place along a side of that size."""
        return self._put(Scalar(PLACE, 32, (), size))

    def is_uniform(self, position: int) -> bool:
        """Is the scalar the same in all programs, at any time?"""
        for scalar in self.scalars[len(self._uniform) :]:
            inside = all(self._uniform[at] for at in scalar.operands)
            self._uniform.append(inside and scalar.name not in _VARYING)
        return self._uniform[position]

    def is_found(self, position: int, through_counters: bool = True) -> bool:
        """Does the scalar hang on what only the kernel knows; also on how often a loop goes round that says?"""
        for scalar in self.scalars[len(self._found) :]:
            of = [self._found[at] for at in scalar.operands]
            itself = any(one for one, _ in of) and scalar.name != COUNTER
            self._found.append((scalar.name == FOUND or itself, scalar.name == FOUND or any(deep for _, deep in of)))
        return self._found[position][through_counters]

    def _sources(self, value: Value) -> list[Value]:
        loop = _loop_of(value)
        if loop is not None:
            return list(loop.operands[:3])
        try:
            return super()._sources(value)
        except Unknown:
            self._serial.setdefault(value, len(self._serial))
            return []

    def _scalar(self, value: Value, operands: tuple[int, ...]) -> Scalar:
        if value in self._serial:
            return Scalar(FOUND, _bits(value), (), self._serial[value])
        loop = _loop_of(value)
        return super()._scalar(value, operands) if loop is None else Scalar("induction", _bits(value), operands)


def _loop_of(value: Value) -> Operation | None:
    """The scf.for whose counter variable the value is."""
    if isinstance(value.owner, Operation) or value.index:
        return None
    around = value.owner.parent_op
    return around if around is not None and around.name == "scf.for" else None


def _bits(value: Value) -> int:
    name = str(value.type)
    if name != "index" and not name.startswith("i"):
        raise Unknown(f"it depends on a number of type {name}")
    return 64 if name == "index" else int(name[1:])


def intervals(scalars: Sequence[Scalar], grid: tuple[int, int, int], values: Mapping[int, int]) -> list[Interval]:
    """(least, most) of every scalar over all programs of a launch; `values`: of the arguments, by position.

    What may leave the range of its type could be anything in it.
    """
    found: list[Interval] = []
    for scalar in scalars:
        found.append(interval_of_scalar(scalars, scalar, found, grid, values))
    return found


def interval_of_scalar(
    scalars: Sequence[Scalar],
    scalar: Scalar,
    known: Sequence[Interval],
    grid: tuple[int, int, int],
    values: Mapping[int, int],
) -> Interval:
    """Of one of the scalars, with the intervals of those before it."""
    whole = -(1 << (scalar.bits - 1)), (1 << (scalar.bits - 1)) - 1
    of = [known[at] for at in scalar.operands]
    if scalar.name == "select":
        of = _where_chosen(scalars, scalar, of, known)
    low, high = _interval(scalar, of, grid, values, whole)
    return (low, high) if whole[0] <= low and high <= whole[1] else whole


def _interval(
    scalar: Scalar, of: list[Interval], grid: tuple[int, int, int], values: Mapping[int, int], whole: Interval
) -> Interval:
    match scalar.name:
        case "found":
            return whole
        case "constant":
            return scalar.value, scalar.value
        case "argument":
            return values[scalar.value], values[scalar.value]
        case "place":
            return 0, scalar.value - 1
        case "program_id":
            return 0, max(0, grid[scalar.value] - 1)
        case "num_programs":
            return grid[scalar.value], grid[scalar.value]
        case "induction" | "counter":
            return _loop(scalar.name, *of)
        case "cmpi":
            return _compared(scalar.value, *of)
        case "select":
            if of[0][0] == of[0][1]:
                return of[1] if of[0][0] else of[2]
            return min(of[1][0], of[2][0]), max(of[1][1], of[2][1])
        case "cast":
            return of[0]
        case "cast_unsigned":
            return of[0] if of[0][0] >= 0 else whole
    known = _ARITHMETIC.get(scalar.name)
    return whole if known is None else known(of[0], of[1]) or whole


def _loop(name: str, first: Interval, end: Interval, step: Interval) -> Interval:
    """Of the values of a loop's counter, or of how often it has gone round, in iterations that there are; the loop goes
    forwards."""
    if step[0] < 1:
        return -(1 << 63), (1 << 63) - 1
    if name == COUNTER:
        return 0, max(0, -(-(end[1] - first[0]) // step[0]) - 1)
    return first[0], max(first[0], end[1] - 1)


def _where_chosen(
    scalars: Sequence[Scalar], select: Scalar, of: Sequence[Interval], known: Sequence[Interval]
) -> list[Interval]:
    """The operands of a choice, where what it chooses is also what it compared: `x if x > 0 else 0`."""
    condition, *options = select.operands
    found, test = list(of), scalars[condition]
    name = PREDICATES[test.value] if test.name == "cmpi" else ""
    if name[:1] != "s":
        return found
    for at, option in enumerate(options):
        if option not in test.operands:
            continue
        other = known[test.operands[option == test.operands[0]]]
        is_less = ((name[1] == "l") == (option == test.operands[0])) == (at == 0)
        apart = int((name[2] == "t") == (at == 0))
        low, high = known[option]
        low, high = (low, min(high, other[1] - apart)) if is_less else (max(low, other[0] + apart), high)
        if low <= high:  # else it is never chosen
            found[1 + at] = low, high
    return found


def _compared(predicate: int, a: Interval, b: Interval) -> Interval:
    """Of an i1, whose truth is -1."""
    name = PREDICATES[predicate]
    if name[0] == "u" and (a[0] < 0 or b[0] < 0):
        return -1, 0
    if name in ("eq", "ne"):
        equal = a == b and a[0] == a[1]
        apart = a[1] < b[0] or b[1] < a[0]
        truth = (equal, apart) if name == "eq" else (apart, equal)
    else:
        less, closed = name[1] == "l", name[2] == "e"
        (low, high), (first, last) = (a, b) if less else (b, a)
        always = high <= first if closed else high < first
        never = low > last if closed else low >= last
        truth = always, never
    return (-1, -1) if truth[0] else (0, 0) if truth[1] else (-1, 0)


Rule = Callable[[Interval, Interval], Interval | None]  # None: nothing is known


def _corners(compute: Callable[[int, int], int]) -> Rule:
    """Of an operation that rises or falls in each of its operands."""

    def rule(a: Interval, b: Interval) -> Interval:
        ends = [compute(x, y) for x in a for y in b]
        return min(ends), max(ends)

    return rule


def _divided(compute: Callable[[int, int], int]) -> Rule:
    """A quotient rises or falls in each operand where the divisor keeps its sign; the divisor is not zero."""

    def rule(a: Interval, b: Interval) -> Interval | None:
        divisors = (b[0], min(b[1], -1)), (max(b[0], 1), b[1])
        ends = [compute(x, y) for part in divisors if part[0] <= part[1] for x in a for y in part]
        return (min(ends), max(ends)) if ends else None

    return rule


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder_interval(a: Interval, b: Interval) -> Interval | None:
    """It has the sign of the dividend, and is smaller than the divisor and not larger than the dividend."""
    if b == (0, 0):
        return None
    most = max(abs(b[0]), abs(b[1])) - 1
    return max(min(a[0], 0), -most), min(max(a[1], 0), most)


def _unsigned(rule: Rule) -> Rule:
    """The same of operands that are taken as unsigned: nothing else where both are positive."""
    return lambda a, b: rule(a, b) if a[0] >= 0 and b[0] >= 0 else None


_ARITHMETIC: dict[str, Rule] = {
    "addi": _corners(lambda a, b: a + b),
    "subi": _corners(lambda a, b: a - b),
    "muli": _corners(lambda a, b: a * b),
    "divsi": _divided(_quotient),
    "divui": _unsigned(_divided(_quotient)),
    "ceildivsi": _divided(lambda a, b: -(-a // b)),
    "ceildivui": _unsigned(_divided(lambda a, b: -(-a // b))),
    "floordivsi": _divided(lambda a, b: a // b),
    "remsi": remainder_interval,
    "remui": _unsigned(remainder_interval),
    "minsi": _corners(min),
    "maxsi": _corners(max),
    "minui": _unsigned(_corners(min)),
    "maxui": _unsigned(_corners(max)),
    "andi": lambda a, b: (0, min(a[1], b[1])) if a[0] >= 0 and b[0] >= 0 else None,
}


def divisors(scalars: Sequence[Scalar], known: Sequence[Interval]) -> list[int]:
    """Of every scalar a power of two that all its values are multiples of, 0 where they are zero.

    That is so in any number of bits, also where something has left the range of its type. `known`: the intervals.
    """
    found: list[int] = []
    for scalar, (low, high) in zip(scalars, known, strict=True):
        of = [found[at] for at in scalar.operands]
        match scalar.name:
            case _ if low == high:
                found.append(abs(low))
            case "muli":
                found.append(of[0] * of[1])
            case "addi" | "subi" | "minsi" | "maxsi" | "minui" | "maxui":
                found.append(math.gcd(*of))
            case "select":
                found.append(math.gcd(of[1], of[2]))
            case "induction":
                found.append(math.gcd(of[0], of[2]))
            case "cast":
                found.append(of[0])
            case _:
                found.append(1)
        found[-1] &= -found[-1]
    return found


@dataclass(frozen=True, slots=True)
class Term:
    """A whole number times scalars, by their positions."""

    factor: int
    scalars: tuple[int, ...] = ()


Sum = tuple[Term, ...]


def interval_of(sum: Sum, of: Sequence[Interval]) -> Interval:
    """Of a sum of products, with each scalar's interval."""
    low = high = 0
    for term in sum:
        ends = term_interval(term.factor, term.scalars, of)
        low, high = low + ends[0], high + ends[1]
    return low, high


def term_interval(factor: int, scalars: Sequence[int], of: Sequence[Interval]) -> Interval:
    """Of a number times scalars."""
    ends = factor, factor
    for at in scalars:
        found = [x * y for x in ends for y in of[at]]
        ends = min(found), max(found)
    return ends


def divisor_of(sum: Sum, of: Sequence[int]) -> int:
    """A number that a sum of products is always a multiple of, with one for each scalar; 0 where it is zero."""
    return math.gcd(*(term.factor * math.prod(of[at] for at in term.scalars) for term in sum))
