"""Standard output, with colours where it is a terminal."""

from __future__ import annotations

import sys

from rich.console import Console, RenderableType
from rich.text import Text

from wspec.diagnostics import Remark, render

_PLAIN_WIDTH = 140  # where nobody tells, so that tables are not cut in a log
_STYLES = {"remark": "", "warning": "yellow", "error": "red"}


def screen() -> Console:
    """A console on what sys.stdout is now."""
    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    return Console(file=sys.stdout, width=width, highlight=False, soft_wrap=True, emoji=False)


def show(*things: RenderableType) -> None:
    """Print renderables; text has no markup in it."""
    console = screen()
    for thing in things:
        console.print(Text(thing) if isinstance(thing, str) else thing, soft_wrap=isinstance(thing, str | Text))


def remark_text(remark: Remark) -> Text:
    """A remark with the source line it is about."""
    return Text(render(remark), style=_STYLES[remark.severity])
