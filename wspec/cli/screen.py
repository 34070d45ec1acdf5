"""Standard output, with colours where it is a terminal."""

from __future__ import annotations

import io
import sys

from rich.console import Console, RenderableType
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


def remark_text(remark: Remark) -> Text:
    """A remark with the source line it is about."""
    return Text(render(remark), style=_STYLES[remark.severity])
