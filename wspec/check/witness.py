"""Is there a launch that takes a given way? Loops whose bounds hang together cannot have any numbers of iterations.

`n * m` iterations in one task and `n` times `m` in another, `ceil(n / 64)` in two forms, every second tile here and
every tile there: the search tells such loops apart and tries all numbers of iterations for each. What it finds wrong is
wrong only when some values of the arguments lead there. Small ones are tried, none of them negative; where none does,
the finding is not certain. That never makes a proof of what is not one.

What is loaded at one address is one thing, whichever iterations of whichever loops it is loaded in: the first iteration
of a loop may stand in front of it in one task and not in another.
"""

from __future__ import annotations

import itertools
import math
import operator
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from wspec.check import clock, scalars
from wspec.check.conditions import Extents
from wspec.check.linear import Linear
from wspec.check.value_names import In, Name, ValueNames, Where

TRIES = 4000
LIMIT_S = 1.0  # of processor time, for one question: most take some milliseconds
SMALL = range(13)
BITS = tuple(1 << bit for bit in range(4, 17))


@dataclass(frozen=True, slots=True)
class Asked:
    """What was decided of an extent, inside the iterations `path` of the loops around: whether it is above a number.

    Of a condition, its number instead of the extent's, and None.
    """

    number: int
    path: tuple[int, ...]
    above: int | None
    holds: bool


Kind = tuple[str, int]


