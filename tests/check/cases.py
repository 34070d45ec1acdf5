"""Scripts with what the checker must say of them.

The `.txt` files under `cases/` hold scripts divided by `# -----`, each under a comment that says what it is about. `#
error: code` or `# undecided: code` stands on the line of a finding; a script without such marks must be proved. `#
and more`: there may be other findings, as many as are made in the time there is. `# though right`: no order of
the tasks has a fault. `# with n = 13` says for which arguments a fault shows when not for small ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.check.script import kernel
from wspec.ir.core import Operation

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "cases"
Mark = tuple[str, str, int]  # kind, code, line


@dataclass(frozen=True, slots=True)
class Case:
    """One script; its text begins at a line of a file."""

    name: str
    title: str
    text: str
    file: str
    line: int

    def module(self) -> Operation:
        """Its operations stand at the lines of the file."""
        return kernel(self.text, self.file, line=self.line)

    @property
    def more(self) -> bool:
        """May there be other findings?"""
        return "\n# and more\n" in self.text

    @property
    def right(self) -> bool:
        """Is it right, though it is not proved?"""
        return "\n# though right\n" in self.text

    @property
    def marks(self) -> set[Mark]:
        """The findings there must be."""
        found = set()
        for number, line in enumerate(self.text.splitlines(), start=self.line):
            mark = re.search(r"# (error|undecided): (\S+)", line)
            if mark is not None:
                found.add((mark[1], mark[2], number))
        return found


PLACED = FOLDER / "placed"  # scripts about shared memory as Triton gives it out


def cases(folder: Path = FOLDER) -> Iterator[Case]:
    """All of them, by file."""
    for path in sorted(folder.glob("*.txt")):
        line = 1
        for number, text in enumerate(path.read_text().split("# -----\n")):
            title = text.split("\n", 1)[0].removeprefix("# ")
            yield Case(f"{path.stem}-{number}", title, text, str(path.relative_to(ROOT)), line)
            line += text.count("\n") + 1
