"""Sums whose terms hang together: compared with those of all programs, and by the forms that kernels have."""

from __future__ import annotations

import random

import pytest

from tests.host_descriptors.test_ranges import GRIDS, drawn
from wspec.host_descriptors.ranges import COUNTER, Sum, Term, interval_of, intervals
from wspec.host_descriptors.relations import Relations
from wspec.tile_scheduler.scalars import Scalar, evaluate

PID, TEN, SIZE, LESS = (Scalar("program_id", 32, (), 0), *(Scalar("constant", 32, (), one) for one in (10, 128, 32)))


def both(scalars: list[Scalar], sum: Sum, grid: int = 100) -> tuple[tuple[int, int], tuple[int, int]]:
    """By itself, and with what is known of its terms together."""
    known = intervals(scalars, (grid, 1, 1), {})
    return interval_of(sum, known), Relations(scalars, known).interval_of(sum)


@pytest.mark.parametrize("seed", range(300))
def test_no_program_leaves_them(seed: int) -> None:
    pick = random.Random(seed)
    scalars, grid = drawn(pick), pick.choice(GRIDS)
    for _ in range(4):  # what a sum may take away
        plain = [at for at, one in enumerate(scalars) if one.bits == 32]
        dividend, divisor = pick.choice(plain), pick.choice(plain)
        scalars.append(Scalar("divsi", 32, (dividend, divisor)))
    values = {at: pick.choice([-5, 0, 1, 3, 16, 1000, 1 << 16]) for at in range(2)}
    arrays = evaluate(scalars, grid, values)
    known = intervals(scalars, grid, values)
    relations = Relations(scalars, known)
    for scalar in scalars[-4:]:
        dividend, divisor = scalar.operands
        quotient, times = scalars.index(scalar), pick.choice([-64, -1, 1, 8])
        sum = (Term(-times, (dividend,)), Term(times, (quotient, divisor)), Term(pick.randrange(-3, 3), (0,)))
        low, high = relations.interval_of(sum)
        zero = [at for at, one in enumerate(scalars) if ("div" in one.name or "rem" in one.name)
                and (arrays[one.operands[1]] == 0).any()]  # fmt: skip
        if zero:
            return  # what such a division gives is anything, and so is all that depends on it
        all = [term.factor for term in sum]
        found = arrays[dividend] * all[0] + arrays[quotient] * arrays[divisor] * all[1] + arrays[0] * all[2]
        assert low <= found.min() and found.max() <= high, scalar


def test_what_is_left_over_is_not_below_zero() -> None:
    """`begin - begin / 32 * 32`, where the kernel computed `begin` as a product."""
    scalars = [PID, TEN, SIZE, LESS, Scalar("muli", 32, (0, 2)), Scalar("divsi", 32, (4, 3))]
    alone, together = both(scalars, (Term(128, (0,)), Term(-32, (5,)), Term(64)))
    assert alone[0] < 0 and together == (64, 64 + 31)


def test_a_batch_is_what_is_left_of_a_number() -> None:
    """`both - chunk * batches`, with an argument."""
    scalars = [PID, TEN, Scalar("argument", 32, (), 0), Scalar("divsi", 32, (0, 2))]
    known = intervals(scalars, (100, 1, 1), {0: 4})
    sum = (Term(1, (0,)), Term(-1, (3, 2)))
    assert interval_of(sum, known)[0] < 0 and Relations(scalars, known).interval_of(sum) == (0, 3)


def test_a_loop_that_goes_down_ends_at_zero() -> None:
    """Its first place is as many steps away as it goes round, whatever program asks."""
    zero, one = Scalar("constant", 32, (), 0), Scalar("constant", 32, (), 1)
    scalars = [PID, zero, one, Scalar("addi", 32, (0, 2)), Scalar(COUNTER, 64, (1, 3, 2))]
    alone, together = both(scalars, (Term(64, (0,)), Term(-64, (4,))))
    assert alone[0] < 0 and together[0] == 0
    assert both(scalars, (Term(64, (0,)), Term(-65, (4,))))[1][0] < 0  # further than the loop goes


def test_what_left_its_type_is_not_taken_apart() -> None:
    large = Scalar("constant", 32, (), 1 << 30)
    scalars = [PID, large, Scalar("muli", 32, (0, 1)), LESS, Scalar("divsi", 32, (2, 3))]
    alone, together = both(scalars, (Term(1 << 30, (0,)), Term(-32, (4,))))
    assert alone == together or together[0] < 0


@pytest.mark.parametrize(("predicate", "options"), [(2, (1, 0)), (3, (1, 0)), (4, (0, 1)), (5, (0, 1))])
def test_a_choice_of_what_is_compared(predicate: int, options: tuple[int, int]) -> None:
    """`0 if x < 0 else x`, in all forms."""
    less = [Scalar("program_id", 32, (), 0), Scalar("constant", 32, (), 0), Scalar("constant", 32, (), 64)]
    scalars = [*less, Scalar("subi", 32, (0, 2)), Scalar("cmpi", 1, (3, 1), predicate)]
    names = {0: 3, 1: 1}
    scalars.append(Scalar("select", 32, (4, *(names[one] for one in options))))
    assert intervals(scalars, (100, 1, 1), {})[5] == (0, 35)
