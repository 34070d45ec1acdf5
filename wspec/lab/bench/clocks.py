"""The SM clock and the power of the card while something runs, as NVML tells them."""

from __future__ import annotations

import contextlib
import ctypes
import statistics
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

PERIOD_S = 0.02
SM_CLOCK = 1
"""NVML_CLOCK_SM."""

Reading = Callable[[], tuple[float | None, float | None]]


@dataclass(slots=True)
class Sampled:
    """Medians over the time watched: MHz and W; None where NVML is missing or did not tell."""

    mhz: float | None = None
    watts: float | None = None


@contextlib.contextmanager
def sampling(card: str) -> Iterator[Sampled]:
    """Samples of the card (its UUID) from here on; what is yielded holds their medians once the block has ended."""
    found = Sampled()
    with contextlib.ExitStack() as stack:
        try:
            read = stack.enter_context(_readings(card))
        except (OSError, AttributeError):  # no library, or one without these functions
            yield found
            return
        samples: list[tuple[float | None, float | None]] = []
        over = threading.Event()
        thread = threading.Thread(target=_sample, args=(read, over, samples), name="wspec-clocks", daemon=True)
        thread.start()
        try:
            yield found
        finally:
            over.set()
            thread.join()
            found.mhz, found.watts = (_median([one[at] for one in samples]) for at in (0, 1))


def _sample(read: Reading, over: threading.Event, samples: list[tuple[float | None, float | None]]) -> None:
    while not over.wait(PERIOD_S):
        samples.append(read())


def _median(values: list[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return statistics.median(told) if told else None


@contextlib.contextmanager
def _readings(card: str) -> Iterator[Reading]:
    """(MHz, W) of the card at every call. Raises OSError where NVML or the card is not there."""
    library = _library()
    _must(library.nvmlInit_v2())
    try:
        handle = ctypes.c_void_p()
        _must(library.nvmlDeviceGetHandleByUUID(card.encode(), ctypes.byref(handle)))
        yield lambda: (_clock(library, handle), _power(library, handle))
    finally:
        library.nvmlShutdown()


def _library() -> Any:
    return ctypes.CDLL("libnvidia-ml.so.1")


def _must(code: int) -> None:
    if code != 0:
        raise OSError(f"NVML returned {code}")


def _clock(library: Any, handle: ctypes.c_void_p) -> float | None:
    mhz = ctypes.c_uint()
    return float(mhz.value) if library.nvmlDeviceGetClockInfo(handle, SM_CLOCK, ctypes.byref(mhz)) == 0 else None


def _power(library: Any, handle: ctypes.c_void_p) -> float | None:
    milliwatts = ctypes.c_uint()
    told = library.nvmlDeviceGetPowerUsage(handle, ctypes.byref(milliwatts)) == 0
    return milliwatts.value / 1000 if told else None
