"""`wspec dump`: the text of a stage, or what changed between two."""

from __future__ import annotations

import argparse
import sys

from rich.text import Text

from wspec.cli.inputs import open_input
from wspec.cli.modules import read_module, to_text, write_output
from wspec.cli.screen import show
from wspec.cli.subject import TEXT_STAGES, Subject
from wspec.pipeline import PASSES
from wspec.show.diff import diff_modules, diff_style, diff_texts
from wspec.show.tables import table

ABOUT = {
    "ttir": "Triton IR, in Triton's own syntax",
    "ttgir": "TTGIR with layouts chosen, nothing pipelined yet",
    "input": "the same with numbered operations (wspec.id), as plans call them",
    "graph": "the dataflow graph, as JSON",
    "plan": "the plan, as TOML",
    "specialized": "what goes back to Triton",
    "final": "TTGIR after the last passes before LLVM",
    "llir": "LLVM IR",
    "ptx": "PTX",
    "sass": "machine code of the cubin",
}


def run(args: argparse.Namespace) -> int:
    """The stage, the list of stages, or a diff."""
    subject = open_input(args)
    if args.list:
        return _list(subject)
    if args.diff is not None:
        return _diff(subject, args.diff[0], args.diff[1], args.output)
    write_output(_form(subject, args.stage, args.form), args.output)
    return 0


def _list(subject: Subject) -> int:
    about = {
        **ABOUT,
        **{one.__name__: f"then: {_first_line(one.__doc__)}" for one in PASSES},
    }
    made = table("", "stage", "what it is")
    for name in subject.stage_names():
        made.add_row(name, about.get(name, ""))
    show(made)
    return 0


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0]


def _form(subject: Subject, stage: str, form: str) -> str:
    """A stage in the form asked for; the generic form is the very text the compiler saw."""
    text = subject.text(stage)
    if form == "generic" or stage in TEXT_STAGES:
        return text
    return to_text(read_module(text, stage), form)


def _diff(subject: Subject, old: str, new: str, output: str | None) -> int:
    texts = subject.text(old), subject.text(new)
    if old in TEXT_STAGES or new in TEXT_STAGES:
        text = diff_texts(*texts, (old, new))
    else:
        before, after = (read_module(text, stage) for text, stage in zip(texts, (old, new), strict=True))
        text = diff_modules(before, after, (old, new))
    if output is None and sys.stdout.isatty():
        show(*(Text(line, style=diff_style(line)) for line in text.splitlines()))
    else:
        write_output(text, output) if text else None
    return 0
