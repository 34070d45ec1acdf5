"""A run: kernels by their numbers, in one worker process or several, each kernel in a child of its own."""

from __future__ import annotations

import gc
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.fuzz.report import Report
from tests.fuzz.trial import Limits, Trial, try_number

NUMBERS = 1_000_000  # kernels of one seed
_fork = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: so many kernels of a seed, or as many as fit into a time."""

    seed: int = 0
    count: int = 100
    seconds: float = float("inf")
    jobs: int = 1
    keep: Path | None = None  # a folder for the cases that fail
    limits: Limits = field(default_factory=Limits)
    open: frozenset[str] = frozenset()  # signatures that are no news


def number_of(seed: int, index: int) -> int:
    """The number of the kernel of that index in a run with that seed."""
    return seed * NUMBERS + index


@dataclass(slots=True)
class _Worker:
    """A process that is sent numbers and sends trials back."""

    process: BaseProcess
    pipe: Connection
    number: int | None = None  # what it is at


def run(plan: Plan, seen: Callable[[Report], None] = lambda report: None) -> Report:
    """Try the kernels of the plan; `seen` is told after each. Numbers in flight when time is up are given up."""
    report, start = Report(plan.seed, open=plan.open), time.monotonic()
    numbers = iter(number_of(plan.seed, index) for index in range(plan.count))
    # What workers have started may still write there when time is up.
    with tempfile.TemporaryDirectory(prefix="wspec-fuzz-", ignore_cleanup_errors=True) as folder:
        workers = [_started(Path(folder), plan.limits) for _ in range(plan.jobs)]
        for worker in workers:
            _send(worker, numbers, report)
        try:
            while any(worker.number is not None for worker in workers):
                left = plan.seconds - (time.monotonic() - start)
                ready = wait([w.pipe for w in workers if w.number is not None], None if left > 1e6 else max(left, 0.0))
                if not ready:
                    break
                for index, worker in enumerate(workers):
                    if worker.pipe in ready:
                        workers[index] = _received(worker, Path(folder), plan, numbers, report)
                        report.seconds = time.monotonic() - start
                        seen(report)
        finally:
            for worker in workers:
                _end(worker)
    report.seconds = time.monotonic() - start
    return report


def _received(worker: _Worker, folder: Path, plan: Plan, numbers: Iterator[int], report: Report) -> _Worker:
    """Take what a worker has sent and give it more to do. A worker that died is replaced."""
    try:
        trial: Trial = worker.pipe.recv()
        report.add(trial, plan.keep)
    except EOFError:
        report.totals["workers died"] += 1
        _end(worker)
        worker = _started(folder, plan.limits)
    _send(worker, numbers, report)
    return worker


def _send(worker: _Worker, numbers: Iterator[int], report: Report) -> None:
    worker.number = next(numbers, None)
    if worker.number is not None:
        worker.pipe.send((worker.number, report.known))


def _started(folder: Path, limits: Limits) -> _Worker:
    ours, theirs = _fork.Pipe()
    process = _fork.Process(target=_work, args=(theirs, folder, limits), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _work(pipe: Connection, folder: Path, limits: Limits) -> None:
    """The life of a worker. What it has imported its children need not, nor look for garbage in it."""
    from wspec.bridge import backend, frontend  # noqa: F401

    gc.collect()
    gc.freeze()
    while True:
        try:
            number, known = pipe.recv()
        except EOFError:
            return
        pipe.send(try_number(number, folder, known, limits))


def _end(worker: _Worker) -> None:
    """Close the pipe, which ends an idle worker; one that is at work is killed, with its child when that writes."""
    worker.pipe.close()
    worker.process.terminate()
    worker.process.join()
