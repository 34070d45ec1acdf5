"""The calls of the CUDA driver that a launch makes, without a layer in between, and their structures (cuda.h)."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

MAP_BYTES = 128  # CUtensorMap
MAP_ALIGNMENT = 64  # of its address, or 128 where the headers of CUDA 13 are
PROGRAMMATIC_START = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT: of a thread that has not used the card yet


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint64 * 8))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid_x", ctypes.c_uint),
        ("grid_y", ctypes.c_uint),
        ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint),
        ("block_y", ctypes.c_uint),
        ("block_z", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_uint64),
        ("attribute_count", ctypes.c_uint),
    )


@functools.cache
def launch_call() -> Callable[[int, int, int, None], int] | None:
    """cuLaunchKernelEx(config, function, addresses of the arguments, None), which gives a status; None without CUDA."""
    try:
        call = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    call.restype = ctypes.c_int
    found: Any = call
    made: Callable[[int, int, int, None], int] = found
    return made


@functools.cache
def encode_call() -> Any:
    """cuTensorMapEncodeTiled. Raises OSError or AttributeError without CUDA."""
    return ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled


@contextmanager
def relaxed_capture() -> Iterator[bool]:
    """While a graph is captured, lets this thread ask what has nothing to do with the graph; False where it cannot."""
    try:
        exchange = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        yield False
        return
    mode = ctypes.c_int(_RELAXED)
    if exchange(ctypes.byref(mode)):
        yield False
        return
    try:
        yield True
    finally:
        exchange(ctypes.byref(mode))


class Mark:
    """A place in a stream of the device that is the current one now: an event, which may be recorded again."""

    def __init__(self) -> None:
        self._event = ctypes.c_void_p()
        self._record = self._query = None
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL("libcuda.so.1")
            library.cuEventRecord.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
            if not library.cuEventCreate(ctypes.byref(self._event), _NO_TIMING):
                self._record, self._query = library.cuEventRecord, library.cuEventQuery

    def record(self, stream: int) -> None:
        """Behind all that the stream has now."""
        if self._record is not None and self._record(self._event, stream):
            self._query = None

    def is_over(self) -> bool:
        """Has the card come past it? May be asked while a graph is captured, which asking would else break off."""
        with relaxed_capture() as relaxed:
            return relaxed and self._query is not None and not self._query(self._event)


def error(status: int) -> RuntimeError:
    """As Triton's launcher raises it."""
    text = ctypes.c_char_p()
    ctypes.CDLL("libcuda.so.1").cuGetErrorString(status, ctypes.byref(text))
    return RuntimeError(f"Triton Error [CUDA]: {(text.value or b'unknown error').decode()}")
