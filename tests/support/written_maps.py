"""What a launch by C (`bridge/direct.c`) writes of a tensor, without a card: the driver is a function of the test's."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from wspec.bridge import cuda, direct
from wspec.bridge.tensor_maps import Layout

_HEAD = 64  # bytes of how a kernel is launched


class Somewhere:
    """Stands for a tensor: C asks it for no more than this."""

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


class Written:
    """Maps of one type of tensor, one after the other."""

    def __init__(self, layout: Layout) -> None:
        self.size = cuda.MAP_BYTES + 12 * layout.rank
        self.found: bytes | None = None
        self._call = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(self._launch)
        parts = (direct.described(layout, 0, _HEAD, reaches=True),)
        address = ctypes.cast(self._call, ctypes.c_void_p).value
        contents = bytes(_HEAD + self.size)
        made: Any = direct.library().Direct
        self._direct = made(address, 0, contents, 60, 1, (_HEAD,), parts, (), Somewhere, self._call)

    def _launch(self, config: int, function: int | None, parameters: int, extra: None) -> int:
        self.found = ctypes.string_at(config + _HEAD, self.size)
        return 0

    def of(self, address: int, shape: Sequence[int], strides: Sequence[int]) -> bytes | None:
        """The map, strides and sizes; None where there is no launch."""
        self.found = None
        status = self._direct(1, 1, 1, False, ((Somewhere(address), tuple(shape), tuple(strides)),), ())
        assert (status == 0) == (self.found is not None)
        return self.found
