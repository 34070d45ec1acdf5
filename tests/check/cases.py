"""Scripts with what the checker must say of them.

The `.txt` files under `cases/` hold scripts divided by `# -----`, each under a comment that says what it is about. `#
error: code` or `# undecided: code` stands on the line of a finding; a script without such marks must be proved. `,
from 3.7: undecided` behind a mark: under that Triton and later ones it is another one, or `nothing`, for where the back
end puts fences differs. `# not in 3.8`: that Triton refuses it. `# and more`: there may be other findings, as many as
are made in the time there is. `# though right`: no order of the tasks has a fault. `# with n = 13` says for which
arguments a fault shows when not for small ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.check.script import kernel
from wspec.bridge.versions import INSTALLED
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
            mark = _MARK.search(line)
            if mark is not None:
                kind = mark[4] if mark[3] is not None and _order(INSTALLED.release) >= _order(mark[3]) else mark[1]
                found |= {(kind, mark[2], number)} if kind != "nothing" else set()
        return found

    @property
    def refused(self) -> bool:
        """Does the installed Triton have no such module?"""
        return f"\n# not in {INSTALLED.release}\n" in self.text


_MARK = re.compile(r"# (error|undecided): ([^\s,]+)(?:, from (3\.\d+): (error|undecided|nothing))?")


def _order(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


PLACED = FOLDER / "placed"  # scripts about shared memory as Triton gives it out


def cases(folder: Path = FOLDER) -> Iterator[Case]:
    """All of them, by file."""
    for path in sorted(folder.glob("*.txt")):
        line = 1
        for number, text in enumerate(path.read_text().split("# -----\n")):
            title = text.split("\n", 1)[0].removeprefix("# ")
            yield Case(f"{path.stem}-{number}", title, text, str(path.relative_to(ROOT)), line)
            line += text.count("\n") + 1
