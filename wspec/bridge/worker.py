"""The process that compiles ahead: `python -m wspec.bridge.worker JOBS MODULES`, started by ahead.py.

It imports the compiler once, before anything asks for it, and forks for every request; it never runs a pass itself and
never sees the GPU, so a fork is safe, and what libtriton does to a fork costs that request alone.

A line on standard input is the path of a request: a pickled function with its arguments. A line on standard output is
the path of one that is done, whatever came of it. An empty line says that no more will come. Where the input ends
without it the program is gone: what is being compiled is given up.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import select
import signal
import sys
from collections import deque
from collections.abc import Iterable
from pathlib import Path


def main(jobs: int, modules: Iterable[str]) -> None:
    """Serve until there is nothing more to do."""
    for name in modules:
        importlib.import_module(name)
    waiting: deque[str] = deque()
    running: dict[int, tuple[str, int]] = {}  # the end of a pipe that its fork holds -> request, process
    more, rest = True, b""
    while more or waiting or running:
        while waiting and len(running) < jobs:
            _start(waiting.popleft(), running)
        ready, _, _ = select.select([*([0] if more else []), *running], [], [])
        for end in ready:
            if end:
                _ended(*running.pop(end), end)
                continue
            read = os.read(0, 1 << 16)
            if not read:
                _give_up(running)
                return
            *lines, rest = (rest + read).split(b"\n")
            waiting += [line.decode() for line in lines if line]
            more = b"" not in lines


def _start(path: str, running: dict[int, tuple[str, int]]) -> None:
    end, held = os.pipe()
    process = os.fork()
    if process == 0:
        _serve(path)
    os.close(held)
    running[end] = path, process


def _serve(path: str) -> None:
    """In the fork; never returns. The answer lies where the function puts it."""
    try:
        silent = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silent, descriptor)
        function, arguments = pickle.loads(Path(path).read_bytes())
        function(*arguments)
    finally:
        os._exit(0)  # no clean-up of what belongs to the process above


def _ended(path: str, process: int, end: int) -> None:
    os.close(end)
    os.waitpid(process, 0)
    os.write(1, path.encode() + b"\n")


def _give_up(running: dict[int, tuple[str, int]]) -> None:
    for _, process in running.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
