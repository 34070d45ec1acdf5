"""Processes that use the card. A kernel that faults takes its process's CUDA with it, one that hangs the whole process.

`run_all` puts groups of cases into forks, several at a time; `Child` is one process that answers questions, and is
started anew where an answer cost it its life. `run_all`'s parent must not have touched CUDA.
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
from typing import Any, Generic, Literal, TypeVar

import torch

Kind = Literal["right", "wrong", "nan", "hang", "fault", "refused"]
"""fault: CUDA reported an error. refused: it did not compile, or did not start."""

Tell = Callable[[str], None]
"""What a case calls with its TTGIR, or nothing, once its first launch is under way."""
Measure = Callable[[str, int, "Outcome", Tell], None]
"""Does so many launches of a case, and writes what happened into its outcome. Raises what CUDA reports."""
Body = Callable[[list[str], int, Path, Connection], None]
"""What a child does with cases, launches, a log and a place to say ("launched", TTGIR) and ("done", Outcome), or
("last", Outcome) before it ends with cases left: those are another one's."""

START_S = 90.0  # for a child to reach its first launch: CUDA's start, inputs, reference, compiling
KILL_S = 30.0  # for the driver to clear away a process that was killed while its kernel ran
MOST_TOLD = 300  # characters of an error

Q = TypeVar("Q")
A = TypeVar("A")


def told(error: BaseException) -> str:
    """An exception in a line."""
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:MOST_TOLD]


# ------------------------------------------------------------------------------------------ one that answers


@dataclass(frozen=True, slots=True)
class Answered(Generic[A]):
    """What a question came to."""

    value: A


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer. refused: an exception, with which the child lives on. fault: CUDA, or the process, is broken."""

    kind: Literal["hang", "fault", "refused"]
    message: str


class Child(Generic[Q, A]):
    """A process that answers questions one after the other.

    It starts with the first question and, after one that it did not survive or took too long for, with the next.
    `answer` is called in it; its name is what a new process is told, unless `method` is fork.
    """

    def __init__(self, answer: Callable[[Q], A], log: Path, method: str = "forkserver") -> None:
        self._answer, self._log = answer, log
        self._context: Any = multiprocessing.get_context(method)
        if method == "forkserver":  # imports once, for every process
            self._context.set_forkserver_preload([answer.__module__])
        self._process: Any = None
        self._connection: Any = None
        self.started = 0  # processes

    def ask(self, question: Q, seconds: float) -> Answered[A] | Lost:
        """Waits so long, and START_S more for a process that has just started."""
        if self._process is None:
            self._start()
            seconds += START_S
        try:
            self._connection.send(question)
            if not self._connection.poll(seconds):
                self.close()
                return Lost("hang", f"no answer in {seconds:g} s")
            said: Answered[A] | Lost = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(KILL_S)
            said = Lost("fault", f"exit code {self._process.exitcode}")
        if isinstance(said, Lost) and said.kind == "fault":
            self.close()
        return said

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join(KILL_S)
            self._connection.close()
        self._process = None

    def _start(self) -> None:
        self._connection, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(self._answer, self._log, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.started += 1


def _serve(answer: Callable[[Any], Any], log: Path, connection: Connection) -> None:
    """Answer questions for as long as there are any and CUDA is well."""
    _write_to(log, "a")
    torch.set_num_threads(1)
    while True:
        try:
            question = connection.recv()
        except EOFError:  # whoever asked is gone
            os._exit(0)
        said: Answered[Any] | Lost
        try:
            said = Answered(answer(question))
        except Exception as error:
            print(f"{question}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            said = Lost("refused" if cuda_is_well() else "fault", told(error))
        connection.send(said)
        if isinstance(said, Lost) and said.kind == "fault":
            os._exit(1)


def start_cuda() -> None:
    torch.empty(1, device="cuda")


def cuda_is_well() -> bool:
    """Can this process go on? After an error in a kernel it cannot."""
    try:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except Exception:
        return False
    return True


# ------------------------------------------------------------------------------------------ many cases


@dataclass(slots=True)
class Outcome:
    """What the card did in `launches` launches; `wrong` and `nan` count launches, `worst` is in tolerances."""

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
class _Running:
    """A process with cases, and what is known of it."""

    process: Any
    connection: Connection
    todo: list[str]
    deadline: float
    launched: bool = False
    silent: bool = False  # it has said all it will say
    last: bool = False  # and said so
    ttgir: str = ""
    started: float = 0.0


def run_all(
    groups: Iterable[list[str]], launches: int, timeout_s: float, jobs: int, folder: Path, body: Body
) -> Iterator[Outcome]:
    """Each group of cases in a child of its own, `jobs` at a time; what a child leaves undone another goes on with.

    `folder` gets the children's output. A case hangs when `timeout_s` pass between its first launch and its last.
    """
    waiting = [list(group) for group in groups]
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(waiting.pop(0), launches, folder, body))
            ready = wait([child.connection for child in running], timeout=0.2)
            for child in list(running):
                if child.connection in ready:
                    yield from _receive(child, timeout_s)
                if child.todo and time.monotonic() > child.deadline:
                    child.process.kill()
                    yield _lost(child, "hang" if child.launched else "refused", "no answer")
                elif not child.silent:
                    continue
                elif child.todo and not child.last:
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


def each(measure: Measure, names: list[str], launches: int, log: Path, connection: Connection) -> None:
    """A `Body`, given what measures a case: one after the other; ends the process at the first that raises."""
    _write_to(log, "w")
    start_cuda()
    for name in names:
        outcome = Outcome(name)
        try:
            measure(name, launches, outcome, lambda ttgir: connection.send(("launched", ttgir)))
        except BaseException as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            outcome.kind = "fault" if outcome.launches else "refused"
            outcome.message = told(error)
            connection.send(("last", outcome))
            os._exit(1)  # after a CUDA error this process can do no more
        connection.send(("done", outcome))
    connection.close()
    os._exit(0)


def _write_to(log: Path, mode: str) -> None:
    """Whatever this process prints, C++ included."""
    with log.open(mode) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _start(names: list[str], launches: int, folder: Path, body: Body) -> _Running:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    log = folder / f"{names[0].replace('/', '.')}.log"
    process = context.Process(target=body, args=(names, launches, log, theirs), daemon=True)
    process.start()
    theirs.close()
    now = time.monotonic()
    return _Running(process, ours, list(names), now + START_S, started=now)


def _receive(child: _Running, timeout_s: float) -> Iterator[Outcome]:
    try:
        while child.connection.poll():
            what, value = child.connection.recv()
            if what == "launched":
                child.launched, child.ttgir = True, value
                child.deadline = time.monotonic() + timeout_s
            else:
                outcome: Outcome = value
                child.last = what == "last"
                outcome.ttgir, outcome.seconds = child.ttgir, time.monotonic() - child.started
                child.todo.remove(outcome.name)
                child.launched, child.ttgir, child.started = False, "", time.monotonic()
                child.deadline = time.monotonic() + START_S
                yield outcome
    except (EOFError, ConnectionResetError):
        child.silent = True


def _lost(child: _Running, kind: Kind, message: str) -> Outcome:
    """The outcome of the case a child did not answer for."""
    name = child.todo.pop(0)
    return Outcome(name, kind, ttgir=child.ttgir, seconds=time.monotonic() - child.started, message=message)
