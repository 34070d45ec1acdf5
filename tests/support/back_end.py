"""Triton's back end, asked once for each text in a run of the tests.

Many tests compile the same kernels, and LLVM and ptxas are most of what that takes. What they answered is kept in a
folder of the run, which its processes share, under a digest of all that they are given: text, options, settings, tools.
Only Triton's own steps are kept; everything of wspec runs each time. Refusals are not kept.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import triton
from triton import knobs
from triton.backends.nvidia import compiler
from triton.backends.nvidia.compiler import CUDABackend

from wspec.bridge import backend

_RUN = subprocess.run


def kept_in(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Keep what the back end answers in this folder, for as long as the patch holds."""
    folder.mkdir(exist_ok=True)
    kept = _Kept(folder)
    for name in ("make_llir", "make_ptx"):
        patch.setattr(CUDABackend, name, kept.step(getattr(CUDABackend, name)))
    names = {name: value for name, value in vars(subprocess).items() if not name.startswith("__")}
    patch.setattr(compiler, "subprocess", _Programs(**{**names, "run": kept.run}))
    patch.setattr(backend, "_waited_for", functools.partial(kept.waited_for, backend._waited_for))


class _Programs(SimpleNamespace):
    """The module `subprocess`, with another `run`."""


class _Kept:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._begun: set[str] = set()  # steps that this process has made: the first one sets up LLVM for what follows

    def step(self, function: Callable[..., str]) -> Callable[..., str]:
        """A step of the back end: a text and what it adds to the metadata."""

        @functools.wraps(function)
        def made(own: CUDABackend, source: Any, metadata: dict[str, Any], options: Any, capability: int) -> str:
            def make() -> tuple[str, dict[str, Any]]:
                return function(own, source, metadata, options, capability), dict(metadata)

            mode = getattr(knobs.compilation, "instrumentation_mode", "")
            if getattr(CUDABackend, "instrumentation", None) or mode:
                return function(own, source, metadata, options, capability)
            known = (function.__name__, str(source), sorted(metadata.items()), options, capability, own.target)
            if function.__name__ not in self._begun:
                text, after = make()
                self._begun.add(function.__name__)
            else:
                text, after = self._answer(make, known, _settings())
            metadata.update(after)
            return text

        return made

    def run(self, command: Any, *more: Any, **options: Any) -> Any:
        """`subprocess.run`, where ptxas (`... FILE.ptx -o CUBIN`) may have been run on that text before."""

        def make() -> tuple[subprocess.CompletedProcess[Any], bytes]:
            done = subprocess.run(command, *more, **options)
            return done, out.read_bytes() if done.returncode == 0 else b""

        is_known = isinstance(command, Sequence) and [*command[-2:-1]] == ["-o"] and str(command[-3]).endswith(".ptx")
        if subprocess.run is not _RUN or not is_known:  # a test has its own
            return subprocess.run(command, *more, **options)
        out = Path(command[-1])
        done, cubin = self._answer(make, *_asked(command), options.get("capture_output"))
        if done.returncode == 0 and not out.exists():
            out.write_bytes(cubin)
        return done

    def waited_for(
        self, function: Callable[[Sequence[str]], tuple[int, str]], command: Sequence[str]
    ) -> tuple[int, str]:
        """The same of wspec's own ptxas: its exit code, and what it says."""
        out = Path(command[-1])

        def make() -> tuple[SimpleNamespace, str, bytes]:
            code, log = function(command)
            return SimpleNamespace(returncode=code), log, out.read_bytes() if code == 0 else b""

        done, log, cubin = self._answer(make, "waited for", *_asked(command))
        if done.returncode == 0 and not out.exists():
            out.write_bytes(cubin)
        return done.returncode, log

    def _answer(self, make: Callable[[], Any], *known: object) -> Any:
        place = self.folder / hashlib.sha256(repr((triton.__version__, known)).encode()).hexdigest()
        if place.exists():
            return pickle.loads(place.read_bytes())
        found = make()
        if isinstance(found[0], str) or found[0].returncode == 0:
            mine = place.with_suffix(f".{os.getpid()}")
            mine.write_bytes(pickle.dumps(found))
            mine.replace(place)
        return found


def _asked(command: Sequence[str]) -> list[object]:
    """The text that ptxas is given, how it is asked, and which it is."""
    tool = os.stat(command[0])
    return ["ptxas", Path(command[-3]).read_bytes(), list(command[:-3]), tool.st_mtime_ns, tool.st_size]


def _settings() -> list[object]:
    """Of Triton: what variables and programs say."""
    groups = (knobs.compilation, knobs.nvidia)
    keys = sorted(one.key for group in groups for one in group.knob_descriptors.values())
    return [[os.environ.get(key) for key in keys], [sorted(vars(group).items()) for group in groups]]
