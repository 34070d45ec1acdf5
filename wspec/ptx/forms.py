"""What registers hold, as sums over what is not known: enough to tell that one is so much more than another.

A register's form is taken where it is needed, by the instruction that wrote it last: in the same block, or the last
one that every way to it comes through if nothing writes it from there on, and so on, or elsewhere if only one
instruction writes it, or several that are alike. Atoms are what a block finds in a register when it is entered, and
what instructions make that are not followed. Two forms of values that are there at the same time, with the same atoms,
differ by a number.

Why that holds across blocks: a register that one instruction writes has, wherever it may be read, what its instruction
made when it was last executed; and of two such registers that are computed from what the same block found when it was
entered, both were last computed by the same execution of that block, as it comes before whatever reads either. What a
block leaves in a register is still there where no way on, up to the next time that the block is entered, writes it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from wspec.ptx import flow
from wspec.ptx.arithmetic import width
from wspec.ptx.effects import reads, writes
from wspec.ptx.evaluation import Evaluation, computes
from wspec.ptx.operands import Number, Operand, Register
from wspec.ptx.registers import Writers
from wspec.ptx.syntax import Instruction
from wspec.ptx.ways_in import WaysIn

_BITS = 32
_WHOLE = (1 << _BITS) - 1
_MOST_TERMS = 16

PERHAPS_A_SUM = "or"
"""Begins the atom of what is a sum if no bit is set in both, which is not known."""

Each = int | tuple[int, ...]
"""A number, the same in all threads or one for each thread of the role."""


class Form(NamedTuple):
    """`number` and the sum of so many times each atom, modulo 2^32."""

    terms: frozenset[tuple[Hashable, int]]
    number: Each


class Forms:
    """Of one role's registers of 32 bits. `blocks`: all that the role's threads come to."""

    def __init__(self, blocks: Sequence[flow.Block], writers: Writers, evaluation: Evaluation) -> None:
        self._writers, self._evaluation = writers, evaluation
        self._places = {one: (block, at) for block in blocks for at, one in enumerate(block.instructions)}
        self._ways_in = WaysIn(blocks)
        self._made: dict[Instruction, Form] = {}
        self._bits: dict[str, int] = {}

    def of(self, operand: Operand, reader: Instruction) -> Form:
        """What an operand of an instruction holds there."""
        block, at = self._places[reader]
        return self._of(operand, block, at)

    def _of(self, operand: Operand, block: flow.Block, at: int) -> Form:
        if isinstance(operand, Number) and operand.value is not None:
            return _number(operand.value)
        if not isinstance(operand, Register) or operand.negated:
            return _atom(("operand", str(operand), block.number, at))
        known = self._evaluation.constant(operand.name)
        if known is not None:
            return _number(known)
        makers = [one for one in self._writers.of(operand.name) if one in self._places]
        while makers:
            inside = [one for one in makers if self._places[one][0] is block]
            last = max((one for one in inside if self._places[one][1] < at), key=self._place, default=None)
            if last is not None:
                return self._result(last, operand.name)
            if len(makers) == 1 and not inside:
                return self._result(makers[0], operand.name)
            before = self._ways_in.kept_since(block, {self._places[one][0].number for one in makers})
            if before is None:
                if self._are_alike(makers, block, at):
                    return self._result(makers[0], operand.name)
                return _atom((operand.name, block.number))
            block, at = before, len(before.instructions)
        return _atom(operand.name)

    def _are_alike(self, makers: Sequence[Instruction], block: flow.Block, at: int) -> bool:
        """Has a register that several instructions write the same value here, whichever of them came last?

        They do the same, and between what makes their operands and this place stands one of them on every way, as if
        one instruction made the register there. (LLVM writes a sum that two loops need in front of each.)
        """
        first = makers[0]
        if any(one.guard or (one.opcode, one.operands[1:]) != (first.opcode, first.operands[1:]) for one in makers):
            return False
        sources = [[one for one in self._writers.of(name) if one in self._places] for name in reads(first)]
        stops = [self._places[one] for one in makers]
        return all(
            len(those) < 2 and not any(self._ways_in.leads_past(self._places[one], stops, (block, at)) for one in those)
            for those in sources
        )

    def _place(self, one: Instruction) -> int:
        return self._places[one][1]

    def _result(self, one: Instruction, name: str) -> Form:
        if one not in self._made:
            self._made[one] = _atom((one, name))  # of one that depends on itself
            self._made[one] = self._computed(one, name)
        found = self._made[one]
        return found if len(writes(one)) == 1 else _atom((one, name))

    def _computed(self, one: Instruction, name: str) -> Form:
        block, at = self._places[one]
        unknown = _atom((one, name))
        bits = width(one.opcode.rpartition(".")[2])
        if one.guard or bits != _BITS or not computes(one):
            return unknown
        operands = one.operands[1:]

        def held(which: int) -> Form:
            return self._of(operands[which], block, at)

        match one.name, len(operands):
            case "mov", 1:
                return held(0)
            case "add", 2:
                return _sum(held(0), held(1)) or unknown
            case "sub", 2:
                less = _scaled(held(1), -1)
                return _sum(held(0), less) or unknown
            case "shl", 2:
                by = held(1)
                if not by.terms and isinstance(by.number, int) and by.number < _BITS:
                    return _scaled(held(0), 1 << by.number)
            case "mul", 2 if ".lo." in one.opcode:
                return _product(held(0), held(1)) or unknown
            case "mad", 3 if ".lo." in one.opcode:
                product = _product(held(0), held(1))
                if product is not None:
                    return _sum(product, held(2)) or unknown
            case "or", 2:
                if not self._bits_at(operands[0], one) & self._bits_at(operands[1], one):
                    return _sum(held(0), held(1)) or unknown
                return _atom((PERHAPS_A_SUM, one))
        return unknown

    # ---- which bits may be set

    def _bits_at(self, operand: Operand, reader: Instruction) -> int:
        """Of 32, in an operand of an instruction."""
        found = self.of(operand, reader)
        return _union(found.number) if not found.terms else self.bits_of(operand)

    def bits_of(self, operand: Operand) -> int:
        """The bits of 32 that may be set in an operand, wherever it is read."""
        if isinstance(operand, Number) and operand.value is not None:
            return operand.value & _WHOLE
        if not isinstance(operand, Register):
            return _WHOLE
        if operand.name not in self._bits:
            self._solve(operand.name)
        return self._bits[operand.name]

    def _solve(self, name: str) -> None:
        """Of the register and all it comes from: from none at all upwards, until nothing changes."""
        found: dict[str, int] = {}
        work = [name]
        while work:
            one = work.pop()
            if one not in found and one not in self._bits:
                known = self._evaluation.constant(one)
                found[one] = 0 if known is None else _union(known)
                if known is None:
                    work += [other for maker in self._writers.of(one) if computes(maker) for other in reads(maker)]
        unknown = [one for one in found if self._evaluation.constant(one) is None]
        changed = True
        while changed:
            changed = False
            for one in unknown:
                now = found[one] | self._bits_made(one, found)
                changed = changed or now != found[one]
                found[one] = now
        self._bits |= found

    def _bits_made(self, name: str, found: dict[str, int]) -> int:
        makers = self._writers.of(name)
        if not makers:
            return _WHOLE
        made = 0
        for one in makers:
            made |= self._bits_by(one, found) if len(writes(one)) == 1 else _WHOLE
        return made

    def _bits_by(self, one: Instruction, found: dict[str, int]) -> int:
        operands = [self._bits_now(operand, one, found) for operand in one.operands[1:]]
        if width(one.opcode.rpartition(".")[2]) != _BITS or not computes(one):
            return _WHOLE
        match one.name, operands:
            case "mov", [bits]:
                return bits
            case "and", [left, right]:
                return left & right
            case "or" | "xor", [left, right]:
                return left | right
            case "selp", [left, right, *_]:
                return left | right
            case "shfl", [bits, *_]:
                return bits
            case "add" | "sub", [left, right]:
                return _from_lowest(left | right)
            case "mul", [left, right] if ".lo." in one.opcode:
                return _from_lowest((left & -left) * (right & -right))
            case "shl", [bits, _] if isinstance(by := one.operands[2], Number) and by.value is not None:
                return bits << by.value & _WHOLE if by.value < _BITS else 0
        return _WHOLE

    def _bits_now(self, operand: Operand, reader: Instruction, found: dict[str, int]) -> int:
        if not isinstance(operand, Register):
            return self.bits_of(operand) if isinstance(operand, Number) else _WHOLE
        if reader.name == "mov" and reader in self._places:  # of one that several write: what it is there
            form = self.of(operand, reader)
            if not form.terms:
                return _union(form.number)
        return found[operand.name] if operand.name in found else self._bits.get(operand.name, _WHOLE)


def in_thread(form: Form, at: int) -> Form:
    """What it is in one of the role's threads."""
    return form if isinstance(form.number, int) else Form(form.terms, form.number[at])


