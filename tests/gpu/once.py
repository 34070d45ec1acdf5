"""What the workers of one run of pytest need once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest


def folder_of_run(config: pytest.Config, factory: pytest.TempPathFactory) -> Path:
    """One that all workers of the run have, and no other run."""
    own = factory.getbasetemp()
    return own.parent if hasattr(config, "workerinput") else own


def once(folder: Path, work: Callable[[], None], patience_s: float = 900.0) -> None:
    """Work in the first process that asks; the others wait until it is over, however it ended. Raises TimeoutError."""
    done = folder / "done"
    try:
        os.close(os.open(folder / "begun", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        end = time.monotonic() + patience_s
        while not done.exists():
            if time.monotonic() > end:
                raise TimeoutError(f"another worker has not ended within {patience_s:.0f} s") from None
            time.sleep(0.1)
        return
    try:
        work()
    finally:
        done.touch()