class _Launch:
    """Values of what is unknown."""

    def __init__(self, names: ValueNames, extents: Extents, values: dict[Name, int]) -> None:
        self.names, self.keys, self.extents, self.values = names, names.keys, extents, values
        self.missing: list[Name] = []

    def form(self, form: Linear, path: tuple[int, ...]) -> int:
        return form.const + sum(factor * self.atom(atom, path) for atom, factor in form.terms)

    def atom(self, atom: int, path: tuple[int, ...]) -> int:
        depends = self.extents.terms.depends[atom]
        path = path[: len(depends)]
        match self.keys[atom]:
            case ("iteration", _) if len(path) == len(depends):
                return path[-1]
            case ("op", str(kind), _, attributes, _, operands) if scalars.is_computed(kind):
                values = [self.form(one, path) for one in operands]
                return scalars.computed(kind, dict(attributes), values)
            case ("if", condition, *arms):
                return self.form(arms[0] if self.form(condition, path) else arms[1], path)
        name = self.names.name(atom, _where(depends, path))
        if name not in self.values:
            self.missing.append(name)
        return self.values.get(name, 0)

    def agrees(self, one: Asked) -> bool:
        if one.above is None:
            return bool(self.form(self.extents.form_of_choice[one.number], one.path)) == one.holds
        extent = self.extents.extents[one.number]
        if extent.step is None or not extent.terms:
            return True  # `_counted` asks; of constant loops, the search may leave iterations out
        length = self.form(Linear(extent.terms, extent.rest), one.path)
        return (-(-length // extent.step) > one.above) == one.holds


def is_possible(extents: Extents, asked: Iterable[Asked]) -> bool:
    """May all that was decided be so, for some launch with small arguments?

    Loops that have nothing in common are looked at each by itself, and so is each time that an inner loop runs.
    """
    asked = list(dict.fromkeys(asked))
    if not _counted(extents, asked):
        return False
    names = ValueNames(extents.terms)
    alone: dict[tuple[Kind, tuple[int, ...]], list[Asked]] = {}
    atoms: dict[Kind, set[int]] = {}  # kind of loop, or condition -> what it is computed from
    for one in asked:
        kind = ("choice", one.number) if one.above is None else ("loop", extents.extents[one.number].kind)
        alone.setdefault((kind, one.path), []).append(one)
        if kind not in atoms:
            atoms[kind] = _unknowns(names, extents, one)
    related = any(left & right for left, right in itertools.combinations(atoms.values(), 2))
    groups = [[one for group in alone.values() for one in group]] if related else [*alone.values()]
    return all(_agree(names, extents, group) for group in groups)


def _counted(extents: Extents, asked: Iterable[Asked]) -> bool:
    """Is there a number of iterations for each time that a loop runs whose step is no constant?"""
    bounds: dict[tuple[int, tuple[int, ...]], tuple[float, float]] = {}
    for one in asked:
        extent = None if one.above is None else extents.extents[one.number]
        if extent is not None and one.above is not None and extent.step is None and extent.terms:
            at_least, at_most = bounds.get((extent.kind, one.path), (0.0, math.inf))
            at_least, at_most = (
                (max(at_least, one.above + 1), at_most) if one.holds else (at_least, min(at_most, one.above))
            )
            bounds[extent.kind, one.path] = at_least, at_most
    return all(at_least <= at_most for at_least, at_most in bounds.values())


def _unknowns(names: ValueNames, extents: Extents, one: Asked) -> set[int]:
    """Atoms that what was asked hangs on; of what is loaded, those of its address too."""
    found = set[int]()
    extent = None if one.above is None else extents.extents[one.number]
    if extent is not None and (extent.step is None or not extent.terms):
        return found
    work = [extents.form_of_choice[one.number] if extent is None else Linear(extent.terms, extent.rest)]
    while work:
        for atom, _ in work.pop().terms:
            if atom in found:
                continue
            match names.keys[atom]:
                case ("iteration", _):
                    continue
                case ("op", _, _, _, _, operands):
                    work += operands
                case ("if", *forms):
                    work += forms
            found.add(atom)
    return found


def _agree(names: ValueNames, extents: Extents, wanted: list[Asked]) -> bool:
    first = _Launch(names, extents, {})
    agree = [first.agrees(one) for one in wanted]  # each is asked, so that all that is unknown shows
    if all(agree):
        return True
    unknown = list(dict.fromkeys(first.missing))
    if not unknown:
        return False
    steps = {extents.extents[one.number].step or 1 for one in wanted if one.above is not None} or {1}
    highest = max((one.above for one in wanted if one.above is not None), default=0)
    choices = _choices(len(unknown), steps, highest)

    program = _Program(names, extents, unknown, wanted)
    if len(choices) ** len(unknown) <= TRIES:
        return any(all(program.agree(values)) for values in itertools.product(choices, repeat=len(unknown)))
    return _climbs(len(unknown), choices, program, len(wanted))


class _Test(NamedTuple):
    """What was asked, of a slot that is filled after so many steps."""

    steps: int
    slot: int
    step: int  # of the loop
    above: int | None
    holds: bool

    def agrees(self, slots: Sequence[int]) -> bool:
        found = slots[self.slot]
        return (bool(found) if self.above is None else -(-found // self.step) > self.above) == self.holds


class _Program:
    """What `_Launch` computes of all that was asked, in steps, each of which is done once for all who need it."""

    def __init__(self, names: ValueNames, extents: Extents, unknown: Sequence[Name], wanted: Sequence[Asked]) -> None:
        self._names, self._keys, self._extents = names, names.keys, extents
        self._slots = {name: slot for slot, name in enumerate(unknown)}
        self._atoms: dict[tuple[int, tuple[int, ...]], int] = {}
        self._forms: dict[tuple[Linear, tuple[int, ...]], int] = {}
        self._steps: list[tuple[Callable[..., int], tuple[int, ...]]] = []  # each fills the next slot
        self._first = len(unknown)
        self._tests = [test for one in wanted if (test := self._test(one)) is not None]
        self._always = len(wanted) - len(self._tests)

    def agree(self, values: Sequence[int]) -> Iterator[bool]:
        """Of each thing that was asked, whether it is so; `values`: of what is unknown. Computes no further than is
        asked for."""
        slots, done = list(values), 0
        for test in self._tests:
            for call, operands in self._steps[done : test.steps]:
                slots.append(call(*[slots[operand] for operand in operands]))
            done = max(done, test.steps)
            yield test.agrees(slots)
        yield from itertools.repeat(True, self._always)

    def scores(self, values: Sequence[int], at: int, choices: Sequence[int]) -> list[int]:
        """How much agrees for each choice of one value. What does not hang on it is computed once."""
        slots = list(values)
        for call, operands in self._steps:
            slots.append(call(*[slots[operand] for operand in operands]))
        hang = {at}
        again = []
        for slot, (call, operands) in enumerate(self._steps, start=self._first):
            if not hang.isdisjoint(operands):
                hang.add(slot)
                again.append((slot, call, operands))
        fixed = self._always + sum(test.agrees(slots) for test in self._tests if test.slot not in hang)
        tests = [test for test in self._tests if test.slot in hang]
        found = []
        for slots[at] in choices:
            for slot, call, operands in again:
                slots[slot] = call(*[slots[operand] for operand in operands])
            found.append(fixed + sum(test.agrees(slots) for test in tests))
        return found

    def _test(self, one: Asked) -> _Test | None:
        if one.above is None:
            slot = self._form(self._extents.form_of_choice[one.number], one.path)
            return _Test(len(self._steps), slot, 1, None, one.holds)
        extent = self._extents.extents[one.number]
        if extent.step is None or not extent.terms:
            return None
        slot = self._form(Linear(extent.terms, extent.rest), one.path)
        return _Test(len(self._steps), slot, extent.step, one.above, one.holds)

    def _step(self, call: Callable[..., int], *operands: int) -> int:
        self._steps.append((call, operands))
        return self._first + len(self._steps) - 1

    def _form(self, form: Linear, path: tuple[int, ...]) -> int:
        if (form, path) not in self._forms:
            atoms = [self._atom(atom, path) for atom, _ in form.terms]
            factors = [factor for _, factor in form.terms]
            if form.const or factors != [1]:
                atoms = [self._step(partial(_sum, form.const, factors), *atoms)]
            self._forms[form, path] = atoms[0]
        return self._forms[form, path]

    def _atom(self, atom: int, path: tuple[int, ...]) -> int:
        depends = self._extents.terms.depends[atom]
        path = path[: len(depends)]
        if (atom, path) not in self._atoms:
            self._atoms[atom, path] = self._made(atom, path, depends)
        return self._atoms[atom, path]

    def _made(self, atom: int, path: tuple[int, ...], depends: tuple[int, ...]) -> int:
        match self._keys[atom]:
            case ("iteration", _) if len(path) == len(depends):
                return self._step(partial(_sum, path[-1], ()))
            case ("op", str(kind), _, attributes, _, operands) if scalars.is_computed(kind):
                values = [self._form(one, path) for one in operands]
                return self._step(partial(_computed, kind, dict(attributes)), *values)
            case ("if", condition, *arms):
                return self._step(_either, *(self._form(one, path) for one in (condition, *arms[:2])))
        slot = self._slots.get(self._names.name(atom, _where(depends, path)))
        if slot is None:  # what is not even looked at where all that is unknown is 0
            return self._step(partial(_sum, 0, ()))
        return slot


def _where(depends: Sequence[int], path: Sequence[int]) -> Where:
    return tuple(In(space, iteration) for space, iteration in zip(depends, path, strict=False))


def _sum(const: int, factors: Sequence[int], *values: int) -> int:
    total: int = sum(map(operator.mul, factors, values), const)
    return total


def _computed(kind: str, attributes: Mapping[str, str], *values: int) -> int:
    return scalars.computed(kind, attributes, values)


def _either(condition: int, one: int, other: int) -> int:
    return one if condition else other


def _choices(count: int, steps: set[int], highest: int) -> list[int]:
    """Values to try of one argument: small ones, powers of two, and some around multiples of the steps."""
    if count == 1:
        return sorted({*range(600), *BITS})
    around = {step * times + by for step in steps for times in range(highest + 3) for by in (-1, 0, 1)}
    return sorted({*SMALL, *BITS, *(value for value in around if value >= 0)})


def _climbs(count: int, choices: list[int], program: _Program, wanted: int) -> bool:
    """Does a search that changes one argument at a time for the better get there, from some beginning?"""
    generator, tries, deadline = random.Random(0), 0, min(time.thread_time() + LIMIT_S, clock.deadline())
    while tries < TRIES and time.thread_time() < deadline:
        values = [generator.choice(choices) for _ in range(count)]
        best, before = sum(program.agree(values)), -1
        while before < best < wanted:
            before = best
            for at in range(count):
                scores = zip(program.scores(values, at, choices), choices, strict=True)
                tries += len(choices)
                best, values[at] = max(scores, key=lambda one: (one[0], -one[1]))
        if best == wanted:
            return True
    return False
