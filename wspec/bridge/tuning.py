"""tune=N: the first launch of a kernel times the best plans on its own arguments, and the fastest one is kept.

What is timed runs on copies of the memory that it writes. A choice holds for launches like the one that was measured:
same compiled kernel, same device, grid and integers within a power of two. It is stored in Triton's cache.
"""

from __future__ import annotations

import json
import statistics
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from wspec.bridge.cache import sha256
from wspec.bridge.cloned_arguments import CannotCopy, copied
from wspec.bridge.launch import around
from wspec.bridge.launcher import keep
from wspec.bridge.recording import recording
from wspec.bridge.versions.internals import internal

get_cache_manager = internal("triton.runtime.cache", "get_cache_manager")

ROUNDS, WINDOW_MS, MOST_LAUNCHES = 7, 2.0, 200
TIE = 0.99  # of the time of the kernel that would have run; what gains less is not worth another plan
Class = tuple[int, ...]
Run = Callable[[], None]
Timer = Callable[[Sequence[Run], Callable[[], None]], list[float]]


@dataclass(frozen=True, slots=True)
class Choice:
    """One kernel that may be launched."""

    name: str
    plan: str  # the plan's text; "" of the plain kernel


@dataclass(frozen=True, slots=True)
class Tuning:
    """All that tuning a kernel takes. `choices` is asked when something is to be measured, and not before."""

    key: str  # of the compiled kernel
    names: Sequence[str]  # of the parameters, as the launcher is given their values
    own: str  # the name of the kernel that runs when nothing is measured
    choices: Callable[[], Sequence[Choice]]  # that one not among them
    load: Callable[[Choice], Any | None]  # the compiled kernel; None where it may not run after all
    written: Callable[[], frozenset[str] | None]  # the parameters it writes through; None: not known
    say: Callable[[str], None]  # a remark for the user
    timer: Timer = field(default_factory=lambda: time_on_gpu)


def tuned(kernel: Any, tuning: Tuning) -> Any:
    """The kernel, which decides by measuring at its first launch what is launched."""
    return around(kernel, lambda run: _Chooser(kernel, run, tuning))


class _Chooser:
    """What launches: for each class of launches the kernel that was chosen."""

    def __init__(self, kernel: Any, run: Callable[..., None], tuning: Tuning) -> None:
        self.kernel, self.run, self.tuning = kernel, run, tuning
        self.chosen: dict[Class, Any | None] = {}  # None: the kernel itself
        self.recent: dict[tuple[Any, ...], Any | None] = {}  # by the sizes themselves, for launches that come again
        self.sizes: Callable[[Sequence[Any]], tuple[Any, ...]] | None = None
        self.lock = threading.Lock()

    def __call__(self, x: int, y: int, z: int, stream: int, function: Any, packed: Any, *rest: Any) -> None:
        if self.sizes is None:
            self.sizes = sizes_of(rest)
        exact = (x, y, z, self.sizes(rest))
        other = self.recent.get(exact, _UNKNOWN)
        recording.alone()
        if other is _UNKNOWN:
            other = self._other((x, y, z), stream, rest[3:], exact)
        if other is None:
            self.run(x, y, z, stream, function, packed, *rest)
        else:
            run = other.run  # loads it first
            run(x, y, z, stream, other.function, other.packed_metadata, *rest)

    # ---- deciding

    def _other(
        self, grid: tuple[int, int, int], stream: int, arguments: Sequence[Any], exact: tuple[Any, ...]
    ) -> Any | None:
        """The kernel to launch instead, if there is one."""
        which = class_of(grid, arguments)
        if which not in self.chosen and min(grid) > 0:
            self._decide(which, grid, stream, arguments)
        if which in self.chosen:
            keep(self.recent, exact, self.chosen[which], _RECENT)
        return self.chosen.get(which)

    def _decide(self, which: Class, grid: tuple[int, int, int], stream: int, arguments: Sequence[Any]) -> None:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            self.tuning.say("nothing was measured: the launch is captured in a graph; what the model chose runs")
            return  # a launch outside of a graph may still measure
        with self.lock:
            if which not in self.chosen:
                self.chosen[which] = self._known(which) or self._measured(which, grid, stream, arguments)

    def _key(self, which: Class) -> str:
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
        return sha256(self.tuning.key, "tuned", device, str(which))

    def _known(self, which: Class) -> Any | None:
        """The kernel of an earlier choice, if it is another one. What cannot be read is measured again."""
        try:
            path = (get_cache_manager(self._key(which)).get_group("tuned") or {})["tuned.json"]
            stored = json.loads(Path(path).read_text())
            choice = Choice(str(stored["chosen"]), str(stored["plan"]))
        except (KeyError, OSError, ValueError):
            return None
        return self.kernel_itself if choice.name == self.tuning.own else self.tuning.load(choice)

    @property
    def kernel_itself(self) -> Any:
        """As other kernels are launched."""
        return _Itself(self.run, self.kernel.function, self.kernel.packed_metadata)

    def _measured(self, which: Class, grid: tuple[int, int, int], stream: int, arguments: Sequence[Any]) -> Any | None:
        own, say = self.tuning.own, self.tuning.say
        written = self.tuning.written()
        if written is None:
            say(f"nothing was measured: it is not known what the kernel writes; {own} runs")
            return None
        try:
            copies = copied(self.tuning.names, arguments, written)
        except CannotCopy as error:
            say(f"nothing was measured: {error}; {own} runs")
            return None
        kernels: dict[str, Any] = {own: self.kernel_itself}
        plans = {own: ""}
        for choice in self.tuning.choices():
            kernel = self.tuning.load(choice)
            if kernel is not None:
                kernels[choice.name], plans[choice.name] = kernel, choice.plan
        if len(kernels) == 1:
            say(f"nothing was measured: there is no other plan; {own} runs")
            return None
        runs = [_runner(kernel, grid, stream, copies.arguments) for kernel in kernels.values()]
        times = dict(zip(kernels, self.tuning.timer(runs, copies.restore), strict=True))
        best = min(times, key=lambda name: times[name])
        chosen = best if times[best] < TIE * times[own] else own
        self._store(which, Choice(chosen, plans[chosen]), times)
        listed = ", ".join(f"{name} {time:.1f} us" for name, time in sorted(times.items(), key=lambda pair: pair[1]))
        say(f"measured on these arguments, medians of {ROUNDS}: {listed}; {chosen} runs from now on")
        return None if chosen == own else kernels[chosen]

    def _store(self, which: Class, chosen: Choice, times: dict[str, float]) -> None:
        manager = get_cache_manager(self._key(which))
        known = {"chosen": chosen.name, "plan": chosen.plan, "microseconds": times}
        path = manager.put(json.dumps(known), "tuned.json")
        manager.put_group("tuned", {"tuned.json": path})