def may_be_a_sum(form: Form) -> bool:
    """May it be a sum of what is not known here?"""
    return any(isinstance(atom, tuple) and atom[0] == PERHAPS_A_SUM for atom, _ in form.terms)


def shifted(form: Form, by: int) -> Form:
    """So much more, of what is the same in all threads."""
    assert isinstance(form.number, int)
    return Form(form.terms, form.number + by & _WHOLE)


def _number(number: Each) -> Form:
    if isinstance(number, tuple):
        return Form(frozenset(), tuple(one & _WHOLE for one in number))
    return Form(frozenset(), number & _WHOLE)


def _atom(key: Hashable) -> Form:
    return Form(frozenset(((key, 1),)), 0)


def _sum(one: Form, other: Form) -> Form | None:
    """None where it has too many terms."""
    found = dict(one.terms)
    for atom, factor in other.terms:
        found[atom] = found.get(atom, 0) + factor & _WHOLE
    terms = frozenset((atom, factor) for atom, factor in found.items() if factor)
    return Form(terms, _each(one.number, other.number, 1)) if len(terms) <= _MOST_TERMS else None


def _product(left: Form, right: Form) -> Form | None:
    """None where neither is a number that all threads have."""
    for form, factor in ((left, right), (right, left)):
        if not factor.terms and isinstance(factor.number, int):
            return _scaled(form, factor.number)
    return None


def _scaled(form: Form, by: int) -> Form:
    terms = frozenset((atom, factor * by & _WHOLE) for atom, factor in form.terms)
    return Form(frozenset(term for term in terms if term[1]), _each(0, form.number, by))


def _each(one: Each, other: Each, by: int) -> Each:
    """`one` and `by` times `other`."""
    if isinstance(one, int) and isinstance(other, int):
        return one + by * other & _WHOLE
    count = len(one) if isinstance(one, tuple) else len(other) if isinstance(other, tuple) else 0
    first = one if isinstance(one, tuple) else (one,) * count
    second = other if isinstance(other, tuple) else (other,) * count
    return tuple(a + by * b & _WHOLE for a, b in zip(first, second, strict=True))


def _union(known: Each) -> int:
    return functools.reduce(operator.or_, (known,) if isinstance(known, int) else known, 0) & _WHOLE


def _from_lowest(bits: int) -> int:
    """All bits from the lowest that is set."""
    return _WHOLE & -(bits & -bits) if bits else 0
