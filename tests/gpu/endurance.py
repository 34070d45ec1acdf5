"""Thousands of launches of one compiled kernel with other sizes each time: none may hang, none may leave a NaN."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tests.gpu.subjects import Pool, Problem, Subject
from wspec.lab.bench.accuracy import Error
from wspec.lab.bench.watchdog import Watchdog

LIMIT = 1024  # of a sequence, and of M, N and K
BATCH = 100  # launches between two waits for the card
HANG_S = 30.0
RELATIVE = 1e-2  # ||out - expected|| / ||expected||: rounding to bfloat16 gives 3e-3


@dataclass(slots=True)
class Endured:
    """What came of a subject; `bad` are the sizes whose numbers were wrong, with how."""

    name: str
    launches: int = 0
    compared: int = 0
    worst: float = 0.0
    seconds: float = 0.0
    bad: tuple[str, ...] = ()

    @property
    def fine(self) -> bool:
        return not self.bad

    def __str__(self) -> str:
        verdict = "fine" if self.fine else f"{len(self.bad)} BAD: {'; '.join(self.bad[:3])}"
        counts = f"{self.launches} launches, {self.compared} compared, worst relative error {self.worst:.1e}"
        return f"{self.name}: {counts}, {self.seconds:.0f} s: {verdict}"


def endure(
    subject: Subject, launches: int, pool: Pool, on_hang: Callable[[str], None], compare_every: int = 100
) -> Endured:
    """Launch a subject `launches` times, sizes drawn anew each time; every `compare_every`-th result is compared, and
    launched again for the same bits. The others must only be finite. `on_hang` is called before the process is ended.
    """
    found, draw, bad = Endured(subject.name), random.Random(subject.name), list[str]()
    start, watchdog = time.monotonic(), Watchdog(HANG_S, on_hang)
    with Watchdog(10 * HANG_S, on_hang)(f"{subject.name}, its first launch"):
        subject.draw(pool, random.Random(0), LIMIT).run()  # compiles
        torch.cuda.synchronize()
    while found.launches < launches:
        with watchdog(f"{subject.name} after {found.launches} launches"):
            last, finite = _some(subject, min(BATCH, launches - found.launches), pool, draw)
            found.launches += min(BATCH, launches - found.launches)
            torch.cuda.synchronize()
            if not bool(finite):
                bad.append(f"not finite, in one of the {BATCH} launches before {found.launches}")
            if found.launches % compare_every == 0 or found.launches == launches:
                found.compared += 1
                found.worst = max(found.worst, compare(last, bad))
    found.bad, found.seconds = tuple(bad), time.monotonic() - start
    return found


def _some(subject: Subject, count: int, pool: Pool, draw: random.Random) -> tuple[Problem, torch.Tensor]:
    """Launch `count` problems without waiting: the last one, and whether all results are finite."""
    finite = torch.ones((), dtype=torch.bool, device="cuda")
    for _ in range(count):
        problem = subject.draw(pool, draw, LIMIT)
        problem.out.fill_(torch.nan)
        problem.run()
        finite &= problem.out.isfinite().all()
    return problem, finite


def compare(problem: Problem, bad: list[str], device: str = "cuda") -> float:
    """The relative error of a launched problem; what is wrong goes into `bad`."""
    error = Error.of(problem.out, problem.expected(device)).relative
    if not error < RELATIVE:
        bad.append(f"{problem.sizes}: relative error {error:.1e}")
    before = problem.out.clone()
    problem.out.fill_(torch.nan)
    problem.run()
    if not torch.equal(before, problem.out):
        bad.append(f"{problem.sizes}: other numbers the second time")
    return error
