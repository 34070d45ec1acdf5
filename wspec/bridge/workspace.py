"""Memory for sums that go from one block of a launch to another (passes/stream_k/fix_up.py), one for each stream.

Launches of a stream come one after the other, whatever their kernels, and leave the words at its beginning as zero as
they found them. So they share it. A stream is known by its handle: who destroys one while its launches still run, and
makes another, which may get that handle, has to wait between the two.

A CUDA graph may run beside other launches of the stream that it was captured in. Each of its launches has memory of the
graph's, which is cleared before it and is there for other things behind it.
"""

from __future__ import annotations

import threading

import torch

from wspec.tile_scheduler.names import SLOTS, WORDS

PER_THREAD = 2  # cudaStreamPerThread
_made: dict[tuple[int, int], torch.Tensor] = {}  # by device and stream
_lock = threading.Lock()


def partials_of(stream: int, words: int) -> torch.Tensor | None:
    """So many int32 words for a launch in the current stream of the current device, which is `stream`.

    None where there is no memory for it, and in a thread's default stream, whose handle is that of other threads'
    streams.
    """
    if stream == PER_THREAD:
        return None
    if torch.cuda.is_current_stream_capturing():
        return _of_a_graph(words)
    key = (torch.cuda.current_device(), stream)
    found = _made.get(key)
    return found if found is not None and found.numel() >= words else _make(key, words)


def _make(key: tuple[int, int], words: int) -> torch.Tensor | None:
    with _lock:
        try:
            _made[key] = torch.zeros(words, dtype=torch.int32, device=torch.device("cuda", key[0]))
        except torch.cuda.OutOfMemoryError:
            return None
        return _made[key]


def _of_a_graph(words: int) -> torch.Tensor | None:
    try:
        made = torch.empty(words, dtype=torch.int32, device=torch.device("cuda", torch.cuda.current_device()))
    except torch.cuda.OutOfMemoryError:
        return None
    made[: SLOTS * WORDS].zero_()
    return made
