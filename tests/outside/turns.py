"""Three turns of everything: without wspec and with it, side by side, and behind both without it once more.

The last one meets the caches that the first two have filled.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

TURNS = ("before", "with", "after")
R = TypeVar("R")


class Turns(ABC, Generic[R]):
    """All that is under way; `rows` are those that are done. `given` has `json`, the file that they are written to."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.start = given, time.monotonic()
        self.rows: list[R] = []
        self._lock = threading.Lock()
        self._open: dict[str, tuple[R, list[str]]] = {}  # and which turns are over

    def turn(self, name: str, turn: str) -> None:
        """ "before" or "with"; whoever is second of the two goes on with "after", and judges."""
        with self._lock:
            row, over = self._open.setdefault(name, (self.begun(name), []))
        self.process(row, turn)
        with self._lock:
            over.append(turn)
            if len(over) < 2:
                return
        if self.goes_on(row):
            self.process(row, "after")
        with self._lock:
            self.judge(row)
            self.rows.append(row)
            print(f"[{time.monotonic() - self.start:4.0f} s] {self.told(row)}", flush=True)
            if self.given.json is not None:
                self.given.json.write_text(json.dumps([self.written(one) for one in self.rows], indent=0))

    def goes_on(self, row: R) -> bool:
        """Is there an "after"?"""
        return True

    @abstractmethod
    def begun(self, name: str) -> R:
        """What nothing is known of yet."""

    @abstractmethod
    def process(self, row: R, turn: str) -> None:
        """Run it in a process, and note how that ended."""

    @abstractmethod
    def judge(self, row: R) -> None:
        """Compare what the turns left behind."""

    @abstractmethod
    def told(self, row: R) -> str:
        """In a line."""

    @abstractmethod
    def written(self, row: R) -> dict[str, Any]:
        """For the file."""
