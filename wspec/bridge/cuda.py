"""The calls of the CUDA driver that a launch makes, without a layer in between, and their structures (cuda.h)."""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

MAP_BYTES = 128  # CUtensorMap
MAP_ALIGNMENT = 64  # of its address, or 128 where the headers of CUDA 13 are
_PROMOTE_128 = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B
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


class TensorMaps:
    """Encodes tensor maps that agree in all but the tensor (cuTensorMapEncodeTiled), as Triton's launcher does."""

    def __init__(self, kind: int, size: int, box: Sequence[int], swizzle: int) -> None:
        """`kind`: CUtensorMapDataType; `size`: bytes of an element. Raises OSError or AttributeError without CUDA."""
        rank = len(box)
        names = [f"n{dim}" for dim in range(rank)], [f"s{dim}" for dim in range(rank)]
        turned = [*names[0][::-1], *(f"s{dim} * {size}" for dim in reversed(range(rank - 1)))]  # the driver's, in bytes
        memory = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
        start = ctypes.addressof(memory)
        at = -start % MAP_ALIGNMENT
        sizes, there = (ctypes.c_uint64 * (2 * rank))(), ctypes.c_void_p()  # strides lie behind sizes
        given = (
            ctypes.c_void_p(start + at), ctypes.c_int(kind), ctypes.c_uint32(rank), there,
            sizes, ctypes.c_void_p(ctypes.addressof(sizes) + 8 * rank), (ctypes.c_uint32 * rank)(*box[::-1]),
            (ctypes.c_uint32 * rank)(*[1] * rank), ctypes.c_int(0), ctypes.c_int(swizzle), ctypes.c_int(_PROMOTE_128),
            ctypes.c_int(0),
        )  # fmt: skip
        space: dict[str, Any] = {
            "call": ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled, "given": given, "sizes": sizes, "there": there,
            "pack": struct.Struct(f"<{2 * rank - 1}Q").pack_into, "memory": memory, "found": slice(at, at + MAP_BYTES),
            "lock": threading.Lock(),
        }  # fmt: skip
        source = _ENCODE.format(numbers=", ".join(names[0] + names[1]), turned=", ".join(turned))
        exec(compile(source, "<wspec tensor map>", "exec"), space)
        self.size = size
        self.encode: Callable[..., bytes | None] = space["encode"]
        """The map of a tensor at an address, of its sizes and strides, the last of which is 1, all one by one; None if
        the driver refuses."""


_ENCODE = """
def encode(address, {numbers}):
    with lock:
        pack(sizes, 0, {turned})
        there.value = address
        status = call(*given)
        return None if status else memory[found]
"""


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
