"""Predicted times beside measured ones: `python -m wspec.lab.bench.simulator POINTS.json [--plot FILE.svg]`.

wspec/lab/simulate/points.py describes POINTS.json. `--from-tables docs/results/attention.md` makes one from its tables.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from wspec import api, bridge, ir
from wspec.lab.bench.measured_points import points_from_tables
from wspec.lab.bench.precompile import pool
from wspec.lab.bench.report import Table, console
from wspec.lab.persistent_launch import walked_launch
from wspec.lab.simulate import Edits, Prediction, Simulator
from wspec.lab.simulate.costs import NAMES
from wspec.lab.simulate.points import Accuracy, Point, accuracy, read_points, write_points
from wspec.model.machine import load_machine
from wspec.options import Options
from wspec.plan.plan import Plan
from wspec.specs.kernel_file import load_kernel
from wspec.tile_scheduler import TileLoop


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m wspec.lab.bench.simulator", description=__doc__.split("\n")[0])
    parser.add_argument("points", metavar="POINTS.json")
    parser.add_argument("--from-tables", metavar="FILE.md", help="write POINTS.json from its tables first")
    parser.add_argument("--machine", default="h200", help="default %(default)s")
    parser.add_argument("--clock", type=float, default=0.0, metavar="MHZ", help="of points that do not say theirs")
    parser.add_argument("--only", default="", metavar="TEXT", help="points whose name contains this")
    parser.add_argument("--plot", metavar="FILE", help="draw predicted against measured (matplotlib)")
    args = parser.parse_args(argv)
    if args.from_tables:
        write_points(points_from_tables(Path(args.from_tables)), Path(args.points))
    points = [one for one in read_points(Path(args.points)) if args.only in one.name]
    if not points:
        print("error: there are no such points", file=sys.stderr)
        return 2
    predictor = Predictor(args.machine, args.clock)
    rows = [(one, predictor.predict(one)) for one in points]
    screen = console()
    _table(rows).show(screen)
    parts = [(part, [row for row in rows if _part(row[0]) == part]) for part in sorted({_part(one) for one in points})]
    for name, some in (("all", rows), *parts):
        screen.print(f"{name}: {sentence(accuracy([(_ms(p), one.ms) for one, p in some]))}")
    if args.plot:
        plot([(one, _ms(p)) for one, p in rows], args.plot)
    return 0


DECIDED = frozenset(field.name for field in fields(Options)) - {"machine", "gate"}
"""What a plan says already."""


class Predictor:
    """Compiles each kernel once and predicts its launches."""

    def __init__(self, machine: str, clock_mhz: float = 0.0, at_clock: bool = True) -> None:
        """`clock_mhz` of points that do not say theirs, 0 for the model's; with `at_clock` theirs is taken."""
        self.machine, self.clock_mhz, self.at_clock = load_machine(machine), clock_mhz, at_clock
        self._simulators: dict[str, tuple[Simulator, TileLoop | None, int]] = {}

    def predict(self, point: Point) -> Prediction:
        if point.compiled not in self._simulators:
            self._simulators[point.compiled] = self._compile(point)
        simulator, tiles, blocks = self._simulators[point.compiled]
        slots = self.machine.sm_count * blocks
        arguments, grid = walked_launch(
            tiles, simulator.program.names, point.arguments, point.grid, slots, shared=blocks > 1
        )
        clock = (self.at_clock and point.clock_mhz) or self.clock_mhz
        return simulator.predict(arguments, grid, clock_mhz=clock, matrices=point.matrices)

    def _compile(self, point: Point) -> tuple[Simulator, TileLoop | None, int]:
        """The simulator; how blocks take tiles, if they walk through tiles; blocks on an SM."""
        kernel = load_kernel(point.kernel).function
        is_plain = point.kind == "plain"
        told: dict[str, Any] = {"enabled": False} if is_plain else {"gate": "off"}
        options = {"machine": self.machine.name, **point.options, **told}
        offline = api.offline(kernel, point.signature, point.constexprs, **options)
        found = offline.outcome().resources
        registers, serialized = point.registers, False
        if found is not None:
            serialized = bool(found.ptxas_notes)  # all are of the kind: every wgmma waits for the one before
            if is_plain and registers is None:
                registers = found.registers
        if is_plain:
            module = ir.read(bridge.plain_ttgir(offline.source))
            return Simulator(module, self.machine, registers, serialized), None, 1
        plan = offline.plan()
        assert plan is not None
        if Plan.from_text(offline.dump("plan")) != plan:  # the back end spoiled the planner's first one
            told = {name: value for name, value in options.items() if name not in DECIDED}
            offline = api.offline(kernel, point.signature, point.constexprs, plan=plan, **told)
        final = bridge.final_ttgir(offline.dump("specialized"), offline.source)
        simulator = Simulator(ir.read(final), self.machine, registers, serialized, Edits.of(plan))
        return simulator, plan.tile_loop, plan.blocks_per_sm


