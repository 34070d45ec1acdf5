"""`wspec.enable`: every Triton kernel of the process goes through wspec, without a change to its source."""

from __future__ import annotations

import atexit
import sys
from types import TracebackType
from typing import Any

from wspec import bridge, ledger
from wspec.api import announce, compiler_of
from wspec.diagnostics import WspecError


class Enabled:
    """What `enable` returns: wspec is on until `disable()`, or until the end of a `with` block."""

    def __init__(self, **options: Any) -> None:
        self._compiler = compiler_of(None, options)
        self._switch = bridge.Switch(self._copy, _launched, self._compiler.options)
        self._switch.on()

    def disable(self) -> None:
        """Launches are Triton's own again, also of kernels that were launched meanwhile."""
        self._switch.off()

    def __enter__(self) -> Enabled:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disable()

    def _copy(self, kernel: Any) -> Any:
        """None, with a remark, for a kernel that cannot be wrapped: it runs as it was."""
        try:
            copy = self._compiler.wrap(kernel)
            return None if copy is kernel else copy
        except WspecError as error:
            announce((error.remark,), self._compiler.options)
            return None


def enable(*, summary: bool = False, **options: Any) -> Enabled:
    """Every Triton kernel that this process launches from now on is compiled through wspec.

    As if `@wspec.compile` with these options stood over each: those of other people's libraries, autotuned ones and
    those launched before included, kernels with a `@wspec.compile` of their own excepted, and those written in Gluon.
    Kernels that Inductor compiles are not launched by Triton and stay as they are. It holds for all threads. The result
    is a context manager; its `disable()` ends it. Entered again with the same options, kernels are as they were left:
    compiled, tuned and tried. With `summary` a table of what became of each kernel is written to
    stderr when the process ends. Raises WspecError for bad options.
    """
    enabled = Enabled(**options)
    if summary:
        atexit.register(_print_summary)
    return enabled


def _launched(kernel: Any) -> None:
    ledger.launched(bridge.innermost(kernel).fn)


def _print_summary() -> None:
    print(ledger.report(), file=sys.stderr)
