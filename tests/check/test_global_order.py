"""What is known of coordinates, against all numbers; and stores of two tasks, as kernels compute their places."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.check.script import kernel
from wspec.check import check
from wspec.check.congruence import Congruence

NUMBERS = range(-60, 61)


def those(one: Congruence) -> set[int]:
    return {n for n in NUMBERS if (n - one.rest) % one.modulus == 0} if one.modulus else {one.rest}


def drawn(draw: random.Random) -> Congruence:
    modulus = draw.choice((0, 1, 2, 3, 4, 6, 8, 12))
    return Congruence(modulus, draw.randrange(modulus) if modulus else draw.randrange(-9, 9))


@pytest.mark.parametrize("seed", range(60))
def test_what_is_said_holds_for_every_number(seed: int) -> None:
    draw = random.Random(seed)
    one, other = drawn(draw), drawn(draw)
    few = list(itertools.product(sorted(those(one))[:6], sorted(those(other))[:6]))
    for made, compute in (
        (one.plus(other), lambda a, b: a + b),
        (one.plus(other, -1), lambda a, b: a - b),
        (one.times(other), lambda a, b: a * b),
    ):
        assert all(_holds(made, compute(a, b)) for a, b in few)
    assert all(_holds(one | other, a) and _holds(one | other, b) for a, b in few)


def _holds(one: Congruence, number: int) -> bool:
    return number == one.rest if one.modulus == 0 else (number - one.rest) % one.modulus == 0


@pytest.mark.parametrize("seed", range(60))
def test_apart_is_apart(seed: int) -> None:
    draw = random.Random(seed)
    one, other = drawn(draw), drawn(draw)
    for size, others in ((1, 1), (2, 3), (4, 4)):
        meets = any(a < b + others and b < a + size for a in those(one) for b in those(other))
        assert one.keeps_apart(size, other, others) == (not meets)


STORES = """
def kernel(p: ptr, n):
    with specialize():
        with task(4):
            for i in range(0, n, 1):
                write(at(p, {0}), 1)
        with task(4):
            for i in range(0, n, 1):
                write(at(p, {1}), 1)
"""


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("i * 2", "i * 2 + 1", True),
        ("i * 2", "i * 4 + 2", False),
        ("i * 6 + 1", "n * 4", True),
        ("i", "i", False),
        ("0", "1", True),
        ("n", "n + 1", True),
        ("i % 8 * 2", "i * 2 - 1", True),
        ("i", "i + 1", False),  # the one task's next iteration
        ("i * 3", "i * 3 - 1", True),
    ],
)
def test_places_of_two_tasks(one: str, other: str, apart: bool) -> None:
    report = check(kernel(STORES.format(one, other)))
    assert {finding.code for finding in report.findings} == (set() if apart else {"global-order"}), str(report)


BOXES = """
def kernel(n, m):
    one, other = buffer(64, 64), buffer(64, 64)
    with specialize():
        with task(4):
            for i in range(0, n, 1):
                store(one)
                fence()
                tma_store_back(one, {0})
                store_wait(0)
        with task(4):
            for i in range(0, n, 1):
                store(other)
                fence()
                tma_store_back(other, {1})
                store_wait(0)
"""
OUTSIDE = "2147418112"  # where the kernel's own copies go that a condition leaves out


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("i * n", "i * n + 64", True),
        ("i * n", "i * n + 63", False),
        ("i * 128", "i * 128 + 64", True),
        ("i * 64", "i * 64 + 64", False),  # the next iteration's
        (f"select(i < m, i * n, {OUTSIDE})", f"select(i < m, i * n, {OUTSIDE}) + 64", True),
        (f"select(i < m, i * n, {OUTSIDE})", f"select(i < m, i * n, {OUTSIDE}) + 32", False),
        (f"select(i < m, i * n, {OUTSIDE})", f"select(i < n, i * n, {OUTSIDE}) + 64", True),
        ("select(i < m, i * n, 64)", "select(i < m, i * n, 0) + 64", False),
    ],
)
def test_boxes_of_two_tasks(one: str, other: str, apart: bool) -> None:
    report = check(kernel(BOXES.format(one, other)))
    assert {finding.code for finding in report.findings} == (set() if apart else {"global-order"}), str(report)
