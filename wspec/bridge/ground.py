"""Memory for descriptors that reach far before their tensor to begin in.

Where a load's box lies wholly outside of a descriptor the copy engine fills it with zeros, but looks up the address at
which the descriptor begins, and faults where there is no memory (docs/passes.md). So a range of addresses is reserved
where descriptors are to begin, one page of the card's memory is mapped wherever one does, and each descriptor begins as
many steps further before its tensor as it takes to begin there. Nothing writes to that page, and what is read of it
reaches no kernel. It must be the card's: pages of the host do too, but a box outside costs a hundred times one inside.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterator
from typing import Protocol

from wspec.bridge.cuda import relaxed_capture
from wspec.host_descriptors import Ground

PAGE = 2 << 20  # bytes: the least that the driver maps
RANGE = 32 << 30  # bytes that are reserved: the driver puts a short one elsewhere than it is asked to
MOST = 16
TRIES = 16  # places where another thing may lie already
MIDDLE = 64 << 30  # bytes further before: tensors that lie lower can begin there too, and few of the steps are used up
_TAIL = 64  # bytes from where a descriptor begins that count as looked up: more than a sector of memory


class Addresses(Protocol):
    """What the driver does."""

    def reserve(self, wanted: int, size: int) -> int | None:
        """Reserve so many addresses, there or elsewhere."""

    def release(self, at: int, size: int) -> None:
        """Give back what was reserved."""

    def map(self, at: int) -> bool:
        """Put the page there."""


class Grounds:
    """Those of one card."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._ranges: list[int] = []
        self._mapped: set[int] = set()
        self._lock = threading.Lock()

    def steps(self, address: int, ground: Ground) -> int | None:
        """How many steps before an address a descriptor can begin in memory; None: nowhere."""
        for begin in self._ranges:
            if (found := _steps_to(begin, address, ground)) is not None:
                break
        else:
            with self._lock:
                found = self._in_new_range(address, ground)
        return found if found is not None and self._is_memory(address - found * ground.step) else None

    def is_there(self, address: int) -> bool:
        """Can a descriptor begin at an address? It can throughout the ranges, but for want of memory."""
        page = address // PAGE * PAGE
        if page in self._mapped and address + _TAIL < page + PAGE:
            return True  # as nearly always
        inside = any(begin <= address <= begin + RANGE - _TAIL for begin in self._ranges)
        return inside and self._is_memory(address)

    def _is_memory(self, address: int) -> bool:
        for page in {address // PAGE * PAGE, (address + _TAIL) // PAGE * PAGE}:
            if page not in self._mapped:
                with self._lock:
                    if page not in self._mapped and not self._addresses.map(page):
                        return False
                    self._mapped.add(page)
        return True

    def _in_new_range(self, address: int, ground: Ground) -> int | None:
        """The same, where none of the ranges that there are will do."""
        if len(self._ranges) >= MOST:
            return None
        for wanted in _places(address, ground):
            begin = self._addresses.reserve(wanted, RANGE)
            if begin is None:
                continue
            if (found := _steps_to(begin, address, ground)) is not None:
                self._ranges = [*self._ranges, begin]
                return found
            self._addresses.release(begin, RANGE)
        return None


def _steps_to(begin: int, address: int, ground: Ground) -> int | None:
    """Steps to a place in a range where a descriptor can begin: in its middle if they reach it, so that there is room
    on either side for others that are made like it (`is_there`)."""
    for place in (begin + RANGE // 2, begin):
        steps = (address - place) // ground.step
        if 0 <= steps <= ground.most and address - steps * ground.step + _TAIL <= begin + RANGE:
            return steps
    return None


def _places(address: int, ground: Ground) -> Iterator[int]:
    """Pages about so many steps before the address, from the middle outwards."""
    middle = min(ground.most // 2, MIDDLE // ground.step) * ground.step
    for number in range(TRIES):
        before = middle + middle * ((number + 1) // 2) // TRIES * (1 if number % 2 else -1)
        if (at := (address - before) // PAGE * PAGE) > 0:
            yield at


# ------------------------------------------------------------------------------------------------ the driver's part


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int), ("device", ctypes.c_int),
        ("windows", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8),
    )  # fmt: skip


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", ctypes.c_int), ("device", ctypes.c_int), ("flags", ctypes.c_int))


_PINNED, _DEVICE, _READ = 1, 1, 1  # CU_MEM_ALLOCATION_TYPE_, CU_MEM_LOCATION_TYPE_, CU_MEM_ACCESS_FLAGS_PROT_READ


class OfCard:
    """The addresses of a card, and a page of its memory, mapped as often as it takes. Without CUDA there is neither."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._page: ctypes.c_uint64 | None = None

    def reserve(self, wanted: int, size: int) -> int | None:
        """See Addresses."""
        at, none = ctypes.c_uint64(), ctypes.c_ulonglong(0)
        given = ctypes.byref(at), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_uint64(wanted), none
        return at.value if _done("cuMemAddressReserve", *given) else None

    def release(self, at: int, size: int) -> None:
        """See Addresses."""
        _done("cuMemAddressFree", ctypes.c_uint64(at), ctypes.c_size_t(size))

    def map(self, at: int) -> bool:
        """See Addresses."""
        size, none = ctypes.c_size_t(PAGE), ctypes.c_ulonglong(0)
        if self._page is None:
            page, properties = ctypes.c_uint64(), _Properties(_PINNED, 0, _DEVICE, self._device)
            if not _done("cuMemCreate", ctypes.byref(page), size, ctypes.byref(properties), none):
                return False
            self._page = page
        access = _Access(_DEVICE, self._device, _READ)
        there = ctypes.c_uint64(at)
        return _done("cuMemMap", there, size, ctypes.c_size_t(0), self._page, none) and _done(
            "cuMemSetAccess", there, size, ctypes.byref(access), ctypes.c_size_t(1)
        )


def _done(name: str, *given: object) -> bool:
    """Does the driver do that?"""
    try:
        call = getattr(ctypes.CDLL("libcuda.so.1"), name)
    except (OSError, AttributeError):
        return False
    with relaxed_capture():
        return not call(*given)


@functools.cache
def grounds(device: int) -> Grounds:
    """Of a card, for as long as the process runs."""
    return Grounds(OfCard(device))
