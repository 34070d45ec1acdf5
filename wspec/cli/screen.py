"""Standard output, with colours where it is a terminal."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from wspec.diagnostics import Remark, render

_PLAIN_WIDTH = 140  # where nobody tells, so that tables are not cut in a log
_STYLES = {"remark": "", "warning": "yellow", "error": "red"}


def show(*things: RenderableType) -> None:
    """Print renderables; text has no markup in it. What is no terminal gets lines without trailing blanks."""
    if sys.stdout.isatty():
        _print(Console(highlight=False, emoji=False), things)
        return
    text = io.StringIO()
    _print(Console(file=text, width=_PLAIN_WIDTH, highlight=False, emoji=False), things)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines()))


def _print(console: Console, things: tuple[RenderableType, ...]) -> None:
    for thing in things:
        console.print(Text(thing) if isinstance(thing, str) else thing, soft_wrap=isinstance(thing, str | Text))


def working(what: str) -> contextlib.AbstractContextManager[Any]:
    """While something takes its time: a line with a spinner on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        return contextlib.nullcontext()
    return Console(stderr=True).status(what)


def counted(what: str, total: int) -> Progress:
    """A progress bar of so many steps on standard error, where that is a terminal; else nothing is shown."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    bar.add_task(what, total=total)
    return bar


def remark_text(remark: Remark) -> Text:
    """A remark with the source line it is about."""
    return Text(render(remark), style=_STYLES[remark.severity])
