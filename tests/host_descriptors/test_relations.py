"""Sums whose terms hang together: compared with those of all programs, and by the forms that kernels have."""

from __future__ import annotations

import random

import pytest

from tests.host_descriptors.test_ranges import GRIDS, drawn
from wspec.host_descriptors.ranges import COUNTER, Sum, Term, interval_of, intervals
from wspec.host_descriptors.relations import Relations, narrow_intervals
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
        scalars.append(Scalar(pick.choice(("divsi", "ceildivsi")), 32, (dividend, divisor)))
    values = {at: pick.choice([-5, 0, 1, 3, 16, 1000, 1 << 16]) for at in range(2)}
    arrays = evaluate(scalars, grid, values)
    known = intervals(scalars, grid, values)
    zero = [at for at, one in enumerate(scalars) if ("div" in one.name or "rem" in one.name)
            and (arrays[one.operands[1]] == 0).any()]  # fmt: skip
    narrow = narrow_intervals(scalars, grid, values)
    for at in range(min(zero, default=len(scalars))):  # what such a division gives is anything
        wide, (low, high) = known[at], narrow[at]
        assert wide[0] <= low <= arrays[at].min() and arrays[at].max() <= high <= wide[1], scalars[at]
    relations = Relations(scalars, known)
    for scalar in scalars[-4:]:
        dividend, divisor = scalar.operands
        quotient, times = scalars.index(scalar), pick.choice([-64, -1, 1, 8])
        sum = (Term(-times, (dividend,)), Term(times, (quotient, divisor)), Term(pick.randrange(-3, 3), (0,)))
        low, high = relations.interval_of(sum)
        if zero:
            return  # and so is all that depends on it
        all = [term.factor for term in sum]
        found = arrays[dividend] * all[0] + arrays[quotient] * arrays[divisor] * all[1] + arrays[0] * all[2]
        assert low <= found.min() and found.max() <= high, scalar


def test_what_is_left_over_is_not_below_zero() -> None:
    """`begin - begin / 32 * 32`, where the kernel computed `begin` as a product."""
    scalars = [PID, TEN, SIZE, LESS, Scalar("muli", 32, (0, 1)), Scalar("divsi", 32, (4, 3))]
    alone, together = both(scalars, (Term(10, (0,)), Term(-32, (5,)), Term(64)))
    assert alone[0] < 0 and together == (64, 64 + 31)


def test_nothing_is_left_over_of_a_multiple() -> None:
    """`begin - begin / 32 * 32`, where `begin` is a multiple of 128."""
    scalars = [PID, TEN, SIZE, LESS, Scalar("muli", 32, (0, 2)), Scalar("divsi", 32, (4, 3))]
    assert both(scalars, (Term(128, (0,)), Term(-32, (5,)), Term(64)))[1] == (64, 64)


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


def of_tiles(tiles: int, step: int, first: int = 0) -> list[Scalar]:
    """A block's number and how often its loop has gone round, which takes every `step`-th tile."""
    found = [Scalar("program_id", 32, (), 0)]
    found += [Scalar("constant", 32, (), one) for one in (tiles, step, first, 1)]
    found += [Scalar("subi", 32, (1, 0)), Scalar("ceildivsi", 32, (5, 2)), Scalar("induction", 32, (3, 6, 4))]
    return [*found, Scalar("muli", 32, (7, 2)), Scalar("addi", 32, (0, 8))]


@pytest.mark.parametrize("seed", range(50))
def test_a_persistent_loop_ends_at_the_last_tile(seed: int) -> None:
    """`pid + turns * step`, where the loop goes round ceil((tiles - pid) / step) times: no tile behind the last."""
    pick = random.Random(seed)
    step, tiles, group = pick.randint(1, 200), pick.randint(1, 3000), pick.choice([1, 8, 32])
    blocks = min(step, tiles)
    scalars = of_tiles(tiles, step)
    here = range(blocks)
    found = [pid + turn * step for pid in here for turn in range(-(-(tiles - pid) // step))]
    assert narrow_intervals(scalars, (blocks, 1, 1), {})[9] == (min(found), max(found))
    assert intervals(scalars, (blocks, 1, 1), {})[9][1] >= max(found)
    groups = [*scalars, Scalar("constant", 32, (), group), Scalar("divsi", 32, (9, 10)), Scalar("muli", 32, (11, 10)),
              Scalar("subi", 32, (1, 12)), Scalar("minsi", 32, (13, 10))]  # fmt: skip
    low, high = narrow_intervals(groups, (blocks, 1, 1), {})[14]
    assert 1 <= low <= min(min(tiles - one // group * group, group) for one in found) and high <= group


def test_a_loop_that_counts_on_from_a_number_ends_there_too() -> None:
    """Its first number is not zero: it has gone round fewer times."""
    scalars = [*of_tiles(1000, 132, first=3), Scalar(COUNTER, 64, (3, 6, 4))]
    sum = (Term(1, (0,)), Term(132, (10,)))
    found = [pid + turn * 132 for pid in range(132) for turn in range(-(-(1000 - pid) // 132) - 3)]
    known = intervals(scalars, (132, 1, 1), {})
    assert Relations(scalars, known).interval_of(sum) == (0, max(found))


def test_a_counter_in_steps_stops_a_whole_step_before_its_end() -> None:
    """`64 * pid - i / 64 * 64`, where i goes from 0 to 64 * pid + 64 in steps of 64: down to 0, not to -63."""
    numbers = [Scalar("constant", 64, (), one) for one in (0, 1, 64)]
    scalars = [PID, *numbers, Scalar("addi", 64, (0, 2)), Scalar("muli", 64, (4, 3)),
               Scalar("induction", 64, (1, 5, 3)), Scalar("divsi", 64, (6, 3))]  # fmt: skip
    alone, together = both(scalars, (Term(64, (0,)), Term(-64, (7,))))
    assert alone[0] < 0 and together[0] == 0
    ragged = [*scalars[:5], Scalar("muli", 64, (4, 3)), Scalar("addi", 64, (5, 2)), Scalar("induction", 64, (1, 6, 3))]
    assert both(ragged, (Term(64, (0,)), Term(-1, (7,))))[1][0] == -64  # the last one is at 64 * pid + 64
