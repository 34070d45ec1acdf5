"""The error for what a person got wrong on the command line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from wspec.diagnostics import Remark, WspecError


def bad_input(message: str, note: str = "") -> WspecError:
    """An error to raise; the command line prints it and ends with exit code 2."""
    return WspecError(Remark("bad-input", message, note=note, severity="error"))


def unknown(what: str, name: str, known: Iterable[str], where: str = "") -> WspecError:
    """`name` is no `what`: the close names if there are any, and all of them in the note."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    guess = f"; did you mean {' or '.join(close)}?" if close else ""
    note = f"there {'is' if len(names) == 1 else 'are'}: {', '.join(names)}" if names else "there are none"
    return bad_input(f"{where}no {what} {name!r}{guess}", note)
