"""How good is the model? `python -m wspec.lab.bench.model POINTS.json --measure` measures plans on the card at hand;
`python -m wspec.lab.bench.model POINTS.json [--markdown FILE.md] [--plot FILE.svg]` predicts them and compares.

A point is a kernel at a shape under a plan (`model_plans`). Measuring needs a Hopper GPU, comparing does not.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from wspec.lab.bench.environment import NoGpu, environment, require_hopper
from wspec.lab.simulate.points import Point


def main(argv: Sequence[str] | None = None) -> int:
    """0 all well, 1 some plans were not measured, 2 there is nothing to measure on or to compare."""
    parser = argparse.ArgumentParser(prog="python -m wspec.lab.bench.model", description=__doc__.split("\n\n")[0])
    parser.add_argument("points", metavar="POINTS.json")
    parser.add_argument("--measure", action="store_true", help="measure the points first (needs a Hopper GPU)")
    parser.add_argument("--quick", action="store_true", help="measure one shape of each sort")
    others = "measure other shapes, which are no points of the test"
    parser.add_argument("--others", action="store_true", help=others)
    parser.add_argument("--rounds", type=int, default=15, help="turns of each plan (default %(default)s)")
    parser.add_argument("--window-ms", type=float, default=6.0, help="length of a turn (default %(default)s)")
    parser.add_argument("--time-budget", type=float, default=480.0, metavar="SECONDS")
    parser.add_argument("--machine", help="default: that of the card of the points")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="shapes, or points to compare, whose name contains it"
    )
    why = "leave out shorter launches: it may be the host that was measured (default %(default)s)"
    parser.add_argument("--least-us", type=float, default=60.0, metavar="MICROSECONDS", help=why)
    parser.add_argument("--jobs", type=int, help="processes that predict (default: one a core)")
    parser.add_argument("--markdown", metavar="FILE.md")
    parser.add_argument("--plot", metavar="FILE.svg", help="draw predicted against measured (matplotlib)")
    args = parser.parse_args(argv)
    return _measure(args) if args.measure else _compare(args)


def _compare(args: argparse.Namespace) -> int:
    from wspec.lab.bench.model_report import choice_table, choices, error_table, in_turns, notes
    from wspec.lab.bench.report import console, write_markdown
    from wspec.lab.bench.simulator import plot, predict_all
    from wspec.lab.simulate.costs import numbers
    from wspec.lab.simulate.points import machine_of, read_points
    from wspec.model.machine import load_machine

    points = [one for one in read_points(Path(args.points)) if args.only in one.name and 1000 * one.ms >= args.least_us]
    if not points:
        print("error: there are no such points", file=sys.stderr)
        return 2
    machine = args.machine or machine_of(Path(args.points))
    made = predict_all(points, machine, args.jobs)
    rows = in_turns(list(zip(points, made, strict=True)), numbers(load_machine(machine)).power)
    found = choices(rows)
    tables, said = [error_table(rows), choice_table(found)], notes(rows, found)
    screen = console()
    for table in tables:
        table.show(screen)
    for note in said:
        screen.print(f"- {note}", markup=False)
    if args.markdown:
        write_markdown(args.markdown, tables, said)
    if args.plot:
        plot([(row.point, row.ms) for row in rows], args.plot)
    return 0


def _measure(args: argparse.Namespace) -> int:
    from wspec.lab.bench.model_changes import BY_RULE
    from wspec.lab.bench.model_measure import Budget, measure_all
    from wspec.lab.bench.model_plans import shapes

    try:
        device = require_hopper()
    except NoGpu as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    budget = Budget(args.rounds, args.window_ms, args.time_budget)
    known = environment()

    def save(points: Sequence[Point], problems: Sequence[str]) -> None:
        data = {"environment": known, "points": [asdict(one) for one in points], "not_measured": problems}
        Path(args.points).write_text(json.dumps(data) + "\n", encoding="utf-8")

    chosen = [one for one in shapes(args.quick, args.others) if args.only in str(one)]
    problems = measure_all(chosen, device, budget, save)
    wrong = [one for one in problems if not any(sort in one for sort in BY_RULE)]
    print("\n".join([*wrong, f"{len(problems)} plans left out, see {args.points}"]), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
