"""One worker works, and the others wait for it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.gpu.once import once


def test_the_first_works_and_the_others_wait(tmp_path: Path) -> None:
    over: list[float] = []

    def work() -> None:
        time.sleep(0.3)
        over.append(time.monotonic())

    def ask(_: int) -> float:
        once(tmp_path, work)
        return time.monotonic()

    with ThreadPoolExecutor(4) as pool:
        returned = list(pool.map(ask, range(4)))
    assert len(over) == 1 and min(returned) >= over[0]


def test_nobody_waits_for_work_that_failed(tmp_path: Path) -> None:
    def work() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        once(tmp_path, work)
    once(tmp_path, work)


def test_nobody_waits_for_ever(tmp_path: Path) -> None:
    (tmp_path / "begun").touch()
    with pytest.raises(TimeoutError):
        once(tmp_path, lambda: None, patience_s=0.2)