@dataclass(frozen=True, slots=True)
class _Itself:
    """The kernel that measures, launched without measuring."""

    run: Callable[..., None]
    function: Any
    packed_metadata: Any


def _runner(kernel: Any, grid: tuple[int, int, int], stream: int, arguments: Sequence[Any]) -> Run:
    def run() -> None:
        launch = kernel.run  # loads the kernel, and so its function
        launch(*grid, stream, kernel.function, kernel.packed_metadata, None, None, None, *arguments)

    return run


def sizes_of(arguments: Sequence[Any]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """What takes the integers and the descriptors' shapes out of a launch's arguments, whose kinds stay the same."""
    integers = [at for at, argument in enumerate(arguments) if isinstance(argument, int)]
    descriptors = [at for at, argument in enumerate(arguments) if isinstance(argument, TensorDescriptor)]

    def sizes(given: Sequence[Any]) -> tuple[Any, ...]:
        return (*[given[at] for at in integers], *[tuple(given[at].shape) for at in descriptors])

    return sizes


_RECENT = 4096  # launches whose choice is known without working out their class
_UNKNOWN = object()


def class_of(grid: tuple[int, int, int], arguments: Sequence[Any]) -> Class:
    """What launches have to have in common to share a choice: the size of the grid and of each integer, in bits."""
    found = [size.bit_length() for size in grid]
    for argument in arguments:
        if isinstance(argument, int):  # booleans too
            found.append(argument.bit_length())
        elif isinstance(argument, TensorDescriptor):
            found += [int(size).bit_length() for size in argument.shape]
    return tuple(found)


# ---------------------------------------------------------------------------------------------- the clock


def time_on_gpu(runs: Sequence[Run], restore: Callable[[], None]) -> list[float]:
    """Microseconds of a launch, the median of rounds in which all take turns; infinite for one that does not launch."""
    counts = []
    for run in runs:
        restore()
        try:
            run()
            torch.cuda.synchronize()
            one = _window(run, 3)
            counts.append(max(1, min(MOST_LAUNCHES, round(WINDOW_MS * 1000 / max(one, 1.0)))))
        except RuntimeError:  # of Triton's launcher: too much of something
            counts.append(0)
    samples: list[list[float]] = [[] for _ in runs]
    for turn in range(ROUNDS):
        for at in ((turn + step) % len(runs) for step in range(len(runs))):
            if counts[at]:
                samples[at].append(_window(runs[at], counts[at]))
    return [statistics.median(taken) if taken else float("inf") for taken in samples]


def _window(run: Run, count: int) -> float:
    """Microseconds a launch, of `count` in a row."""
    event: Any = torch.cuda.Event
    begin, end = event(enable_timing=True), event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(count):
        run()
    end.record()
    torch.cuda.synchronize()
    elapsed: float = begin.elapsed_time(end)
    return 1000 * elapsed / count
