"""`wspec graph`: a picture of the dataflow graph."""

from __future__ import annotations

import argparse
from pathlib import Path

from wspec.cli.inputs import open_input
from wspec.cli.modules import read_text, write_output
from wspec.diagnostics import bad_input
from wspec.show.draw import CannotDraw, to_dot, to_svg
from wspec.show.graph import Picture, around_hot_loops
from wspec.show.tasks import svg


def run(args: argparse.Namespace) -> int:
    """dot, SVG or JSON, to a file or standard output. Raises WspecError."""
    if args.tasks:
        write_output(_tasks(args), args.output)
        return 0
    whole = _read(args.input) if args.input.endswith(".json") else open_input(args).picture
    shown = whole if args.all else around_hot_loops(whole)
    write_output(_draw(shown, args.format or _by_ending(args.output)), args.output)
    return 0


def _tasks(args: argparse.Namespace) -> str:
    form = args.format or (Path(args.output).suffix[1:] if args.output is not None else "svg")
    if form != "svg":
        raise bad_input(f"--tasks draws SVG, not {form or 'that'}")
    if args.input.endswith(".json"):
        raise bad_input(f"{args.input} is a dataflow graph; --tasks takes a kernel")
    subject = open_input(args)
    if subject.front.plan is None:
        why = subject.front.reason
        raise bad_input(f"there are no tasks: {why.message if why is not None else 'the kernel is left alone'}")
    return svg(subject.front.plan)


def _by_ending(output: str | None) -> str:
    ending = Path(output).suffix[1:] if output is not None else ""
    return ending if ending in ("dot", "svg", "json") else "dot"


def _draw(shown: Picture, form: str) -> str:
    if form == "json":
        return shown.to_json()
    if form == "dot":
        return to_dot(shown)
    try:
        return to_svg(shown)
    except CannotDraw as error:
        raise bad_input(str(error), "pip install matplotlib, or take --format dot") from None


def _read(place: str) -> Picture:
    try:
        return Picture.from_json(read_text(place))
    except ValueError as error:
        raise bad_input(f"{place}: {error}") from None
