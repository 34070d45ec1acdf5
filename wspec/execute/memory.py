"""Global memory: torch tensors at addresses.

Every storage gets a range of addresses of its own, aligned to 256 bytes, with unmapped bytes before and behind, so that
an access outside of any tensor is an error and not somebody else's data. Addresses are the same in every run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from wspec.execute.atomics import Combine
from wspec.execute.elements import all_of, from_raw, integer_of, raw
from wspec.execute.errors import ExecutionError
from wspec.execute.races import Kind, Races

ALIGNMENT = 256
_FIRST = 1 << 32  # small integers taken for addresses are errors
_GAP = 1 << 20  # unmapped bytes between two ranges, at least
_SHIFT = {1: 0, 2: 1, 4: 2, 8: 3}  # of a byte offset to an element's index


@dataclass(eq=False, slots=True)
class Range:
    """Bytes at `start`; `data` shares the storage they belong to."""

    start: int
    data: torch.Tensor
    name: str
    words: dict[torch.dtype, torch.Tensor] = field(default_factory=dict)  # the same bytes, as elements

    @property
    def end(self) -> int:
        return self.start + self.data.numel()

    def elements(self, dtype: torch.dtype) -> torch.Tensor:
        """All whole elements from the start on, one-dimensional."""
        found = self.words.get(dtype)
        if found is None:
            whole = self.data.numel() // dtype.itemsize * dtype.itemsize
            found = self.words[dtype] = self.data[:whole].view(dtype)
        return found


@dataclass(frozen=True, eq=False, slots=True)
class _Part:
    """Addresses in one range."""

    words: torch.Tensor  # all elements of the range
    index: torch.Tensor  # which of them
    chosen: torch.Tensor  # which of the addresses; not looked at when there is one part


class GlobalMemory:
    """The address space of a device. Loads and stores take byte addresses, one for each element."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ranges: list[Range] = []
        self._known: dict[int, int] = {}  # a storage's place in the host's memory -> its address
        self._next = _FIRST
        self.races: Races | None = None  # who is told of every access, while a program of several tasks runs
        self.tensormaps: dict[int, object] = {}  # what ttng.tensormap_create wrote, by address

    # ---- mapping

    def register(self, tensor: torch.Tensor, name: str = "") -> int:
        """The address of the tensor's first element. Its whole storage becomes accessible, once and for all."""
        if tensor.device.type != "cpu":
            raise ExecutionError(
                f"the executor reads tensors on the CPU, and {name or 'this one'} is on {tensor.device}"
            )
        storage = tensor.untyped_storage()
        place = storage.data_ptr()
        start = self._known.get(place)
        if start is None:
            data = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
            start = self._map(data, name or "a tensor", ALIGNMENT)
            if place:  # empty storages share a place
                self._known[place] = start
        return start + int(tensor.storage_offset()) * tensor.element_size()

    def allocate(self, size: int, name: str = "scratch memory", align: int = ALIGNMENT) -> int:
        """The address of `size` new bytes, all zero."""
        return self._map(torch.zeros(size, dtype=torch.uint8), name, max(align, ALIGNMENT))

    def _map(self, data: torch.Tensor, name: str, align: int) -> int:
        start = -(-self._next // align) * align
        self._starts.append(start)
        self._ranges.append(Range(start, data, name))
        self._next = start + data.numel() + _GAP
        return start

    def find(self, address: int, size: int) -> Range:
        """The range that holds `size` bytes at `address`. Raises ExecutionError, which says what is near."""
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address + size > self._ranges[at].end:
            raise ExecutionError(self._outside(address, size))
        return self._ranges[at]

    def _outside(self, address: int, size: int) -> str:
        access = f"an access of {size} bytes at address {address:#x}, outside of every tensor"
        near = min(self._ranges, key=lambda r: max(r.start - address, address + size - r.end), default=None)
        if near is None or max(near.start - address, address - near.end) > _GAP:
            return access
        if address < near.start:
            return f"{access}: {near.start - address} bytes before the start of {near.name}"
        return f"{access}: {address + size - near.end} bytes past the end of {near.name} ({near.data.numel()} bytes)"

    def strided(self, address: int, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """The elements at `address`, strides in elements, as a view: writing into it writes memory."""
        size = dtype.itemsize
        if 0 in sizes:
            return torch.empty(tuple(sizes), dtype=dtype)
        reach = [(count - 1) * stride for count, stride in zip(sizes, strides, strict=True)]
        low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
        found = self.find(address + low * size, (high - low + 1) * size)
        _check_aligned(address, size)
        return found.elements(dtype).as_strided(tuple(sizes), tuple(strides), (address - found.start) // size)

    # ---- elements

    def load(
        self,
        addresses: torch.Tensor | int,
        dtype: torch.dtype,
        mask: torch.Tensor | None = None,
        other: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The elements at `addresses` (int64, any shape), of the same shape.

        Where `mask` (bool, same shape) is false nothing is accessed and the result is `other`, or zero without it,
        which is what the card's registers hold there although the IR leaves it open.
        """
        if isinstance(addresses, int):
            found = self.find(addresses, dtype.itemsize)
            _check_aligned(addresses, dtype.itemsize)
            self._note("reads", torch.tensor([addresses]), dtype.itemsize)
            return from_raw(
                found.elements(integer_of(dtype))[(addresses - found.start) // dtype.itemsize].clone(), dtype
            )
        flat = addresses.reshape(-1)
        chosen = _chosen(mask)
        if chosen is None:
            self._note("reads", flat, dtype.itemsize)
            return from_raw(self._gather(flat, integer_of(dtype)), dtype).reshape(addresses.shape)
        self._note("reads", flat.index_select(0, chosen), dtype.itemsize)
        out = torch.zeros(flat.shape, dtype=integer_of(dtype)) if other is None else raw(other).reshape(-1).clone()
        out.scatter_(0, chosen, self._gather(flat.index_select(0, chosen), integer_of(dtype)))
        return from_raw(out, dtype).reshape(addresses.shape)

    def store(self, addresses: torch.Tensor | int, values: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        """Write elements where `mask` is true. When two go to the same address, one of them stays."""
        if isinstance(addresses, int):
            addresses = torch.tensor(addresses)
        flat, content = addresses.reshape(-1), raw(values).reshape(-1)
        chosen = _chosen(mask)
        if chosen is not None:
            flat, content = flat.index_select(0, chosen), content.index_select(0, chosen)
        self._note("writes", flat, content.itemsize, lambda: torch.equal(self._gather(flat, content.dtype), content))
        self._scatter(flat, content)

    def atomic_rmw(
        self,
        combine: Combine,
        addresses: torch.Tensor,
        values: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`memory = combine(memory, value)` element by element, in the order of the elements; what was there before.

        The result is zero where `mask` is false.
        """
        return self._atomic(lambda old, at: combine(old, values.reshape(-1)[at]), addresses, values.dtype, mask)

    def atomic_cas(self, addresses: torch.Tensor, expected: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Write the value where memory holds the bits of `expected`; what was there before."""

        def swap(old: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            return torch.where(raw(old) == raw(expected).reshape(-1)[at], raw(values).reshape(-1)[at], raw(old))

        return self._atomic(swap, addresses, values.dtype, None)

    def _atomic(
        self,
        change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        addresses: torch.Tensor,
        dtype: torch.dtype,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Rounds: each takes the next element of every address, so that no address occurs twice in one."""
        flat = addresses.reshape(-1)
        before = torch.zeros(flat.shape, dtype=integer_of(dtype))
        chosen = _chosen(mask)
        left = torch.arange(flat.numel()) if chosen is None else chosen
        self._note("changes", flat[left], dtype.itemsize)
        while left.numel():
            now, left = _first_of_each(flat[left], left)
            old = self._gather(flat[now], integer_of(dtype))
            before[now] = old
            self._scatter(flat[now], raw(change(from_raw(old, dtype), now)))
        return from_raw(before, dtype).reshape(addresses.shape)

    def _note(self, kind: Kind, addresses: torch.Tensor, size: int, same: Callable[[], bool] = lambda: False) -> None:
        """Elements are about to be touched."""
        if self.races is None or not addresses.numel():
            return
        places = addresses.numpy()
        first, last = int(places.min()), int(places.max())
        self.races.note(kind, self._allocation(first), first, last + size, size, lambda: places, same)

    def note_view(self, kind: Kind, address: int, view: torch.Tensor, same: Callable[[], bool] = lambda: False) -> None:
        """The elements of a view that `strided` gave of this address are about to be touched."""
        if self.races is None or not view.numel():
            return
        size = view.element_size()
        reach = sum((count - 1) * stride for count, stride in zip(view.shape, view.stride(), strict=True))

        def addresses() -> npt.NDArray[np.int64]:
            offsets = np.zeros((), np.int64)
            for count, stride in zip(view.shape, view.stride(), strict=True):
                offsets = offsets[..., None] + np.arange(count) * stride
            return address + offsets.reshape(-1) * size

        self.races.note(kind, self._allocation(address), address, address + (reach + 1) * size, size, addresses, same)

    def _allocation(self, address: int) -> int:
        return bisect_right(self._starts, address)

    # ---- words: integers of the size of an element

    def _gather(self, addresses: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        parts = self._parts(addresses, dtype)
        if len(parts) == 1:
            return parts[0].words.index_select(0, parts[0].index)
        out = torch.empty(addresses.shape, dtype=dtype)
        for part in parts:
            out[part.chosen] = part.words.index_select(0, part.index)
        return out

    def _scatter(self, addresses: torch.Tensor, values: torch.Tensor) -> None:
        parts = self._parts(addresses, values.dtype)
        for part in parts:
            part.words.scatter_(0, part.index, values if len(parts) == 1 else values[part.chosen])

    def _parts(self, addresses: torch.Tensor, dtype: torch.dtype) -> list[_Part]:
        """The addresses by range; nearly always there is one."""
        if not addresses.numel():
            return []
        size = dtype.itemsize
        places = addresses.numpy()  # whose reductions are much faster than torch's
        if int(np.bitwise_or.reduce(places, axis=None)) & (size - 1):
            _check_aligned(int(places[places & (size - 1) != 0][0]), size)
        low, high = int(places.min()), int(places.max())
        one = self._ranges[bisect_right(self._starts, low) - 1] if self._ranges else None
        if one is not None and one.start <= low and high + size <= one.end:
            return [_Part(one.elements(dtype), (addresses - one.start) >> _SHIFT[size], addresses)]
        owners = self._owners(addresses)
        return [self._part(at, addresses, owners == at, dtype) for at in sorted(set(owners.tolist()))]

    def _owners(self, addresses: torch.Tensor) -> torch.Tensor:
        return torch.searchsorted(torch.tensor(self._starts), addresses, right=True) - 1

    def _part(self, at: int, addresses: torch.Tensor, chosen: torch.Tensor, dtype: torch.dtype) -> _Part:
        inside = addresses[chosen]
        outside = inside if at < 0 else inside[inside + dtype.itemsize > self._ranges[at].end]
        if outside.numel():
            raise ExecutionError(self._outside(int(outside[0]), dtype.itemsize))
        found = self._ranges[at]
        return _Part(found.elements(dtype), (inside - found.start) >> _SHIFT[dtype.itemsize], chosen)


def _chosen(mask: torch.Tensor | None) -> torch.Tensor | None:
    """The places where a mask is true; None for all. (numpy's search is much faster than torch's.)"""
    if mask is None or all_of(mask):
        return None
    return torch.from_numpy(np.flatnonzero(mask.numpy()))


def _check_aligned(address: int, size: int) -> None:
    if address % size:
        raise ExecutionError(f"an access of {size} bytes at address {address:#x}, which is not a multiple of {size}")


def _first_of_each(addresses: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`places` whose address occurs for the first time, and the rest, both in order."""
    order = torch.argsort(addresses, stable=True)
    ranked = addresses[order]
    first = torch.ones(ranked.shape, dtype=torch.bool)
    first[1:] = ranked[1:] != ranked[:-1]
    chosen = torch.zeros(ranked.shape, dtype=torch.bool)
    chosen[order] = first
    return places[chosen], places[~chosen]
