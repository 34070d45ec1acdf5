"""How good is the model? `python -m wspec.bench.model POINTS.json --measure` measures plans on the card at hand;
`python -m wspec.bench.model POINTS.json [--markdown FILE.md] [--plot FILE.svg]` predicts them and compares.

A point is a kernel at a shape under a plan (`model_plans`). Measuring needs a Hopper GPU, comparing does not.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from wspec.bench.environment import NoGpu, environment, require_hopper


def main(argv: Sequence[str] | None = None) -> int:
    """0 all well, 1 some plans were not measured, 2 there is nothing to measure on or to compare."""
    parser = argparse.ArgumentParser(prog="python -m wspec.bench.model", description=__doc__.split("\n\n")[0])
    parser.add_argument("points", metavar="POINTS.json")
    parser.add_argument("--measure", action="store_true", help="measure the points first (needs a Hopper GPU)")
    parser.add_argument("--quick", action="store_true", help="measure one shape of each sort")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each plan (default %(default)s)")
    parser.add_argument("--window-ms", type=float, default=6.0, help="length of a turn (default %(default)s)")
    parser.add_argument("--time-budget", type=float, default=480.0, metavar="SECONDS")
    args = parser.parse_args(argv)
    return _measure(args)


def _measure(args: argparse.Namespace) -> int:
    from wspec.bench.model_measure import Budget, measure_all
    from wspec.bench.model_plans import shapes

    try:
        device = require_hopper()
    except NoGpu as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    budget = Budget(args.rounds, args.window_ms, args.time_budget)
    points, problems = measure_all(shapes(args.quick), device, budget)
    data = {"environment": environment(), "points": [asdict(one) for one in points], "not_measured": problems}
    Path(args.points).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print("\n".join([*problems, f"{len(points)} points in {args.points}"]), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
