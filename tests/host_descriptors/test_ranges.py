"""Intervals and divisors of a launch's integers hold for every program: compared with all of them, computed."""

from __future__ import annotations

import random

import numpy as np
import pytest

from wspec.host_descriptors.ranges import Term, divisor_of, divisors, interval_of, intervals
from wspec.tile_scheduler.scalars import Scalar, evaluate

BINARY = (
    "addi", "subi", "muli", "divsi", "divui", "ceildivsi", "ceildivui", "floordivsi", "remsi", "remui", "minsi",
    "maxsi", "minui", "maxui", "andi", "ori", "xori", "shli", "shrsi", "shrui",
)  # fmt: skip
GRIDS = ((1, 1, 1), (7, 1, 1), (5, 3, 1), (4, 2, 3))


def drawn(pick: random.Random) -> list[Scalar]:
    """Scalars of a launch, each computed from those before."""
    found = [
        Scalar("program_id", 32, (), 0), Scalar("program_id", 32, (), 1), Scalar("num_programs", 32, (), 0),
        Scalar("argument", 32, (), 0), Scalar("argument", 32, (), 1),
        Scalar("constant", 32, (), pick.choice([-3, 0, 1, 2, 8, 64, 1 << 20])),
    ]  # fmt: skip
    for _ in range(10):
        kind = pick.random()
        two = tuple(pick.randrange(len(found)) for _ in range(2))
        plain = [at for at, one in enumerate(found) if one.bits == 32]
        two = pick.choice(plain), pick.choice(plain)
        if kind < 0.8:
            found.append(Scalar(pick.choice(BINARY), 32, two))
        elif kind < 0.9:
            found.append(Scalar("cmpi", 1, two, pick.randrange(10)))
            found.append(Scalar("select", 32, (len(found) - 1, *two)))
        else:
            found.append(Scalar("cast", 64, (two[0],)))
            found.append(Scalar("cast", 32, (len(found) - 1,)))
    return found


@pytest.mark.parametrize("seed", range(300))
def test_no_program_leaves_them(seed: int) -> None:
    pick = random.Random(seed)
    scalars, grid = drawn(pick), pick.choice(GRIDS)
    values = {at: pick.choice([-5, 0, 1, 3, 16, 1000, 1 << 16]) for at in range(2)}
    known = intervals(scalars, grid, values)
    multiples = divisors(scalars, known)
    arrays = evaluate(scalars, grid, values)
    for scalar, found, (low, high), divisor in zip(scalars, arrays, known, multiples, strict=True):
        if ("div" in scalar.name or "rem" in scalar.name) and 0 in arrays[scalar.operands[1]]:
            return  # what such a division gives is anything, and so is all that depends on it
        assert low <= found.min() and found.max() <= high, scalar
        assert np.all(found == 0) if divisor == 0 else np.all(found % divisor == 0), scalar


def test_a_grouped_order_of_tiles_stays_inside() -> None:
    """Tutorial 03's: the number of rows in a group is at least one for every program that there is."""
    tiles_m, tiles_n, group = 7, 5, 4
    scalars = [
        Scalar("program_id", 32, (), 0),
        Scalar("constant", 32, (), group * tiles_n),
        Scalar("divsi", 32, (0, 1)),
        Scalar("constant", 32, (), group),
        Scalar("muli", 32, (2, 3)),
        Scalar("constant", 32, (), tiles_m),
        Scalar("subi", 32, (5, 4)),
        Scalar("minsi", 32, (6, 3)),
        Scalar("remsi", 32, (0, 1)),
        Scalar("divsi", 32, (8, 7)),
    ]
    known = intervals(scalars, (tiles_m * tiles_n, 1, 1), {})
    assert known[7] == (3, 4) and known[9][0] == 0
    assert intervals(scalars, (tiles_m * tiles_n + group * tiles_n, 1, 1), {})[9][0] < 0  # one program too many


def test_sums() -> None:
    """Products by their ends, whatever their signs."""
    assert interval_of((Term(-2, (0,)), Term(3, (0, 1)), Term(5)), [(1, 4), (-1, 2)]) == (-8 - 12 + 5, -2 + 24 + 5)
    assert divisor_of((Term(64, (0,)), Term(8, (1,))), [1, 6]) == 16
    assert divisor_of((), []) == 0
