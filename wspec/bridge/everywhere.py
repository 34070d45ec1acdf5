"""Triton kernels that nobody decorated: while a switch is on, their launches go to copies that compile through wspec.

Only `run` of Triton's three kinds of kernel objects is replaced, in which every form of a launch ends, and only while
a switch is on. The copy of a kernel has caches and a cache key of its own, so that what was compiled with the
switch on is never found with it off, nor the other way round.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

from wspec.bridge.launch import Autotuner, Heuristics, JITFunction, WspecFunction, innermost, is_wrapper

Copy = Callable[[Any], Any]  # of a kernel: one that compiles through wspec, or None where it stays as it is

_KINDS: tuple[Any, ...] = (JITFunction, Autotuner, Heuristics)
_RESULTS = ("best_config", "bench_time", "configs_timings")  # what an Autotuner leaves behind for its owner to read
COPIES = "_wspec_copies"
OWN = "wspec_own"
"""What a kernel has that is wspec's own, part of launching others: it is launched by Triton, and not told of."""

_replaced: dict[Any, tuple[Callable[..., Any], Callable[..., Any]]] = {}  # what was there, and what is there now
_switches: list[Switch] = []
_lock = threading.Lock()


class Switch:
    """Launches go through `copy` of their kernel from `on` to `off`; of several that are on, the last one counts."""

    def __init__(self, copy: Copy, launched: Callable[[Any], None], key: Hashable) -> None:
        """`launched` hears of each launch, by the kernel as its owner has it. Switches of equal `key` make the same
        copies: a kernel keeps the one that it has, with all that was compiled, tuned and tried."""
        self._copy, self._launched, self._key = copy, launched, key

    def on(self) -> None:
        with _lock:
            if not _switches:
                for kind in (kind for kind in _KINDS if hasattr(kind, "run")):
                    original, kind.run = kind.run, _routed(kind.run)
                    _replaced[kind] = original, kind.run
            _switches.append(self)

    def off(self) -> None:
        with _lock:
            if self not in _switches:
                return
            _switches.remove(self)
            if not _switches:
                for kind, (original, ours) in _replaced.items():
                    if kind.run is ours:  # else somebody has put something over it meanwhile, or in its place
                        kind.run = original
                _replaced.clear()

    def launch(self, kernel: Any, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the launch returns, run by the kernel's copy where it has one."""
        copies = kernel.__dict__.setdefault(COPIES, {})
        if self._key not in copies:
            copies[self._key] = self._copy(kernel)
        copy = copies[self._key]
        if not kwargs.get("warmup", False):
            self._launched(kernel)
        if copy is None:
            return original(kernel, *args, **kwargs)
        returned = copy.run(*args, **kwargs)
        if is_wrapper(kernel):
            kernel.__dict__.update({name: copy.__dict__[name] for name in _RESULTS if name in copy.__dict__})
        return returned


def _routed(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        kernel = innermost(self)
        if not _switches or isinstance(kernel, WspecFunction) or getattr(kernel, OWN, False):
            return original(self, *args, **kwargs)
        return _switches[-1].launch(self, original, args, kwargs)

    return run