def predict_all(points: Sequence[Point], machine: str, jobs: int | None = None) -> list[Prediction]:
    """A prediction for each point, at the model's clock; kernels side by side in so many processes (None: cores)."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(point.compiled, []).append(point)
    work = functools.partial(_predict_some, machine)
    jobs = min(len(groups), jobs or os.cpu_count() or 1)
    with contextlib.ExitStack() as stack:
        run = map if jobs <= 1 else stack.enter_context(pool(jobs)).map
        made = track(run(work, groups.values()), "predicting", len(groups), console=Console(stderr=True))
        found = {id(point): one for some, ones in zip(groups.values(), made, strict=True)
                 for point, one in zip(some, ones, strict=True)}  # fmt: skip
    return [found[id(point)] for point in points]


def _predict_some(machine: str, points: Sequence[Point]) -> list[Prediction]:
    """Of launches of one kernel."""
    predictor = Predictor(machine, at_clock=False)
    return [predictor.predict(point) for point in points]


def _part(point: Point) -> str:
    return f"{point.kernel.rpartition(':')[2]}, {point.kind}"


def _ms(prediction: Prediction) -> float:
    return prediction.microseconds / 1000


def _table(rows: Sequence[tuple[Point, Prediction]]) -> Table:
    columns = ("point", "blocks an SM", "waves", "cycles", "MHz", "ms", "measured", "ratio", "busiest", "of the time")
    cells = tuple(
        (
            point.name, str(p.blocks_per_sm), f"{p.waves:.1f}", f"{p.cycles:.0f}", f"{p.clock_mhz:.0f}",
            f"{_ms(p):.3f}", f"{point.ms:.3f}", f"{_ms(p) / point.ms:.3f}", NAMES[p.bound],
            f"{p.utilization[p.bound]:.2f}",
        )
        for point, p in rows
    )  # fmt: skip
    return Table("Predicted and measured", columns, cells)


def sentence(one: Accuracy) -> str:
    """The numbers of an Accuracy in a line."""
    return (
        f"{one.points} points, mean error {100 * one.mean_error:.1f} %, worst {100 * one.worst_error:.1f} %; "
        f"predicted {one.factor:.3f} of measured, without that factor mean {100 * one.mean_left:.1f} %, worst "
        f"{100 * one.worst_left:.1f} %; rank correlation {one.rank_correlation:.3f}"
    )


def plot(rows: Sequence[tuple[Point, float]], path: str) -> None:
    """Milliseconds, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 6))
    for kind in sorted({point.kind for point, _ in rows}):
        mine = [(point.ms, ms) for point, ms in rows if point.kind == kind]
        axes.scatter([a for a, _ in mine], [b for _, b in mine], s=14, label=kind)
    times = [value for point, ms in rows for value in (point.ms, ms)]
    ends = [min(times) / 1.1, max(times) * 1.1]
    axes.plot(ends, ends, color="grey", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="measured, ms", ylabel="predicted, ms")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
