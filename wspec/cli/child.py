"""Work on modules from outside in a child process: libtriton ends the process over some that it cannot take."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import TypeVar

from wspec.diagnostics import bad_input

T = TypeVar("T")


def in_child(work: Callable[[], T], place: str) -> T:
    """`work()`, which must return something that pickles.

    Raises WspecError when the child dies, and a BridgeError as `work` raised it.
    """
    with tempfile.TemporaryFile() as answer:
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():  # of threads: libtriton's own start only when it works
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _work_and_exit(work, answer.fileno())
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            raise bad_input(f"{place}: libtriton died of this module ({name})", "it is not valid; start from a dump")
        answer.seek(0)
        return _result(answer.read())


def _work_and_exit(work: Callable[[], object], answer: int) -> None:
    """The child's whole life; it must not run the parent's clean-up."""
    code = 1
    faulthandler.disable()  # whoever waits says what happened
    try:
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
