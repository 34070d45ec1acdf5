"""Running a wrong input in a process of its own, under limits, and judging how it ended."""

from __future__ import annotations

import gc
import os
import re
import resource
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.wrong.draw import HERE, KERNEL, Case, Good

SECONDS = 10  # of the processor
MEMORY = 2 << 30  # bytes of data
_PATIENCE_S = 60.0  # of the clock: the machine may have other work
_ERROR = re.compile(r"(error|\S+:\d+:\d+: error): ")
_MOST_LINES = 40


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    case: Case
    code: int  # negative: the signal that ended it
    out: str
    err: str
    seconds: float  # of the processor
    memory: int  # bytes that were resident at most, beyond those of the process it was forked from

    @property
    def wrong(self) -> str:
        """What is not as it must be; "" where one clear error was said and the exit code is 2."""
        errors = [line for line in self.err.splitlines() if _ERROR.match(line)]
        if self.code < 0:
            return f"ended by {signal.Signals(-self.code).name}"
        if self.code != 2:
            return f"exit code {self.code}"
        if len(errors) != 1:
            return f"{len(errors)} errors"
        if "internal error" in self.err or "Traceback" in self.err:
            return "an internal error"
        if len((self.err + self.out).splitlines()) > _MOST_LINES:
            return f"{len((self.err + self.out).splitlines())} lines"
        return ""


def good() -> Good:
    """The sample's plan and module. Imports the compiler, which the processes that are forked then have."""
    texts = []
    for arguments in (("plan", KERNEL, "--toml"), ("dump", KERNEL, "--stage", "ttgir")):
        said = run(Case("good", arguments))
        assert said.code == 0, said.err
        texts.append(said.out)
    return Good(*texts)


def warm() -> None:
    """Import what the commands import, so that each need not, nor look for garbage in it; no thread is started."""
    import wspec.api
    import wspec.cli.compile_command
    import wspec.cli.run_command
    import wspec.cli.trace_command
    import wspec.lab.search
    import wspec.proof
    import wspec.verdict  # noqa: F401
    from wspec.bridge import backend, compile, persistent  # noqa: F401

    gc.collect()
    gc.freeze()


def run(case: Case) -> Ended:
    """In a fork, in a folder with the sample and the case's files."""
    with tempfile.TemporaryDirectory(prefix="wrong-") as name:
        folder = Path(name)
        for file in ("sample.py", "sample.toml"):
            folder.joinpath(file).write_bytes((HERE / file).read_bytes())
        for file, data in case.files.items():
            folder.joinpath(file).write_bytes(data)
        out, err = folder / ".out", folder / ".err"
        sys.stdout.flush()
        sys.stderr.flush()
        begun = time.monotonic()
        child = os.fork()
        if child == 0:
            _work(case, folder, out, err)
        status, usage = _ended(child, begun)
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        said = (file.read_text(errors="replace") if file.is_file() else "" for file in (out, err))
        return Ended(case, code, *said, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def _ended(child: int, begun: float) -> tuple[int, resource.struct_rusage]:
    while True:
        found, status, usage = os.wait4(child, os.WNOHANG)
        if found:
            return status, usage
        if time.monotonic() - begun > _PATIENCE_S:
            os.kill(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
            return status, usage
        time.sleep(0.01)


def _work(case: Case, folder: Path, out: Path, err: Path) -> None:
    """The child's whole life."""
    code = 70
    try:
        for file, stream in ((out, 1), (err, 2)):
            opened = os.open(file, os.O_WRONLY | os.O_CREAT)
            os.dup2(opened, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
        os.chdir(folder)
        os.environ.update(case.env)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        if case.cold:
            paths = os.pathsep.join((str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")))
            command = [sys.executable, "-m", "wspec.cli", *case.arguments]
            os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": paths})
        from wspec.cli import main

        code = main(list(case.arguments))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
