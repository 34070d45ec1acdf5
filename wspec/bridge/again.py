"""A launch that is made again: what the driver was given is kept, and addresses are written into it."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Sequence
from ctypes import memmove
from typing import Any

import torch

from wspec.bridge import cuda
from wspec.bridge.launch import is_hooked
from wspec.bridge.launcher import Block
from wspec.bridge.recording import Recorded


class _Block:
    """Memory for the arguments of a kernel's launches that are made again, one at a time."""

    def __init__(self, of: Block, places: Sequence[int]) -> None:
        self.of = of  # which says how launches start
        self.block = block = Block(of.size, of.offsets)
        self.address, self.parameters, self.size = block.address, block.parameters, block.size
        self.places = places
        self.slots = [block.slot(place) for place in places]
        self.lock = threading.Lock()
        self.call = cuda.launch_call()
        self.last: Ready | None = None  # whose launch stands there


def block_of(recorded: Recorded, count: int) -> _Block:
    """Where launches like that one are made again, which had so many arguments that its user knows of."""
    block = recorded.block
    if block.again is None:
        block.again = _Block(block, [place for place in recorded.places[:count] if place >= 0])
    found: _Block = block.again
    return found


def order_of(places: Sequence[int]) -> list[int]:
    """The position of each argument among those that have an address."""
    return list(itertools.accumulate([place >= 0 for place in places], initial=0))


class Ready:
    """Called with an address for each of the arguments that have one, in their order."""

    __slots__ = ("_apart", "_contents", "_function", "_kept", "_kernel", "_memory", "_relied")

    def __init__(
        self,
        kernel: Any,
        memory: _Block,
        function: int,
        contents: bytes | bytearray,
        apart: list[tuple[int, int, int, int]],
        relied: Sequence[Any] = (),
        kept: Sequence[Any] = (),
    ) -> None:
        """`apart`: (one, its bytes, another, its bytes), by positions among the addresses."""
        self._kernel, self._memory, self._function, self._contents = kernel, memory, function, contents
        self._apart, self._relied, self._kept = apart, relied, kept

    @staticmethod
    def of(kernel: Any, recorded: Recorded, count: int) -> Ready:
        """Of a launch that was made, with so many arguments that its user knows of."""
        order = order_of(recorded.places)
        apart = [(order[one], size, order[other], more) for one, size, other, more in recorded.apart]
        memory, contents = block_of(recorded, count), bytes(recorded.contents)
        return Ready(kernel, memory, recorded.function, contents, apart, recorded.relied, recorded.kept)

    def __call__(self, *addresses: int) -> bool:
        """Launch. False where an ordinary launch has to be made, because of hooks or of arguments that overlap."""
        for one, size, other, other_size in self._apart:
            start, end = addresses[one], addresses[other]
            if start < end + other_size and end < start + size:
                return False
        if is_hooked() or self._kernel.pre_run_hooks:
            return False
        held = [one() for one in self._relied]  # until the launch is made
        if None in held or ((held or self._kept) and is_capturing()):
            return False  # it was given back; or a graph would have to keep it, too
        memory = self._memory
        call = memory.call
        assert call is not None
        with memory.lock:
            if memory.last is not self:
                memory.last = None  # until it is
                memmove(memory.address, self._contents, memory.size)  # type: ignore[arg-type]
                memory.last = self
            for slot, address in zip(memory.slots, addresses):  # noqa: B905  # every call counts
                slot.value = address
            status = call(memory.address, self._function, memory.parameters, None)
        if status == cuda.NO_CONTEXT:
            return False
        if status:
            raise cuda.error(status)
        return True

    def become(self, contents: bytes) -> None:
        """The next launch is another."""
        with self._memory.lock:
            self._contents, self._memory.last = contents, None


def is_capturing() -> bool:
    """A graph keeps memory of its own."""
    return has_card() and torch.cuda.is_current_stream_capturing()


@functools.cache
def has_card() -> bool:
    return torch.cuda.is_available()
