"""Running commands in this process, and what they said."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.goldens import ROOT
from wspec.cli import main

KERNEL = f"{ROOT}/docs/tour_kernel.py:attend"
ELEMENTWISE = f"{ROOT}/kernels/elementwise.py"
ATTENTION = f"{ROOT}/kernels/attention.py:attention_fwd"


@dataclass(frozen=True, slots=True)
class Said:
    """The end of a command."""

    code: int
    out: str
    err: str

    def fact(self, name: str) -> str:
        """The last cell of the row that begins with `name`."""
        row = next(line for line in self.out.splitlines() if line.startswith(name))
        return re.split(r"\s{2,}", row.strip())[-1]


def wspec(*arguments: str, stdin: str = "") -> Said:
    """`wspec ARGUMENTS`, which must leave no escape sequences where nothing is a terminal."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _stdin(stdin):
        code = main(arguments)
    assert "\x1b" not in out.getvalue() + err.getvalue()
    return Said(code, out.getvalue(), err.getvalue())


def done(*arguments: str, stdin: str = "") -> str:
    """Standard output of a command that must succeed."""
    said = wspec(*arguments, stdin=stdin)
    assert said.code == 0, said.err
    return said.out


def refused(*arguments: str, stdin: str = "") -> str:
    """The one error of a command that must find its input unusable."""
    said = wspec(*arguments, stdin=stdin)
    assert said.code == 2, (said.code, said.out[-500:], said.err)
    assert "Traceback" not in said.err
    errors = [line for line in said.err.splitlines() if re.match(r"(error|\S+:\d+:\d+: error): ", line)]
    assert len(errors) == 1, said.err
    return said.err


@contextlib.contextmanager
def _stdin(text: str) -> Iterator[None]:
    kept, sys.stdin = sys.stdin, io.StringIO(text)
    try:
        yield
    finally:
        sys.stdin = kept
