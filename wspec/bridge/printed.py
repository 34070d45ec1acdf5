"""What `tl.static_print` prints while a kernel is lowered, shown once.

A kernel passes Triton's front end several times here: for wspec, for the plain kernel, for a stage to be shown. Triton
prints each time, to standard output. Here the same text of the same specialization is printed once in a process.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from triton.language.core import static_print

from wspec.bridge.versions.internals import internal

to_stderr = False  # where standard output is for something else, as that of the command line is
_shown: set[tuple[str, str]] = set()
_here = threading.local()  # .sink: what this thread's kernel prints into


@contextlib.contextmanager
def once(source: Any) -> Iterator[None]:
    """What is printed inside, of that specialization (a KernelSource), is printed at the end unless it was before."""
    _install()
    outer, text = getattr(_here, "sink", None), io.StringIO()
    _here.sink = text
    try:
        yield
    finally:
        _here.sink = outer
        if said := text.getvalue():
            _show(source, said)


def _show(source: Any, said: str) -> None:
    known = (f"{source.ast.hash()}-{source.options.hash()}", said)
    if known not in _shown:
        _shown.add(known)
        print(said, end="", file=sys.stderr if to_stderr else sys.stdout)


def _install() -> None:
    """Let Triton's `static_print` write into the sink of its thread, where there is one."""
    generators = internal("triton.compiler.code_generator", "CodeGenerator")  # brings along much that may have moved
    table = getattr(generators, "statically_implemented_functions", {})
    theirs: Callable[[Any, Any], Any] | None = table.get(static_print)
    if theirs is None or hasattr(theirs, "wspec_sink"):
        return

    def ours(generator: Any, node: Any) -> Any:
        sink = getattr(_here, "sink", None)
        if sink is None:
            return theirs(generator, node)
        with contextlib.redirect_stdout(sink):
            return theirs(generator, node)

    ours.wspec_sink = True  # type: ignore[attr-defined]
    table[static_print] = ours
