"""A function in a child process: what it returns, or that it crashed or took too long."""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
TAIL = 4000  # characters of what a child wrote before it died


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    """The function came to its end."""

    value: T


@dataclass(frozen=True, slots=True)
class Died:
    """It did not: `why` in one line, and what the process wrote last."""

    why: str
    output: str


def isolated(function: Callable[[], T], seconds: float) -> Returned[T] | Died:
    """Run the function in a fork of this process, which must have no other threads.

    The value comes back pickled. A crash of native code, an exception and a time-out all come back as `Died`.
    """
    reading, writing = os.pipe()
    with tempfile.TemporaryFile("w+b") as log:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _run(function, writing, log.fileno())
        os.close(writing)
        try:
            data, late = _read(reading, time.monotonic() + seconds)
            if late:
                os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
        finally:
            os.close(reading)
        return _outcome(data, late, status, seconds, _tail(log.fileno()))


def _run(function: Callable[[], T], writing: int, log: int) -> None:
    """The child's whole life."""
    code = 1
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        data = pickle.dumps(function())
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(data)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _read(reading: int, deadline: float) -> tuple[bytes, bool]:
    """(what came until the other end was closed, whether it took too long)."""
    parts: list[bytes] = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            return b"".join(parts), True
        part = os.read(reading, 1 << 16)
        if not part:
            return b"".join(parts), False
        parts.append(part)


def _outcome(data: bytes, late: bool, status: int, seconds: float, output: str) -> Returned[T] | Died:
    if late:
        return Died(f"took more than {seconds:g} s", output)
    if os.WIFSIGNALED(status):
        return Died(f"died of {signal.Signals(os.WTERMSIG(status)).name}", output)
    if os.WEXITSTATUS(status) != 0:
        return Died("raised an exception", output)
    return Returned(pickle.loads(data))


def _tail(log: int) -> str:
    size = os.fstat(log).st_size
    return os.pread(log, TAIL, max(0, size - TAIL)).decode(errors="replace")
