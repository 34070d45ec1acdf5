"""Memory for descriptors that reach far before their tensor to begin in.

Where a load's box lies wholly outside of a descriptor the copy engine fills it with zeros, but looks up the address at
which the descriptor begins, and faults where there is no memory (docs/passes.md). Pages of the host that the driver has
registered are memory for the card at the same address, and may lie anywhere: so a few of them are put where descriptors
are to begin, and each descriptor begins as many steps further before its tensor as it takes to begin in one. Nothing
reads what is in them, and nothing writes.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator

from wspec.bridge.cuda import relaxed_capture
from wspec.host_descriptors import Ground

SIZE = 2 << 20  # bytes of one that descriptors share whose steps are shorter
PAGE = 4096
ALONE = 4 * PAGE  # bytes of one for longer steps
MOST = 256
TRIES = 16  # places where another thing may lie already
MIDDLE = 64 << 30  # bytes further before: tensors that lie lower can begin there too, and few of the steps are used up
_TAIL = 64  # bytes from where a descriptor begins that count as looked up: more than a sector of memory

_READ_WRITE, _PRIVATE_ANONYMOUS, _NOT_OVER_OTHERS = 0x3, 0x22, 0x100000  # mman.h: PROT_, MAP_ and MAP_FIXED_NOREPLACE
_PORTABLE_MAPPED = 0x3  # CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP


class Grounds:
    """Those of a process. `map_at(address, size)` makes one: whether it could."""

    def __init__(self, map_at: Callable[[int, int], bool]) -> None:
        self._map_at = map_at
        self._found: list[tuple[int, int]] = []  # address, bytes
        self._lock = threading.Lock()

    def steps(self, address: int, ground: Ground) -> int | None:
        """How many steps before an address a descriptor can begin in memory; None: nowhere."""
        for at, size in self._found:
            if (found := _steps_to(at, size, address, ground)) is not None:
                return found
        with self._lock:
            return self._new(address, ground)

    def _new(self, address: int, ground: Ground) -> int | None:
        if len(self._found) >= MOST:
            return None
        size = SIZE if 2 * ground.step <= SIZE else ALONE
        for at in _places(address, ground):
            found = _steps_to(at, size, address, ground)
            if found is not None and self._map_at(at, size):
                self._found = [(at, size), *self._found]
                return found
        return None


def _steps_to(at: int, size: int, address: int, ground: Ground) -> int | None:
    steps = (address - at) // ground.step
    fits = 0 <= steps <= ground.most and address - steps * ground.step + _TAIL <= at + size
    return steps if fits else None


def _places(address: int, ground: Ground) -> Iterator[int]:
    """Pages in which a descriptor could begin, so many steps before the address."""
    middle = min(ground.most // 2, MIDDLE // ground.step)
    for number in range(TRIES):
        steps = middle + middle * ((number + 1) // 2) // TRIES * (1 if number % 2 else -1)
        at = (address - steps * ground.step) // PAGE * PAGE
        if at > 0:
            yield at


def registered(address: int, size: int) -> bool:
    """Make pages of the host at that address, which cards see at the same one; False where that is not possible."""
    try:
        host, driver = ctypes.CDLL(None, use_errno=True), ctypes.CDLL("libcuda.so.1")
        reserve, release = host.mmap, host.munmap
        register, seen_at = driver.cuMemHostRegister_v2, driver.cuMemHostGetDevicePointer_v2
    except (OSError, AttributeError):
        return False
    reserve.restype = ctypes.c_uint64
    reserve.argtypes = (ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    release.argtypes = (ctypes.c_uint64, ctypes.c_size_t)
    register.argtypes = (ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint)
    seen_at.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint)
    got = reserve(address, size, _READ_WRITE, _PRIVATE_ANONYMOUS | _NOT_OVER_OTHERS, -1, 0)
    if got == ctypes.c_uint64(-1).value:
        return False
    with relaxed_capture():
        if got == address and not register(address, size, _PORTABLE_MAPPED):
            found = ctypes.c_uint64()
            if not seen_at(ctypes.byref(found), address, 0) and found.value == address:
                return True
            driver.cuMemHostUnregister(ctypes.c_uint64(address))
    release(got, size)
    return False


GROUNDS = Grounds(registered)
"""Of this process; they stay as long as it does."""
