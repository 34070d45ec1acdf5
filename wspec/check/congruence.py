"""What is known of an integer's rest: coordinates of tiles are multiples of a tile's size, and something.

A value is `rest` more than some multiple of `modulus`, whatever path led to it. Loops are gone through until nothing
changes. Products of 32 bits and more are taken not to overflow, as everywhere in the checker.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from wspec.check import scalars
from wspec.check.clock import look
from wspec.check.linear import constant
from wspec.check.tracked_values import Flow
from wspec.ir.core import Block, Operation, Value

_SUMS = frozenset(("arith.addi", "arith.subi"))
_EITHER = frozenset(("arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui"))
_SAME = frozenset(("arith.extsi", "arith.index_cast"))
_FACTORS = frozenset(("arith.muli", "arith.shli"))


@dataclass(frozen=True, slots=True)
class Congruence:
    """The integers that are `rest` more than a multiple of `modulus`; of 0, only `rest` itself."""

    modulus: int
    rest: int

    def __or__(self, other: Congruence) -> Congruence:
        """Either of the two."""
        return _made(math.gcd(self.modulus, other.modulus, self.rest - other.rest), self.rest)

    def plus(self, other: Congruence, sign: int = 1) -> Congruence:
        return _made(math.gcd(self.modulus, other.modulus), self.rest + sign * other.rest)

    def times(self, other: Congruence) -> Congruence:
        parts = self.modulus * other.modulus, self.modulus * other.rest, self.rest * other.modulus
        return _made(math.gcd(*parts), self.rest * other.rest)

    def keeps_apart(self, size: int, other: Congruence, others: int) -> bool:
        """Do intervals of `size` from one of these on, and of `others` from one of those on, never meet?"""
        modulus, distance = math.gcd(self.modulus, other.modulus), other.rest - self.rest
        if modulus == 0:
            return distance >= size or -distance >= others
        return distance % modulus >= size and -distance % modulus >= others


ANYTHING = Congruence(1, 0)


def _made(modulus: int, rest: int) -> Congruence:
    return Congruence(modulus, rest % modulus if modulus else rest)


class Congruences:
    """Of the integers of one function."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._known: dict[Value, Congruence | None] = {}
        self._begun: dict[tuple[Value, frozenset[Operation]], Congruence] = {}

    def of(self, value: Value, begun: frozenset[Operation] = frozenset()) -> Congruence:
        """`begun`: loops whose carried values are not those that they began with: they have come round once."""
        op = value.op
        look()
        if op is not None and not op.regions and op.name != "arith.constant" and begun:
            if (value, begun) not in self._begun:
                found = self._computed(op, [self.of(one, begun) for one in self._from(value)])
                self._begun[value, begun] = ANYTHING if found is None else found
            return self._begun[value, begun]
        loop = op if op is not None else _loop_of(value)
        if loop is not None and loop.name == "scf.for" and loop in begun and not _is_position(value):
            at = value.index if op is not None else value.index - 1
            return self._always(loop.regions[0].block.terminator.operands[at])
        return self._always(value)

    def _always(self, value: Value) -> Congruence:
        if value not in self._known:
            self._solve(value)
        return self._known[value] or ANYTHING

    def _solve(self, value: Value) -> None:
        """Of the value and all that it comes from: from nothing at all upwards, until nothing changes."""
        found: dict[Value, Congruence | None] = {}
        users: dict[Value, list[Value]] = {}
        work = [value]
        while work:
            look()
            one = work.pop()
            if one not in found:
                found[one] = None
                for source in self._from(one):
                    users.setdefault(source, []).append(one)
                    work.append(source)
        again = dict.fromkeys(found)  # the last is what others come from
        while again:
            look()
            one, _ = again.popitem()
            now = self._step(one, found)
            if now != found[one]:
                found[one] = now
                again.update(dict.fromkeys(users.get(one, ())))
        self._known |= found

    def _from(self, value: Value) -> list[Value]:
        """What it is computed from, or may be."""
        op = value.op
        if op is not None and (op.name in _SUMS or op.name in _EITHER or op.name in _SAME or op.name in _FACTORS):
            return [] if scalars.wraps(op) else op.operands
        if op is not None and op.name == "arith.select":
            return op.operands[1:]
        if _is_position(value):
            loop = _loop_of(value)
            assert loop is not None
            return [loop.operands[0], loop.operands[2]]
        return list(self._flow.sources(value))

    def _step(self, value: Value, found: dict[Value, Congruence | None]) -> Congruence | None:
        sources = [found[one] for one in self._from(value)]
        if value.op is not None and not value.op.regions:
            return self._computed(value.op, sources)
        if _is_position(value):
            lower, step = sources
            return (
                None
                if lower is None or step is None
                else _made(math.gcd(lower.modulus, step.modulus, step.rest), lower.rest)
            )
        return _either(sources)

    def _computed(self, op: Operation, sources: list[Congruence | None] | list[Congruence]) -> Congruence | None:
        if op.name == "arith.constant":
            number = constant(op)
            return ANYTHING if number is None else Congruence(0, number)
        if not sources:
            return ANYTHING
        if op.name in _SUMS or op.name in _FACTORS:
            left, right = sources
            if left is None or right is None:
                return None
            if op.name in _SUMS:
                return left.plus(right, 1 if op.name == "arith.addi" else -1)
            if op.name == "arith.muli":
                return left.times(right)
            fits = right.modulus == 0 and 0 <= right.rest < scalars.SAFE_BITS
            return left.times(Congruence(0, 1 << right.rest)) if fits else ANYTHING
        return _either(sources)


def _either(found: Iterable[Congruence | None]) -> Congruence | None:
    """Any of them; ANYTHING where there are none, None where none is known yet."""
    known: Congruence | None = None
    none = True
    for one in found:
        none = False
        if one is not None:
            known = one if known is None else known | one
    return ANYTHING if none else known


def _loop_of(value: Value) -> Operation | None:
    return value.owner.parent_op if value.op is None and isinstance(value.owner, Block) else None


def _is_position(value: Value) -> bool:
    loop = _loop_of(value)
    return loop is not None and loop.name == "scf.for" and value.index == 0
