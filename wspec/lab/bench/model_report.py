"""Predictions beside measurements: errors by family, and what the model would have chosen for each shape."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wspec.lab.bench.report import Table
from wspec.lab.search import MARGIN
from wspec.lab.simulate import Prediction
from wspec.lab.simulate.points import Accuracy, Point, accuracy, rank_correlation
from wspec.lab.simulate.power import Power
from wspec.tune.variations import DECISIONS

NEAR = 0.03  # a choice that is at most so much slower than the best plan is a good one
RANKED = 0.85
FEWEST = 4  # plans that a shape needs to be ranked


@dataclass(frozen=True, slots=True)
class Row:
    """A point and what was predicted for it."""

    point: Point
    ms: float  # at the clock that was predicted for the plans of the shape together
    ms_alone: float  # at the clock that was predicted for this plan
    ms_at_clock: float  # at the clock that was measured


def in_turns(predicted: Sequence[tuple[Point, Prediction]], power: Power) -> list[Row]:
    """Plans of a shape take turns of a few milliseconds when they are measured, and the card's clock follows a mean of
    about a second: so they share a clock."""
    clocks: dict[str, list[float]] = {}
    for point, made in predicted:
        clocks.setdefault(point.shape, []).append(made.clock_mhz)
    rows = []
    for point, made in predicted:
        shared, own = power.shared_mhz(clocks[point.shape]), point.clock_mhz or made.clock_mhz
        ms, ms_at_clock = (made.cycles_at(mhz) / mhz / 1e3 for mhz in (shared, own))
        rows.append(Row(point, ms, made.microseconds / 1e3, ms_at_clock))
    return rows


@dataclass(frozen=True, slots=True)
class Choice:
    """One shape: Spearman's rank correlation over its plans; the plan that the model finds fastest, and the one that
    the compiler would take without measuring, with how much slower than the fastest they were."""

    shape: str
    plans: int
    correlation: float
    chosen: str
    regret: float
    taken: str
    taken_regret: float


def choices(rows: Sequence[Row]) -> list[Choice]:
    """Of every shape with at least FEWEST plans."""
    found = []
    for shape, mine in _by_shape(rows):
        if len(mine) < FEWEST:
            continue
        chosen = min(mine, key=lambda row: row.ms)
        taken = _taken(mine, chosen)
        best = min(row.point.ms for row in mine)
        correlation = rank_correlation([row.ms for row in mine], [row.point.ms for row in mine])
        names = [row.point.name.removeprefix(shape).strip() for row in (chosen, taken)]
        regrets = [row.point.ms / best - 1 for row in (chosen, taken)]
        found.append(Choice(shape, len(mine), correlation, names[0], regrets[0], names[1], regrets[1]))
    return found


def comparisons(rows: Sequence[Row]) -> list[float]:
    """What `wspec.lab.search` goes by, and how wrong it is: by which factor, less 1, the time of a plan over that of
    the planner's own at its tile was foretold too high or too low. Of plans with a decision forced that it looks at."""
    own = {(row.point.shape, row.point.name): row for row in rows if _is_own(row.point)}
    found = []
    for row in rows:
        point = row.point
        base = own.get((point.shape, point.name.removesuffix(point.forced).strip()))
        if point.forced and _is_seen(point) and base is not None:
            foretold, measured = row.ms / base.ms, point.ms / base.point.ms
            found.append(max(foretold / measured, measured / foretold) - 1)
    return found


def _is_own(point: Point) -> bool:
    return point.kind == "specialized" and not point.forced


def _is_seen(point: Point) -> bool:
    return not point.forced or point.forced.partition("=")[0] in DECISIONS


def _taken(rows: Sequence[Row], chosen: Row) -> Row:
    """As `wspec.lab.search` has it: nothing forced, at the tile that the model finds fastest so, unless another plan
    that it would look at is expected to be faster by more than the model errs."""
    own = [row for row in rows if not row.point.forced]
    if not own:
        return chosen
    best = min(own, key=lambda row: row.ms)
    seen = [row for row in rows if _is_seen(row.point)]
    first = min(seen, key=lambda row: row.ms)
    return first if best.ms > MARGIN * first.ms else best


def _by_shape(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    for shape in dict.fromkeys(row.point.shape for row in rows):
        yield shape, [row for row in rows if row.point.shape == shape]


def family(point: Point) -> str:
    """The kernel, and whether it is specialized."""
    return f"{point.kernel.rpartition(':')[2]}, {point.kind}"


def error_table(rows: Sequence[Row]) -> Table:
    """One row for each family, and one for all."""
    columns = ("kernels", "points", "mean error", "worst", "predicted / measured", "rank correlation",
               "mean error with a clock each", "at the measured clock")  # fmt: skip
    families = sorted({family(row.point) for row in rows})
    cells = [_errors(name, [row for row in rows if family(row.point) == name]) for name in families]
    return Table("Errors", columns, (*cells, _errors("all", rows)))


def _errors(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    mine = accuracy([(row.ms, row.point.ms) for row in rows])
    alone = accuracy([(row.ms_alone, row.point.ms) for row in rows])
    at_clock = accuracy([(row.ms_at_clock, row.point.ms) for row in rows])
    return (
        name, str(mine.points), _percent(mine.mean_error), _percent(mine.worst_error), f"{mine.factor:.2f}",
        f"{mine.rank_correlation:.3f}", _percent(alone.mean_error), _percent(at_clock.mean_error),
    )  # fmt: skip


def choice_table(found: Sequence[Choice]) -> Table:
    """One row for each shape."""
    columns = (
        "shape", "plans", "rank correlation", "the compiler's choice", "slower than the best", "fastest by the model",
        "slower than the best",
    )  # fmt: skip
    cells = tuple(
        (
            one.shape, str(one.plans), f"{one.correlation:.2f}", one.taken, _percent(one.taken_regret), one.chosen,
            _percent(one.regret),
        )
        for one in found
    )  # fmt: skip
    return Table("Choices", columns, cells)


def notes(rows: Sequence[Row], found: Sequence[Choice]) -> list[str]:
    """The numbers of the whole in words."""
    all_of_them: Accuracy = accuracy([(row.ms, row.point.ms) for row in rows])
    taken = sum(one.taken_regret <= NEAR for one in found)
    good = sum(one.regret <= NEAR for one in found)
    worst_taken = max((one.taken_regret for one in found), default=0.0)
    ranked = sum(one.correlation >= RANKED for one in found)
    compared = comparisons(rows)
    return [
        f"{all_of_them.points} points: mean error {_percent(all_of_them.mean_error)}, "
        f"worst {_percent(all_of_them.worst_error)}, predicted {all_of_them.factor:.2f} of measured",
        f"what the compiler takes is within {_percent(NEAR)} of the best plan on {taken} of {len(found)} shapes; "
        f"at worst {_percent(worst_taken)} slower",
        f"the plan that the model finds fastest of all is on {good}; "
        f"at worst {_percent(max((one.regret for one in found), default=0.0))} slower",
        f"{len(compared)} plans over the planner's own at their tile: off by {_percent(_mean(compared))} on average",
        f"rank correlation at least {RANKED} on {ranked} of {len(found)} shapes",
    ]


def _mean(values: Sequence[float]) -> float:
    return statistics.mean(values) if values else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
