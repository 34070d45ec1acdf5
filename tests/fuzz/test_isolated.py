"""Children that return, raise, crash and hang."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from typing import NoReturn

from tests.fuzz.isolated import Died, Returned, isolated


def test_returns() -> None:
    assert isolated(lambda: {"a": [1, 2]}, 20) == Returned({"a": [1, 2]})
    assert isolated(lambda: b"x" * 1_000_000, 20) == Returned(b"x" * 1_000_000), "more than a pipe holds"


def test_raises() -> None:
    def fail() -> NoReturn:
        raise ValueError("no such thing")

    outcome = isolated(fail, 20)
    assert isinstance(outcome, Died)
    assert outcome.why == "raised an exception"
    assert "ValueError: no such thing" in outcome.output


def test_crashes() -> None:
    def crash() -> None:
        faulthandler.disable()  # pytest's, which would write into its own output
        os.write(2, b"Assertion failed\n")
        os.kill(os.getpid(), signal.SIGSEGV)

    outcome = isolated(crash, 20)
    assert isinstance(outcome, Died)
    assert outcome.why == "died of SIGSEGV"
    assert "Assertion failed" in outcome.output


def test_hangs() -> None:
    start = time.monotonic()
    outcome = isolated(lambda: time.sleep(60), 0.5)
    assert isinstance(outcome, Died)
    assert outcome.why == "took more than 0.5 s"
    assert time.monotonic() - start < 30
