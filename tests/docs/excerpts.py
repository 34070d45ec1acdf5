"""Excerpts in Markdown files: blocks of text that a comment before them says where to take from.

    <!-- excerpt split
    for %acc -> scf.yield
    ttg.warp_yield
    -->
    ```
    ...
    ```

`A -> B` is every line from the first that holds A to the next one that holds B; `A` is one line. Each line of the
comment goes on where the one before it ended, and `...` stands for what is left out between them. `after A` goes on
behind the line that holds A without showing it. Anchors should hold no numbered names (`%k_51`): those change often.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

_BLOCK = re.compile(r"<!-- excerpt ([\w-]+)\n(.*?)-->\n```(\w*)\n(.*?)```", re.S)


def with_fresh_excerpts(document: str, source: Callable[[str], str]) -> str:
    """The document with every excerpt taken anew; `source` gives the text of what a comment names."""

    def fresh(match: re.Match[str]) -> str:
        name, wanted, language, _ = match.groups()
        body = excerpt(source(name), wanted.splitlines(), name)
        return f"<!-- excerpt {name}\n{wanted}-->\n```{language}\n{body}```"

    return _BLOCK.sub(fresh, document)


def excerpt(text: str, wanted: list[str], name: str) -> str:
    """The lines asked for, without common indentation. Raises LookupError for a line that is not there."""
    lines, at, shown, taken = text.splitlines(), 0, 0, list[str]()
    for item in wanted:
        if item.startswith("after "):
            at = _find(lines, at, item.removeprefix("after "), name) + 1
            continue
        first, _, last = (part.strip() for part in item.partition(" -> "))
        start = _find(lines, at, first, name)
        end = _find(lines, start, last, name) if last else start
        if taken and start > shown:
            taken.append(f"{_indent(lines[start])}...")
        taken += lines[start : end + 1]
        at = shown = end + 1
    return textwrap.dedent("\n".join(taken)) + "\n"


def _find(lines: list[str], at: int, what: str, name: str) -> int:
    for number in range(at, len(lines)):
        if what in lines[number]:
            return number
    raise LookupError(f"excerpt {name}: no line holds {what!r} after line {at}")


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
