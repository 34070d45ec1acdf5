"""What one stage changed, as a unified diff of short forms."""

from __future__ import annotations

import difflib

from wspec.ir.core import Operation
from wspec.show.brief import print_brief


def diff_modules(old: Operation, new: Operation, names: tuple[str, str]) -> str:
    """Of modules: their short forms without line numbers, so that only what was changed differs."""
    return diff_texts(print_brief(old, lines=False), print_brief(new, lines=False), names)


def diff_texts(old: str, new: str, names: tuple[str, str]) -> str:
    """Of texts, line by line; "" when they are equal."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def diff_style(line: str) -> str:
    """The rich style of a line of a diff."""
    if line.startswith(("+++", "---")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
