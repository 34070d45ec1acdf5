"""Ending a measurement that hangs: a kernel whose warps wait for each other never returns, nor can it be stopped."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType

EXIT_CODE = 3


class Watchdog:
    """Ends the process with EXIT_CODE when a `with watchdog("what is running"):` block takes longer than `seconds`.

    `on_hang(what)` is called first, to save what was measured so far.
    """

    def __init__(self, seconds: float, on_hang: Callable[[str], None]) -> None:
        self.seconds = seconds
        self.on_hang = on_hang
        self._what = ""
        self._timer: threading.Timer | None = None

    def __call__(self, what: str) -> Watchdog:
        self._what = what
        return self

    def __enter__(self) -> None:
        self._timer = threading.Timer(self.seconds, self._bite)
        self._timer.daemon = True
        self._timer.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _bite(self) -> None:
        print(f"error: {self._what} has not returned for {self.seconds:.0f} s; giving up", file=sys.stderr, flush=True)
        try:
            self.on_hang(self._what)
        finally:
            os._exit(EXIT_CODE)
