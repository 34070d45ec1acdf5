"""Each operator on a small kernel: what it changes, and that it changes nothing else.

`operators.txt` shows the first mutant of every kind; a person has read it. `pytest tests/mutants --update` writes it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.drops import NAMES
from tests.mutants.edits import Mutant
from tests.mutants.facts import COPY, INIT, WAIT, Kernel
from tests.mutants.goldens import goldens
from tests.mutants.mutate import BY_NAME, built, mutants
from tests.mutants.numbering import Meaning
from tests.mutants.numbers import wraps
from tests.mutants.shown import difference
from tests.support.goldens import assert_golden
from wspec.ir import print_module, read
from wspec.ir.core import Operation
from wspec.ir.verify import check_valid

SMALL = "program-chain"  # one consumer; a tile that is filled once, two rings, a branch, a staged store
SHOWN = Path(__file__).with_name("operators.txt")


@functools.cache
def module(name: str) -> Operation:
    return goldens()[name].module()


@functools.cache
def some(operator: str, name: str = SMALL) -> list[Mutant]:
    return list(mutants(module(name), [operator]))


def first_of_each_kind() -> Iterator[Mutant]:
    """Kinds differ in the operation that is changed and in what is done to it, numbers aside."""
    seen = set()
    for mutant in mutants(module(SMALL)):
        kind = (mutant.operator, mutant.edit.what.split(",")[0].rstrip("0123456789 "), mutant.edit.op.name)
        if kind not in seen:
            seen.add(kind)
            yield mutant


def test_what_operators_do(update: bool) -> None:
    parts = []
    for mutant in first_of_each_kind():
        changed = difference(module(SMALL), mutant.build()) or ["no difference"]
        parts.append("\n".join([str(mutant), *(f"    {line}" for line in changed)]))
    assert_golden(SHOWN, "\n\n".join(parts) + "\n", update)


@pytest.mark.parametrize("operator", BY_NAME)
def test_every_operator_is_shown(operator: str) -> None:
    assert f"\n{operator}.0" in f"\n{SHOWN.read_text()}"


@pytest.mark.parametrize("operator", BY_NAME)
def test_the_original_stays_and_the_mutant_is_whole(operator: str) -> None:
    original = module(SMALL)
    before = print_module(original)
    for mutant in some(operator):
        made = built(mutant)
        if made is not None:
            text = print_module(made)
            assert text != before, mutant
            check_valid(read(text))
    assert print_module(original) == before


def test_names_are_unique() -> None:
    names = [mutant.name for mutant in mutants(module("program-gemm"))]
    assert len(names) == len(set(names)) > 400


# ------------------------------------------------------------------------------------------------ one by one


def count(one: Operation, name: str) -> int:
    return sum(op.name == name for op in one.walk())


@pytest.mark.parametrize(("short", "name"), NAMES.items())
def test_every_one_is_dropped_and_doubled(short: str, name: str) -> None:
    there = count(module(SMALL), name)
    assert there > 0
    for operator, change in ((f"drop-{short}", -1), (f"double-{short}", 1)):
        made = [mutant.build() for mutant in some(operator)]
        assert [count(one, name) for one in made] == [there + change] * there


def test_releases_go_to_every_earlier_place() -> None:
    """Of the block, one after the other, up to the beginning or to what they need."""
    for release in {mutant.edit.op for mutant in some("early-release")}:
        made = [mutant for mutant in some("early-release") if mutant.edit.op is release]
        texts = {print_module(mutant.build()) for mutant in made}
        assert len(texts) == len(made)
        places = [mutant.edit.arguments[1] for mutant in made]
        assert release.parent is not None
        order = [release.parent.ops.index(place) for place in places]
        assert order == sorted(order, reverse=True)


def test_a_late_wait_comes_behind_the_first_read() -> None:
    kernel = Kernel(module(SMALL))
    full = {ring.full for ring in kernel.rings}
    waits = [op for op in kernel.named(WAIT) if kernel.root(op.operands[0]) in full]
    assert len(some("late-wait")) == len(waits), "every wait for a tile has a reader behind it"


@pytest.mark.parametrize("name", ["program-gemm", "gemm-128-one", "attention-64-full", "attention_persistent-64"])
def test_a_shorter_ring_is_whole(name: str) -> None:
    """Everything that speaks of the ring's length says one less; what the compiler would emit for that depth."""
    for mutant in some("shrink-ring", name):
        made = built(mutant)
        assert made is not None
        old, new = Kernel(module(name)), Kernel(made)
        number = next(n for n, ring in enumerate(old.rings) if ring.buffers.op is mutant.edit.op)
        before, after = old.rings[number], new.rings[number]
        assert after.depth == before.depth - 1
        assert len(wraps(new, after)) == len(wraps(old, before)) > 0
        inits = {ring.depth for ring in (before, after)}
        assert {_inits(old, before), _inits(new, after)} == inits


def _inits(kernel: Kernel, ring: object) -> int:
    assert ring in kernel.rings
    found = next(one for one in kernel.rings if one is ring)
    return sum(kernel.root(op.operands[0]) is found.full for op in kernel.named(INIT))


def test_other_indices_are_those_of_other_rings() -> None:
    """Two rings of the same length whose positions are always equal may be exchanged: nothing changes."""
    meaning = Meaning(module("program-gemm"))
    made = {mutant: built(mutant) for mutant in some("other-index", "program-gemm")}
    same = [mutant for mutant, one in made.items() if one is not None and meaning.is_that_of(one)]
    assert same and all(mutant.edit.what.startswith("of ring") for mutant in same)
    assert len(same) < len(made) / 2


def test_copies_exchange_what_they_say() -> None:
    assert len(some("swap-copies", "program-gemm")) == 6, "of three copies every two exchange barriers, and buffers"
    for mutant in some("swap-copies", "program-gemm"):
        made = built(mutant)
        assert made is not None
        place = -3 if mutant.edit.what.startswith("barriers") else -2
        before, after = (_allocations(one, place) for one in (module("program-gemm"), made))
        assert sorted(before) == sorted(after) and sum(a != b for a, b in zip(before, after, strict=True)) == 2


def _allocations(one: Operation, place: int) -> list[int]:
    """The allocations behind an operand of each copy, by their place in the program."""
    kernel = Kernel(one)
    return [kernel.order[kernel.root(copy.operands[place]).op] for copy in kernel.named(COPY)]
