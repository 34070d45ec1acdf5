"""Memory for tables of tiles: they share blocks of it, and the oldest go block by block.

A table is some kilobytes, and asking torch for memory takes longer than all else that a table needs of the host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch

K = TypeVar("K")
Place = tuple[int, int]  # a device and a stream of it

FIRST_BYTES, MOST_BYTES = 64 << 10, 4 << 20  # of a block that is shared
_ALIGNED = 128  # bytes


@dataclass(slots=True, eq=False)
class _Chunk(Generic[K]):
    memory: torch.Tensor
    bytes: int
    address: int = 0
    used: int = 0
    keys: list[K] = field(default_factory=list)  # whose tables lie in it


class Chunks(Generic[K]):
    """Of the tables of one kernel, by their keys; a lock is the caller's to take.

    A block's memory lives as long as somebody holds it: here until it is one of the oldest, and who uses a table.
    """

    def __init__(self) -> None:
        self.chunks: deque[_Chunk[K]] = deque()
        self.bytes = 0
        self._open: dict[Place, _Chunk[K]] = {}

    def take(
        self, key: K, place: Place, size: int, allocate: Callable[[Place, int], torch.Tensor]
    ) -> tuple[torch.Tensor, int]:
        """Of so many bytes for a table the block, and the address."""
        size += -size % _ALIGNED
        chunk = self._open.get(place)
        if size > MOST_BYTES:  # nothing else goes there, and what is open stays so
            chunk = self.add(key, allocate(place, size))
        elif chunk is None or chunk.used + size > chunk.bytes:
            last = chunk.bytes if chunk is not None else FIRST_BYTES // 2
            chunk = self.add(key, allocate(place, max(size, min(2 * last, MOST_BYTES))))
            self._open[place] = chunk
        else:
            chunk.keys.append(key)
        at = chunk.used
        chunk.used += size
        return chunk.memory, chunk.address + at

    def add(self, key: K, memory: torch.Tensor) -> _Chunk[K]:
        """A block that somebody else made."""
        chunk = _Chunk(memory, memory.nbytes, memory.data_ptr(), 0, [key])
        self.chunks.append(chunk)
        self.bytes += chunk.bytes
        return chunk

    def more_than(self, most: int) -> Iterator[K]:
        """The keys of the oldest tables, which go so that no more bytes are left; never the last block's."""
        while self.bytes > most and len(self.chunks) > 1:
            chunk = self.chunks.popleft()
            self.bytes -= chunk.bytes
            for place in [place for place, one in self._open.items() if one is chunk]:
                del self._open[place]
            yield from chunk.keys
