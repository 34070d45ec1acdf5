"""Compiling and checking without the garbage collector: it makes some 100,000 objects that all live until the end.

A full collection walks everything that torch and Triton have loaded as well, and takes 0.1 to 0.25 s; while a kernel is
compiled one or two of them come, and find nothing. One that is due already, as importing them has left it, would come
as soon as the pause ends, and a launch would wait for it; it is made while another program is waited for.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_pauses = 0
_was_enabled = False


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic garbage is looked for inside; several threads may be inside at once. Left as it was found."""
    global _pauses, _was_enabled
    with _lock:
        if _pauses == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if _pauses == 0 and _was_enabled:
                gc.enable()


def collect_if_due() -> None:
    """A full collection, if one would come when the pause ends. For a thread that is about to wait, the caller's own:
    what is collected may have to end on it."""
    if _pauses and _was_enabled and gc.get_count()[2] > gc.get_threshold()[2] > 0:
        gc.collect()
