"""How good is the model on what nobody chose? `python -m wspec.lab.bench.drawn POINTS.json --measure` measures
kernels and shapes that are drawn at random (`drawn_shapes`) on the card at hand; without `--measure` it predicts the
points of the file and compares. `--dry` compiles and launches nothing.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wspec.lab.bench.environment import NoGpu, environment, require_hopper
from wspec.lab.simulate.points import Point

LEAST = 0.98  # of the plain kernel's speed, that no default choice may fall under
LINE = 128  # bytes


def main(argv: Sequence[str] | None = None) -> int:
    """0 all well, 1 something was not measured or failed to compile, 2 nothing to measure on or to compare."""
    parser = argparse.ArgumentParser(prog="python -m wspec.lab.bench.drawn", description=__doc__.split("\n\n")[0])
    parser.add_argument("points", metavar="POINTS.json")
    parser.add_argument("--measure", action="store_true", help="measure the points first (needs a Hopper GPU)")
    parser.add_argument("--dry", action="store_true", help="draw and compile, launch nothing")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default %(default)s)")
    parser.add_argument("--products", type=int, default=11, help="shapes of products (default %(default)s)")
    parser.add_argument("--attentions", type=int, default=9, help="shapes of attention (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=4.0, help="stop cleanly after so many (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each kernel (default %(default)s)")
    parser.add_argument("--window-ms", type=float, default=4.0, help="length of a turn (default %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="shapes whose name contains it")
    parser.add_argument("--machine", help="default: that of the card of the points")
    parser.add_argument("--jobs", type=int, help="processes that predict (default: one a core)")
    parser.add_argument("--each", action="store_true", help="show every point")
    parser.add_argument("--markdown", metavar="FILE.md")
    args = parser.parse_args(argv)
    return _measure(args) if args.measure or args.dry else _compare(args)


def _measure(args: argparse.Namespace) -> int:
    from wspec.lab.bench.drawn_shapes import drawn_shapes
    from wspec.lab.bench.model_changes import BY_RULE
    from wspec.lab.bench.model_measure import Budget, compile_all, measure_all

    drawn = drawn_shapes(args.seed, args.products, args.attentions)
    shapes = [shape for shape in drawn if args.only in str(shape)]
    if args.dry:
        failed = compile_all({shape: shape.points() for shape in shapes})
        print("\n".join(f"{text}: {why}" for text, why in failed.items()))
        return 1 if failed else 0
    try:
        device = require_hopper()
    except NoGpu as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    known = {**environment(), "seed": args.seed}

    def save(points: Sequence[Point], problems: Sequence[str]) -> None:
        data = {"environment": known, "points": [asdict(one) for one in points], "not_measured": problems}
        Path(args.points).write_text(json.dumps(data) + "\n", encoding="utf-8")

    problems = measure_all(shapes, device, Budget(args.rounds, args.window_ms, 60 * args.minutes), save)
    wrong = [one for one in problems if not any(sort in one for sort in BY_RULE)]
    print("\n".join([*wrong, f"{len(problems)} kernels left out, see {args.points}"]), file=sys.stderr)
    return 1 if wrong else 0


# ------------------------------------------------------------------------------------------------- comparing


@dataclass(frozen=True, slots=True)
class Default:
    """What the compiler does where nobody sets anything: at one tile of one shape."""

    specialized: Point
    speed: float | None  # of the kernel as Triton has it over the specialized one's; None where that was not measured
    why: str  # it leaves the kernel alone; "" where it does not
    launched: float | None = None  # speed of what launches come to, trials over, over the plain kernel's


def _compare(args: argparse.Namespace) -> int:
    from wspec.lab.bench.drawn_shapes import moved_here
    from wspec.lab.bench.model_report import choice_table, choices, error_table, in_turns, notes
    from wspec.lab.bench.precompile import pool
    from wspec.lab.bench.report import console, write_markdown
    from wspec.lab.bench.simulator import predict_all
    from wspec.lab.simulate.costs import numbers
    from wspec.lab.simulate.points import machine_of, read_points
    from wspec.model.machine import load_machine

    every = [moved_here(one) for one in read_points(Path(args.points)) if args.only in one.name]
    if not every:
        print("error: there are no such points", file=sys.stderr)
        return 2
    points = [one for one in every if one.kind != "default"]  # that one is either of the others
    machine = args.machine or machine_of(Path(args.points))
    made = predict_all(points, machine, args.jobs)
    rows = in_turns(list(zip(points, made, strict=True)), numbers(load_machine(machine)).power)
    specialized = [one for one in points if one.kind == "specialized"]
    with pool(min(len(specialized), args.jobs or os.cpu_count() or 1)) as workers:
        whys = list(workers.map(functools.partial(declined, machine=machine), specialized))
    defaults = defaults_of(every, dict(zip((one.name for one in specialized), whys, strict=True)))
    found = choices(rows)
    tables = [error_table(rows), choice_table(found), default_table(defaults)]
    if args.each:
        tables.append(point_table(rows))
    said = [*notes(rows, found), *default_notes(defaults)]
    screen = console()
    for table in tables:
        table.show(screen)
    for note in said:
        screen.print(f"- {note}", markup=False)
    if args.markdown:
        write_markdown(args.markdown, tables, said)
    return 0


def declined(point: Point, machine: str = "h200") -> str:
    """Why the compiler leaves a kernel alone before it looks at a binary, by its default options; "" if it does not."""
    from wspec import api, bridge, ir
    from wspec.pipeline import specialize
    from wspec.specs.kernel_file import load_kernel

    kernel = load_kernel(point.kernel).function
    offline = api.offline(kernel, point.signature, point.constexprs, **point.options, machine=machine)
    made = specialize(ir.read(bridge.lower(offline.source)[1]), offline.compiler.options)
    return "" if made.module is not None else made.remarks[0].code


def defaults_of(points: Sequence[Point], whys: dict[str, str]) -> list[Default]:
    """`whys` by the name of the specialized point."""
    known = {one.name: one for one in points}
    found = []
    for one in points:
        if one.kind == "specialized":
            plain, usual = (known.get(one.name.replace(" specialized ", f" {kind} ")) for kind in ("plain", "default"))
            speeds = [
                plain.ms / other.ms if plain is not None and other is not None else None for other in (one, usual)
            ]
            found.append(Default(one, speeds[0], whys[one.name], speeds[1]))
    return found


def _on_lines(point: Point) -> bool:
    """Is every pitch a multiple of 128 bytes?"""
    return all(pitch % LINE == 0 for pitch in point.pitches.values())


def default_table(defaults: Sequence[Default]) -> Any:
    """What the default does, and how fast specialized and plain are."""
    from wspec.lab.bench.report import Table

    cells = tuple(
        (
            one.specialized.name, "yes" if _on_lines(one.specialized) else "no",
            "-" if one.speed is None else f"{one.speed:.3f}", one.why or "specialized",
            "-" if one.launched is None else f"{one.launched:.3f}",
        )
        for one in defaults
    )  # fmt: skip
    return Table(
        "The default", ("kernel", "pitches on lines", "plain / specialized", "the gate", "plain / launched"), cells
    )


def default_notes(defaults: Sequence[Default]) -> list[str]:
    """How often the default is wrong, and by how much."""
    known = [(one, one.speed) for one in defaults if one.speed is not None]
    lines = [(one, speed) for one, speed in known if _on_lines(one.specialized)]
    slow = [f"{one.specialized.name} {speed:.3f}" for one, speed in lines if not one.why and speed < LEAST]
    lost = [f"{one.specialized.name} {speed:.3f}" for one, speed in known if one.why and speed > 1.03]
    others = [speed for one, speed in known if not one.why and not _on_lines(one.specialized)]
    launched = {one.specialized.name: one.launched for one in defaults if one.launched is not None}
    behind = [
        f"{one.specialized.name} {launched[one.specialized.name]:.3f}"
        for one in defaults
        if _on_lines(one.specialized) and launched.get(one.specialized.name, 1.0) < LEAST
    ]
    return [
        f"of {len(lines)} kernels whose pitches are multiples of {LINE} bytes the default is under {LEAST} of plain on "
        f"{len(slow)}: {', '.join(slow) or 'none'}",
        f"left alone though more than 3 % faster specialized: {len(lost)} of {len(known)}: {', '.join(lost) or 'none'}",
        f"other pitches: specialized by default {len(others)}, at worst {min(others, default=1.0):.3f} of plain",
        f"what launches come to after their trials, {len(launched)} kernels: at worst "
        f"{min(launched.values(), default=1.0):.3f} of plain; under {LEAST} with pitches on lines on {len(behind)}: "
        f"{', '.join(behind) or 'none'}",
    ]


def point_table(rows: Sequence[Any]) -> Any:
    """Every point, predicted over measured."""
    from wspec.lab.bench.report import Table

    cells = tuple(
        (row.point.name, f"{row.point.ms:.4f}", f"{row.ms:.4f}", f"{row.ms / row.point.ms:.3f}") for row in rows
    )
    return Table("Points", ("point", "measured ms", "predicted ms", "ratio"), cells)


if __name__ == "__main__":
    sys.exit(main())
