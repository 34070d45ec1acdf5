"""What became of every kernel of the process: `wspec.report()`."""

from __future__ import annotations

import inspect
import io
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from wspec.bridge import KernelSource, Result
from wspec.diagnostics import Remark
from wspec.plan.plan import Plan

WIDTH = 140
SHOWN = 160
"""Letters of the arguments in the table, of which some kernels have a screenful."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One specialization of a kernel: a set of types, constants and launch options."""

    kernel: str
    place: str  # file and line of the function; empty where Python does not know
    arguments: str
    specialized: bool
    reason: str  # why it was left alone, code and sentence; empty when it was specialized
    gain: float | None  # the predicted time of the plain loop over that of the specialized one; None without a plan
    seconds: float  # what obtaining it took, by the wall clock: compiling, or reading it from the cache


@dataclass(frozen=True, slots=True)
class Summary:
    """What `wspec.report()` returns; as a text it is a table."""

    entries: tuple[Entry, ...]
    launches: dict[str, int]  # by kernel, counted while `wspec.enable` is on

    def __str__(self) -> str:
        if not self.entries:
            return "wspec: no kernel was compiled"
        done = sum(entry.specialized for entry in self.entries)
        table = Table(title=f"wspec: {done} of {len(self.entries)} compiled kernels specialized", title_justify="left")
        for name in ("kernel", "arguments", "what became of it", "gain", "launches", "seconds"):
            table.add_column(name, justify="right" if name in ("gain", "launches", "seconds") else "left")
        told = set[str]()
        for entry in self.entries:
            launches = self.launches.get(entry.kernel) if entry.kernel not in told else None
            told.add(entry.kernel)
            table.add_row(
                f"{entry.kernel}\n{entry.place}",
                _short(entry.arguments, entry.kernel),
                "specialized" if entry.specialized else entry.reason,
                f"{entry.gain:.2f} x" if entry.gain and entry.specialized else "",
                str(launches) if launches else "",
                f"{entry.seconds:.1f}",
            )
        screen = Console(file=io.StringIO(), width=WIDTH, color_system=None)
        with screen.capture() as caught:
            screen.print(table, markup=False)
        return caught.get().rstrip()


def _short(arguments: str, kernel: str) -> str:
    """`q: *bf16, k: *bf16, ... num_warps=8, num_stages=3` of `kernel(...)`: what stands in the middle of a long one is
    left out."""
    inner = arguments.removeprefix(f"{kernel}(").removesuffix(")")
    if len(inner) <= SHOWN:
        return inner
    items, _, launch = inner.rpartition("; ")
    head, _, _ = items[: SHOWN - len(launch)].rpartition(", ")
    return f"{head}, ...; {launch}"


@dataclass(slots=True)
class _Ledger:
    entries: list[tuple[Callable[..., Any], Entry]] = field(default_factory=list)
    launches: dict[Callable[..., Any], int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_ledger = _Ledger()


def report() -> Summary:
    """What became of each kernel that this process compiled through wspec, decorated or by `wspec.enable`."""
    with _ledger.lock:
        entries, launches = list(_ledger.entries), dict(_ledger.launches)
    names = {fn: entry.kernel for fn, entry in entries}
    return Summary(
        tuple(entry for _, entry in entries), {names[fn]: count for fn, count in launches.items() if fn in names}
    )


def left_alone(function: Callable[..., Any], why: Remark) -> None:
    """Enter a kernel that is not even looked at, made of this Python function; once."""
    entry = Entry(function.__name__, _place(function), "", False, f"{why.code}: {why.message}", None, 0.0)
    with _ledger.lock:
        if (function, entry) not in _ledger.entries:
            _ledger.entries.append((function, entry))


def compiled(source: KernelSource, result: Result, seconds: float) -> None:
    """Enter a specialization."""
    entry = Entry(
        source.name,
        _place(source.ast.fn.fn),
        source.describe(),
        result.specialized,
        _words(result),
        _gain(result),
        seconds,
    )
    with _ledger.lock:
        _ledger.entries.append((source.ast.fn.fn, entry))


def _words(result: Result) -> str:
    """Why a kernel was not specialized, and what was done all the same."""
    reason = result.reason
    if reason is None:
        return ""
    return f"{'with descriptors, not specialized: ' if result.is_ours else ''}{reason.code}: {reason.message}"


def launched(function: Callable[..., Any]) -> None:
    """Count a launch of the kernel made of this Python function."""
    _ledger.launches[function] = _ledger.launches.get(function, 0) + 1


def _place(function: Callable[..., Any]) -> str:
    try:
        return f"{Path(inspect.getsourcefile(function) or '').name}:{inspect.getsourcelines(function)[1]}"
    except (OSError, TypeError):
        return ""


def _gain(result: Result) -> float | None:
    if not result.plan:
        return None
    expected = Plan.from_text(result.plan).prediction
    return expected.plain_iteration_cycles / expected.iteration_cycles if expected.iteration_cycles else None
