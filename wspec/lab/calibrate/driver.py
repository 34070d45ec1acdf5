"""The CUDA driver through ctypes: as much of it as microbenchmarks need. No torch, no context but its own."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_COUNT, _MAJOR, _MINOR, _SHARED = 16, 75, 76, 97  # CUdevice_attribute
_MAX_DYNAMIC_SHARED = 8  # CUfunction_attribute
_BF16, _L2_128B = 9, 2  # CUtensorMapDataType, CUtensorMapL2promotion
_SWIZZLES = {32: 2, 64: 3}  # bf16 of a row of a box -> CUtensorMapSwizzle
Argument = int | bytes | ctypes.c_uint32
"""Of a launch: an int is a 64-bit pointer, bytes are a tensor map."""


class NoGpu(Exception):
    """There is no GPU here that could be measured."""


class DriverError(RuntimeError):
    """A call of the driver failed."""


@dataclass(frozen=True, slots=True)
class Function:
    """An entry of a loaded module."""

    handle: ctypes.c_void_p


class Driver:
    """One device and its primary context, current in this thread. Raises NoGpu without a Hopper GPU."""

    def __init__(self) -> None:
        try:
            self._cuda: Any = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise NoGpu("there is no CUDA driver (libcuda.so.1) here") from None
        device = ctypes.c_int()
        if self._cuda.cuInit(0) != 0 or self._cuda.cuDeviceGet(ctypes.byref(device), 0) != 0:
            raise NoGpu("no CUDA GPU is visible")
        self._device = device
        name = ctypes.create_string_buffer(100)
        self._call("cuDeviceGetName", name, 100, device)
        self.name = name.value.decode()
        capability = self._attribute(_MAJOR), self._attribute(_MINOR)
        if capability != (9, 0):
            raise NoGpu(f"{self.name} has compute capability {capability[0]}.{capability[1]}, not 9.0")
        self.sm_count = self._attribute(_COUNT)
        self.shared_bytes = self._attribute(_SHARED)
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(code, ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'unknown error').decode()} ({code})")

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def load(self, cubin: bytes, names: Sequence[str]) -> dict[str, Function]:
        """The entries `names` of a cubin; each may have all of an SM's shared memory."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), cubin)
        found = {}
        for name in names:
            function = ctypes.c_void_p()
            self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, self.shared_bytes)
            found[name] = Function(function)
        return found

    def allocate(self, size: int) -> int:
        """A device pointer; freed with the process."""
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def fill(self, pointer: int, word: int, words: int) -> None:
        """Every 32-bit word becomes `word`."""
        self._call("cuMemsetD32_v2", ctypes.c_uint64(pointer), ctypes.c_uint(word), ctypes.c_size_t(words))

    def write(self, pointer: int, values: NDArray[Any]) -> None:
        """The array's bytes, as they lie in memory."""
        held = np.ascontiguousarray(values)
        host = held.ctypes.data_as(ctypes.c_void_p)
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), host, ctypes.c_size_t(held.nbytes))

    def read(self, pointer: int, count: int) -> NDArray[np.int64]:
        """64-bit words, after all launches before it."""
        values = np.empty(count, dtype=np.int64)
        self._call("cuCtxSynchronize")
        host = values.ctypes.data_as(ctypes.c_void_p)
        self._call("cuMemcpyDtoH_v2", host, ctypes.c_uint64(pointer), ctypes.c_size_t(values.nbytes))
        return values

    def launch(self, function: Function, grid: int, threads: int, shared: int, arguments: Sequence[Argument]) -> None:
        """One launch on the default stream."""
        held = [_argument(value) for value in arguments]
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(value) for value in held))
        self._call(
            "cuLaunchKernel", function.handle, grid, 1, 1, threads, 1, 1, shared, None, pointers, None
        )  # fmt: skip

    def tensor_map(
        self, pointer: int, rows: int, box_rows: int, *, columns: int = 64, pitch: int = 128, box_columns: int = 64
    ) -> bytes:
        """Of a bf16 matrix of `rows` by `columns` whose rows start `pitch` bytes apart: boxes of `box_rows` by
        `box_columns`, 64 or 32, swizzled by as many bytes as their rows have."""
        raw = (ctypes.c_byte * 192)()
        at = (ctypes.addressof(raw) + 63) // 64 * 64
        self._call(
            "cuTensorMapEncodeTiled", ctypes.c_void_p(at), _BF16, 2, ctypes.c_void_p(pointer),
            (ctypes.c_uint64 * 2)(columns, rows), (ctypes.c_uint64 * 1)(pitch),
            (ctypes.c_uint32 * 2)(box_columns, box_rows), (ctypes.c_uint32 * 2)(1, 1), 0, _SWIZZLES[box_columns],
            _L2_128B, 0,
        )  # fmt: skip
        return ctypes.string_at(at, 128)


def _argument(value: Argument) -> Any:
    if isinstance(value, bytes):
        return ctypes.create_string_buffer(value, len(value))
    return value if isinstance(value, ctypes.c_uint32) else ctypes.c_uint64(value)
