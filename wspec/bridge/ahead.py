"""Compiling the configurations of an autotuner side by side, before it launches the first of them.

What takes long (planning, LLVM, ptxas, reading the binary, the proof) needs a kernel's TTGIR and no more of the user's
program: text is made here and handed to processes (worker.py), which store what they make in the cache that a launch
looks into. A launch waits for the kernel it needs. Whatever goes wrong there, the launch compiles for itself.

An autotuner around a kernel of ours (`@triton.autotune` over `@wspec.compile`) is Triton's own and says nothing of what
it will launch: its configurations are compiled one after the other.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wspec.bridge import cache
from wspec.bridge.files import elsewhere
from wspec.bridge.frontend import KernelSource, from_arguments, lower
from wspec.bridge.launch import current_target, fill_in, innermost, with_configuration
from wspec.bridge.obtaining import not_asked
from wspec.bridge.proof import Checker
from wspec.options import Options

if TYPE_CHECKING:
    from wspec.bridge.compile import Compiler

_PRODUCTS = ("tt.dot", "ttng.warp_group_dot")  # a kernel without any is declined before a process has started
COMPILER = ("wspec.bridge.compile", "wspec.pipeline", "wspec.planner.launch_ways", "wspec.check")
"""Imported once, before the processes fork, with the modules of compiler and checker."""


class CompilesAhead:
    """Mixed into an Autotuner: what is left after pruning is compiled side by side before the first is launched."""

    wspec: Any
    nargs: Mapping[str, Any]

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Any]:
        """The Autotuner's own, which says what will be launched."""
        parent: Any = super()
        configs: list[Any] = parent.prune_configs(kwargs)
        with contextlib.suppress(Exception):  # a launch finds out by itself what is wrong
            self.wspec.compile_ahead(_sources(self, configs, kwargs))
        return configs


def _sources(autotuner: Any, configs: Sequence[Any], kwargs: Mapping[str, Any]) -> list[KernelSource]:
    """What launches of these configurations would compile, as far as that can be told without launching."""
    fn, target, found = innermost(autotuner), current_target(), []
    for config in configs:
        with contextlib.suppress(Exception):
            args, filled = with_configuration(autotuner, config, tuple(autotuner.nargs.values()), kwargs)
            args, filled = fill_in(autotuner.fn, args, filled)
            found.append(from_arguments(fn, args, filled, target))
    return found


def compile_ahead(
    sources: Iterable[KernelSource], options: Options, compiler: Compiler, checker: Checker, plan: str
) -> int:
    """Have those that are not in the cache compiled by other processes; how many will be. Does not wait for them.

    What is equal once it is TTGIR is compiled once. The first one is left to the launch, which compiles it while the
    processes start.
    """
    jobs = len(os.sched_getaffinity(0)) if options.compile_jobs is None else options.compile_jobs
    if jobs < 2 or not cache.may_reuse(options) or not cache.is_on_disk():
        return 0
    missing = _missing(sources, options, plan)
    pool = _Workers(jobs, [compiler, checker])
    with pool:
        for key, source in missing.items() if len(missing) > 1 else ():
            ttir, text = lower(source)
            if not any(product in text for product in _PRODUCTS):
                continue
            share = cache.share(source, text, options, plan)
            if not cache.remember(share, key):
                continue
            if not pool.started:
                pool.start()
            else:
                from wspec.bridge.compile import compile_lowered

                request = elsewhere(source), ttir, text, options, compiler, checker, key
                pool.ask(key, pickle.dumps((compile_lowered, request)))
                cache.note_stored(source, options, plan)  # which takes a source that was not sent elsewhere
    return len(pool.asked)


def _missing(sources: Iterable[KernelSource], options: Options, plan: str) -> dict[str, KernelSource]:
    """Those that a launch would have to compile, by their keys."""
    found = {}
    for source in sources:
        key = cache.key(source, options, plan)
        if not_asked(source, options) is None and not cache.is_expected(key) and cache.load(key, source) is None:
            found[key] = source
    return found


class _Workers:
    """The processes of one autotuning. They end when they have answered all.

    No request is added after the block that this is the manager of.
    """

    def __init__(self, jobs: int, functions: Sequence[Callable[..., Any]]) -> None:
        self._jobs, self._functions = jobs, functions
        self._folder = tempfile.TemporaryDirectory(prefix="wspec-")
        self._process: subprocess.Popen[bytes] | None = None
        self.asked: dict[str, threading.Event] = {}
        """The path of a request -> set when it is answered, or never will be."""

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            self._folder.cleanup()
            return
        self._write(b"\n")
        threading.Thread(target=self._listen, args=(self._process,), name="wspec-ahead", daemon=True).start()

    def ask(self, key: str, request: bytes) -> None:
        """Have the request answered, which stores a kernel under `key`."""
        path = Path(self._folder.name, key)
        path.write_bytes(request)
        self.asked[str(path)] = event = threading.Event()
        cache.expect(key, event)
        self._write(str(path).encode() + b"\n")

    @property
    def started(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Begin to import the compiler there."""
        modules = dict.fromkeys((*COMPILER, *(one.__module__ for one in self._functions)))
        command = [sys.executable, "-m", "wspec.bridge.worker", str(self._jobs), *modules]
        paths = os.pathsep.join(filter(None, sys.path))
        environment = {**os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": ""}
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=quiet)

    def _write(self, line: bytes) -> None:
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead, and the listener will hear of it
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                self.asked[line.decode().rstrip("\n")].set()
        finally:
            for event in self.asked.values():
                event.set()
            with contextlib.suppress(BrokenPipeError), process:
                self._folder.cleanup()
