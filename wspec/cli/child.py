"""Work on modules from outside in a child process: libtriton ends the process over some that it cannot take."""

from __future__ import annotations

import faulthandler
import math
import os
import pickle
import resource
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from wspec.diagnostics import WspecError, bad_input
from wspec.ir.core import Operation
from wspec.ir.shared_memory import Area, Placement

T = TypeVar("T")


def placement(module: Operation, *, limit_s: float = math.inf) -> Placement:
    """`bridge.placement`, which a child is asked for: libtriton may die of a module from outside, or take too long.

    Raises BridgeError then, too.
    """
    from wspec import bridge

    ops = list(module.walk())
    numbers = {op: number for number, op in enumerate(ops)}

    def asked() -> tuple[list[tuple[int, Area]], list[int], Placement]:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        found = bridge.placement(module)
        rest = replace(found, areas={}, fences=frozenset())
        return [(numbers[op], area) for op, area in found.areas.items()], [numbers[op] for op in found.fences], rest

    try:
        areas, fences, rest = in_child(asked, "the module", limit_s)
    except WspecError:
        raise bridge.BridgeError("libtriton crashed on it") from None
    return replace(
        rest, areas={ops[number]: area for number, area in areas}, fences=frozenset(ops[number] for number in fences)
    )


def in_child(work: Callable[[], T], place: str, limit_s: float = math.inf) -> T:
    """`work()`, which must return something that pickles, in that much processor time.

    Raises WspecError when the child dies, and a BridgeError as `work` raised it, or when it takes too long.
    """
    from wspec import bridge

    with tempfile.TemporaryFile() as answer:
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():  # of threads: libtriton's own start only when it works
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _work_and_exit(work, answer.fileno(), limit_s)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            raise bridge.BridgeError("that takes too long")
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            raise bad_input(f"{place}: libtriton died of this module ({name})", "it is not valid; start from a dump")
        answer.seek(0)
        return _result(answer.read())


def _work_and_exit(work: Callable[[], object], answer: int, limit_s: float) -> None:
    """The child's whole life; it must not run the parent's clean-up."""
    code = 1
    faulthandler.disable()  # whoever waits says what happened
    try:
        if limit_s < math.inf:
            seconds = max(math.ceil(limit_s), 1)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        with open(answer, "wb", closefd=False) as file:
            pickle.dump(_outcome(work), file)
        code = 0
    finally:
        os._exit(code)


def _outcome(work: Callable[[], object]) -> tuple[str, object]:
    from wspec import bridge

    try:
        return "done", work()
    except bridge.BridgeError as error:
        return "refused", (error.message, error.diagnostics)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"


def _result(data: bytes) -> T:  # type: ignore[type-var]  # what `work` returned
    from wspec import bridge

    if not data:
        raise RuntimeError("the child process left no answer")
    what, value = pickle.loads(data)
    if what == "refused":
        raise bridge.BridgeError(*value)
    if what == "failed":
        raise RuntimeError(value)
    result: T = value
    return result
