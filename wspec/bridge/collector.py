"""Compiling and checking without the garbage collector: it makes some 100,000 objects that all live until the end.

A full collection walks everything that torch and Triton have loaded as well, and takes 0.1 to 0.25 s; while a kernel is
compiled one or two of them come, and find nothing.
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
