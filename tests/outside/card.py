"""What a GPU makes of the cases. A case runs in a child process, since a kernel that hangs takes its process with it.

The parent must not have touched CUDA: children are forked, with torch and Triton already imported.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

import torch
import triton
from torch import Tensor

from tests.outside.cases import CASES
from tests.outside.launch import Launch
from tests.outside.poison import poison
from wspec.lab.bench.environment import NoGpu, require_hopper

Kind = Literal["right", "wrong", "nan", "hang", "fault", "refused"]
"""fault: CUDA reported an error. refused: it did not compile, or did not start."""

Body = Callable[[list[str], int, Path, Connection], None]
"""What a child does with cases, launches, a log and a place to say ("launched", TTGIR) and ("done", Outcome)."""

START_S = 90.0  # for a child to reach its first launch: CUDA's start, inputs, reference, compiling
KILL_S = 30.0  # for the driver to clear away a process that was killed while its kernel ran
TOLERANCE = 0.04  # of the root mean square of a row: several times what rounding to bfloat16 does
POISON_ROWS = 110  # 220 KiB


@dataclass(slots=True)
class Outcome:
    """What the card did in `launches` launches; `wrong` and `nan` count launches, `worst` is in units of TOLERANCE."""

    name: str
    kind: Kind = "refused"
    launches: int = 0
    wrong: int = 0
    nan: int = 0
    worst: float = 0.0
    seconds: float = 0.0
    message: str = ""
    ttgir: str = ""  # the text that ran


@dataclass(slots=True)
class _Child:
    """A running process and what is known of it."""

    process: Any
    connection: Connection
    todo: list[str]
    deadline: float
    launched: bool = False
    silent: bool = False  # it has said all it will say
    ttgir: str = ""
    started: float = 0.0


def run_all(
    groups: Iterable[list[str]], launches: int, timeout_s: float, jobs: int, folder: Path, body: Body | None = None
) -> Iterator[Outcome]:
    """Each group of cases in a child of its own, `jobs` at a time; what a child leaves undone another goes on with.

    `folder` gets the children's output. A case hangs when `timeout_s` pass between its first launch and its last.
    """
    waiting = [list(group) for group in groups]
    running: list[_Child] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(waiting.pop(0), launches, folder, body or in_child))
            ready = wait([child.connection for child in running], timeout=0.2)
            for child in list(running):
                if child.connection in ready:
                    yield from _receive(child, timeout_s)
                if child.todo and time.monotonic() > child.deadline:
                    child.process.kill()
                    yield _lost(child, "hang" if child.launched else "refused", "no answer")
                elif not child.silent:
                    continue
                elif child.todo:
                    child.process.join(KILL_S)
                    yield _lost(child, "fault" if child.launched else "refused", f"exit code {child.process.exitcode}")
                running.remove(child)
                child.process.join(KILL_S)
                child.connection.close()
                if child.todo:
                    waiting.insert(0, child.todo)
    finally:  # whoever asked may have had enough
        for child in running:
            child.process.kill()


def _start(names: list[str], launches: int, folder: Path, body: Body) -> _Child:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    log = folder / f"{names[0].replace('/', '.')}.log"
    process = context.Process(target=body, args=(names, launches, log, theirs), daemon=True)
    process.start()
    theirs.close()
    now = time.monotonic()
    return _Child(process, ours, list(names), now + START_S, started=now)


def _receive(child: _Child, timeout_s: float) -> Iterator[Outcome]:
    try:
        while child.connection.poll():
            what, value = child.connection.recv()
            if what == "launched":
                child.launched, child.ttgir = True, value
                child.deadline = time.monotonic() + timeout_s
            else:
                outcome: Outcome = value
                outcome.ttgir, outcome.seconds = child.ttgir, time.monotonic() - child.started
                child.todo.remove(outcome.name)
                child.launched, child.ttgir, child.started = False, "", time.monotonic()
                child.deadline = time.monotonic() + START_S
                yield outcome
    except (EOFError, ConnectionResetError):
        child.silent = True


def _lost(child: _Child, kind: Kind, message: str) -> Outcome:
    """The outcome of the case a child did not answer for."""
    name = child.todo.pop(0)
    return Outcome(name, kind, ttgir=child.ttgir, seconds=time.monotonic() - child.started, message=message)


# ------------------------------------------------------------------------------------------ in the child


def in_child(names: list[str], launches: int, log: Path, connection: Connection) -> None:
    """Run the cases one after the other; ends the process at the first that CUDA or the compiler refuses."""
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    torch.empty(1, device="cuda")  # starts CUDA
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    for name in names:
        outcome = Outcome(name)
        try:
            measure(CASES[name].make("cuda"), launches, outcome, connection)
        except BaseException as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            outcome.kind = "fault" if outcome.launches else "refused"
            outcome.message = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
            connection.send(("done", outcome))
            os._exit(1)  # after a CUDA error this process can do no more
        connection.send(("done", outcome))
    connection.close()
    os._exit(0)


def probe() -> str:
    """Why there is no Hopper GPU here, asked in a child; empty when there is one."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_probe, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        answer = str(ours.recv()) if ours.poll(START_S) else "CUDA does not answer"
    except EOFError:
        answer = "the process that asked CUDA died"
    process.kill()
    return answer


def _probe(connection: Connection) -> None:
    try:
        require_hopper()
    except NoGpu as error:
        connection.send(str(error))
    else:
        connection.send("")


def measure(launch: Launch, launches: int, outcome: Outcome, connection: Connection) -> None:
    """Launch and compare, over and over, and write what happened into `outcome`. Raises what CUDA reports."""
    expected = launch.expected()
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    worst = torch.zeros((), device="cuda")
    for count in range(launches):
        poison[(blocks,)](POISON_ROWS, num_warps=4)
        launch.out.fill_(torch.nan)
        torch.cuda.synchronize()
        kernel = launch.run()
        outcome.launches = count + 1
        if count == 0:
            connection.send(("launched", kernel.asm["ttgir"]))
        torch.cuda.synchronize()
        distance = rows_apart(launch.out, expected)
        outcome.nan += bool(distance.isnan().any())
        outcome.wrong += bool((distance > TOLERANCE).any())
        worst = torch.maximum(worst, distance.nan_to_num(0.0, torch.inf).max())
    outcome.worst = float(worst) / TOLERANCE
    outcome.kind = "nan" if outcome.nan else "wrong" if outcome.wrong else "right"


def rows_apart(out: Tensor, expected: Tensor) -> Tensor:
    """The largest difference in each row, over the root mean square of the expected row; NaN where `out` has a NaN."""
    scale = expected.square().mean(-1).sqrt()
    return (out.float() - expected).abs().amax(-1) / scale
