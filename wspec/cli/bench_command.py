"""`wspec bench`: hands over to `python -m wspec.lab.bench.NAME`, or compares runs that were recorded."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wspec.cli.parser import BENCHES
from wspec.diagnostics import bad_input

if TYPE_CHECKING:
    from wspec.lab.bench.recorded import Run

PLOTS = (".png", ".svg")


def run(args: argparse.Namespace) -> int:
    """Its exit code: 0 all right, 1 something is wrong or slower, 2 there is no GPU to measure on or the input cannot
    be used."""
    if args.compare is not None:
        return _compare(args)
    if args.plot is not None:
        raise bad_input("--plot draws what --compare finds; it says nothing by itself")
    if args.name is None and args.record is None:
        raise bad_input("say what to measure, or --record or --compare", f"there are: {', '.join(BENCHES)}")
    record = [] if args.record is None else ["--record", args.record]
    codes = [_measure(name, [*record, *args.arguments]) for name in ([args.name] if args.name else BENCHES)]
    return max(codes)


def _measure(name: str, arguments: list[str]) -> int:
    code: int = importlib.import_module(f"wspec.lab.bench.{name}").main(arguments)
    return code


# ------------------------------------------------------------------------------------------------ recorded runs


def _compare(args: argparse.Namespace) -> int:
    """0, or 1 where something got slower by more than the noise. Raises WspecError."""
    if args.name is not None or args.record is not None:
        raise bad_input("--compare measures nothing; it does not go together with NAME and --record")
    if len(args.compare) > 2:
        raise bad_input(f"--compare takes one file or two runs, not {len(args.compare)}")
    if args.plot is not None and Path(args.plot).suffix not in PLOTS:
        raise bad_input(f"--plot {args.plot}: the name must end in {' or '.join(PLOTS)}")
    from wspec.cli.screen import show
    from wspec.lab.bench import compare
    from wspec.lab.bench.report import console

    found = compare.compare(*chosen(args.compare))
    for table in compare.tables(found):
        table.show(console())
    show(*(f"- {text}" for text in compare.sentences(found)))
    if args.plot is not None:
        try:
            compare.plot(found, args.plot)
        except ImportError:
            raise bad_input("--plot takes matplotlib, which is not installed", "pip install matplotlib") from None
    return 1 if found.slower else 0


def chosen(places: list[str]) -> tuple[Run, Run]:
    """(old, new): of two places FILE or FILE@LINE the runs there, where a FILE alone means its last run (for the old
    one, of the new one's benchmark); of one FILE its last two runs of one benchmark. Raises WspecError and OSError."""
    if len(places) == 2:
        new = _run_at(places[1], None)
        return _run_at(places[0], new.bench), new
    runs = _runs(places[0])
    of_one = [run for run in runs if run.bench == runs[-1].bench] if runs else []
    if len(of_one) < 2:
        which = f"only one run of {of_one[0].bench}" if of_one else "no run that can be read"
        raise bad_input(f"{places[0]} has {which}; comparing takes two")
    return of_one[-2], of_one[-1]


def _runs(path: str) -> list[Run]:
    """Every run of a file; lines that are none are told on stderr."""
    from wspec.lab.bench import recorded

    lines = recorded.read(path)
    for line in lines:
        if line.run is None:
            print(f"note: {path}, line {line.number}, is left out: {line.why_not}", file=sys.stderr)
    return [line.run for line in lines if line.run is not None]


def _run_at(place: str, bench: str | None) -> Run:
    """The run at FILE@LINE, or the last one of FILE (of that benchmark, where there is any)."""
    path, _, number = place.rpartition("@")
    if path and number.isdecimal() and not Path(place).exists():
        return _run_on(path, int(number))
    runs = _runs(place)
    if not runs:
        raise bad_input(f"{place} has no run that can be read")
    return next((run for run in reversed(runs) if run.bench == bench), runs[-1])


def _run_on(path: str, number: int) -> Run:
    from wspec.lab.bench import recorded

    lines = {line.number: line for line in recorded.read(path)}
    if number not in lines:
        there = f"there are runs on lines {', '.join(map(str, lines))}" if lines else "it is empty"
        raise bad_input(f"{path} has no line {number}", there)
    found = lines[number]
    if found.run is None:
        raise bad_input(f"{path}, line {number}: {found.why_not}")
    return found.run
